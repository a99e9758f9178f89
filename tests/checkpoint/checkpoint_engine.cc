// Saving from and loading into engines, on several ranks.
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <functional>

#include "engine.h"

namespace {

// Trains 6 steps, saving after the third; goes on from there in a new engine and must do the same
// to the bit.
void expect_resume_is_never_stopped(Options o, bool asynchronous) {
    SharedFolder folder;
    Trace whole, rest;
    std::vector<std::vector<float>> end;
    {
        Trainer t(o);
        z3d_store *store;
        int64_t durable;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, folder.path, asynchronous, 0, &store));
        steps(t, 3, whole);
        ASSERT_Z3D(save(store, 3 * o.global_batch));
        steps(t, 3, whole);
        ASSERT_Z3D(z3d_store_poll(store, true, &durable));
        EXPECT_EQ(durable, asynchronous ? 3 : -1);
        EXPECT_EQ(z3d_store_newest(store), 3);
        end = everything(t);
        z3d_store_close(store);
    }
    Trainer t(o);
    resume(t, folder.path);
    ASSERT_EQ(t.next_step, 4);
    steps(t, 3, rest);
    for (size_t k = 0; k < 3 && k < rest.loss.size(); k++) {
        EXPECT_EQ(rest.loss[k], whole.loss[k + 3]);
        EXPECT_EQ(memcmp(&rest.norm[k], &whole.norm[k + 3], sizeof(double)), 0);
        EXPECT_EQ(rest.scale[k], whole.scale[k + 3]);
    }
    EXPECT_EQ(everything(t), end);
    EXPECT_FALSE(std::isnan(rest.norm.back())); // not only skipped steps were compared
}

Options base(int stage, z3d_dtype dtype) {
    Options o;
    o.tensor = z3d_world_size(world) >= 2 ? 2 : 1;
    o.stage = stage;
    o.dtype = dtype;
    o.dropout = 0.1;
    o.accumulation = 2;
    if (dtype == Z3D_F16) o.scaler = {true, 8388608.0f, 1, 2, 1}; // overflows at first
    return o;
}

} // namespace

// train_resume has every combination, by the trainer; here are tensor and data ranks together.
TEST(Engine, ResumeIsNeverStopped) {
    const z3d_dtype types[] = {Z3D_F16, Z3D_F32, Z3D_BF16};
    for (int stage = 0; stage <= 3; stage++)
        for (z3d_dtype dtype : types) {
            if (!is_long() && dtype != types[stage % 3]) continue;
            SCOPED_TRACE(::testing::Message() << "stage " << stage << " " << z3d_dtype_name(dtype));
            expect_resume_is_never_stopped(base(stage, dtype), (stage + (int)dtype) % 2 == 0);
        }
}

static Options delayed(int stage, z3d_dtype dtype, z3d_space optimizer) {
    Options o = base(stage, dtype);
    o.tiers.optimizer = optimizer;
    o.tiers.delayed = true;
    return o;
}

// Gradients that wait for the next step are a part of the run's state.
TEST(Engine, ADelayedUpdateResumes) {
    expect_resume_is_never_stopped(delayed(3, Z3D_F16, Z3D_SPACE_HOST), true);
    expect_resume_is_never_stopped(delayed(0, Z3D_F32, Z3D_SPACE_HOST), false);
    expect_resume_is_never_stopped(delayed(2, Z3D_BF16, Z3D_SPACE_DISK), false);
}

// Trains two steps and saves them in `dir`.
static void train_and_save(Trainer &t, const std::string &dir, Trace &trace) {
    z3d_store *store;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, dir, false, 0, &store));
    steps(t, 2, trace);
    ASSERT_Z3D(save(store, 2 * t.o.global_batch));
    z3d_store_close(store);
}

static z3d_status load(Trainer &t, const std::string &dir, bool weights_only) {
    return z3d_checkpoint_load_all(world, (dir + "/step-00000002").c_str(), nullptr, t.model,
                                   t.engine, Z3D_VERIFY_FULL, weights_only, nullptr, nullptr,
                                   nullptr);
}

TEST(Engine, GradientsThatWaitLoadAnywhereOrAreRefused) {
    SharedFolder folder;
    Options o = delayed(3, Z3D_F32, Z3D_SPACE_HOST);
    Trainer saved(o);
    Trace trace;
    ASSERT_NO_FATAL_FAILURE(train_and_save(saved, folder.path, trace));
    const auto wanted = everything(saved);
    steps(saved, 3, trace);
    for (int tensor = 1; tensor <= z3d_world_size(world); tensor *= 2) {
        Options other = delayed(tensor % 3, Z3D_F32, Z3D_SPACE_DISK);
        other.tensor = tensor;
        Trainer t(other);
        Trace next;
        resume(t, folder.path);
        EXPECT_EQ(everything(t), wanted);
        steps(t, 3, next);
        for (size_t k = 0; k < 3; k++)
            EXPECT_LT(std::abs(next.loss[k] / trace.loss[k + 2] - 1), 1e-5);
    }
    Trainer without(base(1, Z3D_F32));
    ASSERT_Z3D(without.create());
    EXPECT_EQ(Z3D_ERR_CONFIG, load(without, folder.path, false));
    EXPECT_NE(strstr(z3d_error_message(), "offload_optimizer.delayed_param_update=true"), nullptr)
        << z3d_error_message();
    EXPECT_Z3D(load(without, folder.path, true));
}

