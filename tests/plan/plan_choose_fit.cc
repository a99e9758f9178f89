// plan --fit: what is set stays, the best of the rest is what looking at every way one by one
// finds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/plan/choices.h"

namespace {

const std::string TEXT =
    "model: {num_layers: 3, hidden_size: 256, num_attention_heads: 4, seq_length: 256, vocab_size: "
    "512}\nparallel: {tensor_model_parallel_size: 2, sequence_parallel: false, "
    "pipeline_model_parallel_size: 1, world_size: 8}\ntrain_batch_size: 32\n"
    "bf16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}\n";

z3d_estimate estimate(z3d_config *config, const z3d_hardware &hardware) {
    z3d_case *of = nullptr;
    z3d_estimate e{};
    EXPECT_EQ(z3d_case_create(config, 0, 0, {}, &of), Z3D_OK) << z3d_error_message();
    if (!of) return e;
    EXPECT_EQ(z3d_estimate_make(of, &hardware, 0, nullptr, &e), Z3D_OK) << z3d_error_message();
    z3d_case_destroy(of);
    return e;
}

struct Way {
    int stage;
    const char *granularity, *partition, *offload;
    int micro;
    int optimizer = 0, parameters = 0; // z3d_offload_device
};

const char *const DEVICES[] = {"none", "cpu", "nvme, nvme_path: /local"};

std::string text_of(const Way &w) {
    return TEXT + "zero_optimization: {stage: " + std::to_string(w.stage) +
           ", offload_optimizer: {device: " + DEVICES[w.optimizer] +
           "}, offload_param: {device: " + DEVICES[w.parameters] +
           "}}\nactivation_checkpointing: {granularity: " + w.granularity +
           ", partition_activations: " + w.partition + ", cpu_checkpointing: " + w.offload +
           "}\ntrain_micro_batch_size_per_gpu: " + std::to_string(w.micro) + "\n";
}

void each_tier(Way way, const std::function<void(const Way &)> &look) {
    for (way.parameters = 0; way.parameters <= (way.stage == 3 ? 2 : 0); way.parameters++)
        for (way.optimizer = way.parameters; way.optimizer <= 2; way.optimizer++) look(way);
}

void each_way(const std::function<void(const Way &)> &look) {
    for (int stage = 0; stage < 4; stage++)
        for (int micro : {1, 2, 4, 8}) {
            each_tier({stage, "none", "false", "false", micro}, look);
            each_tier({stage, "selective", "false", "false", micro}, look);
            for (const char *partition : {"false", "true"})
                for (const char *offload : {"false", "true"})
                    each_tier({stage, "full", partition, offload, micro}, look);
        }
}

TEST(Fit, FindsWhatLookingAtEveryWayFinds) {
    const double sizes[] = {9, 14, 24, 200};
    double best[] = {INFINITY, INFINITY, INFINITY, INFINITY}, least = INFINITY;
    each_way([&](const Way &w) {
        Config c(text_of(w));
        z3d_case *of = nullptr;
        ASSERT_EQ(z3d_case_create(c.it, 0, 0, {}, &of), Z3D_OK) << z3d_error_message();
        for (int i = 0; i < 4; i++) {
            z3d_hardware hardware = machine(sizes[i]);
            z3d_estimate e{};
            ASSERT_EQ(z3d_estimate_make(of, &hardware, 0, nullptr, &e), Z3D_OK);
            if (e.memory.fits) best[i] = std::fmin(best[i], e.time.seconds);
            least = std::fmin(least, double(e.memory.arena));
        }
        z3d_case_destroy(of);
    });
    for (int i = 0; i < 4; i++) {
        z3d_hardware hardware = machine(sizes[i]);
        Config c(TEXT);
        z3d_recommendation fit;
        ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
            << z3d_error_message();
        double fastest = fit.row[0].seconds;
        for (int k = 1; k < fit.count; k++) fastest = std::fmin(fastest, fit.row[k].seconds);
        EXPECT_NEAR(fastest, best[i], 1e-3 * best[i]) << sizes[i] << " MiB";
        EXPECT_LE(fit.row[0].seconds, 1.02 * fastest) << sizes[i] << " MiB";
    }
    // Nothing fits: one line, with by how much.
    z3d_hardware hardware = machine(4);
    Config c(TEXT);
    z3d_recommendation fit;
    ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_ERR_MEMORY);
    std::string said = z3d_error_message();
    char missing[32];
    z3d_format_bytes(int64_t(least - 4 * 1048576.0), missing, sizeof missing);
    EXPECT_NE(said.find("no candidate fits 8 ranks with 4.00 MiB each"), std::string::npos) << said;
    EXPECT_NE(said.find(std::string(missing) + " too much"), std::string::npos) << said << missing;
}

