// Communication as it is counted at run time against the formulas, exactly, in elements x (N-1)/N.
#include "tests/zero/harness.h"

#include <algorithm>

using namespace harness;

namespace {

struct Traffic {
    int64_t reduce_scatter, all_gather, all_reduce, calls, sent;
};

Traffic traffic_of(const Trainer &t, z3d_axes axes) {
    auto volume = [&](z3d_collective_kind kind) {
        return z3d_group_traffic(t.group[axes], kind)->volume_elements;
    };
    return {volume(Z3D_COLLECTIVE_REDUCE_SCATTER), volume(Z3D_COLLECTIVE_ALL_GATHER),
            volume(Z3D_COLLECTIVE_ALL_REDUCE),
            z3d_group_traffic(t.group[axes], Z3D_COLLECTIVE_ALL_REDUCE)->calls,
            volume(Z3D_COLLECTIVE_SEND)};
}

// What one step (the second) adds.
Traffic one_step(Trainer &t, z3d_axes axes) {
    z3d_step_result result;
    EXPECT_Z3D(t.create());
    EXPECT_Z3D(t.step(&result));
    Traffic before = traffic_of(t, axes);
    EXPECT_Z3D(t.step(&result));
    Traffic after = traffic_of(t, axes);
    return {after.reduce_scatter - before.reduce_scatter, after.all_gather - before.all_gather,
            after.all_reduce - before.all_reduce, after.calls - before.calls,
            after.sent - before.sent};
}

int64_t padded(const Trainer &t, int group) {
    return z3d_engine_layout(t.engine)->group[group].padded;
}

std::vector<int> tensor_sizes() {
    std::vector<int> sizes;
    for (int k = 1; k <= 4 && z3d_world_size(world) % k == 0; k *= 2) sizes.push_back(k);
    return sizes;
}

} // namespace

TEST(Communication, DataGroup) {
    for (int tensor : tensor_sizes()) {
        for (int stage = 0; stage < 4; stage++) {
            for (int micros = 1; micros <= 2; micros++) {
                for (int per_step = 0; per_step < 2; per_step++) {
                    for (bool recompute : {true, false}) {
                        if (SANITIZED && recompute != (per_step == 1)) continue;
                        Options o;
                        o.tensor = tensor;
                        o.stage = stage;
                        o.accumulation = micros;
                        o.reduce_per_step = per_step;
                        o.recompute = recompute;
                        o.bucket = 700;
                        Trainer t(o);
                        Traffic got = one_step(t, Z3D_AXES_DATA);
                        int64_t n = t.o.data, p = z3d_engine_layout(t.engine)->padded_total;
                        int64_t reductions = per_step ? 1 : micros, gathers = 1;
                        // Groups in the model's order: wte, wpe, blocks, ln_f. Stage 3 gathers for
                        // forward and again for backward, but the embedding's backward reads
                        // neither wpe nor wte, and the head's follows its forward at once: nobody
                        // reads a second gather of wpe and ln_f; wte's two are embedding and head.
                        int64_t skipped = padded(t, 1) + padded(t, t.model->num_groups - 1);
                        if (stage == 3) gathers = 2 * micros;
                        if (stage != 3) skipped = 0;
                        std::string what = "stage " + std::to_string(stage) + ", " +
                                           std::to_string(micros) + " micro-batches, tensor " +
                                           std::to_string(tensor) + ", data " + std::to_string(n);
                        EXPECT_EQ(got.reduce_scatter, reductions * p / n * (n - 1)) << what;
                        EXPECT_EQ(got.all_gather, (gathers * p - micros * skipped) / n * (n - 1))
                            << what;
                        EXPECT_EQ(got.all_reduce, 0) << what;
                    }
                }
            }
        }
    }
}