static Options partly_frozen(int stage, z3d_dtype dtype) {
    Options o = base(stage, dtype);
    o.frozen = {"wte", "block.0", "*_proj.weight"};
    return o;
}

// Of frozen parameters a checkpoint has the values only; they load on any topology.
TEST(Engine, FrozenParametersResume) {
    expect_resume_is_never_stopped(partly_frozen(0, Z3D_F32), true);
    expect_resume_is_never_stopped(partly_frozen(3, Z3D_BF16), false);
    SharedFolder folder;
    Trainer saved(partly_frozen(3, Z3D_F32));
    Trace trace;
    ASSERT_NO_FATAL_FAILURE(train_and_save(saved, folder.path, trace));
    const auto wanted = everything(saved);
    for (int tensor = 1; tensor <= z3d_world_size(world); tensor *= 2) {
        Options other = partly_frozen(tensor % 3, Z3D_F32);
        other.tensor = tensor;
        Trainer t(other);
        resume(t, folder.path);
        EXPECT_EQ(everything(t), wanted);
    }
    Options all = base(1, Z3D_F32);
    Trainer trains_more(all);
    ASSERT_Z3D(trains_more.create());
    EXPECT_EQ(Z3D_ERR_CONFIG, load(trains_more, folder.path, false));
    EXPECT_NE(strstr(z3d_error_message(),
                     "wte/weight is frozen in the checkpoint of step 2 and trained in this run; a "
                     "resumed run must keep training.freeze"),
              nullptr)
        << z3d_error_message();
    EXPECT_Z3D(load(trains_more, folder.path, true));
}

// A run that begins with another one's weights in `from`, makes two steps and saves in `dir`.
static void begin_and_save(Trainer &t, const std::string &from, const std::string &dir,
                           bool asynchronous, z3d_base *out) {
    z3d_store *store;
    Trace trace;
    z3d_checkpoint_info info = {};
    int64_t durable;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, dir, asynchronous, 0, &store));
    ASSERT_Z3D(z3d_checkpoint_load_all(world, from.c_str(), nullptr, t.model, t.engine,
                                       Z3D_VERIFY_FULL, true, nullptr, nullptr, &info));
    steps(t, 2, trace);
    *out = info.base;
    info.config = const_cast<char *>("model: {}\n");
    ASSERT_Z3D(z3d_store_save(store, &info));
    ASSERT_Z3D(z3d_store_poll(store, true, &durable));
    z3d_store_close(store);
}

// What is frozen is the base's, on any topology, and the base must be what it was: a checkpoint
// whose base is gone, damaged or another is not put aside.
TEST(Engine, FrozenParametersAreTheBases) {
    SharedFolder folder, moved;
    Trace trace;
    const std::string from = folder / "base", run = folder / "run";
    const std::string whole = from + "/step-00000002", step = run + "/step-00000002";
    Trainer first(base(1, Z3D_F32)), saved(partly_frozen(3, Z3D_F32));
    z3d_base found, again;
    ASSERT_NO_FATAL_FAILURE(train_and_save(first, from, trace));
    ASSERT_NO_FATAL_FAILURE(begin_and_save(saved, whole, run, true, &found));
    ASSERT_STREQ(found.folder, std::filesystem::canonical(whole).c_str());
    const z3d_program_config *config = &z3d_engine_program(saved.engine, Z3D_MODE_TRAIN)->config;
    double out, in;
    int64_t copy;
    ASSERT_Z3D(z3d_checkpoint_bytes(saved.model, &saved.mesh, config, true, &out, &in));
    ASSERT_Z3D(z3d_checkpoint_snapshot_bytes(saved.model, &saved.mesh, config, true, &copy));
    const double size = (double)std::filesystem::file_size(
        step + "/shard-0000" + std::to_string(z3d_world_rank(world)) + ".h5");
    EXPECT_EQ((double)copy, out);
    EXPECT_TRUE(size >= out && size < out + 65536) << size << " " << out;
    const auto wanted = everything(saved);
    for (int tensor = 1; tensor <= z3d_world_size(world); tensor *= 2) {
        Options other = partly_frozen(tensor % 3, Z3D_F32);
        other.tensor = tensor;
        Trainer t(other);
        resume(t, run);
        EXPECT_EQ(everything(t), wanted);
    }
    // A run that begins with it has the same base; one that trains more has none, and is of other
    // weights than that base's.
    Trainer same(partly_frozen(0, Z3D_F32)), more(base(1, Z3D_F32));
    ASSERT_NO_FATAL_FAILURE(begin_and_save(same, step, folder / "same", false, &again));
    EXPECT_STREQ(again.folder, found.folder);
    EXPECT_STREQ(again.digest, found.digest);
    z3d_base_free(&again);
    ASSERT_NO_FATAL_FAILURE(begin_and_save(more, step, folder / "more", true, &again));
    EXPECT_EQ(again.folder, nullptr);
    EXPECT_STRNE(again.digest, found.digest);
    z3d_base_free(&again);

    const bool root = z3d_world_rank(world) == 0;
    const auto refused = [&](const char *base, const std::string &what) {
        SharedFolder::barrier();
        Trainer t(partly_frozen(0, Z3D_F32));
        z3d_store *store;
        int64_t at;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, run, false, 0, &store, nullptr, {}, base));
        EXPECT_EQ(Z3D_ERR_IO,
                  z3d_store_resume(store, Z3D_VERIFY_FULL, nullptr, nullptr, nullptr, &at));
        const std::string said = z3d_error_message();
        EXPECT_NE(said.find(what), std::string::npos) << said;
        z3d_store_close(store);
        SharedFolder::barrier();
        EXPECT_TRUE(std::filesystem::exists(step));
    };
    refused(from.c_str() + 1, "No such file"); // where it is said to be
    refused((folder / "same").c_str(), "it leaves out frozen parameters, so it is no base");
    refused((folder / "more").c_str(), std::string("and the run began with ") + found.digest);
    const std::string shard = whole + "/shard-00000.h5", bytes = read_file(shard);
    if (root) write_file(shard, bytes.substr(0, bytes.size() / 2));
    refused(nullptr, "the base of " + step + ": " + found.folder);
    if (root) std::filesystem::rename(whole, moved / "step-00000002");
    refused(nullptr,
            std::string("its base is gone: the frozen parameters were in ") + found.folder);
    if (root) write_file(moved / "step-00000002/shard-00000.h5", bytes);
    SharedFolder::barrier();
    Trainer t(partly_frozen(2, Z3D_F32));
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(z3d_checkpoint_load_all(world, step.c_str(), moved.path.c_str(), t.model, t.engine,
                                       Z3D_VERIFY_FULL, false, nullptr, nullptr, nullptr));
    EXPECT_EQ(everything(t), wanted);
    z3d_base_free(&found);
}