// What the configuration sets stays; the rest is searched, all sizes together.
TEST(Fit, SearchesWhatIsOpen) {
    const std::string model = "model: {num_layers: 6, hidden_size: 256, num_attention_heads: 4, "
                              "seq_length: 256, vocab_size: 512}\nbf16: {enabled: true}\n"
                              "train_batch_size: 16\n";
    z3d_hardware hardware = machine(40);
    struct {
        const char *keys;
        int tensor, pipeline, chunks, schedule;
    } const cases[] = {
        {"", 0, 0, 0, 0},
        {"tensor_model_parallel_size: 2", 2, 0, 0, 0},
        {"pipeline_model_parallel_size: 2", 0, 2, 0, 0},
        {"tensor_model_parallel_size: 1, pipeline_model_parallel_size: 4", 1, 4, 0, 0},
        {"pipeline_schedule: zb-h1", 0, 0, 1, Z3D_PIPELINE_ZB_H1},
        {"pipeline_schedule: gpipe, pipeline_model_parallel_size: 2", 0, 2, 1, Z3D_PIPELINE_GPIPE},
        {"pipeline_model_parallel_size: 2, virtual_pipeline_model_parallel_size: 3", 0, 2, 3,
         Z3D_PIPELINE_INTERLEAVED},
        {"pipeline_model_parallel_size: 2, pipeline_partition: [3, 5]", 0, 2, 1, 0},
        {"device_speeds: [1, 1, 0.5, 0.5]", 0, 0, 0, 0},
    };
    double fastest = 0;
    for (const auto &set : cases) {
        Config c(model + "parallel: {" + set.keys + "}\n");
        z3d_recommendation fit;
        ASSERT_EQ(z3d_recommend(c.it, 4, &hardware, true, nullptr, &fit), Z3D_OK)
            << set.keys << ": " << z3d_error_message();
        if (!*set.keys) fastest = fit.row[0].seconds;
        for (int i = 0; i < fit.count; i++) {
            const z3d_fit_layout &l = fit.row[i].layout;
            EXPECT_TRUE(!set.tensor || l.tensor == set.tensor) << set.keys;
            EXPECT_TRUE(!set.pipeline || l.pipeline == set.pipeline) << set.keys;
            EXPECT_TRUE(!set.chunks || l.chunks == set.chunks) << set.keys;
            EXPECT_TRUE(!set.schedule || l.schedule == set.schedule) << set.keys;
        }
        EXPECT_TRUE((set.tensor && set.pipeline) || fit.layouts > 1) << set.keys;
        EXPECT_GE(fit.row[0].seconds, fastest) << set.keys;
        z3d_estimate e = estimate(c.it, hardware);
        EXPECT_TRUE(e.fullest.fits) << set.keys;
        EXPECT_NEAR(e.time.seconds, fit.row[0].seconds, 3e-3 * e.time.seconds) << set.keys;
    }
}

