// A step on the sim device: what is counted, how lanes order work, what is refused, how large a
// world may be.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/expect.h"

extern "C" {
#include "src/plan/price/estimate.h"
#include "zero/program/layout.h"
}

namespace {

struct Case {
    z3d_config *config = nullptr;
    z3d_case *of = nullptr;
    z3d_hardware hardware{};

    explicit Case(const std::string &text, int ranks = 0, int rank = 0,
                  const std::string &machine = "dgx2-v100") {
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        EXPECT_EQ(z3d_config_read_text(config, text.data(), text.size(), "test"), Z3D_OK)
            << z3d_error_message();
        std::string path = std::string(ZERO3D_CONFIGS) + "/hardware/" + machine + ".yaml";
        EXPECT_EQ(z3d_hardware_read(path.c_str(), &hardware), Z3D_OK) << z3d_error_message();
        status = z3d_case_create(config, ranks, rank, {}, &of);
    }
    ~Case() {
        z3d_case_destroy(of);
        z3d_config_destroy(config);
    }
    z3d_estimate estimate(double extra = 0) {
        z3d_estimate e{};
        EXPECT_EQ(status, Z3D_OK) << z3d_error_message();
        EXPECT_EQ(z3d_estimate_make(of, &hardware, extra, nullptr, &e), Z3D_OK)
            << z3d_error_message();
        return e;
    }
    z3d_saving saving() {
        z3d_saving s{};
        EXPECT_EQ(status, Z3D_OK) << z3d_error_message();
        EXPECT_EQ(z3d_saving_find(of, &hardware, &s), Z3D_OK) << z3d_error_message();
        return s;
    }
    z3d_status status;
};

std::string config(int layers, int hidden, int heads, int tensor, int batch, int stage,
                   const std::string &more = "") {
    return "model: { num_layers: " + std::to_string(layers) +
           ", hidden_size: " + std::to_string(hidden) +
           ", num_attention_heads: " + std::to_string(heads) +
           ", vocab_size: 51200 }\nparallel: { tensor_model_parallel_size: " +
           std::to_string(tensor) + " }\ntrain_micro_batch_size_per_gpu: " + std::to_string(batch) +
           "\ngradient_accumulation_steps: 1\nfp16: { enabled: true }\nzero_optimization: { "
           "stage: " +
           std::to_string(stage) + " }\n" + more;
}

// The same with pipeline stages and so many micro-batches.
std::string with_pipeline(std::string text, const std::string &keys, int micros) {
    const std::string block = "parallel: { ", steps = "gradient_accumulation_steps: 1\n";
    text.insert(text.find(block) + block.size(), keys + ", ");
    return text.replace(text.find(steps), steps.size(),
                        "gradient_accumulation_steps: " + std::to_string(micros) + "\n");
}

// Every second of a step is in exactly one line.
void expect_complete(const z3d_step_time &t) {
    double sum = t.compute + t.transfer + t.disk + t.host + t.allocator + t.bubble;
    for (double exposed : t.exposed) sum += exposed;
    EXPECT_NEAR(sum, t.seconds, 1e-9 * t.seconds);
}

TEST(Simulate, SplitsTheStep) {
    for (int stage = 0; stage < 4; stage++) {
        Case of(config(4, 1024, 16, 16, 2, stage), 64);
        z3d_estimate e = of.estimate();
        expect_complete(e.time);
        EXPECT_GT(e.time.compute, 0);
        EXPECT_GT(e.time.exposed[Z3D_AXES_TENSOR], 0);
        EXPECT_NEAR(e.time.seconds * e.tflops_96 * 1e12 * 64,
                    e.tokens * of.of->model->facts.flops.recomputed_step, 1e3);
        EXPECT_EQ(e.tokens, 2 * 1024 * 4);
        EXPECT_LT(e.tflops_72, e.tflops_96);
        EXPECT_LT(e.mfu, e.hfu); // this replay leaves out what backward does not read
        EXPECT_LT(e.hfu, e.tflops_96 / 125);
    }
}

TEST(Simulate, PersistentMemoryIsThePapersFormula) {
    const double n = 4;
    const double bytes[] = {16, 4 + 12 / n, 2 + 14 / n, 16 / n};
    for (int stage = 0; stage < 4; stage++) {
        Case of(config(4, 1024, 16, 16, 2, stage), 64);
        ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
        const z3d_ledger *ledger = z3d_engine_planned(of.of->simulation->engine, Z3D_SPACE_DEVICE);
        double p = (double)z3d_engine_layout(of.of->simulation->engine)->padded_total;
        double states =
            (double)(ledger->peak[Z3D_CATEGORY_PARAMETERS] + ledger->peak[Z3D_CATEGORY_GRADIENTS] +
                     ledger->peak[Z3D_CATEGORY_OPTIMIZER]);
        EXPECT_DOUBLE_EQ(states, p * bytes[stage]) << "stage " << stage;
        EXPECT_EQ(memcmp(ledger->peak,
                         z3d_engine_measured(of.of->simulation->engine, Z3D_SPACE_DEVICE)->peak,
                         sizeof ledger->peak),
                  0);
    }
}

TEST(Simulate, RanksThatShareCoresComputeLonger) {
    Case of(config(2, 1024, 16, 1, 2, 2), 4);
    of.hardware.overlap = 0;
    z3d_step_time alone = of.estimate().time;
    of.hardware.cores = 1; // for the four ranks of this one node
    z3d_step_time crowded = of.estimate().time;
    EXPECT_NEAR(crowded.compute, 4 * alone.compute, 1e-9);
    EXPECT_NEAR(crowded.seconds, 4 * alone.seconds, 1e-9); // cores also move the data
    of.hardware.devices = 1; // every rank a node: its own core, but the network between
    z3d_step_time nodes = of.estimate().time;
    EXPECT_NEAR(nodes.compute, alone.compute, 1e-9);
    of.hardware.network_overlap = 1; // which works while cores compute
    EXPECT_LT(of.estimate().time.seconds, nodes.seconds);
}

TEST(Simulate, MoreOverlapIsNeverSlower) {
    Case of(config(6, 1024, 16, 16, 2, 2), 128);
    double last = INFINITY;
    for (double overlap : {0.0, 0.25, 0.5, 1.0}) {
        of.hardware.overlap = overlap;
        z3d_estimate e = of.estimate();
        expect_complete(e.time);
        EXPECT_LT(e.time.seconds, last);
        last = e.time.seconds;
    }
    // Nothing beside anything else: all of it is waited for, one after the other.
    of.hardware.overlap = 0;
    z3d_estimate e = of.estimate();
    double busy = 0;
    for (double b : e.time.busy) busy += b;
    EXPECT_NEAR(e.time.seconds, e.time.compute + busy, 1e-9 * e.time.seconds);
}

// Where all that a rank sends takes turns, as with NCCL and an old driver. A group alone has one
// lane anyway; nobody waits for ever.
TEST(Simulate, OneLaneForAllIsNeverFaster) {
    const std::string four = config(4, 1024, 16, 4, 2, 2);
    for (const auto &[text, ranks, slower] :
         {std::tuple<std::string, int, bool>{config(4, 1024, 16, 1, 2, 2), 16, false},
          {four, 16, true},
          {with_pipeline(four, "pipeline_model_parallel_size: 2", 4), 32, true},
          {with_pipeline(four, "pipeline_model_parallel_size: 2, pipeline_schedule: zb-h1", 4), 32,
           true}}) {
        Case of(text, ranks);
        const double apart = of.estimate().time.seconds;
        of.hardware.one_lane = 1;
        const z3d_step_time together = of.estimate().time;
        expect_complete(together);
        EXPECT_GE(together.seconds, apart * (1 - 1e-9)) << text;
        EXPECT_EQ(together.seconds > apart * (1 + 1e-6), slower) << text;
    }
}

TEST(Simulate, FullOverlapHidesWhatIsSmall) {
    // One rank a node: data collectives over the network, long compute to hide them.
    Case of(config(12, 2048, 16, 1, 16, 2), 32);
    of.hardware.overlap = 1;
    z3d_estimate e = of.estimate();
    EXPECT_LT(e.time.exposed[Z3D_AXES_DATA], 0.5 * e.time.busy[Z3D_AXES_DATA]);
    EXPECT_GT(e.time.busy[Z3D_AXES_DATA], 0);
}

TEST(Simulate, VolumesAreTheFormulas) {
    // 2P (N-1)/N for stages 0 to 2, 3P for stage 3, in bytes of fp16.
    for (int stage = 0; stage < 4; stage++) {
        Case of(config(4, 1024, 16, 1, 1, stage), 16);
        z3d_estimate e = of.estimate();
        double p = (double)z3d_engine_layout(of.of->simulation->engine)->padded_total;
        // Stage 3 gathers twice what backward reads again: all but the position table and the last
        // norm.
        double once = stage < 3 ? 0 : 1024 * 1024 + 2 * 1024, passes = stage < 3 ? 2 : 3;
        EXPECT_NEAR(e.time.bytes[Z3D_AXES_DATA], (passes * p - once) * 15 / 16 * 2, 1e3);
        EXPECT_EQ(e.time.bytes_between_nodes[Z3D_AXES_DATA], 0); // 16 devices: one node
    }
}

TEST(Simulate, CopiesBesideKernels) {
    std::string offload = "activation_checkpointing: { partition_activations: true, "
                          "cpu_checkpointing: true }\n";
    Case of(config(8, 2048, 16, 16, 8, 2, offload), 64);
    of.hardware.copy_overlap = 0;
    double blocking = of.estimate().time.transfer;
    EXPECT_GT(blocking, 0);
    of.hardware.copy_overlap = of.hardware.overlap = 1;
    z3d_estimate beside = of.estimate();
    EXPECT_LT(beside.time.transfer, blocking);
    EXPECT_GT(beside.memory.host_arena, 0);
    expect_complete(beside.time);
}

// ---- offload ----

std::string offload(const std::string &optimizer, const std::string &parameters = "none") {
    std::string text = config(4, 1024, 16, 1, 2, 3);
    const std::string key = "stage: 3", path = "nvme, nvme_path: /tmp";
    auto device = [&](const std::string &name) { return name == "nvme" ? path : name; };
    return text.replace(
        text.find(key), key.size(),
        key + ", sub_group_size: 1e6, offload_optimizer: { device: " + device(optimizer) +
            " }, offload_param: { device: " + device(parameters) + " }");
}

// The seconds of each lane, the waits for it, and the bytes that its copies move.
struct Lanes {
    double beside[Z3D_LANES] = {}, waits[Z3D_LANES] = {}, last[Z3D_LANES] = {};
    z3d_step_time time{};