// Between nodes each rank sends its row to the other nodes, whatever the number of micro-batches is
// with hpZ; all else stays inside of them. Hybrid: no gather leaves a node, and gradients are
// summed over nodes once a step.
TEST(Communication, DataGroupInParts) {
    const int ranks = z3d_world_size(world), nodes = 2, inner = ranks / nodes;
    if (ranks < 4) GTEST_SKIP() << "nodes of two ranks";
    for (int micros : {1, 3}) {
        Options o;
        o.stage = 3, o.accumulation = micros, o.global_batch = 24, o.bucket = 700;
        o.outer = nodes;
        for (z3d_sharding sharding :
             {Z3D_SHARDING_HIERARCHICAL, Z3D_SHARDING_HPZ, Z3D_SHARDING_HYBRID}) {
            o.sharding = sharding;
            Trainer inside(o), across(o);
            const Traffic node = one_step(inside, Z3D_ROLE_BLOCKS);
            const Traffic border = one_step(across, Z3D_ROLE_NODES);
            const bool hybrid = sharding == Z3D_SHARDING_HYBRID;
            const int64_t p = z3d_engine_layout(inside.engine)->padded_total;
            // In all gathers: see DataGroup.
            const int64_t gathered =
                micros * (2 * p - padded(inside, 1) - padded(inside, inside.model->num_groups - 1));
            const int64_t crossing = sharding == Z3D_SHARDING_HPZ ? p : hybrid ? 0 : gathered;
            const std::string what = name_of(o);
            EXPECT_EQ(node.all_gather, gathered / inner * (inner - 1)) << what;
            EXPECT_EQ(border.all_gather, crossing / ranks * (nodes - 1)) << what;
            EXPECT_EQ(node.reduce_scatter, micros * p / inner * (inner - 1)) << what;
            EXPECT_EQ(border.reduce_scatter, hybrid ? 0 : micros * p / ranks * (nodes - 1)) << what;
            EXPECT_EQ(border.all_reduce, hybrid ? 2 * p / inner * (nodes - 1) / nodes : 0) << what;
            EXPECT_EQ(traffic_of(inside, Z3D_ROLE_ROWS).all_gather, 0) << what;
        }
    }
}

namespace {

struct Sent {
    int64_t inside, between; // bytes of all kinds
};

// What a rank of `axes` sends in one step, on average, while each two ranks play a node.
Sent sent_in_nodes(Trainer &t, z3d_axes axes) {
    z3d_step_result result;
    auto sum = [&] {
        Sent out = {0, 0};
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            const z3d_traffic *traffic =
                z3d_group_traffic(t.group[axes], (z3d_collective_kind)kind);
            out.between += (int64_t)traffic->bytes_between_nodes;
            out.inside += traffic->bytes + traffic->scalar_bytes;
        }
        out.inside -= out.between;
        return out;
    };
    EXPECT_Z3D(t.create());
    z3d_groups_play_nodes(t.group, 2);
    EXPECT_Z3D(t.step(&result));
    const Sent before = sum();
    EXPECT_Z3D(t.step(&result));
    const Sent after = sum();
    return {after.inside - before.inside, after.between - before.between};
}

} // namespace