// Parameters are gathered as the configuration says, or as is fastest among the ways that fit: the
// written configuration has the choice.
TEST(Fit, ChoosesWhenParametersAreGathered) {
    const std::string text = "model: {num_layers: 24, hidden_size: 256, num_attention_heads: 4, "
                             "seq_length: 256, vocab_size: 512}\nbf16: {enabled: true}\n"
                             "train_batch_size: 32\nparallel: {pipeline_model_parallel_size: 2, "
                             "tensor_model_parallel_size: 1, pipeline_schedule: 1f1b}\n"
                             "zero_optimization: {offload_optimizer: {device: none}, stage: 3";
    auto search = [&](const char *gather, z3d_fit_row *best) {
        z3d_hardware hardware = machine(40);
        Config c(text + gather + "}\n");
        z3d_recommendation fit;
        z3d_status status = z3d_recommend(c.it, 16, &hardware, true, nullptr, &fit);
        *best = fit.row[0];
        EXPECT_TRUE(status != Z3D_OK || best->gather == c.it->zero_optimization_pipeline_gather);
        return status;
    };
    z3d_fit_row least, open;
    EXPECT_EQ(search(", pipeline_gather: per_step", &open), Z3D_ERR_MEMORY); // as ZeRO-2
    ASSERT_EQ(search(", pipeline_gather: per_microbatch", &least), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(search("", &open), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(open.stage, 3);
    EXPECT_EQ(open.gather, Z3D_PIPELINE_GATHER_PER_MICROBATCH);
    EXPECT_EQ(open.seconds, least.seconds);
}

// Few large micro-batches leave a pipeline empty: the largest that fits is not the fastest.
TEST(Fit, FillsAPipeline) {
    const std::string piped =
        "model: {num_layers: 6, hidden_size: 1024, num_attention_heads: 16, "
        "seq_length: 1024, vocab_size: 512}\ntrain_batch_size: 16\n"
        "parallel: {pipeline_model_parallel_size: 4, pipeline_schedule: 1f1b, "
        "world_size: 4}\n"
        "bf16: {enabled: true}\nzero_optimization: {stage: 0}\n"
        "activation_checkpointing: {granularity: ";
    // Stage 0, which the search chooses without data ranks: it adds gradients up in one place.
    z3d_hardware hardware = machine(64 * 1024);
    double best = INFINITY;
    for (const char *granularity : {"none", "selective", "full"})
        for (int micro : {1, 2, 4, 8, 16}) {
            Config c(piped + granularity +
                     "}\ntrain_micro_batch_size_per_gpu: " + std::to_string(micro) + "\n");
            best = std::fmin(best, estimate(c.it, hardware).time.seconds);
        }
    Config c(piped + "none}\n");
    z3d_recommendation fit;
    ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
        << z3d_error_message();
    EXPECT_GT(fit.row[0].accumulation, 4);
    EXPECT_NEAR(fit.row[0].seconds, best, 1e-2 * best);
}

// Host memory has room for the checkpoint's copy of the stage that needs most, here the second.
TEST(Fit, CountsTheCopyOfEachStage) {
    z3d_hardware hardware = machine(1000);
    Config c("model: {num_layers: 3, hidden_size: 256, num_attention_heads: 4, seq_length: 256, "
             "vocab_size: 512}\ntrain_batch_size: 8\ncheckpoint: {async: true, interval: 10}\n"
             "parallel: {pipeline_model_parallel_size: 2, world_size: 2, pipeline_partition: [1, "
             "4]}\n");
    z3d_recommendation fit;
    ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
        << z3d_error_message();
    const int64_t blocks = 3 * 12 * 256 * 256; // parameters, without vectors
    for (int i = 0; i < fit.count; i++) EXPECT_GT(fit.row[i].memory.snapshot, 3 * 4 * blocks);
}

// The stage with most on its device (the head's logits) need not be the one that lacks host memory.
TEST(Fit, LooksAtTheHostMemoryOfEveryStage) {
    z3d_hardware hardware = machine(8192);
    hardware.host_memory_gib = 0.2;
    Config c("model: {num_layers: 2, hidden_size: 128, num_attention_heads: 4, seq_length: 256, "
             "vocab_size: 131072}\ntrain_batch_size: 32\n"
             "checkpoint: {async: true, interval: 10}\n"
             "parallel: {pipeline_model_parallel_size: 2, world_size: 2, pipeline_partition: [3, "
             "1]}\n");
    z3d_recommendation fit;
    EXPECT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_ERR_MEMORY);
}

// A schedule file is for one number of micro-batches: no other is tried.
TEST(Fit, KeepsTheMicroBatchesOfAScheduleFile) {
    std::string path = testing::TempDir() + "fit." + std::to_string(getpid()) + ".csv";
    z3d_schedule *schedule = nullptr;
    ASSERT_EQ(z3d_schedule_create(Z3D_SCHEDULE_GPIPE, 2, 2, 4, &schedule), Z3D_OK);
    ASSERT_EQ(z3d_schedule_write(schedule, path.c_str()), Z3D_OK);
    z3d_schedule_destroy(schedule);
    z3d_hardware hardware = machine(200);
    Config c("model: {num_layers: 3, hidden_size: 256, num_attention_heads: 4, seq_length: 256, "
             "vocab_size: 512}\ntrain_batch_size: 16\ngradient_accumulation_steps: 4\n"
             "parallel: {pipeline_model_parallel_size: 2, world_size: 2, pipeline_schedule: file, "
             "pipeline_schedule_file: " +
             path + "}\n");
    z3d_recommendation fit;
    EXPECT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
        << z3d_error_message();
    for (int i = 0; i < fit.count; i++) EXPECT_EQ(fit.row[i].accumulation, 4);
    unlink(path.c_str());
}

// A row is what the configuration made of it comes to, micro-batches that were left out included.
TEST(Fit, RowsAreTrue) {
    static const char *const granularity[] = {"full", "selective", "none"};
    int seen = 0, many = 0;
    for (double mib : {9, 24}) {
        z3d_hardware hardware = machine(mib);
        Config c(TEXT);
        z3d_recommendation fit;
        ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
            << z3d_error_message();
        for (int i = 0; i < fit.count; i++) {
            const z3d_fit_row &r = fit.row[i];
            Config one(text_of({r.stage, granularity[r.granularity], r.partition ? "true" : "false",
                                r.offload ? "true" : "false", static_cast<int>(r.micro_batch),
                                r.tiers.optimizer, r.tiers.parameters}));
            z3d_estimate e = estimate(one.it, hardware);
            EXPECT_EQ(r.micro_batch * r.accumulation, 8);
            EXPECT_TRUE(r.fits && e.memory.fits) << i;
            EXPECT_NEAR(double(r.memory.arena), double(e.memory.arena),
                        0.01 * double(r.memory.arena));
            EXPECT_NEAR(r.seconds, e.time.seconds, 1e-3 * r.seconds) << i;
            seen++;
            many += r.accumulation > 3;
        }
    }
    EXPECT_GT(seen, 10);
    EXPECT_GT(many, 0);
}

// The configuration left behind is the first row's, resolved, and reads back.
TEST(Fit, WritesTheBest) {
    z3d_hardware hardware = machine(24);
    Config c(TEXT + "activation_checkpointing: {cpu_checkpointing: auto}\n"
                    "training: {hardware: here.yaml}\n");
    z3d_recommendation fit;
    ASSERT_EQ(z3d_recommend(c.it, 0, &hardware, true, nullptr, &fit), Z3D_OK)
        << z3d_error_message();
    z3d_string text = {};
    z3d_config_write(c.it, &text);
    Config again(text.text);
    z3d_string_free(&text);
    EXPECT_EQ(again.it->train_batch_size, 32);
    EXPECT_EQ(again.it->train_micro_batch_size_per_gpu, fit.row[0].micro_batch);
    z3d_estimate e = estimate(again.it, hardware);
    EXPECT_TRUE(e.memory.fits);
    EXPECT_NEAR(e.time.seconds, fit.row[0].seconds, 1e-3 * e.time.seconds);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
