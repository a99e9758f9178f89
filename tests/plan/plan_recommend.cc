// plan --recommend: the search finds what looking at every way one by one finds.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/plan/choices.h"

extern "C" {
#include "src/plan/choose/ways.h"
#include "zero/program/layout.h"
}

namespace {

const std::string MODEL =
    "model: {num_layers: 6, hidden_size: 256, num_attention_heads: 4, seq_length: 256, vocab_size: "
    "512}\nbf16: {enabled: true}\ndata_types: {grad_accum_dtype: bf16}\ntrain_batch_size: 16\n";

// Where states lie is not looked for.
const std::string ON_DEVICE = "zero_optimization: {offload_optimizer: {device: none}}\n";

struct Way {
    int tensor, pipeline, chunks;
    const char *schedule;
    int stage, micro;
    const char *granularity;
    const char *gather = "auto", *offload = "false";
};

std::string text_of(const Way &w) {
    return MODEL + "parallel: {tensor_model_parallel_size: " + std::to_string(w.tensor) +
           ", sequence_parallel: " + (w.tensor > 1 ? "true" : "false") +
           ", pipeline_model_parallel_size: " + std::to_string(w.pipeline) +
           ", virtual_pipeline_model_parallel_size: " + std::to_string(w.chunks) +
           ", pipeline_schedule: " + w.schedule +
           "}\nzero_optimization: {stage: " + std::to_string(w.stage) +
           ", pipeline_gather: " + w.gather +
           "}\nactivation_checkpointing: {granularity: " + w.granularity +
           ", cpu_checkpointing: " + w.offload +
           "}\ntrain_micro_batch_size_per_gpu: " + std::to_string(w.micro) + "\n";
}

/* Seconds of a step on each machine; infinite: it is refused, or does not fit. bytes: it takes. */
std::vector<double> seconds_of(const Way &w, int ranks, const std::vector<z3d_hardware> &machines,
                               double *bytes) {
    std::vector<double> seconds(machines.size(), INFINITY);
    Config c(text_of(w));
    z3d_case *of = nullptr;
    if (z3d_case_create(c.it, ranks, 0, {}, &of) != Z3D_OK) return seconds;
    for (size_t m = 0; m < machines.size(); m++) {
        z3d_estimate e{};
        EXPECT_EQ(z3d_estimate_make(of, &machines[m], 0, nullptr, &e), Z3D_OK)
            << z3d_error_message();
        *bytes = double(e.fullest.arena);
        if (e.fullest.fits) seconds[m] = e.time.seconds;
    }
    z3d_case_destroy(of);
    return seconds;
}

/* Of one machine. */
struct Grid {
    double seconds = INFINITY; /* of the fastest */
    int fitting = 0, possible = 0;
};

void look_at(const Way &w, int ranks, const std::vector<z3d_hardware> &machines,
             std::vector<Grid> *grids) {
    double bytes = INFINITY;
    const std::vector<double> seconds = seconds_of(w, ranks, machines, &bytes);
    for (size_t m = 0; m < machines.size(); m++) {
        Grid &grid = (*grids)[m];
        grid.seconds = std::fmin(grid.seconds, seconds[m]);
        grid.possible += bytes < INFINITY;
        grid.fitting += seconds[m] < INFINITY;
    }
}

std::vector<Grid> look_at_all(int ranks, const std::vector<z3d_hardware> &machines) {
    struct {
        const char *schedule;
        int chunks;
    } const order[] = {
        {"1f1b", 1}, {"interleaved", 2}, {"interleaved", 4}, {"zb-h1", 1}, {"zb-v", 2}};
    std::vector<Grid> grids(machines.size());
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
        for (int pipeline = 1; pipeline <= ranks / tensor; pipeline *= 2)
            for (const auto &o : order)
                for (int stage = 0; stage <= 3; stage++)
                    for (int micro = 1; micro <= 16; micro *= 2)
                        for (const char *granularity : {"none", "selective", "full"}) {
                            if (pipeline == 1 && o.schedule != order[0].schedule) continue;
                            const char *schedule = pipeline > 1 ? o.schedule : "auto";
                            Way way = {tensor, pipeline, o.chunks,   schedule,
                                       stage,  micro,    granularity};
                            look_at(way, ranks, machines, &grids);
                            way.gather = "per_step";
                            if (stage == 3 && pipeline > 1) look_at(way, ranks, machines, &grids);
                            way.gather = "auto";
                            way.offload = "true";
                            if (granularity[0] == 'f') look_at(way, ranks, machines, &grids);
                        }
    return grids;
}

// The fastest first; but of those within 2 % of the fastest that is left the simplest.
void expect_order(const z3d_recommendation &found) {
    for (int i = 0; i < found.count; i++) {
        const z3d_fit_row &row = found.row[i];
        double fastest = row.seconds;
        for (int k = i; k < found.count; k++) fastest = std::fmin(fastest, found.row[k].seconds);
        EXPECT_LE(row.seconds, 1.02 * fastest) << i;
        for (int k = i + 1; k < found.count; k++) {
            const z3d_fit_row &other = found.row[k];
            if (other.seconds > 1.02 * fastest || z3d_row_is_tight(&row) < z3d_row_is_tight(&other))
                continue;
            EXPECT_LE(z3d_row_is_tight(&row), z3d_row_is_tight(&other)) << i << " " << k;
            EXPECT_LE(z3d_row_mechanisms(&row), z3d_row_mechanisms(&other)) << i << " " << k;
            if (z3d_row_mechanisms(&row) == z3d_row_mechanisms(&other)) {
                EXPECT_GE(row.memory.free, other.memory.free) << i << " " << k;
            }
        }
    }
}

double fastest_of(const z3d_recommendation &found) {
    double fastest = INFINITY;
    for (int i = 0; i < found.count; i++) fastest = std::fmin(fastest, found.row[i].seconds);
    return fastest;
}

void expect_best(const Grid &grid, int ranks, const z3d_hardware &hardware) {
    EXPECT_GT(grid.fitting, 10);
    Config c(MODEL + ON_DEVICE);
    z3d_recommendation found;
    ASSERT_EQ(z3d_recommend(c.it, ranks, &hardware, false, nullptr, &found), Z3D_OK)
        << z3d_error_message();
    EXPECT_NEAR(fastest_of(found), grid.seconds, 2e-3 * grid.seconds)
        << found.row[0].layout.tensor << " x " << found.row[0].layout.pipeline;
    EXPECT_LT(found.priced, grid.possible / 2);
    EXPECT_EQ(found.count, found.priced < Z3D_RECOMMENDED ? found.priced : Z3D_RECOMMENDED);
    expect_order(found);
}

void expect_refused(const Grid &grid, int ranks, const z3d_hardware &hardware) {
    ASSERT_EQ(grid.fitting, 0);
    Config c(MODEL + ON_DEVICE);
    z3d_recommendation found;
    ASSERT_EQ(z3d_recommend(c.it, ranks, &hardware, false, nullptr, &found), Z3D_ERR_MEMORY);
    std::string said = z3d_error_message();
    EXPECT_NE(said.find("no candidate fits 4 ranks with 3.00 MiB each"), std::string::npos) << said;
    EXPECT_NE(said.find(" too much (its largest part is "), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

// Each way's bounds are below what it takes, so none is left out wrongly; and the first row is as
// fast as the fastest of all ways, each of them priced.
void expect_sound(const std::string &text, int ranks, const z3d_hardware &hardware, int atLeast) {
    Config c(text);
    z3d_ways w{};
    w.config = c.it;
    w.hardware = &hardware;
    ASSERT_EQ(z3d_ways_begin(&w, ranks, false), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(z3d_ways_open(&w), Z3D_OK) << z3d_error_message();
    double fastest = INFINITY;
    int priced = 0, tighter = 0;
    for (int i = 0; i < w.count; i++) {
        z3d_way &way = w.way[i];
        const z3d_fit_frame &frame = w.frame[way.frame];
        z3d_fit_row row{};
        bool nearlyFull = false, large = !z3d_way_may_fit(&w, &way);
        double quick = way.seconds;
        row.layout = frame.layout;
        row.stage = way.stage, row.granularity = way.granularity, row.gather = way.gather;
        row.tiers = way.tiers, row.partition = way.partition, row.offload = way.offload;
        ASSERT_EQ(z3d_fit_try(&frame, &row, way.micro_batch), Z3D_OK) << z3d_error_message();
        EXPECT_FALSE(large && row.fits) << i;
        if (!row.fits) continue;
        ASSERT_EQ(z3d_way_tighten(&w, &way), Z3D_OK);
        EXPECT_TRUE(z3d_way_may_fit(&w, &way)) << i;
        tighter += way.seconds > quick * 1.001;
        ASSERT_EQ(z3d_fit_time(&frame, 0, INFINITY, &row, &nearlyFull), Z3D_OK);
        priced += row.fits;
        EXPECT_LE(way.seconds, row.seconds * (1 + 1e-9))
            << row.layout.tensor << " x " << row.layout.pipeline << " x " << row.layout.data
            << ", schedule " << row.layout.schedule << ", ZeRO-" << row.stage << ", gather "
            << row.gather << ", granularity " << row.granularity << ", micro-batch "
            << row.micro_batch << ", tiers " << row.tiers.optimizer << " " << row.tiers.parameters;
        EXPECT_LE(w.work[way.work].micro * double(row.accumulation), row.seconds * (1 + 1e-9));
        if (row.fits) fastest = std::fmin(fastest, row.seconds);
    }
    z3d_ways_close(&w);
    EXPECT_GE(priced, atLeast);
    EXPECT_GT(tighter, 0);
    Config again(text);
    z3d_recommendation found;
    ASSERT_EQ(z3d_recommend(again.it, ranks, &hardware, false, nullptr, &found), Z3D_OK);
    EXPECT_LE(found.row[0].seconds, 1.02 * fastest);
}

} // namespace

TEST(Recommend, BoundsAreBelowWhatWaysTake) {
    const std::string model = "model: {num_layers: 3, hidden_size: 256, num_attention_heads: 2, "
                              "seq_length: 256, vocab_size: 2048}\nbf16: {enabled: true}\n"
                              "train_batch_size: 8\n";
    z3d_hardware hardware = machine(2000);
    expect_sound(model + ON_DEVICE, 4, hardware, 200);
    hardware = machine(22);
    hardware.devices = 2;
    hardware.network_bandwidth = 1;
    hardware.network_overlap = 0.3;
    expect_sound(model, 4, hardware, 200);
}

// Two chunks use a large table: its gradients stay on the device until they are whole.
TEST(Recommend, BoundsOfOffloadedGradientsAreBelow) {
    const std::string model =
        "model: {num_layers: 2, hidden_size: 128, num_attention_heads: 2, "
        "seq_length: 64, vocab_size: 16384}\nbf16: {enabled: true}\n"
        "train_batch_size: 32\nzero_optimization: {grad_reduce: per_microbatch, "
        "offload_optimizer: {device: cpu}}\n";
    z3d_hardware hardware = machine(2000);
    hardware.host_bandwidth = 1;
    hardware.host_optimizer = 100;
    expect_sound(model, 4, hardware, 50);
}

// Here ZeRO-2 is faster than ZeRO-1, which sends less.
TEST(Recommend, BoundsOfDeepPipelinesAreBelow) {
    const std::string model = "model: {num_layers: 11, hidden_size: 256, num_attention_heads: 2, "
                              "seq_length: 256, vocab_size: 4096}\nbf16: {enabled: true}\n"
                              "train_batch_size: 16\n";
    z3d_hardware hardware = machine(60);
    hardware.devices = 4;
    hardware.network_bandwidth = 5;
    hardware.overlap = 0.5;
    hardware.network_overlap = -1;
    expect_sound(model + ON_DEVICE, 8, hardware, 200);
}

TEST(Recommend, FindsWhatLookingAtEveryWayFinds) {
    const std::vector<z3d_hardware> machines = {machine(24), machine(2000), machine(3)};
    const std::vector<Grid> grids = look_at_all(4, machines);
    expect_best(grids[0], 4, machines[0]);
    expect_best(grids[1], 4, machines[1]);
    expect_refused(grids[2], 4, machines[2]); // one line, with by how much
}

// The pipeline is the axis that sends least: where the network is slow, it goes over the nodes, and
// tensor groups stay in one, also if they need not.
TEST(Recommend, PipelinesOverASlowNetwork) {
    z3d_hardware hardware = machine(28);
    hardware.devices = 2;
    hardware.network_bandwidth = 1;
    hardware.network_overlap = 0;
    Config c(MODEL + "parallel: {allow_tensor_across_nodes: true}\n");
    z3d_recommendation found;
    ASSERT_EQ(z3d_recommend(c.it, 4, &hardware, false, nullptr, &found), Z3D_OK)
        << z3d_error_message();
    EXPECT_GT(found.row[0].layout.pipeline, 1);
    EXPECT_LE(found.row[0].layout.tensor, 2);
    for (int i = 0; i < found.count; i++) {
        if (found.row[i].layout.tensor == 4) {
            EXPECT_GT(found.row[i].seconds, 1.5 * found.row[0].seconds);
        }
    }
}

// Over a slow network data ranks communicate in two parts: the search finds that, and what it
// writes comes to what it says. What is written stays.
TEST(Recommend, PartsOfTheDataAxisOverASlowNetwork) {
    z3d_hardware hardware = machine(60);
    hardware.devices = 4;
    hardware.network_bandwidth = 0.5;
    hardware.network_overlap = 0;
    const std::string text = MODEL +
                             "parallel: {tensor_model_parallel_size: 1, "
                             "pipeline_model_parallel_size: 1}\n" +
                             ON_DEVICE;
    z3d_recommendation found, ring;
    Config c(text), same(text);
    ASSERT_EQ(z3d_recommend(c.it, 16, &hardware, true, nullptr, &found), Z3D_OK)
        << z3d_error_message();
    const z3d_fit_layout &best = found.row[0].layout;
    EXPECT_NE(best.cut, Z3D_CUT_NONE);
    EXPECT_EQ(best.inner, 4);
    EXPECT_EQ(z3d_config_data_cut(c.it), best.cut);
    z3d_string written = {};
    z3d_config_write(c.it, &written);
    Config again(written.text);
    z3d_string_free(&written);
    z3d_case *of = nullptr;
    z3d_estimate e{};
    ASSERT_EQ(z3d_case_create(again.it, 16, 0, {}, &of), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(z3d_estimate_make(of, &hardware, 0, nullptr, &e), Z3D_OK) << z3d_error_message();
    z3d_case_destroy(of);
    EXPECT_NEAR(e.time.seconds, found.row[0].seconds, 2e-3 * e.time.seconds);
    ASSERT_EQ(z3d_config_override(same.it, "parallel.collective_algorithm=ring"), Z3D_OK);
    ASSERT_EQ(z3d_recommend(same.it, 16, &hardware, true, nullptr, &ring), Z3D_OK)
        << z3d_error_message();
    for (int i = 0; i < ring.count; i++) EXPECT_EQ(ring.row[i].layout.cut, Z3D_CUT_NONE);
    EXPECT_GT(ring.row[0].seconds, 1.02 * found.row[0].seconds);
}

// Rows are what the configurations made of them come to, and the one left behind is the first's.
TEST(Recommend, RowsAreTrue) {
    z3d_hardware hardware = machine(2000);
    Config c(MODEL + ON_DEVICE);
    z3d_recommendation found;
    ASSERT_EQ(z3d_recommend(c.it, 4, &hardware, false, nullptr, &found), Z3D_OK)
        << z3d_error_message();
    const char *const schedules[] = {"auto", "1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"};
    const char *const granularities[] = {"full", "selective", "none"};
    const char *const gathers[] = {"auto", "per_step", "per_microbatch"};
    for (int i = 0; i < found.count; i++) {
        const z3d_fit_row &r = found.row[i];
        double bytes = 0;
        double seconds = seconds_of({r.layout.tensor, r.layout.pipeline, r.layout.chunks,
                                     schedules[r.layout.schedule], r.stage, int(r.micro_batch),
                                     granularities[r.granularity], gathers[r.gather],
                                     r.offload ? "true" : "false"},
                                    4, {hardware}, &bytes)[0];
        EXPECT_NEAR(r.seconds, seconds, 2e-3 * seconds) << i;
        EXPECT_NEAR(double(r.memory.arena), bytes, 0.01 * bytes) << i;
        EXPECT_EQ(r.micro_batch * r.accumulation * r.layout.data, 16);
        for (int k = 0; k < Z3D_LOSS_COUNT; k++) {
            EXPECT_GE(r.loss[k], -1e-9) << i << " " << k;
            EXPECT_LT(r.loss[k], r.seconds) << i << " " << k;
        }
    }
    z3d_string text = {};
    z3d_config_write(c.it, &text);
    Config again(text.text);
    z3d_string_free(&text);
    EXPECT_EQ(again.it->train_batch_size, 16);
    EXPECT_EQ(again.it->parallel_pipeline_model_parallel_size, found.row[0].layout.pipeline);
    EXPECT_EQ(again.it->train_micro_batch_size_per_gpu, found.row[0].micro_batch);
}

TEST(Recommend, ImpossibleSizesAreOneLine) {
    z3d_hardware hardware = machine(2000);
    z3d_recommendation found;
    Config odd(MODEL + "gradient_accumulation_steps: 2\n");
    odd.it->train_batch_size = 1;
    EXPECT_EQ(z3d_recommend(odd.it, 64, &hardware, false, nullptr, &found), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("data sizes divide the batch"),
              std::string::npos)
        << z3d_error_message();
    Config none("model: {num_layers: 6, hidden_size: 256, num_attention_heads: 4}\n");
    EXPECT_EQ(z3d_recommend(none.it, 4, &hardware, false, nullptr, &found), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("train_batch_size"), std::string::npos);
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