// A run that begins to delay has nothing to apply in its first step.
TEST(Engine, ADelayedUpdateGoesOnFromARunWithout) {
    SharedFolder folder;
    Trainer saved(base(1, Z3D_F32)), t(delayed(1, Z3D_F32, Z3D_SPACE_HOST));
    Trace trace, next;
    z3d_engine_state state;
    ASSERT_NO_FATAL_FAILURE(train_and_save(saved, folder.path, trace));
    steps(saved, 2, trace);
    resume(t, folder.path);
    z3d_engine_get_state(t.engine, &state);
    EXPECT_FALSE(state.pending.waits);
    steps(t, 2, next);
    EXPECT_EQ(next.loss[0], trace.loss[2]);
    EXPECT_NE(next.loss[1], trace.loss[3]);
}

TEST(Engine, SgdResumesAndIsNotAdamw) {
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
        Options o = base(2, dtype);
        o.optimizer = Z3D_OPTIMIZER_sgd;
        expect_resume_is_never_stopped(o, dtype == Z3D_F32);
    }
    SharedFolder folder;
    Options o = base(2, Z3D_F32);
    z3d_store *store;
    Trace trace;
    Trainer saved(o), loads(o);
    ASSERT_Z3D(saved.create());
    ASSERT_Z3D(open_store(saved, folder.path, false, 0, &store));
    steps(saved, 1, trace);
    ASSERT_Z3D(save(store, o.global_batch));
    z3d_store_close(store);
    loads.o.optimizer = Z3D_OPTIMIZER_sgd;
    ASSERT_Z3D(loads.create());
    std::string step = folder.path + "/step-00000001";
    EXPECT_EQ(Z3D_ERR_CONFIG,
              z3d_checkpoint_load_all(world, step.c_str(), nullptr, loads.model, loads.engine,
                                      Z3D_VERIFY_FULL, false, nullptr, nullptr, nullptr));
    EXPECT_NE(std::string(z3d_error_message())
                  .find("it has parameter, momentum, variance; this run's has parameter, momentum"),
              std::string::npos)
        << z3d_error_message();
    EXPECT_Z3D(z3d_checkpoint_load_all(world, step.c_str(), nullptr, loads.model, loads.engine,
                                       Z3D_VERIFY_FULL, true, nullptr, nullptr, nullptr));
}

// Every topology of this world and every stage loads what every other saved, to the bit, and in
// fp32 the steps behind it have the losses of the run that saved;
// checkpoint_elastic has worlds of other sizes. ZERO3D_LONG: every pair of stages.
static void expect_loads_anywhere(harness::Kind kind) {
    int ranks = z3d_world_size(world);
    for (int from = 1; from <= ranks; from *= 2)
        for (int from_stage = 0; from_stage <= 3; from_stage++) {
            if (!is_long() && from_stage != (from == 1 ? 3 : 1)) continue;
            SharedFolder folder;
            Options o = base(from_stage, from == 2 && from_stage % 2 ? Z3D_BF16 : Z3D_F32);
            o.kind = kind;
            o.tensor = from;
            o.sequence_parallel = from > 1;
            Trainer saved(o);
            Trace trace;
            ASSERT_NO_FATAL_FAILURE(train_and_save(saved, folder.path, trace));
            auto wanted = everything(saved);
            steps(saved, 2, trace);
            for (int to = 1; to <= ranks; to *= 2)
                for (int stage = 0; stage <= 3; stage++) {
                    SCOPED_TRACE(::testing::Message()
                                 << "from tensor " << from << " stage " << from_stage
                                 << " to tensor " << to << " stage " << stage);
                    if (!is_long() && stage != (from + to) % 4 && stage != 3) continue;
                    Options other = base(stage, stage == 2 ? Z3D_F16 : Z3D_F32);
                    other.kind = kind;
                    other.tensor = to;
                    other.sequence_parallel = to > 1 && stage % 2 == 1;
                    Trainer t(other);
                    resume(t, folder.path);
                    EXPECT_EQ(everything(t), wanted);
                    Trace next;
                    steps(t, 2, next);
                    ASSERT_EQ(next.loss.size(), 2u);
                    bool fp32 = o.dtype == Z3D_F32 && other.dtype == Z3D_F32;
                    for (size_t k = 0; k < 2 && fp32; k++) // the bound of the equivalence matrix
                        EXPECT_LT(std::abs(next.loss[k] / trace.loss[k + 2] - 1), 1e-5);
                }
        }
}