// The bytes of docs/communication.md, "How many bytes", of a node's two ranks: with one ring each
// node's last rank sends all that it sends to the other node.
TEST(Communication, BytesBetweenNodes) {
    if (z3d_world_size(world) != 4) GTEST_SKIP() << "two nodes of two ranks";
    const int64_t n = 2, i = 2, width = 4; // nodes, their ranks, bytes of fp32
    for (int micros : {1, 2})
        for (z3d_sharding sharding : {Z3D_SHARDING_FLAT, Z3D_SHARDING_HIERARCHICAL,
                                      Z3D_SHARDING_HPZ, Z3D_SHARDING_HYBRID}) {
            Options o;
            o.stage = 3, o.accumulation = micros, o.global_batch = 16;
            o.outer = sharding == Z3D_SHARDING_FLAT ? 1 : 2;
            o.sharding = sharding;
            const bool flat = o.outer == 1, hybrid = sharding == Z3D_SHARDING_HYBRID;
            Trainer one(o), other(o);
            const Sent ring = sent_in_nodes(one, flat ? Z3D_ROLE_ROWS : Z3D_ROLE_BLOCKS);
            const Sent border = flat ? ring : sent_in_nodes(other, Z3D_ROLE_NODES);
            const int64_t p = z3d_engine_layout(one.engine)->padded_total;
            const int64_t gathered =
                micros * (2 * p - padded(one, 1) - padded(one, one.model->num_groups - 1));
            const int64_t reduced = micros * p;
            int64_t node = (gathered + reduced) * (n - 1) / n; // sends to the other node
            if (flat) node = (gathered + reduced) * (n * i - 1) / (n * i);
            if (sharding == Z3D_SHARDING_HPZ) node = (p + reduced) * (n - 1) / n;
            if (hybrid) node = 2 * p * (n - 1) / n;
            EXPECT_EQ(i * border.between, node * width) << name_of(o);
            if (flat) {
                EXPECT_EQ(ring.inside, ring.between) << name_of(o); // every other hop
            } else {
                EXPECT_EQ(ring.between + border.inside, 0) << name_of(o);
                EXPECT_EQ(ring.inside, (gathered + reduced) / i * (i - 1) * width) << name_of(o);
            }
        }
}

// What stage 3 keeps whole is gathered once a step, not before each use.
TEST(Communication, SmallGroupsAreGatheredOnceAStep) {
    Options o;
    o.stage = 3, o.accumulation = 2;
    Trainer all(o);
    const Traffic before = one_step(all, Z3D_ROLE_ROWS);
    o.persistence = 600;
    Trainer some(o);
    const Traffic after = one_step(some, Z3D_ROLE_ROWS);
    const int64_t n = some.o.data, last = some.model->num_groups - 1;
    // wpe and ln_f are gathered in forward only: see DataGroup.
    EXPECT_EQ(before.all_gather - after.all_gather,
              (padded(some, 1) + padded(some, last)) / n * (n - 1));
    EXPECT_EQ(before.reduce_scatter, after.reduce_scatter);
    for (int g = 0; g <= last; g++)
        EXPECT_EQ(z3d_state_is_whole(z3d_engine_layout(some.engine), g, Z3D_STATE_VALUE),
                  g == 1 || g == last);
}

// What is read again before so many elements of others come is not gathered again: the last block
// from forward to backward; the last two, and the first from one micro-batch to the next; all.
TEST(Communication, ReuseDistanceSavesGathers) {
    Options o;
    o.stage = 3, o.accumulation = 2, o.layers = 4, o.recompute = false;
    Trainer all(o);
    const Traffic before = one_step(all, Z3D_ROLE_ROWS);
    const int64_t n = all.o.data, last = all.model->num_groups - 1;
    const int64_t head = padded(all, 0) + padded(all, last), block = padded(all, 2),
                  p = z3d_engine_layout(all.engine)->padded_total;
    const struct {
        int64_t distance, saved;
    } ways[] = {{head, 0},
                {head + 1, o.accumulation * block},
                {head + 2 * block + 1, (o.accumulation * 2 + o.accumulation - 1) * block},
                {1 << 20, before.all_gather / (n > 1 ? n - 1 : 1) * n - p}};
    for (const auto &way : ways) {
        o.reuse_distance = way.distance;
        Trainer some(o);
        const Traffic after = one_step(some, Z3D_ROLE_ROWS);
        EXPECT_EQ(before.all_gather - after.all_gather, way.saved / n * (n - 1)) << way.distance;
        EXPECT_EQ(before.reduce_scatter, after.reduce_scatter);
    }
}

