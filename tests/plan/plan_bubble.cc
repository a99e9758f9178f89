// Pipelines on the sim device: the bubble in the played timeline, what a transfer costs, what is
// counted, which tapes are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "src/plan/price/simulate.h"
#include "zero/program/layout.h"
}

namespace {

constexpr int64_t WIDTH = 64;

z3d_status product(z3d_unit_run *run, const void *a, const void *b, void *c) {
    z3d_kernel kernel{};
    kernel.kind = Z3D_KERNEL_gemm;
    z3d_gemm &g = kernel.as.gemm;
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = WIDTH;
    g.a = a, g.b = b, g.c = c;
    g.dtype = g.c_dtype = Z3D_F32;
    return z3d_launch(run->device, &kernel);
}

// A square linear layer; the first has no input, the last no output: they multiply something else.
struct Square {
    z3d_unit_run *run;
    void *spare = nullptr;
    explicit Square(z3d_unit_run *run) : run(run) {}
    z3d_status prepare() {
        return z3d_unit_take_workspace(run, WIDTH * WIDTH, sizeof(float), &spare);
    }
    const void *x() const {
        return run->input ? run->input : spare;
    }
    const void *dy() const {
        return run->output_gradient ? run->output_gradient : spare;
    }
    z3d_status forward() const {
        return product(run, x(), z3d_unit_parameter(run, 0, 0), run->output ? run->output : spare);
    }
    z3d_status input_half() const {
        return product(run, dy(), z3d_unit_parameter(run, 0, 0),
                       run->input_gradient ? run->input_gradient : spare);
    }
    z3d_status weight_half() const {
        return product(run, x(), dy(), z3d_unit_gradient(run, 0, 0));
    }
};

z3d_status forward(z3d_unit_run *run) {
    Square square(run);
    Z3D_TRY(square.prepare());
    return square.forward();
}
z3d_status backward_halves(z3d_unit_run *run, z3d_halves halves) {
    Square square(run);
    Z3D_TRY(square.prepare());
    if (halves & Z3D_INPUT_HALF) Z3D_TRY(square.input_half());
    return halves & Z3D_WEIGHT_HALF ? square.weight_half() : Z3D_OK;
}
const z3d_unit_ops SQUARE = {forward, nullptr, backward_halves};

// As many equal units as there are chunks.
struct Pipeline {
    z3d_model *model = nullptr;
    z3d_program_config program = {};
    z3d_mesh mesh = {};
    z3d_simulation *simulation = nullptr;
    z3d_hardware hardware = {};
    z3d_step_time time = {};
    z3d_status status;

    Pipeline(z3d_schedule_kind schedule, int stages, int each, int micros, int rank = 0) {
        int units = stages * each;
        EXPECT_EQ(Z3D_OK, z3d_model_create(units, 1, units, &model));
        model->tensor_size = 1;
        for (int u = 0; u < units; u++) {
            z3d_parameter_group *group = &model->group[u];
            snprintf(group->name, Z3D_NAME, "square.%d", u);
            group->num_parameters = 1;
            z3d_parameter *w = &group->parameter[0];
            *w = {};
            snprintf(w->name, Z3D_NAME, "w");
            w->dims = 2, w->shape[0] = w->shape[1] = WIDTH;
            w->split_dim = -1, w->weight_decay = true;
            z3d_unit *unit = &model->unit[u];
            snprintf(unit->name, Z3D_NAME, "square.%d", u);
            unit->ops = &SQUARE;
            unit->kind = u;
            unit->index = u;
            unit->num_groups = 1;
            unit->group[0] = u;
            if (u < units - 1) unit->output_elements[Z3D_MODE_TRAIN] = WIDTH;
            if (u < units - 1) unit->output_elements[Z3D_MODE_EVALUATE] = WIDTH;
        }
        program.dtype = program.grad_dtype = Z3D_F32;
        program.micro_batch = WIDTH;
        program.accumulation = micros;
        program.reduce_per_step = program.overlap = true;
        program.reduce_bucket = program.gather_bucket = 1 << 20;
        program.pipeline.schedule = schedule;
        program.pipeline.chunks_per_stage = each;
        EXPECT_EQ(Z3D_OK, z3d_mesh_make(1, 1, stages, rank, &mesh));
        status = z3d_simulation_create(model, &mesh, &program, 0, {}, &simulation);
        // Only products take time: a second each.
        for (double *free : {&hardware.memory_bandwidth, &hardware.link_bandwidth,
                             &hardware.network_bandwidth, &hardware.host_bandwidth})
            *free = INFINITY;
        for (double *one : {&hardware.gemm_efficiency, &hardware.attention_efficiency,
                            &hardware.memory_efficiency, &hardware.link_efficiency,
                            &hardware.network_efficiency, &hardware.host_efficiency,
                            &hardware.host_sharing, &hardware.overlap, &hardware.copy_overlap})
            *one = 1;
        hardware.network_overlap = -1;
        hardware.peak_fp32 = 2e-12 * WIDTH * WIDTH * WIDTH;
        hardware.devices = 8;
    }
    ~Pipeline() {
        z3d_simulation_destroy(simulation);
        z3d_model_destroy(model);
    }
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;