TEST(Engine, LoadsAnywhere) {
    expect_loads_anywhere(harness::GPT);
}

// From four tensor ranks on they share heads of keys and values.
TEST(Engine, LlamaLoadsAnywhere) {
    expect_loads_anywhere(harness::LLAMA);
    expect_loads_anywhere(harness::QWEN);
}

// An asynchronous save is not said to be durable, as long as its manifest has not its name.
TEST(Engine, IsDurableOnlyBehindTheCommit) {
    SharedFolder folder;
    Trainer t(base(2, Z3D_F32));
    Trace trace;
    z3d_store *store;
    int64_t durable;
    std::atomic<bool> held{true};
    z3d_io_hook hook = {[](void *context, const z3d_io_event *event) {
                            auto *hold = (std::atomic<bool> *)context;
                            bool manifest = event->to && strstr(event->to, "/manifest.json");
                            while (event->kind == Z3D_IO_RENAME && manifest && *hold) usleep(500);
                            return 0;
                        },
                        &held};
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, true, 0, &store, &hook));
    steps(t, 1, trace);
    ASSERT_Z3D(save(store, t.o.global_batch));
    for (int k = 0; k < 50; k++) {
        ASSERT_Z3D(z3d_store_poll(store, false, &durable));
        ASSERT_EQ(durable, -1);
        ASSERT_EQ(z3d_store_newest(store), -1);
        usleep(1000);
    }
    held = false;
    ASSERT_Z3D(z3d_store_poll(store, true, &durable));
    EXPECT_EQ(durable, 1);
    EXPECT_TRUE(std::filesystem::exists(folder.path + "/step-00000001/manifest.json"));
    z3d_store_close(store);
}

// The newest is damaged: the one before is used, the damaged one is put aside, its step can be
// saved.
TEST(Engine, FallsBackToTheOneBefore) {
    SharedFolder folder;
    Options o = base(2, Z3D_BF16);
    Trace trace;
    {
        Trainer t(o);
        z3d_store *store;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, folder.path, false, 2, &store));
        for (int k = 1; k <= 4; k++) {
            steps(t, 1, trace);
            ASSERT_Z3D(save(store, k * o.global_batch));
        }
        z3d_store_close(store);
    }
    int64_t *kept;
    int count;
    ASSERT_Z3D(z3d_checkpoint_list(folder.path.c_str(), &kept, &count));
    ASSERT_EQ(count, 2); // keep
    EXPECT_EQ(kept[0], 3);
    free(kept);
    SharedFolder::barrier();
    if (z3d_world_rank(world) == 0) {
        std::string file = folder.path + "/step-00000004/shard-00000.h5", bytes = read_file(file);
        bytes[bytes.size() / 2] = (char)(bytes[bytes.size() / 2] ^ 16);
        write_file(file, bytes);
        // Remains of a save that did not end.
        std::filesystem::create_directories(folder.path + "/step-00000009");
        write_file(folder.path + "/step-00000009/shard-00000.h5.part", "x");
    }
    SharedFolder::barrier();
    Trainer t(o);
    resume(t, folder.path);
    EXPECT_EQ(t.next_step, 4);
    EXPECT_FALSE(std::filesystem::exists(folder.path + "/step-00000009"));
    EXPECT_TRUE(std::filesystem::exists(folder.path + "/step-00000004.damaged"));
    Trace again;
    steps(t, 1, again);
    EXPECT_EQ(again.loss[0], trace.loss[3]);
    z3d_store *store;
    ASSERT_Z3D(open_store(t, folder.path, false, 2, &store));
    ASSERT_Z3D(save(store, 0));
    z3d_store_close(store);
}