TEST(Communication, TensorGroup) {
    for (int tensor : tensor_sizes()) {
        for (int replay = 0; replay < 3; replay++) { // minimal, full, none
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            o.recompute = replay < 2;
            o.replay_full = replay == 1;
            Trainer t(o);
            Traffic got = one_step(t, Z3D_AXES_TENSOR);
            int64_t bsh = t.o.micro_batch * o.sequence * o.hidden;
            int64_t per_block = replay == 0   ? 5
                                : replay == 1 ? 6
                                              : 4; // all-reduces of b s h: 10, 12 and 8 bsh
            int64_t all_reduces = (per_block * o.layers + 2) * o.accumulation;
            EXPECT_EQ(got.all_reduce,
                      tensor == 1 ? 0 : all_reduces * 2 * bsh * (tensor - 1) / tensor)
                << "replay " << replay << ", tensor " << tensor;
            EXPECT_EQ(got.calls, all_reduces) << "replay " << replay << ", tensor " << tensor;
            EXPECT_EQ(got.reduce_scatter + got.all_gather, 0);
        }
    }
}

// Counted apart: the cross entropy's largest logit, then its two sums, of every row and
// micro-batch, and one small collective of the world a step.
TEST(Communication, Scalars) {
    for (int tensor : tensor_sizes()) {
        Options o;
        o.tensor = tensor;
        o.stage = 3;
        o.accumulation = 2;
        Trainer t(o);
        z3d_step_result result;
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(t.step(&result));
        auto reduced = [&](z3d_axes axes) {
            return *z3d_group_traffic(t.group[axes], Z3D_COLLECTIVE_ALL_REDUCE);
        };
        z3d_traffic in_tensor = reduced(Z3D_AXES_TENSOR), in_world = reduced(Z3D_AXES_WORLD);
        ASSERT_Z3D(t.step(&result));
        int64_t rows = t.o.micro_batch * o.sequence, ranks = z3d_world_size(world);
        EXPECT_EQ(reduced(Z3D_AXES_TENSOR).scalar_calls - in_tensor.scalar_calls,
                  2 * o.accumulation);
        EXPECT_EQ(reduced(Z3D_AXES_TENSOR).scalar_bytes - in_tensor.scalar_bytes,
                  o.accumulation * 3 * rows * 2 * (tensor - 1) / tensor * 4);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).scalar_calls - in_world.scalar_calls, 1);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).scalar_bytes - in_world.scalar_bytes,
                  2 * (4 + t.model->num_groups) * (ranks - 1) / ranks * 8);
        EXPECT_EQ(reduced(Z3D_AXES_WORLD).volume_elements, 0);
    }
}

// P_a brings each block's input back by one all-gather over the tensor group, b s h (t-1)/t
// elements a rank; nothing else changes, with the parts in host memory or on the disk neither.
TEST(Communication, PartitionedActivations) {
    for (int tensor : tensor_sizes()) {
        if (tensor == 1) continue;
        for (z3d_space space : {Z3D_SPACE_DEVICE, Z3D_SPACE_HOST, Z3D_SPACE_DISK}) {
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            Trainer plain(o);
            Traffic before = one_step(plain, Z3D_AXES_TENSOR);
            o.partition = true;
            o.checkpoint_space = space;
            Trainer split(o);
            Traffic got = one_step(split, Z3D_AXES_TENSOR);
            int64_t bsh = split.o.micro_batch * o.sequence * o.hidden;
            EXPECT_EQ(got.all_gather, o.layers * o.accumulation * bsh * (tensor - 1) / tensor);
            EXPECT_EQ(got.all_reduce, before.all_reduce);
            EXPECT_EQ(got.calls, before.calls);
            EXPECT_EQ(got.reduce_scatter, 0);
        }
    }
}

namespace {

// Elements that all ranks' gathers of one evaluation or one generated token move on this rank.
int64_t evaluation(Trainer &t, double *loss) {
    int64_t before = traffic_of(t, Z3D_AXES_DATA).all_gather;
    EXPECT_Z3D(t.evaluate(loss));
    return traffic_of(t, Z3D_AXES_DATA).all_gather - before;
}

int64_t token(Trainer &t, std::vector<float> *logits) {
    int64_t before = traffic_of(t, Z3D_AXES_DATA).all_gather;
    EXPECT_Z3D(t.generate(logits));
    return traffic_of(t, Z3D_AXES_DATA).all_gather - before;
}

} // namespace