    static void take(void *context, const z3d_span *span) {
        auto *to = static_cast<Lanes *>(context);
        if (span->kind == Z3D_SPAN_WAIT) to->waits[span->lane] += span->end - span->begin;
        if (span->kind != Z3D_SPAN_BESIDE) return;
        EXPECT_GE(span->begin, to->last[span->lane] - 1e-9); // one after the other
        to->last[span->lane] = span->end;
        to->beside[span->lane] += span->end - span->begin;
    }
    explicit Lanes(Case &of) {
        EXPECT_EQ(of.status, Z3D_OK) << z3d_error_message();
        z3d_estimate e{};
        z3d_spans spans{take, this};
        EXPECT_EQ(z3d_estimate_make(of.of, &of.hardware, 0, &spans, &e), Z3D_OK)
            << z3d_error_message();
        time = e.time;
        expect_complete(time);
        EXPECT_NEAR(waits[Z3D_LANE_DISK] + waits[Z3D_LANE_DISK_WRITE], time.disk, 1e-9);
        EXPECT_NEAR(waits[Z3D_LANE_HOST], time.host, 1e-9);
        EXPECT_NEAR(waits[Z3D_LANE_COPY], time.transfer, 1e-9);
    }
};

// A rank's copies and host kernels, as the tape has them.
double seconds_of(const Case &of, int lane, double rate) {
    const z3d_tape *tape = of.of->simulation->stage[0].tape;
    double bytes = 0;
    for (int64_t i = 0; i < tape->count; i++) {
        const z3d_event e = z3d_tape_at(tape, i);
        if (e.kind == Z3D_EVENT_KERNEL && lane == Z3D_LANE_HOST && e.to == Z3D_SPACE_HOST)
            bytes += (double)e.bytes;
        if (e.kind != Z3D_EVENT_COPY_START) continue;
        if (lane == Z3D_LANE_DISK && e.from == Z3D_SPACE_DISK) bytes += (double)e.bytes;
        if (lane == Z3D_LANE_DISK_WRITE && e.to == Z3D_SPACE_DISK) bytes += (double)e.bytes;
    }
    return bytes / (rate * 1e9);
}

TEST(Simulate, DiskAndHostHaveLanes) {
    Case cpu(offload("cpu"), 4), disk(offload("nvme"), 4), all(offload("nvme", "nvme"), 4);
    Lanes a(cpu), b(disk), c(all);
    const double p = (double)z3d_engine_layout(cpu.of->simulation->engine)->padded_total / 4;
    // Four ranks of a node share its cores and disks. AdamW in fp16: 30 bytes an element.
    EXPECT_NEAR(a.beside[Z3D_LANE_HOST], 4 * 30 * p / (cpu.hardware.host_optimizer * 1e9),
                0.01 * a.beside[Z3D_LANE_HOST]);
    EXPECT_EQ(a.time.disk, 0);
    EXPECT_EQ(a.beside[Z3D_LANE_DISK], 0);
    for (const auto &[of, lanes] : {std::pair<Case *, Lanes *>{&disk, &b}, {&all, &c}}) {
        EXPECT_GT(lanes->time.disk, 0);
        EXPECT_NEAR(lanes->beside[Z3D_LANE_DISK],
                    seconds_of(*of, Z3D_LANE_DISK, of->hardware.nvme_read / 4), 1e-9);
        EXPECT_NEAR(lanes->beside[Z3D_LANE_DISK_WRITE],
                    seconds_of(*of, Z3D_LANE_DISK_WRITE, of->hardware.nvme_write / 4), 1e-9);
    }
    // States and gradients: 14 bytes each way. Parameters are read for both passes, but for those
    // that backward does not read, and written once.
    EXPECT_NEAR(b.beside[Z3D_LANE_DISK], 4 * 14 * p / (disk.hardware.nvme_read * 1e9), 1e-3);
    EXPECT_NEAR(c.beside[Z3D_LANE_DISK_WRITE], 4 * 16 * p / (all.hardware.nvme_write * 1e9), 1e-3);
    EXPECT_GT(c.beside[Z3D_LANE_DISK], b.beside[Z3D_LANE_DISK]);
}

// Reads, steps and writes of different pieces run beside each other; on a disk that does one thing
// at a time writes wait for reads.
TEST(Simulate, PiecesOverlap) {
    Case of(offload("nvme"), 4);
    Lanes apart(of);
    const double read = apart.beside[Z3D_LANE_DISK], write = apart.beside[Z3D_LANE_DISK_WRITE],
                 step = apart.beside[Z3D_LANE_HOST];
    const double exposed = apart.time.disk + apart.time.host + apart.time.transfer;
    EXPECT_LT(exposed, 0.8 * (read + write + step));
    EXPECT_GE(exposed, 0.99 * std::max(write, read));
    of.hardware.nvme_duplex = 0;
    Lanes shared(of);
    EXPECT_EQ(shared.beside[Z3D_LANE_DISK_WRITE], 0);
    EXPECT_NEAR(shared.beside[Z3D_LANE_DISK], read + write, 1e-9);
    EXPECT_GT(shared.time.seconds, apart.time.seconds);
    of.hardware.host_optimizer /= 100; // then the step hides the disk
    Lanes slow(of);
    EXPECT_GT(slow.time.host, 0.9 * slow.beside[Z3D_LANE_HOST]);
    EXPECT_LT(slow.time.disk, shared.time.disk);
}

// A cpu machine's device is the host's cores.
TEST(Simulate, TheHostOfACpuMachineIsItsDevice) {
    Case of(offload("cpu"), 4);
    (void)snprintf(of.hardware.kind, sizeof of.hardware.kind, "cpu");
    of.hardware.host_optimizer = 0;
    Lanes lanes(of);
    EXPECT_EQ(lanes.time.host, 0);
    EXPECT_EQ(lanes.beside[Z3D_LANE_HOST], 0);
}

TEST(Simulate, UnknownRatesAreRefused) {
    z3d_estimate e{};
    Case disk(offload("nvme"), 4), cpu(offload("cpu"), 4);
    disk.hardware.nvme_write = 0;
    EXPECT_EQ(z3d_estimate_make(disk.of, &disk.hardware, 0, nullptr, &e), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("node.nvme_write_gb_per_s"), std::string::npos);
    cpu.hardware.host_optimizer = 0;
    EXPECT_EQ(z3d_estimate_make(cpu.of, &cpu.hardware, 0, nullptr, &e), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("node.host_optimizer_gb_per_s"),
              std::string::npos);
}

// A rank has its node's host memory and disks for itself where it is alone.
TEST(Simulate, RanksShareHostMemoryAndDisks) {
    Case one(offload("nvme"), 1), four(offload("nvme"), 4);
    const z3d_memory_need a = one.estimate().memory, b = four.estimate().memory;
    EXPECT_NEAR(a.host_capacity, 4 * b.host_capacity, 1);
    EXPECT_NEAR(a.disk_capacity, 4 * b.disk_capacity, 1);
    EXPECT_GT(b.disk_arena, 0);
    EXPECT_TRUE(b.fits);
    four.hardware.nvme_gib = 3 * (double)b.disk_arena / 1073741824.0;
    EXPECT_FALSE(four.estimate().memory.fits);
    four.hardware.nvme_gib = 0; // not known
    EXPECT_TRUE(four.estimate().memory.fits);
}

// As much over the tensor group as partitioned checkpoints, but for the sums of the replicated
// parameters' gradients (6 h a block, s h and 2 h, of which a shard has at most all); in less
// memory.
TEST(Simulate, SequenceParallelism) {
    const int layers = 8, hidden = 2048, tensor = 16;
    std::string text = config(layers, hidden, 16, tensor, 8, 2,
                              "activation_checkpointing: { partition_activations: true }\n");
    Case parts(text, 64);
    std::string key = "tensor_model_parallel_size: 16";
    text.replace(text.find(key), key.size(), key + ", sequence_parallel: true");
    Case sequence(text, 64);
    z3d_estimate a = parts.estimate(), b = sequence.estimate();
    double more = b.time.bytes[Z3D_AXES_TENSOR] - a.time.bytes[Z3D_AXES_TENSOR];
    EXPECT_GE(more, 0);
    EXPECT_LE(more, 2 * 2.0 * hidden * (6 * layers + 1024 + 2) * (tensor - 1) / tensor);
    EXPECT_LT(b.memory.arena, a.memory.arena);
    expect_complete(b.time);
}

// Blocks that are recomputed are gathered a third time; embedding and head are not.
TEST(Simulate, GathersAgainForTheBackward) {
    Case of(config(4, 1024, 16, 1, 2, 3, "activation_checkpointing: { granularity: full }\n"), 16);
    of.hardware.overlap = 0;
    const z3d_estimate once = of.estimate();
    const double block = 12.0 * 1024 * 1024 + 13 * 1024;
    of.hardware.gathers_again = block;
    EXPECT_EQ(of.estimate().time.seconds, once.time.seconds); // the block is not larger
    of.hardware.gathers_again = block - 1;
    const z3d_estimate again = of.estimate();
    const double more = 4 * block * 2 * 15 / 16;
    EXPECT_NEAR(again.time.bytes[Z3D_AXES_DATA] - once.time.bytes[Z3D_AXES_DATA], more,
                1e-3 * more);
    EXPECT_GT(again.time.seconds, once.time.seconds);
    Case kept(config(4, 1024, 16, 1, 2, 3, "activation_checkpointing: { granularity: none }\n"),
              16);
    const double before = kept.estimate().time.seconds;
    kept.hardware.gathers_again = 1;
    EXPECT_EQ(kept.estimate().time.seconds, before);
}

TEST(Simulate, AFullDeviceIsSlower) {
    Case of(config(4, 1024, 16, 16, 2, 2), 64);
    of.hardware.allocator_ms = 5;
    EXPECT_EQ(of.estimate().time.allocator, 0);
    z3d_estimate e = of.estimate(of.hardware.memory_gib * 1073741824.0); // an extra line: no room
    EXPECT_FALSE(e.memory.fits);
    EXPECT_LT(e.memory.free, 0);
    // Six units go forward and backward, four blocks are recomputed.
    EXPECT_NEAR(e.time.allocator, 16 * 5e-3, 1e-9);
    expect_complete(e.time);
}

TEST(Simulate, TensorGroupsAcrossNodesAreAskedForByName) {
    Case of(config(2, 1024, 32, 32, 1, 0), 64);
    z3d_estimate e;
    ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
    EXPECT_EQ(z3d_estimate_make(of.of, &of.hardware, 0, nullptr, &e), Z3D_ERR_TOPOLOGY);
    EXPECT_NE(std::string(z3d_error_message()).find("allow_tensor_across_nodes"),
              std::string::npos);
    EXPECT_NE(of.status, Z3D_ERR_INTERNAL);
}

// Products in a type that the machine does not have are not free, also where the number is left
// out.
TEST(Simulate, ATypeWithoutProductsHasNoPrice) {
    Case of(config(2, 1024, 16, 1, 1, 2), 8);
    z3d_estimate e;
    ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
    z3d_hardware &h = of.hardware;
    const double whole = of.estimate().time.seconds;
    h.peak_fp32 = 0; // the run has no such products, only other kernels
    EXPECT_EQ(of.estimate().time.seconds, whole);
    h.peak_fp16 = 0;
    EXPECT_EQ(z3d_estimate_make(of.of, &h, 0, nullptr, &e), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("has no fp16 products "), std::string::npos);
    h.peak_bf16 = h.peak_fp32 = 1;
    const std::string where = " products (device.peak_tflops.";
    const std::string of_file = " of " + std::string(h.file) + "): ";
    const char *const writes[] = {"write bf16: { enabled: true }, or give the number",
                                  "write a configuration without bf16 and fp16, or give the number",
                                  "give the number"};
    for (const char *expected : writes) {
        EXPECT_EQ(z3d_hardware_check_products(&h, Z3D_F16), Z3D_ERR_CONFIG);
        EXPECT_EQ(std::string(z3d_error_message()),
                  std::string(h.device) + " has no fp16" + where + "fp16" + of_file + expected);
        (h.peak_bf16 > 0 ? h.peak_bf16 : h.peak_fp32) = 0;
    }
    h.peak_fp16 = 1;
    EXPECT_EQ(z3d_hardware_check_products(&h, Z3D_F16), Z3D_OK);
    EXPECT_EQ(z3d_hardware_check_products(&h, Z3D_BF16), Z3D_ERR_CONFIG);
    EXPECT_EQ(z3d_hardware_check_products(&h, Z3D_F32), Z3D_ERR_CONFIG);
}

// Four nodes of 16 ranks. Of all ranks of a tensor group one writes what all of them hold: the
// position table, two norms a layer and one at the end, two biases a layer. Each node then has a
// quarter of 12 bytes a parameter, and reads, where tensor ranks share it, what they hold alike
// once each.
TEST(Simulate, ACheckpointsBytesAndSeconds) {
    const double hidden = 1024, alike = 1024 * hidden + 4 * 6 * hidden + 2 * hidden;
    for (int stage : {0, 2}) {
        for (int tensor : {1, 4}) {
            Case of(config(4, 1024, 16, tensor, 2, stage), 64);
            of.hardware.disk_write = 2;
            of.hardware.disk_read = 4;
            z3d_saving s = of.saving();
            double p = (double)z3d_model_parameter_count(of.of->model);
            double read = 12 * (p + (tensor - 1) * alike) / (stage == 0 ? 1 : 4);
            EXPECT_EQ(s.bytes, 12 * p);
            EXPECT_NEAR(s.node_saved, 3 * p, 0.001 * 3 * p); // rounded shards; who holds what
            EXPECT_NEAR(s.node_loaded, read, 0.001 * read);
            EXPECT_GE(s.node_saved, 3 * p);
            EXPECT_EQ(s.save_seconds, s.node_saved / 2e9);
            EXPECT_EQ(s.load_seconds, s.node_loaded / 4e9);
            of.hardware.devices = 128; // one node, not full
            EXPECT_EQ(of.saving().node_saved, 12 * p);
        }
    }
}

// Of 600 nodes 512 are looked at: a 600th of all bytes is on each, with rounded shards.
TEST(Simulate, ACheckpointOfManyNodes) {
    Case of(config(4, 1024, 16, 1, 2, 1), 9600);
    const double p = (double)z3d_model_parameter_count(of.of->model);
    z3d_saving s = of.saving();
    EXPECT_EQ(s.bytes, 12 * p);
    EXPECT_NEAR(s.node_saved, 12 * p / 600, 0.03 * 12 * p / 600);
    EXPECT_GE(s.node_saved, 12 * p / 600);
}

// Training stands still for all of a save, or for a copy to host memory at 16 GB/s.
TEST(Simulate, ACheckpointStallsTraining) {
    const std::string model = config(4, 1024, 16, 1, 2, 1);
    Case waits(model, 64);
    EXPECT_EQ(waits.saving().stall_seconds, -1);
    waits.hardware.disk_write = 1;
    EXPECT_EQ(waits.saving().stall_seconds, waits.saving().save_seconds);
    Case beside(model + "checkpoint: { async: true }\n", 64);
    beside.hardware.disk_write = 1;
    beside.hardware.host_bandwidth = 16;
    beside.hardware.host_sharing = beside.hardware.host_efficiency = 1;
    const z3d_saving s = beside.saving();
    EXPECT_EQ(s.save_seconds, waits.saving().save_seconds);
    EXPECT_NEAR(s.stall_seconds, s.node_saved / 16 / 16e9, 0.01 * s.stall_seconds);
}

// Pipeline stages on one node: what all data ranks keep is read once for each stage, as where each
// data rank keeps its part. Both stages hold the tied table.
TEST(Simulate, ACheckpointOfStagesOnANode) {
    for (int stage : {0, 1}) {
        Case of(
            with_pipeline(config(4, 1024, 16, 2, 2, stage), "pipeline_model_parallel_size: 2", 2),
            16);
        double p = (double)z3d_model_parameter_count(of.of->model), table = 51200 * 1024;
        double alike = 1024 * 1024 + 4 * 6 * 1024 + 2 * 1024; // on both tensor ranks, as above
        double read = 12 * (p + table + alike);
        EXPECT_NEAR(of.saving().node_loaded, read, 0.001 * read) << "stage " << stage;
    }
}

TEST(Simulate, ACheckpointInWords) {
    Case of(config(4, 1024, 16, 1, 2, 2), 64);
    z3d_estimate e = of.estimate();
    z3d_string text{};
    auto print = [&](decltype(z3d_estimate_print) *form) {
        z3d_saving s = of.saving();
        z3d_string_free(&text);
        form(of.of, &of.hardware, &e, &s, 0, &text);
        return std::string(text.text);
    };
    double p = (double)z3d_model_parameter_count(of.of->model);
    for (const char *way : {"write", "read"})
        EXPECT_NE(print(z3d_estimate_print)
                      .find(std::string("time not known (the hardware file has no node.disk_") +
                            way + "_gb_per_s)"),
                  std::string::npos);
    EXPECT_NE(print(z3d_estimate_json).find("\"save_seconds\": null, \"load_seconds\": null"),
              std::string::npos);
    of.hardware.disk_write = 0.01;
    char line[96];
    double node = of.saving().node_saved;
    (void)snprintf(line, sizeof line, "a node's ranks write %18.3f GB  %.3f s\n", 1e-9 * node,
                   1e-7 * node);
    EXPECT_NE(print(z3d_estimate_print).find(line), std::string::npos) << line << text.text;
    (void)snprintf(line, sizeof line, "\"checkpoint\": {\"bytes\": %.0f, ", 12 * p);
    EXPECT_NE(print(z3d_estimate_json).find(line), std::string::npos) << line << text.text;
    z3d_string_free(&text);
}

TEST(Simulate, SizesThatOverflowAreRefused) {
    Case of(
        "model: { num_layers: 1000000, hidden_size: 1048576, num_attention_heads: 64, "
        "seq_length: 16777216 }\ntrain_micro_batch_size_per_gpu: 1000000\nfp16: { enabled: true "
        "}\ngradient_accumulation_steps: 1\n",
        8);
    EXPECT_NE(of.status, Z3D_OK);
    EXPECT_NE(std::string(z3d_error_message()), "");
}

TEST(Simulate, RanksThatDoNotDivideAreRefused) {
    Case of(config(2, 1024, 16, 16, 1, 2), 40);
    EXPECT_NE(of.status, Z3D_OK);
}

TEST(Simulate, ATrillionParametersOn1024Ranks) {
    Case of(config(128, 25600, 160, 16, 8, 3,
                   "activation_checkpointing: { partition_activations: true }\n"),
            1024, 37);
    z3d_estimate e = of.estimate();
    EXPECT_GT((double)z3d_model_parameter_count(of.of->model), 1e12);
    EXPECT_TRUE(e.memory.fits); // 16P/N: 15.6 GB of states
    expect_complete(e.time);
#ifndef ZERO3D_SANITIZED
    rusage used{};
    ASSERT_EQ(getrusage(RUSAGE_SELF, &used), 0);
    EXPECT_LT(used.ru_maxrss, 200 * 1024); // of this whole test program
#endif
}

// The largest stage decides; every rank finds the same stages. Long tests: as many stages, and
// micro-batches for each of them, as are published.
TEST(Simulate, ATrillionParametersInAPipeline) {
    const int stages = is_long() ? 64 : 16, micros = 6 * stages;
    std::string text =
        config(128, 25600, 160, 8, 1, 1, "activation_checkpointing: { granularity: full }\n");
    Case of(with_pipeline(text, "pipeline_model_parallel_size: " + std::to_string(stages), micros),
            48 * stages, 25 * stages + 3, "dgx-a100");
    z3d_estimate e = of.estimate();
    expect_complete(e.time);
    EXPECT_EQ(of.of->simulation->stages, stages);
    EXPECT_EQ(of.of->simulation->own, (25 * stages + 3) / 48);
    EXPECT_EQ(e.fullest_stage, 0);
    EXPECT_GT(e.fullest.arena, e.memory.arena);
    EXPECT_GT(e.bubble, (stages - 1.0) / (micros + stages - 1)); // of equal stages; these are not
    EXPECT_LT(e.bubble, 0.3);
#ifndef ZERO3D_SANITIZED
    rusage used{};
    ASSERT_EQ(getrusage(RUSAGE_SELF, &used), 0);
    EXPECT_LT(used.ru_maxrss, 300 * 1024); // of this whole test program
#endif
}

// Of each stage, in a play: when its first pass starts and its last ends, and its own work in them.
struct Passes {
    const z3d_simulation *simulation;
    struct Stage {
        double first = INFINITY, last = 0, work = 0;
    };
    std::vector<Stage> stage;
    static bool is_pass(z3d_opcode opcode) {
        return opcode == Z3D_OP_FORWARD || opcode == Z3D_OP_BACKWARD ||
               opcode == Z3D_OP_BACKWARD_INPUT || opcode == Z3D_OP_BACKWARD_WEIGHT;
    }
    static void take(void *context, const z3d_span *span) {
        auto *passes = static_cast<Passes *>(context);
        if (span->kind != Z3D_SPAN_INSTRUCTION) return;
        const z3d_sim_stage *of = &passes->simulation->stage[span->stage];
        if (!is_pass(of->entry[span->instruction].opcode)) return;
        Stage &stage = passes->stage[(size_t)span->stage];
        stage.first = std::min(stage.first, span->begin);
        stage.last = std::max(stage.last, span->end);
        stage.work += span->end - span->begin;
    }
};

// The bubble as Qi et al. define it: (cost - m (F + B + W)) / cost, where cost is the largest time
// of a stage, and F, B and W, which all stages share, are those of a stage in the middle.
double bubble_rate(const z3d_simulation *simulation, const z3d_hardware *hardware) {
    Passes passes{simulation, std::vector<Passes::Stage>((size_t)simulation->stages)};
    z3d_spans spans = {Passes::take, &passes};
    z3d_step_time time;
    EXPECT_EQ(z3d_simulation_play(simulation, hardware, 0, &spans, &time), Z3D_OK)
        << z3d_error_message();
    double cost = 0, work = passes.stage[passes.stage.size() / 2].work;
    for (const auto &stage : passes.stage) {
        EXPECT_NEAR(stage.work, work, 0.01 * work);
        cost = std::max(cost, stage.last - stage.first);
    }
    return (cost - work) / cost;
}

// Three blocks on each stage, one a chunk if it is interleaved. Embedding and head, of two words,
// take next to no time, so stages are equal.
std::string equal_stages(int stages, int hidden, int heads, int batch, int micros,
                         const std::string &schedule) {
    bool interleaved = schedule == "interleaved";
    int chunks = interleaved ? 3 * stages : stages, each = 3 * stages / chunks;
    std::string text = config(3 * stages, hidden, heads, 1, batch, 1,
                              "activation_checkpointing: { granularity: none }\n");
    const std::string words = "vocab_size: 51200";
    text.replace(text.find(words), words.size(), "vocab_size: 2");
    std::string keys = "pipeline_model_parallel_size: " + std::to_string(stages) +
                       ", pipeline_schedule: " + schedule + ", pipeline_partition: [";
    for (int c = 0; c < chunks; c++)
        keys += std::to_string(each + (c == 0 || c == chunks - 1)) + (c < chunks - 1 ? ", " : "]");
    if (interleaved) keys += ", virtual_pipeline_model_parallel_size: 3";
    return with_pipeline(text, keys, micros);
}

// Qi et al. (2401.10241), 1.5B on 8 and 14.6B on 16 A100s: on the machine as it is described, and
// with attention that is not fused, as theirs seems to have been (docs/pipelines.md). The first
// gives too small a bubble for zb-h1. Long tests: all rows.
TEST(Simulate, ZeroBubblesTable) {
    struct Row {
        int stages, hidden, heads, batch, micros;
        double published[3]; // by schedule
    };
    const Row rows[] = {{8, 2304, 24, 6, 24, {0.2431, 0.1055, 0.1585}},
                        {8, 2304, 24, 6, 32, {0.1985, 0.0818, 0.1242}},
                        {8, 2304, 24, 6, 64, {0.1240, 0.0443, 0.0674}},
                        {16, 5120, 40, 1, 48, {0.2552, 0.1104, 0.1397}},
                        {16, 5120, 40, 1, 64, {0.2082, 0.0852, 0.1088}},
                        {16, 5120, 40, 1, 128, {0.1251, 0.0445, 0.0576}}};
    const char *schedules[] = {"1f1b", "interleaved", "zb-h1"};
    for (const Row &row : rows) {
        if (!is_long() && (row.micros == 32 || row.micros * row.stages > 800)) continue;
        for (int s = 0; s < 3; s++) {
            SCOPED_TRACE(std::to_string(row.stages) + " stages, m " + std::to_string(row.micros) +
                         ", " + schedules[s]);
            Case of(equal_stages(row.stages, row.hidden, row.heads, row.batch, row.micros,
                                 schedules[s]),
                    row.stages, 0, "dgx-a100");
            ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
            bool as_it_is = s < 2 || row.micros == 128;
            double published = row.published[s];
            double as_described = bubble_rate(of.of->simulation, &of.hardware);
            of.hardware.attention_fused = 0;
            double not_fused = bubble_rate(of.of->simulation, &of.hardware);
            if (as_it_is) {
                EXPECT_NEAR(as_described, published, 0.02);
            }
            EXPECT_NEAR(not_fused, published, 0.02);
        }
    }
}

// A row for each stage, a number for each micro-batch, shares that add up.
TEST(Simulate, APictureOfASchedule) {
    Case of(with_pipeline(config(8, 1024, 16, 1, 2, 1), "pipeline_model_parallel_size: 4", 5), 4);
    ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
    z3d_string picture{};
    ASSERT_EQ(z3d_schedule_picture(of.of, &of.hardware, &picture), Z3D_OK) << z3d_error_message();
    std::string svg(picture.text);
    z3d_string_free(&picture);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
    EXPECT_NE(svg.find("</svg>\n"), std::string::npos);
    for (const char *word : {"pipeline stage", "1f1b", "exposed communication", "forward"})
        EXPECT_NE(svg.find(word), std::string::npos) << word;
    double bubble = 0, seconds = 0;
    for (int s = 0; s < 4; s++) {
        bubble += of.of->simulation->stage[s].time.bubble;
        seconds += of.of->simulation->stage[s].time.seconds;
    }
    char share[64];
    (void)snprintf(share, sizeof share, ">bubble %.2f %%<", 100 * bubble / seconds);
    EXPECT_NE(svg.find(share), std::string::npos) << share;
    size_t open = 0, closed = 0;
    for (size_t at = 0; (at = svg.find("<rect", at)) != std::string::npos; at++) open++;
    for (const char *end : {"/>", "</rect>"})
        for (size_t at = 0; (at = svg.find(end, at)) != std::string::npos; at++) closed++;
    EXPECT_GT(open, 4U * 5 * 2);
    EXPECT_GE(closed, open);
}

// The optimizer's step on the host is work, and no communication.
TEST(Simulate, APictureOfAHostStep) {
    Case of(offload("cpu"), 4);
    ASSERT_EQ(of.status, Z3D_OK) << z3d_error_message();
    z3d_string picture{};
    ASSERT_EQ(z3d_schedule_picture(of.of, &of.hardware, &picture), Z3D_OK) << z3d_error_message();
    std::string svg(picture.text);
    z3d_string_free(&picture);
    EXPECT_NE(svg.find("<title>optimizer: "), std::string::npos);
    const z3d_step_time &t = of.of->simulation->stage[0].time;
    EXPECT_GT(t.host, 0);
    char share[64];
    (void)snprintf(share, sizeof share, ">compute %.2f %% of",
                   100 * (t.compute + t.host) / t.seconds);
    EXPECT_NE(svg.find(share), std::string::npos) << share;
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