// A failure that may be over at the next start (here: links in a circle; too many open files, a
// network disk that is away) is no damage: the run stops, and every checkpoint stays as it is.
TEST(Engine, WhatMayPassIsNoDamage) {
    SharedFolder folder;
    Options o = base(2, Z3D_F32);
    z3d_store *store;
    z3d_checkpoint_info info;
    int64_t step;
    {
        Trainer t(o);
        Trace trace;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
        for (int k = 1; k <= 2; k++) {
            steps(t, 1, trace);
            ASSERT_Z3D(save(store, k * o.global_batch));
        }
        z3d_store_close(store);
    }
    SharedFolder::barrier();
    std::string newest = folder.path + "/step-00000002";
    for (const char *name : {"/shard-00000.h5", "/shard-00000.json", "/manifest.json"}) {
        SCOPED_TRACE(name);
        std::string file = newest + name;
        if (z3d_world_rank(world) == 0) {
            std::filesystem::rename(file, file + ".away");
            std::filesystem::create_symlink(file, file);
        }
        SharedFolder::barrier();
        Trainer t(o);
        ASSERT_Z3D(t.create());
        z3d_status status = open_store(t, folder.path, false, 0, &store);
        if (status == Z3D_OK) {
            status = z3d_store_resume(store, Z3D_VERIFY_FULL, nullptr, nullptr, &info, &step);
            z3d_store_close(store);
        }
        EXPECT_EQ(status, Z3D_ERR_IO);
        EXPECT_NE(strstr(z3d_error_message(), name), nullptr) << z3d_error_message();
        SharedFolder::barrier();
        if (z3d_world_rank(world) == 0) {
            std::filesystem::remove(file);
            std::filesystem::rename(file + ".away", file);
        }
        SharedFolder::barrier();
    }
    EXPECT_FALSE(std::filesystem::exists(newest + ".damaged"));
    Trainer t(o);
    resume(t, folder.path);
    EXPECT_EQ(t.next_step, 3);
}

// What is read is checked as it is read, the rest before: a flip anywhere is found by a load.
TEST(Engine, LoadingFindsAFlipAnywhere) {
    SharedFolder folder;
    Trainer t(base(3, Z3D_F32));
    z3d_store *store;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
    ASSERT_Z3D(save(store, 0));
    z3d_store_close(store);
    std::string step = folder.path + "/step-00000000",
                names[] = {"/shard-00000.h5", "/shard-00000.json", "/checkpoint.h5",
                           "/manifest.json"};
    for (const std::string &name : names)
        for (int k = 0; k < 8; k++) {
            std::string bytes = read_file(step + name), damaged = bytes;
            size_t at = bytes.size() * (size_t)k / 8;
            damaged[at] = (char)(damaged[at] ^ 1 << k);
            SharedFolder::barrier();
            if (z3d_world_rank(world) == 0) write_file(step + name, damaged);
            SharedFolder::barrier();
            EXPECT_EQ(Z3D_ERR_DATA,
                      z3d_checkpoint_load_all(world, step.c_str(), nullptr, t.model, t.engine,
                                              Z3D_VERIFY_FULL, false, nullptr, nullptr, nullptr))
                << name << " at " << at;
            SharedFolder::barrier();
            if (z3d_world_rank(world) == 0) write_file(step + name, bytes);
            SharedFolder::barrier();
        }
    EXPECT_Z3D(z3d_checkpoint_load_all(world, step.c_str(), nullptr, t.model, t.engine,
                                       Z3D_VERIFY_FULL, false, nullptr, nullptr, nullptr));
}

// One rank's refusal is everybody's: none is left waiting for it.
TEST(Engine, ARefusalIsAgreedOn) {
    SharedFolder folder;
    Trainer t(base(1, Z3D_F32));
    z3d_store *store;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
    ASSERT_Z3D(save(store, 0));
    z3d_store_close(store);
    auto accept = [](void *, const z3d_checkpoint_info *) {
        return z3d_world_rank(world) < z3d_world_size(world) - 1
                   ? Z3D_OK
                   : Z3D_ERROR(Z3D_ERR_CONFIG, "the last rank wants another one");
    };
    EXPECT_EQ(Z3D_ERR_CONFIG, z3d_checkpoint_load_all(
                                  world, (folder.path + "/step-00000000").c_str(), nullptr, t.model,
                                  t.engine, Z3D_VERIFY_FULL, false, accept, nullptr, nullptr));
    EXPECT_NE(strstr(z3d_error_message(), "the last rank wants"), nullptr) << z3d_error_message();
}

// The snapshot's memory is there before the first save: copying into it waits for no page.
TEST(Engine, TheFirstAsynchronousSaveWaitsForNoPages) {
    if (z3d_world_size(world) > 1) GTEST_SKIP();
    Options o = base(1, Z3D_F32);
    o.layers = 4, o.hidden = 128;
    SharedFolder folder;
    Trainer t(o);
    z3d_store *store;
    struct rusage before, after;
    int64_t durable, pages = 12 * o.layers * o.hidden * o.hidden * 12 / 4096;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, true, 0, &store));
    getrusage(RUSAGE_THREAD, &before);
    ASSERT_Z3D(save(store, 0));
    getrusage(RUSAGE_THREAD, &after);
    EXPECT_LT(after.ru_minflt - before.ru_minflt, pages / 4);
    ASSERT_Z3D(z3d_store_poll(store, true, &durable));
    EXPECT_EQ(durable, 0);
    z3d_store_close(store);
}