// Stages 1 and 2 fetch the others' rows once after a change, not for every evaluation and
// token.
TEST(Communication, ParametersAreGatheredOnceAfterAChange) {
    int ranks = z3d_world_size(world);
    for (int stage = 0; stage < 4; stage++) {
        Options o;
        o.stage = stage;
        o.accumulation = stage == 3 ? 1 : 2;
        Trainer t(o);
        ASSERT_Z3D(t.create());
        int64_t whole = z3d_engine_layout(t.engine)->padded_total / ranks * (ranks - 1);
        int64_t first = stage == 0 ? 0 : whole, later = stage == 3 ? whole : 0;
        double loss, again, before = 0;
        std::vector<float> logits, same;
        z3d_step_result result;
        for (int round = 0; round < 2; round++) {
            EXPECT_GE(evaluation(t, &loss), first) << "stage " << stage;
            EXPECT_NE(before, loss) << "the step's changes were not fetched";
            before = loss;
            for (int k = 0; k < 2; k++) {
                EXPECT_EQ(evaluation(t, &again) > 0, later > 0) << "stage " << stage;
                EXPECT_EQ(loss, again);
            }
            EXPECT_EQ(token(t, &logits) > 0, first > 0) << "stage " << stage;
            EXPECT_EQ(token(t, &same) > 0, later > 0) << "stage " << stage;
            EXPECT_EQ(logits, same);
            ASSERT_Z3D(t.step(&result));
        }
        evaluation(t, &loss);
        // The program without gathers is right only where they have run.
        if ((stage == 1 || stage == 2) && ranks > 1) {
            z3d_program stale = *t.engine->set.again[Z3D_MODE_EVALUATE];
            EXPECT_Z3D(z3d_program_verify(&stale));
            stale.config.gathered = false;
            EXPECT_EQ(z3d_program_verify(&stale), Z3D_ERR_PROGRAM);
        }
        // A parameter that is set is fetched too.
        const z3d_parameter &p = t.model->group[0].parameter[0];
        int64_t count = 1;
        for (int d = 0; d < p.dims; d++) count *= p.shape[d];
        std::vector<float> values(static_cast<size_t>(count));
        ASSERT_Z3D(z3d_engine_get(t.engine, Z3D_TENSOR_PARAMETER, 0, 0, values.data()));
        for (float &v : values) v *= 0.5f;
        ASSERT_Z3D(z3d_engine_set(t.engine, Z3D_TENSOR_PARAMETER, 0, 0, values.data()));
        EXPECT_EQ(evaluation(t, &again) > 0, first > 0) << "stage " << stage;
        EXPECT_NE(loss, again);
    }
}

// Sequence parallelism: each all-reduce becomes a reduce-scatter and an all-gather of the same
// volume together. A replay gathers what its products read, too, and a lean backward (selective)
// gathers the layernorms' outputs again: 11 b s h a block (10 without), 10 (8).
TEST(Communication, TensorGroupOfSequenceParallelism) {
    struct {
        const char *name;
        bool recompute, replay_full, selective;
        int64_t scatters, gathers; // of b s h, a block
    } ways[] = {{"minimal", true, false, false, 5, 6},
                {"full", true, true, false, 6, 6},
                {"selective", false, false, true, 4, 6},
                {"none", false, false, false, 4, 4}};
    for (int tensor : tensor_sizes()) {
        if (tensor == 1) continue;
        for (const auto &way : ways) {
            Options o;
            o.tensor = tensor;
            o.stage = 2;
            o.accumulation = 2;
            o.recompute = way.recompute;
            o.replay_full = way.replay_full;
            o.selective = way.selective;
            o.partition = way.recompute; // brings nothing more
            o.sequence_parallel = true;
            Trainer t(o);
            Traffic got = one_step(t, Z3D_AXES_TENSOR);
            int64_t share = t.o.micro_batch * o.sequence * o.hidden / tensor * (tensor - 1);
            int64_t outside = 2; // each: the embedding's and the head's
            EXPECT_EQ(got.reduce_scatter,
                      (way.scatters * o.layers + outside) * o.accumulation * share)
                << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.all_gather, (way.gathers * o.layers + outside) * o.accumulation * share)
                << way.name << ", tensor " << tensor;
            // Once a step: what all tensor ranks hold, of this rank's shard.
            const z3d_layout *layout = z3d_engine_layout(t.engine);
            int64_t sums = 0, calls = 0;
            for (int g = 0; g < layout->num_groups; g++) {
                int64_t count = 0;
                for (int r = 0; r < layout->group[g].num_ranges; r++) {
                    z3d_range range;
                    if (z3d_layout_shard_range(layout, g, r, &range) && range.replicated)
                        count += range.count;
                }
                sums += 2 * count * (tensor - 1) / tensor;
                calls += count > 0;
            }
            EXPECT_EQ(got.all_reduce, sums) << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.calls, calls) << way.name << ", tensor " << tensor;
            EXPECT_EQ(got.reduce_scatter + got.all_gather + got.all_reduce,
                      z3d_program_volume(z3d_engine_program(t.engine, Z3D_MODE_TRAIN),
                                         Z3D_AXES_TENSOR, true));
            if (strcmp(way.name, "none") != 0) continue;
            o.sequence_parallel = false;
            Trainer plain(o);
            EXPECT_EQ(one_step(plain, Z3D_AXES_TENSOR).all_reduce,
                      got.reduce_scatter + got.all_gather);
        }
    }
}