    // The share of all stages' time that is waiting for others and their transfers.
    double play(const z3d_spans *spans = nullptr) {
        EXPECT_EQ(Z3D_OK, status) << z3d_error_message();
        if (status != Z3D_OK) return NAN;
        EXPECT_EQ(Z3D_OK, z3d_simulation_play(simulation, &hardware, 0, spans, &time))
            << z3d_error_message();
        for (int s = 0; s < simulation->stages; s++) expect_complete(simulation->stage[s].time);
        double sends, bubble = z3d_simulation_bubble(simulation, &sends);
        return bubble + sends;
    }
    // Every second of a stage's step is counted once.
    void expect_complete(const z3d_step_time &t) const {
        double sum = t.compute + t.transfer + t.disk + t.host + t.allocator + t.bubble;
        for (double exposed : t.exposed) sum += exposed;
        EXPECT_NEAR(sum, t.seconds, 1e-9 * t.seconds);
        EXPECT_EQ(t.seconds, time.seconds);
    }
};

} // namespace

TEST(Bubble, EqualUnitsAndFreeTransfers) {
    const struct {
        z3d_schedule_kind kind;
        int each;
    } cases[] = {{Z3D_SCHEDULE_1F1B, 1},
                 {Z3D_SCHEDULE_GPIPE, 1},
                 {Z3D_SCHEDULE_INTERLEAVED, 2},
                 {Z3D_SCHEDULE_INTERLEAVED, 3}};
    for (const auto &c : cases) {
        for (int p = 1; p <= 8; p *= 2) {
            for (int m = p; m <= 4 * p; m += p) {
                SCOPED_TRACE(std::string(z3d_schedule_name(c.kind)) + ", p " + std::to_string(p) +
                             ", m " + std::to_string(m) + ", v " + std::to_string(c.each));
                Pipeline of(c.kind, p, c.each, m);
                double share = of.play();
                EXPECT_NEAR(share, (p - 1.0) / (c.each * m + p - 1), 1e-12);
                EXPECT_NEAR(of.time.seconds, 3.0 * (c.each * m + p - 1), 1e-9);
                EXPECT_NEAR(of.time.compute, 3.0 * c.each * m, 1e-9);
            }
        }
    }
}

// In seconds of a forward, an input half or a weight half, which are equal: docs/pipelines.md. A
// stage of zb-v works without a pause, but stages start one after the other, and all wait for the
// last one's end.
TEST(Bubble, ZeroBubbleSchedules) {
    for (int p = 2; p <= 8; p *= 2) {
        for (int m = 2 * p - 1; m <= 4 * p; m += p) {
            SCOPED_TRACE("p " + std::to_string(p) + ", m " + std::to_string(m));
            Pipeline h1(Z3D_SCHEDULE_ZB_H1, p, 1, m);
            EXPECT_NEAR(h1.play(), (p - 1.0) / (3 * m + p - 1), 1e-12);
            EXPECT_NEAR(h1.time.seconds, 3.0 * m + p - 1, 1e-9);
            Pipeline v(Z3D_SCHEDULE_ZB_V, p, 2, m);
            EXPECT_NEAR(v.play(), (p - 1.0) / (6 * m + p - 1), 1e-12);
            EXPECT_NEAR(v.time.seconds, 6.0 * m + p - 1, 1e-9);
        }
    }
}

// Eight stages, a node each: a transfer is hidden where a stage has other work, and adds to the way
// through all stages and back.
TEST(Bubble, TransfersTakeTime) {
    const int p = 8, m = 16;
    const double transfer = 0.125, bytes = WIDTH * WIDTH * 4;
    Pipeline of(Z3D_SCHEDULE_GPIPE, p, 1, m, 3);
    of.hardware.devices = 1;
    of.hardware.network_bandwidth = 1e-9 * bytes / transfer;
    of.play();
    double control = of.time.control;
    EXPECT_LT(control, 0.01);
    EXPECT_NEAR(of.time.seconds, 3.0 * (m + p - 1) + 2 * transfer * (p - 1) + control, 1e-9);
    EXPECT_EQ(of.time.bytes[Z3D_AXES_PIPELINE], 2 * m * bytes); // up and down
    EXPECT_EQ(of.time.bytes_between_nodes[Z3D_AXES_PIPELINE], 2 * m * bytes);
    EXPECT_NEAR(of.time.compute, 3.0 * m, 1e-9);
    of.hardware.devices = 8; // one node, whose links take no time
    of.play();
    EXPECT_NEAR(of.time.seconds, 3.0 * (m + p - 1), 1e-9);
    EXPECT_EQ(of.time.bytes_between_nodes[Z3D_AXES_PIPELINE], 0);
}