// A disk that takes its time over a folder, and what is done before the commit.
struct Slow {
    std::string manifest;
    std::atomic<bool> open{false}, over{false};
    std::atomic<int> commits{0};
    z3d_status answer = Z3D_OK;
    z3d_io_hook hook{&Slow::before, this};
    static int before(void *context, const z3d_io_event *event) {
        Slow *s = (Slow *)context;
        if (event->kind != Z3D_IO_MAKE_FOLDER) return 0;
        for (int k = 0; k < 2000 && !s->open; k++) usleep(1000);
        s->over = true;
        return 0;
    }
    static z3d_status commit(void *context) {
        Slow *s = (Slow *)context;
        s->commits++;
        EXPECT_FALSE(std::filesystem::exists(s->manifest));
        return s->answer == Z3D_OK ? Z3D_OK : Z3D_ERROR(s->answer, "metrics are ill");
    }
};

// A step that begins an asynchronous save waits for its copy and for nothing of the disk; what the
// run wants on the disk before the commit is brought there beside training too, and a failure of it
// is the save's.
TEST(Engine, AnAsynchronousSaveWaitsForNoDisk) {
    SharedFolder folder;
    Trainer t(base(2, Z3D_F32));
    z3d_store *store;
    Slow slow;
    Trace trace;
    int64_t durable;
    slow.manifest = folder.path + "/step-00000000/manifest.json";
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, true, 0, &store, &slow.hook, {Slow::commit, &slow}));
    ASSERT_Z3D(save(store, 0));
    EXPECT_FALSE(slow.over);
    ASSERT_Z3D(z3d_store_poll(store, false, &durable));
    EXPECT_EQ(durable, -1);
    slow.open = true;
    ASSERT_Z3D(z3d_store_poll(store, true, &durable));
    EXPECT_EQ(durable, 0);
    EXPECT_EQ(slow.commits, z3d_world_rank(world) == 0);
    steps(t, 1, trace);
    slow.manifest = folder.path + "/step-00000001/manifest.json";
    slow.answer = Z3D_ERR_IO;
    ASSERT_Z3D(save(store, 0));
    EXPECT_EQ(Z3D_ERR_IO, z3d_store_poll(store, true, &durable));
    EXPECT_NE(strstr(z3d_error_message(), "checkpoint not saved"), nullptr);
    EXPECT_NE(strstr(z3d_error_message(), "metrics are ill"), nullptr) << z3d_error_message();
    z3d_store_close(store);
    SharedFolder::barrier();
    EXPECT_FALSE(std::filesystem::exists(folder.path + "/step-00000001"));
}

// A second job in the same folder is refused while the first lives, and only then.
TEST(Engine, OneJobAFolder) {
    SharedFolder folder;
    Trainer t(base(1, Z3D_F32));
    z3d_store *first, *second;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &first));
    EXPECT_EQ(Z3D_ERR_IO, open_store(t, folder.path, false, 0, &second));
    EXPECT_NE(strstr(z3d_error_message(), "another job"), nullptr) << z3d_error_message();
    SharedFolder::barrier();
    z3d_store_close(first);
    SharedFolder::barrier();
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &second));
    z3d_store_close(second);
}

// Whoever removes the folder, or the lock, of a running job makes room for a second one: the first
// does not save into its folder, and takes it again when it is free.
TEST(Engine, ALockThatWasRemovedKeepsNobodyOut) {
    SharedFolder folder;
    Trainer t(base(1, Z3D_F32));
    z3d_store *first, *second;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &first));
    SharedFolder::barrier();
    if (z3d_world_rank(world) == 0) std::filesystem::remove_all(folder.path);
    SharedFolder::barrier();
    EXPECT_EQ(Z3D_ERR_IO, save(first, 0));
    EXPECT_NE(strstr(z3d_error_message(), "checkpoint not saved"), nullptr) << z3d_error_message();
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &second));
    EXPECT_EQ(Z3D_ERR_IO, save(first, 0));
    EXPECT_NE(strstr(z3d_error_message(), "another job"), nullptr) << z3d_error_message();
    SharedFolder::barrier();
    z3d_store_close(second);
    SharedFolder::barrier();
    EXPECT_Z3D(save(first, 0));
    EXPECT_EQ(Z3D_ERR_IO, open_store(t, folder.path, false, 0, &second));
    SharedFolder::barrier();
    z3d_store_close(first);
}

// Where another job has come, saved the same step and gone in the middle of a save, its checkpoint
// stays as it is.
TEST(Engine, ALockThatWasRemovedWhileSavingEndsTheSave) {
    SharedFolder folder;
    Trainer t(base(1, Z3D_F32));
    auto other_job = [](void *context) {
        std::filesystem::path dir = *(std::string *)context;
        std::filesystem::remove(dir / "lock");
        std::filesystem::remove_all(dir / "step-00000000");
        std::filesystem::create_directory(dir / "step-00000000");
        write_file(dir / "step-00000000/manifest.json", "theirs");
        return Z3D_OK;
    };
    z3d_store *store;
    ASSERT_Z3D(t.create());
    ASSERT_Z3D(open_store(t, folder.path, false, 0, &store, nullptr, {other_job, &folder.path}));
    EXPECT_EQ(Z3D_ERR_IO, save(store, 0));
    EXPECT_NE(strstr(z3d_error_message(), "another job may have"), nullptr) << z3d_error_message();
    SharedFolder::barrier();
    EXPECT_EQ(read_file(folder.path + "/step-00000000/manifest.json"), "theirs");
    SharedFolder::barrier();
    z3d_store_close(store);
}