namespace {

// The pipelines of this world, in every schedule.
std::vector<Options> pipelines() {
    std::vector<Options> list;
    int ranks = z3d_world_size(world);
    for (const Schedule &schedule : SCHEDULES)
        for (int pipeline : {2, 4})
            for (int tensor : {1, 2}) {
                if (ranks % (pipeline * tensor) != 0) continue;
                Options o;
                o.schedule = schedule.kind, o.chunks = schedule.chunks;
                o.pipeline = pipeline, o.tensor = tensor;
                o.layers = 7;
                o.accumulation = 4;
                o.global_batch = 8;
                o.reduce_per_step = 0;
                list.push_back(o);
            }
    return list;
}

// Chunks of this stage that another one comes before, or behind.
int borders(const z3d_layout *layout, int beside) {
    int count = 0;
    for (int c = 0; c < layout->num_chunks; c++)
        count += layout->stage_of_chunk[c] == layout->stage && c + beside >= 0 &&
                 c + beside < layout->num_chunks &&
                 layout->stage_of_chunk[c + beside] != layout->stage;
    return count;
}

} // namespace

// Over every border of two stages go b s h elements a micro-batch and their gradients back, on
// every tensor rank its part, which the other side gathers; between the two holders of the tied
// table each one's shard, once a step.
TEST(Communication, BetweenPipelineStages) {
    for (Options &o : pipelines())
        for (int way = 0; way < 4; way++) {
            o.stage = way;
            o.sequence_parallel = o.tensor > 1 && way % 2;
            o.overlap = way != 2;
            SCOPED_TRACE(name_of(o));
            Trainer t(o), alone(o);
            Traffic got = one_step(t, Z3D_AXES_PIPELINE);
            const z3d_layout *layout = z3d_engine_layout(t.engine);
            int64_t bsh = t.o.micro_batch * o.sequence * o.hidden;
            int64_t out = borders(layout, 1) + borders(layout, -1); // outputs, then gradients
            int first = z3d_layout_stage_of(layout, 0),
                last = z3d_layout_stage_of(layout, t.model->num_units - 1);
            bool shares = first != last && (layout->stage == first || layout->stage == last);
            int64_t table = shares ? padded(t, 0) / t.o.data : 0;
            EXPECT_EQ(got.sent, out * o.accumulation * bsh / o.tensor + table);
            EXPECT_EQ(got.sent, z3d_program_volume(z3d_engine_program(t.engine, Z3D_MODE_TRAIN),
                                                   Z3D_AXES_PIPELINE, true));
            EXPECT_EQ(got.reduce_scatter + got.all_gather + got.all_reduce, 0);
            if (o.tensor == 1 || o.sequence_parallel) continue;
            // As many come in as go out: of each border the other direction.
            EXPECT_EQ(one_step(alone, Z3D_AXES_TENSOR).all_gather,
                      out * o.accumulation * bsh * (o.tensor - 1) / o.tensor);
        }
}