// Once the pipeline is full, transfers of an interleaved schedule are hidden: what a stage needs
// next is started before, and does not queue behind what has time. More micro-batches take their
// work longer, and nothing else.
TEST(Bubble, TransfersAreHiddenInAFullPipeline) {
    const int p = 4, v = 3;
    double seconds[2];
    for (int n = 0; n < 2; n++) {
        Pipeline of(Z3D_SCHEDULE_INTERLEAVED, p, v, (n + 3) * p);
        of.hardware.link_bandwidth = 1e-9 * WIDTH * WIDTH * 4 / 0.0625;
        of.play();
        seconds[n] = of.time.seconds;
    }
    EXPECT_NEAR(seconds[1] - seconds[0], 3.0 * v * p, 1e-9);
}

// What moves data takes from compute: without overlap every transfer is paid for at both ends.
TEST(Bubble, TransfersThatComputeMoves) {
    const int p = 2, m = 4;
    Pipeline of(Z3D_SCHEDULE_1F1B, p, 1, m);
    of.hardware.link_bandwidth = 1e-9 * WIDTH * WIDTH * 4 / 0.25;
    of.hardware.overlap = 0;
    of.play();
    for (int s = 0; s < p; s++)
        EXPECT_GE(of.simulation->stage[s].time.exposed[Z3D_AXES_PIPELINE], 2 * m * 0.25 - 1e-9);
}

// A rank of any stage is planned alike, and the time of the step is one.
TEST(Bubble, EveryRankSeesTheSameStages) {
    Pipeline first(Z3D_SCHEDULE_1F1B, 4, 1, 6, 0), third(Z3D_SCHEDULE_1F1B, 4, 1, 6, 2);
    first.play();
    third.play();
    ASSERT_EQ(third.simulation->own, 2);
    for (int s = 0; s < 4; s++) {
        const z3d_step_time &a = first.simulation->stage[s].time;
        const z3d_step_time &b = third.simulation->stage[s].time;
        EXPECT_EQ(0, memcmp(&a, &b, sizeof a)) << s;
        EXPECT_EQ(first.simulation->stage[s].arena[Z3D_SPACE_DEVICE],
                  third.simulation->stage[s].arena[Z3D_SPACE_DEVICE]);
    }
    EXPECT_EQ(z3d_engine_layout(third.simulation->engine)->stage, 2);
}

// Spans of one stage's compute lane: work, waits and bubbles fill the step; none overlap.
TEST(Bubble, SpansFillTheStep) {
    Pipeline of(Z3D_SCHEDULE_1F1B, 3, 1, 4);
    struct Taken {
        double instructions[3] = {}, bubble[3] = {}, last[3] = {};
    } taken;
    z3d_spans spans = {[](void *context, const z3d_span *span) {
                           auto *t = static_cast<Taken *>(context);
                           double seconds = span->end - span->begin;
                           if (span->kind == Z3D_SPAN_BUBBLE) t->bubble[span->stage] += seconds;
                           if (span->kind != Z3D_SPAN_INSTRUCTION) return;
                           EXPECT_GE(span->begin, t->last[span->stage]);
                           t->last[span->stage] = span->end;
                           t->instructions[span->stage] += seconds;
                       },
                       &taken};
    of.play(&spans);
    for (int s = 0; s < 3; s++) {
        EXPECT_NEAR(taken.bubble[s], of.simulation->stage[s].time.bubble, 1e-9);
        EXPECT_NEAR(taken.instructions[s], of.time.seconds, 1e-9); // waits lie within
    }
}

// A tape whose receive nobody answers.
TEST(Bubble, StagesThatWaitForEverAreNamed) {
    Pipeline of(Z3D_SCHEDULE_1F1B, 2, 1, 2);
    ASSERT_EQ(Z3D_OK, of.status) << z3d_error_message();
    z3d_tape *tape = of.simulation->stage[1].tape;
    for (int e = 0; e < tape->events; e++)
        if (tape->event[e].kind == Z3D_EVENT_START && tape->event[e].of == Z3D_COLLECTIVE_SEND)
            tape->event[e].of = Z3D_COLLECTIVE_RECV;
    EXPECT_EQ(Z3D_ERR_PROGRAM,
              z3d_simulation_play(of.simulation, &of.hardware, 0, nullptr, &of.time));
    std::string message = z3d_error_message();
    EXPECT_NE(message.find("pipeline stage 0 waits for ever"), std::string::npos) << message;
    EXPECT_NE(message.find("recv_input_gradient"), std::string::npos) << message;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