TEST(Engine, AnotherModelIsRefusedByName) {
    SharedFolder folder;
    z3d_store *store;
    int64_t step;
    {
        Trainer t(base(1, Z3D_F32));
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
        ASSERT_Z3D(save(store, 0));
        z3d_store_close(store);
    }
    for (int change = 0; change < 3; change++) {
        Options o = base(1, Z3D_F32);
        if (change == 0) o.layers = 3;
        if (change == 1) o.layers = 1;
        if (change == 2) o.sequence = 8;
        const char *wanted[] = {"block.2/ln_1.weight is missing in the checkpoint",
                                "block.1/ln_1.weight of the checkpoint is not in this run's model",
                                "wpe/weight is 16 x 32 in the checkpoint and 8 x 32 in this run"};
        Trainer t(o);
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(open_store(t, folder.path, false, 0, &store));
        EXPECT_EQ(Z3D_ERR_CONFIG,
                  z3d_store_resume(store, Z3D_VERIFY_READ, nullptr, nullptr, nullptr, &step));
        EXPECT_NE(strstr(z3d_error_message(), wanted[change]), nullptr) << z3d_error_message();
        z3d_store_close(store);
    }
}

// What lies in the folder of checkpoints beside them, and what is done with it.
class Steps : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_Z3D(t.create());
    }
    void save_steps(int count, int64_t keep) {
        z3d_store *store;
        Trace trace;
        ASSERT_Z3D(open_store(t, shared.path, false, keep, &store));
        for (int k = 0; k < count; k++) {
            steps(t, 1, trace);
            ASSERT_Z3D(save(store, 0));
        }
        z3d_store_close(store);
    }
    std::vector<int64_t> listed() {
        int64_t *all = nullptr;
        int count = 0;
        EXPECT_Z3D(z3d_checkpoint_list(shared.path.c_str(), &all, &count));
        std::vector<int64_t> out(all, all + count);
        free(all);
        SharedFolder::barrier();
        return out;
    }
    template <typename F> void on_rank_0(F change) {
        SharedFolder::barrier();
        if (z3d_world_rank(world) == 0) change();
        SharedFolder::barrier();
    }
    std::string operator/(const std::string &name) const {
        return shared.path + "/" + name;
    }
    SharedFolder shared;
    Trainer t{base(1, Z3D_F32)};
};

// A folder that is called almost like a step is none: it would count twice, and the oldest
// checkpoint be removed for it.
TEST_F(Steps, OnlyOurOwnNamesAreSteps) {
    save_steps(1, 2);
    on_rank_0([&] {
        for (const char *name : {"step-1", "step-000000001", "step-1x", "step-"})
            std::filesystem::create_directories(*this / name);
    });
    EXPECT_EQ(listed(), std::vector<int64_t>{1});
    save_steps(1, 2);
    EXPECT_EQ(listed(), (std::vector<int64_t>{1, 2}));
    EXPECT_TRUE(std::filesystem::exists(*this / "step-1"));
}

TEST_F(Steps, KeepsAsManyAsAreAskedFor) {
    save_steps(2, int64_t(1) << 32);
    EXPECT_EQ(listed(), (std::vector<int64_t>{1, 2}));
}

// What has a step's name and was left by no save: the start is refused, one line names it, and it
// stays as it is.
TEST_F(Steps, WhatNoSaveLeftIsNotRemoved) {
    const std::string step = *this / "step-00000012";
    std::filesystem::path at = step;
    on_rank_0([&] {
        std::filesystem::create_directories(*this / "elsewhere");
        write_file(*this / "elsewhere/precious", "x");
    });
    auto folder_with = [&](auto put) {
        std::filesystem::create_directories(at);
        write_file(at / "shard-00001.h5.part", "x");
        put();
    };
    const struct {
        const char *wanted;
        std::function<void()> make;
    } cases[] = {
        {"cannot be opened", [&] { std::filesystem::create_symlink(*this / "unmounted/x", at); }},
        {"is a link", [&] { std::filesystem::create_directory_symlink(*this / "elsewhere", at); }},
        {"is a link", [&] { std::filesystem::create_symlink(*this / "elsewhere/precious", at); }},
        {"is a file", [&] { write_file(step, "x"); }},
        {"is not a folder", [&] { EXPECT_EQ(0, mkfifo(step.c_str(), 0600)); }},
        {"holds \"model\"",
         [&] { folder_with([&] { std::filesystem::create_directories(at / "model"); }); }},
        {"holds \"shard-00000.h5\"",
         [&] { folder_with([&] { std::filesystem::create_directories(at / "shard-00000.h5"); }); }},
        {"holds \"shard-00000.h5\"",
         [&] {
             folder_with([&] {
                 std::filesystem::create_symlink("../elsewhere/precious", at / "shard-00000.h5");
             });
         }},
        {"holds \"shard-notes.txt\"",
         [&] { folder_with([&] { write_file(at / "shard-notes.txt", "x"); }); }},
    };
    for (const auto &k : cases) {
        SCOPED_TRACE(k.wanted);
        z3d_store *store;
        on_rank_0([&] { k.make(); });
        auto type = std::filesystem::symlink_status(at).type();
        EXPECT_EQ(Z3D_ERR_IO, open_store(t, shared.path, false, 0, &store));
        EXPECT_NE(strstr(z3d_error_message(), "step-00000012 "), nullptr) << z3d_error_message();
        EXPECT_NE(strstr(z3d_error_message(), k.wanted), nullptr) << z3d_error_message();
        SharedFolder::barrier();
        EXPECT_EQ(std::filesystem::symlink_status(at).type(), type);
        EXPECT_TRUE(std::filesystem::exists(*this / "elsewhere/precious"));
        if (type == std::filesystem::file_type::directory) {
            EXPECT_TRUE(std::filesystem::exists(at / "shard-00001.h5.part"));
        }
        on_rank_0([&] { std::filesystem::remove_all(at); });
    }
}