namespace {

// How often stage 3 gathers each group of this stage if what comes next decides what stays: by the
// schedule's passes, each block's backward behind its recompute.
std::vector<int> gathers_of(const Trainer &t) {
    const z3d_layout *layout = z3d_engine_layout(t.engine);
    std::vector<std::vector<int>> reads; // groups, in the order of the work
    auto use = [&](int u, bool backward) {
        const z3d_unit &unit = t.model->unit[u];
        reads.emplace_back();
        if (u == 0 && backward) return; // needs no parameters
        for (int s = 0; s < unit.num_groups; s++) reads.back().push_back(unit.group[s]);
    };
    z3d_schedule *schedule = nullptr;
    EXPECT_Z3D(z3d_schedule_create(t.o.schedule, layout->stages, layout->num_chunks,
                                   t.o.accumulation, &schedule));
    for (int i = schedule->first[layout->stage]; i < schedule->first[layout->stage + 1]; i++) {
        z3d_task task = schedule->task[i];
        int first = layout->first_unit[task.chunk], last = layout->first_unit[task.chunk + 1] - 1;
        if (task.pass == Z3D_PASS_FORWARD)
            for (int u = first; u <= last; u++) use(u, false);
        else
            for (int u = last; u >= first; u--) {
                if (t.model->unit[u].checkpoint) use(u, false);
                use(u, true);
            }
    }
    z3d_schedule_destroy(schedule);
    std::vector<int> count((size_t)t.model->num_groups);
    for (size_t n = 0; n < reads.size(); n++)
        for (int g : reads[n]) {
            bool there = n > 0 && std::count(reads[n - 1].begin(), reads[n - 1].end(), g);
            count[(size_t)g] += !there;
        }
    return count;
}

} // namespace

// Every rank gathers and reduces its own stage's parameters: stage 3 before each use, or once a
// step (gather_per_step); gradients once a micro-batch, or once a step.
TEST(Communication, DataGroupOfPipelines) {
    for (Options &o : pipelines()) {
        if (z3d_world_size(world) / o.pipeline / o.tensor == 1) continue;
        for (int way = 0; way < 6; way++) {
            o.stage = way < 4 ? way : 3;
            o.gather_per_step = way >= 4;
            o.reduce_per_step = way % 2;
            o.overlap = way != 3;
            if (way == 3 && z3d_schedule_row_of(o.schedule)->halves)
                continue; // they gather otherwise
            SCOPED_TRACE(name_of(o));
            Trainer t(o);
            Traffic got = one_step(t, Z3D_AXES_DATA);
            const z3d_layout *layout = z3d_engine_layout(t.engine);
            std::vector<int> times((size_t)layout->num_groups, 1);
            if (way == 3) times = gathers_of(t);
            int64_t n = t.o.data, gathered = 0, all = 0;
            for (int g = 0; g < layout->num_groups; g++) {
                if (!layout->group[g].held) continue;
                all += padded(t, g) / n * (n - 1);
                gathered += times[(size_t)g] * (padded(t, g) / n) * (n - 1);
            }
            EXPECT_EQ(all, layout->padded_total / n * (n - 1));
            // A stage that has both uses of the tied table reduces the sum of each.
            int last = t.model->num_units - 1;
            int64_t twice = z3d_layout_has_unit(layout, 0) && z3d_layout_has_unit(layout, last)
                                ? padded(t, 0) / n * (n - 1)
                                : 0;
            EXPECT_EQ(got.reduce_scatter, (all + twice) * (o.reduce_per_step ? 1 : o.accumulation));
            EXPECT_EQ(got.all_gather, gathered);
            EXPECT_EQ(got.all_reduce + got.sent, 0);
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