// The same, put there while the run goes: the save of that step is refused.
TEST_F(Steps, ASaveReplacesNothingOfOthers) {
    z3d_store *store;
    Trace trace;
    std::filesystem::path at = *this / "step-00000001";
    ASSERT_Z3D(open_store(t, shared.path, false, 0, &store));
    steps(t, 1, trace);
    on_rank_0([&] { std::filesystem::create_symlink("nowhere", at); });
    EXPECT_EQ(Z3D_ERR_IO, save(store, 0));
    EXPECT_NE(strstr(z3d_error_message(), "step-00000001 is a link"), nullptr)
        << z3d_error_message();
    SharedFolder::barrier();
    EXPECT_TRUE(std::filesystem::is_symlink(at));
    on_rank_0([&] { std::filesystem::remove(at); });
    EXPECT_Z3D(save(store, 0));
    z3d_store_close(store);
}

// An old checkpoint that somebody else put something into, or that is a link to one elsewhere.
TEST_F(Steps, OldCheckpointsWithOthersFilesStay) {
    save_steps(2, 0);
    on_rank_0([&] {
        write_file(*this / "step-00000001/notes.txt", "the good one");
        std::filesystem::create_directories(*this / "elsewhere");
        std::filesystem::rename(*this / "step-00000002", *this / "elsewhere/step-00000002");
        std::filesystem::create_directory_symlink(*this / "elsewhere/step-00000002",
                                                  *this / "step-00000002");
    });
    save_steps(3, 1);
    EXPECT_EQ(listed(), (std::vector<int64_t>{1, 2, 5}));
    EXPECT_EQ(read_file(*this / "step-00000001/notes.txt"), "the good one");
    EXPECT_TRUE(std::filesystem::exists(*this / "elsewhere/step-00000002/manifest.json"));
}

// A folder that was given another step's name would be resumed after that step: whoever did it is
// told, and nothing is moved.
TEST_F(Steps, AnotherStepsNameIsRefused) {
    save_steps(2, 0);
    on_rank_0([&] { std::filesystem::rename(*this / "step-00000002", *this / "step-00000009"); });
    z3d_store *store;
    int64_t step;
    ASSERT_Z3D(open_store(t, shared.path, false, 0, &store));
    EXPECT_EQ(Z3D_ERR_IO,
              z3d_store_resume(store, Z3D_VERIFY_FULL, nullptr, nullptr, nullptr, &step));
    EXPECT_NE(strstr(z3d_error_message(), "step-00000009 holds the checkpoint of step 2"), nullptr)
        << z3d_error_message();
    z3d_store_close(store);
    EXPECT_EQ(listed(), (std::vector<int64_t>{1, 9}));
}

namespace {

// Holds rank 0's commit back before its manifest gets its name.
struct Gate {
    std::atomic<bool> reached{false}, open{false};
    z3d_io_hook hook{&Gate::before, this};
    static int before(void *context, const z3d_io_event *event) {
        Gate *gate = (Gate *)context;
        if (event->kind != Z3D_IO_RENAME || !strstr(event->to, Z3D_MANIFEST)) return 0;
        gate->reached = true;
        while (!gate->open) usleep(100);
        return 0;
    }
};

} // namespace

// Rank 1 fails while rank 0 commits: the old checkpoint is gone by then, so the new one must stay.
TEST_F(Steps, WhatIsCommittedOutlivesAnothersFailure) {
    if (z3d_world_size(world) != 2) GTEST_SKIP();
    save_steps(1, 1);
    Gate gate;
    z3d_store *store;
    Trace trace;
    int64_t durable;
    ASSERT_Z3D(open_store(t, shared.path, true, 1, &store, &gate.hook));
    steps(t, 1, trace);
    ASSERT_Z3D(save(store, 0));
    for (bool reached = false; !reached;) {
        ASSERT_Z3D(z3d_store_poll(store, false, &durable));
        reached = gate.reached;
        ASSERT_Z3D(z3d_world_broadcast(world, &reached, sizeof reached, 0));
    }
    gate.open = true;
    if (z3d_world_rank(world) == 0) {
        EXPECT_EQ(Z3D_ERR_IO, z3d_store_poll(store, true, &durable));
    } else {
        EXPECT_EQ(Z3D_ERR_IO, z3d_world_agree(world, Z3D_ERROR(Z3D_ERR_IO, "rank 1 is ill")));
    }
    z3d_store_close(store);
    SharedFolder::barrier();
    EXPECT_EQ(listed(), std::vector<int64_t>{2});
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
