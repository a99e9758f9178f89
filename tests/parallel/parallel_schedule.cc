// Pipeline schedules: their lists, bubble and memory by formula, what the check refuses against a
// naive check, and files.
#include "tests/expect.h"
#include "tests/files.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>

extern "C" {
#include "parallel/schedule/schedule.h"
}

using Schedule = std::unique_ptr<z3d_schedule, decltype(&z3d_schedule_destroy)>;
using Lists = std::vector<std::vector<z3d_task>>;

static const double UNIT[Z3D_PASS_COUNT] = {1, 2, 1, 1};
static const z3d_pass F = Z3D_PASS_FORWARD, B = Z3D_PASS_BACKWARD, I = Z3D_PASS_BACKWARD_INPUT,
                      W = Z3D_PASS_BACKWARD_WEIGHT;

static Schedule create(z3d_schedule_kind kind, int stages, int chunks, int micros) {
    z3d_schedule *out = nullptr;
    EXPECT_Z3D(z3d_schedule_create(kind, stages, chunks, micros, &out));
    return Schedule(out, z3d_schedule_destroy);
}

static Lists lists_of(const z3d_schedule &s) {
    Lists out;
    for (int stage = 0; stage < s.stages; stage++)
        out.emplace_back(s.task + s.first[stage], s.task + s.first[stage + 1]);
    return out;
}

// A schedule of any lists, for the check; the vectors own its memory.
struct Made {
    Made(const z3d_schedule &like, const Lists &lists)
        : schedule(like), first{0}, places(like.stage_of_chunk, like.stage_of_chunk + like.chunks) {
        for (const auto &list : lists) {
            tasks.insert(tasks.end(), list.begin(), list.end());
            first.push_back((int)tasks.size());
        }
        schedule.first = first.data();
        schedule.task = tasks.data();
        schedule.stage_of_chunk = places.data();
    }
    Made(const Made &) = delete;
    z3d_status check() const {
        return z3d_schedule_check(&schedule);
    }
    z3d_schedule schedule;
    std::vector<int> first, places;
    std::vector<z3d_task> tasks;
};

// What a stage's list reads like: "F0 B0 F1 B1"; chunks of this stage are a, b, ...
static std::string text_of(const z3d_schedule &s, int stage) {
    std::string out;
    std::vector<int> chunks;
    for (int c = 0; c < s.chunks; c++)
        if (s.stage_of_chunk[c] == stage) chunks.push_back(c);
    for (int i = s.first[stage]; i < s.first[stage + 1]; i++) {
        const z3d_task &t = s.task[i];
        size_t at = std::find(chunks.begin(), chunks.end(), t.chunk) - chunks.begin();
        out += (out.empty() ? "" : " ") + std::string(1, "FBIW"[t.pass]);
        if (chunks.size() > 1) out += (char)('a' + at);
        out += std::to_string(t.micro);
    }
    return out;
}

// The naive play: whoever can, does its next task; until nobody can. Empty: somebody waits for
// ever.
using Key = std::tuple<int, int, int>;
static std::map<Key, double> play(const Lists &lists, int chunks, const double *cost,
                                  double transfer = 0) {
    std::map<Key, double> end;
    std::map<int, size_t> place; // chunk -> stage
    for (size_t s = 0; s < lists.size(); s++)
        for (const z3d_task &t : lists[s]) place[t.chunk] = s;
    size_t here = 0;
    std::vector<size_t> next(lists.size());
    std::vector<double> now(lists.size());
    auto done = [&](z3d_pass pass, int chunk, int micro, double *at) {
        auto found = end.find({pass, chunk, micro});
        double way = place[chunk] == here ? 0 : transfer;
        if (found != end.end()) *at = std::max(*at, found->second + way);
        return found != end.end();
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t s = 0; s < lists.size(); s++) {
            if (next[s] == lists[s].size()) continue;
            auto [pass, chunk, micro] = lists[s][next[s]];
            here = s;
            double at = now[s];
            bool can;
            if (pass == F)
                can = chunk == 0 || done(F, chunk - 1, micro, &at);
            else if (pass == W)
                can = done(I, chunk, micro, &at);
            else
                can = done(F, chunk, micro, &at) &&
                      (chunk == chunks - 1 || done(B, chunk + 1, micro, &at) ||
                       done(I, chunk + 1, micro, &at));
            if (!can) continue;
            now[s] = end[{pass, chunk, micro}] = at + cost[pass];
            next[s]++;
            moved = true;
        }
    }
    for (size_t s = 0; s < lists.size(); s++)
        if (next[s] < lists[s].size()) return {};
    return end;
}

// The definition of a right schedule, said again with sets.
static bool is_right(const z3d_schedule &s, const Lists &lists) {
    std::set<Key> seen;
    std::map<std::pair<int, int>, int> last; // what is added to, chunk -> micro-batch
    for (size_t stage = 0; stage < lists.size(); stage++) {
        for (const z3d_task &t : lists[stage]) {
            if (t.chunk < 0 || t.chunk >= s.chunks || t.micro < 0 || t.micro >= s.micros)
                return false;
            if (s.stage_of_chunk[t.chunk] != (int)stage) return false;
            for (int part : {0, 1, 2}) { // output, input gradient, weight gradients
                bool has = part == 0   ? t.pass == F
                           : part == 1 ? t.pass == B || t.pass == I
                                       : t.pass == B || t.pass == W;
                if (!has) continue;
                if (!seen.insert({part, t.chunk, t.micro}).second) return false;
                auto [at, fresh] = last.insert({{part, t.chunk}, t.micro});
                if (!fresh && at->second > t.micro) return false;
                at->second = t.micro;
            }
        }
    }
    return (int)seen.size() == 3 * s.chunks * s.micros && !play(lists, s.chunks, UNIT).empty();
}

struct Timeline {
    double all = 0;     // until the last stage's last task
    double longest = 0; // longest time of a stage, from its first start to its last end
    double work = 0;    // of one stage; all have equal work
    double bubble() const {
        return (longest - work) / longest;
    }
};

static Timeline timeline(const z3d_schedule &s, const double *cost) {
    Timeline out;
    std::vector<double> end((size_t)s.first[s.stages]);
    EXPECT_Z3D(z3d_schedule_times(&s, cost, 0, end.data()));
    for (int stage = 0; stage < s.stages; stage++) {
        int first = s.first[stage], last = s.first[stage + 1] - 1;
        out.work = 0;
        for (int i = first; i <= last; i++) out.work += cost[s.task[i].pass];
        out.all = std::max(out.all, end[(size_t)last]);
        out.longest = std::max(out.longest,
                               end[(size_t)last] - end[(size_t)first] + cost[s.task[first].pass]);
    }
    return out;
}

// The most forwards of a stage whose `until` (input or weight half) is not done.
static int in_flight(const z3d_schedule &s, int stage, z3d_pass until) {
    int now = 0, most = 0;
    for (int i = s.first[stage]; i < s.first[stage + 1]; i++) {
        z3d_pass pass = s.task[i].pass;
        now += pass == F ? 1 : pass == until || pass == B ? -1 : 0;
        most = std::max(most, now);
    }
    return most;
}

// Every kind with sizes that it can have: p 1, 2, 3, 4, 8, m 1 to 3p, v chunks per stage.
static void each_schedule(const std::function<void(const z3d_schedule &, int p, int v, int m)> &f) {
    for (int kind = 0; kind < Z3D_SCHEDULE_FILE; kind++) {
        for (int p : {1, 2, 3, 4, 8}) {
            for (int v = 1; v <= 4; v++) {
                for (int m = 1; m <= 3 * p; m++) {
                    bool can = kind == Z3D_SCHEDULE_INTERLEAVED ? v >= 2 && m % p == 0
                               : kind == Z3D_SCHEDULE_ZB_V      ? v == 2
                                                                : v == 1;
                    SCOPED_TRACE(std::string(z3d_schedule_name((z3d_schedule_kind)kind)) + " p " +
                                 std::to_string(p) + " v " + std::to_string(v) + " m " +
                                 std::to_string(m));
                    if (can) {
                        Schedule s = create((z3d_schedule_kind)kind, p, p * v, m);
                        ASSERT_TRUE(s);
                        f(*s, p, v, m);
                    } else {
                        z3d_schedule *out;
                        EXPECT_EQ(z3d_schedule_create((z3d_schedule_kind)kind, p, p * v, m, &out),
                                  Z3D_ERR_CONFIG);
                        EXPECT_EQ(out, nullptr);
                    }
                }
            }
        }
    }
}

TEST(Schedule, Lists) {
    auto list = [](z3d_schedule_kind kind, int p, int chunks, int m, int stage) {
        return text_of(*create(kind, p, chunks, m), stage);
    };
    EXPECT_EQ(list(Z3D_SCHEDULE_GPIPE, 2, 2, 3, 0), "F0 F1 F2 B0 B1 B2");
    EXPECT_EQ(list(Z3D_SCHEDULE_1F1B, 1, 1, 2, 0), "F0 B0 F1 B1");
    EXPECT_EQ(list(Z3D_SCHEDULE_1F1B, 4, 4, 5, 0), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
    EXPECT_EQ(list(Z3D_SCHEDULE_1F1B, 4, 4, 5, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
    EXPECT_EQ(list(Z3D_SCHEDULE_1F1B, 4, 4, 2, 0), "F0 F1 B0 B1");
    // The example in Megatron-LM's paper (2104.04473, figure 4): 4 stages, 2 chunks, 8
    // micro-batches.
    EXPECT_EQ(list(Z3D_SCHEDULE_INTERLEAVED, 4, 8, 8, 0),
              "Fa0 Fa1 Fa2 Fa3 Fb0 Fb1 Fb2 Fb3 Fa4 Fa5 Fa6 Bb0 Fa7 Bb1 Fb4 Bb2 Fb5 Bb3 Fb6 Ba0 Fb7 "
              "Ba1 Ba2 Ba3 Bb4 Bb5 Bb6 Bb7 Ba4 Ba5 Ba6 Ba7");
    EXPECT_EQ(list(Z3D_SCHEDULE_INTERLEAVED, 4, 8, 8, 3),
              "Fa0 Fa1 Fa2 Fa3 Fb0 Bb0 Fb1 Bb1 Fb2 Bb2 Fb3 Bb3 Fa4 Ba0 Fa5 Ba1 Fa6 Ba2 Fa7 Ba3 Fb4 "
              "Bb4 Fb5 Bb5 Fb6 Bb6 Fb7 Bb7 Ba4 Ba5 Ba6 Ba7");
    EXPECT_EQ(list(Z3D_SCHEDULE_ZB_H1, 3, 3, 4, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
    EXPECT_EQ(list(Z3D_SCHEDULE_ZB_H1, 3, 3, 4, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
    EXPECT_EQ(list(Z3D_SCHEDULE_ZB_V, 2, 4, 3, 0),
              "Fa0 Fa1 Fa2 Fb0 Ib0 Wb0 Fb1 Ib1 Wb1 Ia0 Wa0 Fb2 Ib2 Wb2 Ia1 Wa1 Ia2 Wa2");
    EXPECT_EQ(list(Z3D_SCHEDULE_ZB_V, 1, 2, 2, 0),
              "Fa0 Fb0 Ib0 Wb0 Fa1 Ia0 Wa0 Fb1 Ib1 Wb1 Ia1 Wa1");
}

TEST(Schedule, Places) {
    std::vector<int> round, v;
    for (int c = 0; c < 6; c++) {
        round.push_back(z3d_schedule_stage(Z3D_SCHEDULE_INTERLEAVED, 3, c));
        v.push_back(z3d_schedule_stage(Z3D_SCHEDULE_ZB_V, 3, c));
    }
    EXPECT_EQ(round, (std::vector<int>{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(v, (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

// Right by the definition, and played as the naive play does, with costs that share no divisor;
// with transfers that take time, too.
TEST(Schedule, EveryKindIsRight) {
    int count = 0;
    each_schedule([&](const z3d_schedule &s, int, int, int) {
        static const double cost[] = {3, 7.25, 4, 3.5};
        Lists lists = lists_of(s);
        ASSERT_TRUE(is_right(s, lists));
        EXPECT_Z3D(z3d_schedule_check(&s));
        std::vector<double> end((size_t)s.first[s.stages]);
        for (double transfer : {0.0, 0.5}) {
            ASSERT_Z3D(z3d_schedule_times(&s, cost, transfer, end.data()));
            auto expected = play(lists, s.chunks, cost, transfer);
            for (int i = 0; i < s.first[s.stages]; i++) {
                const z3d_task &t = s.task[i];
                ASSERT_EQ(end[(size_t)i], expected.at({t.pass, t.chunk, t.micro})) << i;
            }
        }
        count++;
    });
    EXPECT_EQ(count, 3 * 54 + 3 * 15 + 54);
}

// Exact, in units of a forward of one chunk. p - 1 idle forwards and backwards for gpipe, 1f1b, and
// interleaved, where a chunk is 1/v of a stage; p - 1 units for zb-h1 (a third); none for zb-v.
TEST(Schedule, Bubble) {
    each_schedule([&](const z3d_schedule &s, int p, int v, int m) {
        Timeline t = timeline(s, UNIT);
        EXPECT_EQ(t.work, 3 * m * v);
        double idle = 3 * (p - 1);
        if (s.kind == Z3D_SCHEDULE_ZB_H1) idle = m >= p ? p - 1 : 2 * p - 1 - m;
        if (s.kind == Z3D_SCHEDULE_ZB_V) idle = m >= 2 * p - 1 ? 0 : 2 * (2 * p - 1 - m);
        EXPECT_EQ(t.longest, t.work + idle);
        if (!z3d_schedule_row_of(s.kind)->halves) {
            EXPECT_DOUBLE_EQ(t.bubble(), (p - 1.0) / (m * v + p - 1.0));
        }
        // zb-v's stages start one unit after each other; all others' times are within stage 0's.
        if (s.kind == Z3D_SCHEDULE_ZB_V) idle = std::max<double>(idle, p - 1);
        EXPECT_EQ(t.all, t.work + idle);
    });
}

// The paper's formulas with other costs: (p - 1) (F + B), and (p - 1) (F + B - W) for W <= F and B.
TEST(Schedule, BubbleOfOtherCosts) {
    const double costs[][Z3D_PASS_COUNT] = {{2, 3, 2, 1}, {8, 17, 10, 7}, {4, 8, 4, 4}};
    each_schedule([&](const z3d_schedule &s, int p, int, int m) {
        for (const auto &c : costs) {
            Timeline t = timeline(s, c);
            if (!z3d_schedule_row_of(s.kind)->halves) {
                EXPECT_EQ(t.longest, t.work + (p - 1) * (c[F] + c[B]));
            }
            if (s.kind == Z3D_SCHEDULE_ZB_H1 && m >= p) {
                EXPECT_EQ(t.longest, t.work + (p - 1) * (c[F] + c[I] - c[W]));
            }
        }
    });
}

TEST(Schedule, Memory) {
    each_schedule([&](const z3d_schedule &s, int p, int v, int m) {
        for (int stage = 0; stage < p; stage++) {
            int backward = in_flight(s, stage, I), all = in_flight(s, stage, W);
            SCOPED_TRACE(stage);
            switch (s.kind) {
            case Z3D_SCHEDULE_GPIPE:
                EXPECT_EQ(backward, m);
                break;
            case Z3D_SCHEDULE_1F1B:
                EXPECT_EQ(backward, std::min(p - stage, m));
                break;
            case Z3D_SCHEDULE_INTERLEAVED:
                EXPECT_EQ(backward, std::min(2 * (p - stage) - 1 + (v - 1) * p, m * v));
                break;
            case Z3D_SCHEDULE_ZB_H1:
                EXPECT_EQ(backward, std::min(p - stage, m));
                EXPECT_EQ(all, std::min(p, m));
                break;
            default:
                EXPECT_LE(backward, 2 * p);
                EXPECT_LE(all, 2 * p);
                if (m >= 2 * p - 1) {
                    EXPECT_EQ(all, 2 * p);
                }
            }
        }
    });
}

TEST(Schedule, ForwardOnly) {
    for (int kind = 0; kind < Z3D_SCHEDULE_COUNT; kind++) {
        z3d_schedule *out;
        ASSERT_Z3D(z3d_schedule_create_forward((z3d_schedule_kind)kind, 2, 4, 3, &out));
        Schedule s(out, z3d_schedule_destroy);
        EXPECT_TRUE(s->forward_only);
        EXPECT_EQ(text_of(*s, 0), "Fa0 Fb0 Fa1 Fb1 Fa2 Fb2");
        EXPECT_Z3D(z3d_schedule_check(s.get()));
        Lists lists = lists_of(*s);
        lists[0].push_back({B, 0, 0});
        EXPECT_EQ(Made(*s, lists).check(), Z3D_ERR_CONFIG);
        EXPECT_STREQ(z3d_error_message(), "pipeline stage 0: backward of chunk 0, micro-batch 0 is "
                                          "in a schedule that has only forwards");
        lists[0].resize(5);
        EXPECT_EQ(Made(*s, lists).check(), Z3D_ERR_CONFIG);
        s->forward_only = false;
        EXPECT_EQ(z3d_schedule_check(s.get()), Z3D_ERR_CONFIG);
        EXPECT_STREQ(z3d_error_message(),
                     "pipeline stage 0: there is no backward of chunk 0, micro-batch 0");
    }
}

TEST(Schedule, RefusesSizes) {
    auto refused = [](z3d_schedule_kind kind, int p, int chunks, int m) {
        z3d_schedule *out;
        EXPECT_EQ(z3d_schedule_create(kind, p, chunks, m, &out), Z3D_ERR_CONFIG);
        EXPECT_EQ(out, nullptr);
        return std::string(z3d_error_message());
    };
    EXPECT_EQ(refused(Z3D_SCHEDULE_INTERLEAVED, 4, 8, 3),
              "interleaved on 4 pipeline stages needs a multiple of 4 micro-batches, not 3");
    EXPECT_EQ(refused(Z3D_SCHEDULE_INTERLEAVED, 4, 8, 6),
              "interleaved on 4 pipeline stages needs a multiple of 4 micro-batches, not 6");
    EXPECT_EQ(refused(Z3D_SCHEDULE_INTERLEAVED, 4, 4, 8),
              "interleaved has 2 or more chunks per pipeline stage, not 1");
    EXPECT_EQ(refused(Z3D_SCHEDULE_1F1B, 4, 8, 8), "1f1b has 1 chunk per pipeline stage, not 2");
    EXPECT_EQ(refused(Z3D_SCHEDULE_ZB_V, 4, 4, 8), "zb-v has 2 chunks per pipeline stage, not 1");
    EXPECT_EQ(refused(Z3D_SCHEDULE_ZB_V, 4, 12, 8), "zb-v has 2 chunks per pipeline stage, not 3");
    EXPECT_EQ(refused(Z3D_SCHEDULE_INTERLEAVED, 4, 6, 8),
              "6 chunks cannot be divided equally over 4 pipeline stages; use a multiple of 4");
    EXPECT_EQ(refused(Z3D_SCHEDULE_1F1B, 1025, 1025, 8),
              "1025 chunks are too many: all pipeline stages together may have 1024");
    EXPECT_EQ(refused(Z3D_SCHEDULE_1F1B, 2, 2, 1000000),
              "a schedule of 2 chunks may have 699050 micro-batches, not 1000000");
    EXPECT_EQ(refused(Z3D_SCHEDULE_1F1B, 2, 2, 0),
              "a schedule of 2 pipeline stages, 2 chunks and 0 micro-batches: each must be at "
              "least 1");
    EXPECT_EQ(refused((z3d_schedule_kind)77, 2, 2, 2), "there is no schedule number 77");
}

// 2 stages, 2 micro-batches: F0 F1 B0 B1 and F0 B0 F1 B1; each mistake has its line.
TEST(Schedule, CheckNamesTheMistake) {
    Schedule s = create(Z3D_SCHEDULE_1F1B, 2, 2, 2);
    s->kind = Z3D_SCHEDULE_FILE;
    auto refused = [&](const std::vector<z3d_task> &a, const std::vector<z3d_task> &b) {
        Made made(*s, {a, b});
        EXPECT_EQ(made.check(), Z3D_ERR_CONFIG);
        return std::string(z3d_error_message());
    };
    const std::vector<z3d_task> a = {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}},
                                b = {{F, 1, 0}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}};
    EXPECT_Z3D(Made(*s, {a, b}).check());
    EXPECT_EQ(refused({{F, 0, 0}, {F, 0, 1}, {B, 0, 0}}, b),
              "pipeline stage 0: there is no backward of chunk 0, micro-batch 1");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {B, 1, 0}}),
              "pipeline stage 1: there is no forward of chunk 1, micro-batch 1");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {B, 1, 0}, {F, 1, 1}, {I, 1, 1}}),
              "pipeline stage 1: there is no backward_weight of chunk 1, micro-batch 1");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {B, 1, 0}, {F, 1, 0}, {B, 1, 1}}),
              "pipeline stage 1: forward of chunk 1, micro-batch 0 comes a second time");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {B, 1, 0}, {W, 1, 0}, {F, 1, 1}, {B, 1, 1}}),
              "pipeline stage 1: backward_weight of chunk 1, micro-batch 0 comes a second time (a "
              "whole backward is both halves)");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {I, 1, 0}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}}),
              "pipeline stage 1: backward of chunk 1, micro-batch 0 comes a second time (a whole "
              "backward is both halves)");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {W, 1, 0}, {I, 1, 0}, {F, 1, 1}, {B, 1, 1}}),
              "pipeline stage 1: backward_weight of chunk 1, micro-batch 0 has no backward_input "
              "before it");
    EXPECT_EQ(refused(a, {{F, 1, 0}, {I, 1, 0}, {F, 1, 1}, {B, 1, 1}, {W, 1, 0}}),
              "pipeline stage 1: backward of chunk 1, micro-batch 1 comes before that of "
              "micro-batch 0; a chunk's micro-batches are in ascending order");
    EXPECT_EQ(refused({{F, 0, 1}, {F, 0, 0}, {B, 0, 0}, {B, 0, 1}}, b),
              "pipeline stage 0: forward of chunk 0, micro-batch 1 comes before that of "
              "micro-batch 0; a chunk's micro-batches are in ascending order");
    EXPECT_EQ(refused({{B, 0, 0}, {F, 0, 0}, {F, 0, 1}, {B, 0, 1}}, b),
              "pipeline stage 0: backward of chunk 0, micro-batch 0 has no forward before it");
    EXPECT_EQ(refused(b, a), "pipeline stage 0: forward of chunk 1, micro-batch 0: chunk 1 runs on "
                             "stage 1");
    // Stage 0 misses a forward because stage 1 has it: that one is at fault.
    EXPECT_EQ(refused({{F, 0, 0}, {B, 0, 0}, {B, 0, 1}},
                      {{F, 1, 0}, {F, 0, 1}, {B, 1, 0}, {F, 1, 1}, {B, 1, 1}}),
              "pipeline stage 1: forward of chunk 0, micro-batch 1: chunk 0 runs on stage 0");
    EXPECT_EQ(refused({{F, 2, 0}}, b), "pipeline stage 0: forward of chunk 2, micro-batch 0: there "
                                       "is no such chunk; chunks are 0 to 1");
    EXPECT_EQ(refused({{F, 0, -1}}, b),
              "pipeline stage 0: forward of chunk 0, micro-batch -1: there is no such micro-batch; "
              "micro-batches are 0 to 1");
    EXPECT_EQ(refused({{(z3d_pass)9, 0, 0}}, b), "pipeline stage 0: there is no pass number 9");
    EXPECT_EQ(refused({{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}},
                      {{F, 1, 0}, {F, 1, 1}, {B, 1, 0}, {B, 1, 1}}),
              "circular wait: pipeline stage 0 at backward of chunk 0, micro-batch 0 waits for "
              "stage 1's backward of chunk 1, micro-batch 0; pipeline stage 1 at forward of chunk "
              "1, micro-batch 1 waits for stage 0's forward of chunk 0, micro-batch 1");
    s->kind = Z3D_SCHEDULE_1F1B;
    EXPECT_EQ(refused(a, {{F, 1, 0}, {I, 1, 0}}),
              "pipeline stage 1: backward_input of chunk 1, micro-batch 0: schedule 1f1b has whole "
              "backwards, not halves");
}

TEST(Schedule, CheckRefusesBadSizes) {
    Schedule s = create(Z3D_SCHEDULE_1F1B, 2, 2, 2);
    Lists lists = lists_of(*s);
    auto refused = [&](const std::function<void(Made &)> &change) {
        Made made(*s, lists);
        change(made);
        EXPECT_EQ(made.check(), Z3D_ERR_CONFIG) << z3d_error_message();
        std::vector<double> end(8);
        EXPECT_EQ(z3d_schedule_times(&made.schedule, UNIT, 0, end.data()), Z3D_ERR_CONFIG);
        return std::string(z3d_error_message());
    };
    refused([](Made &m) { m.schedule.kind = (z3d_schedule_kind)-1; });
    refused([](Made &m) { m.schedule.stages = 0; });
    refused([](Made &m) { m.schedule.chunks = 3; });
    refused([](Made &m) { m.schedule.micros = -5; });
    refused([](Made &m) { m.schedule.micros = 2000000000; });
    refused([](Made &m) { m.first[0] = -1; });
    EXPECT_EQ(refused([](Made &m) { m.first[0] = 1; }),
              "the list before pipeline stage 0 ends at task 1, not between 0 and 0");
    EXPECT_EQ(refused([](Made &m) { m.first[2] = 3; }),
              "the list before pipeline stage 2 ends at task 3, not between 4 and 12");
    refused([](Made &m) { m.first[1] = 99; });
    refused([](Made &m) { m.first[2] = 2000000000; });
    refused([](Made &m) { m.places[1] = 7; });
}

// times alone, of lists that the check would refuse: a task that no list has.
TEST(Schedule, TimesOfAMissingTask) {
    Schedule s = create(Z3D_SCHEDULE_1F1B, 3, 3, 1);
    Made made(*s, {{{F, 0, 0}, {B, 0, 0}}, {{F, 1, 0}, {B, 1, 0}}, {{F, 2, 0}}});
    std::vector<double> end(6);
    EXPECT_EQ(z3d_schedule_times(&made.schedule, UNIT, 0, end.data()), Z3D_ERR_CONFIG);
    EXPECT_STREQ(z3d_error_message(),
                 "pipeline stage 1 at backward of chunk 1, micro-batch 0 waits "
                 "for stage 2's backward of chunk 2, micro-batch 0, which is "
                 "in no list");
}

// Lists changed at random, one to three times: the check says what the definition says.
TEST(Schedule, CheckIsTheDefinition) {
    std::mt19937 random(7);
    auto below = [&](size_t n) { return (size_t)(random() % n); };
    int right = 0, wrong = 0;
    auto change = [&](Lists &lists, const z3d_schedule &s) {
        auto &list = lists[below(lists.size())];
        if (list.empty()) return;
        size_t at = below(list.size()), other = below(list.size());
        switch (below(6)) {
        case 0:
            std::swap(list[at], list[other]);
            break;
        case 1:
            std::swap(list[at], list[at + 1 < list.size() ? at + 1 : at]);
            break;
        case 2:
            list.erase(list.begin() + (long)at);
            break;
        case 3:
            list.insert(list.begin() + (long)at, list[other]);
            break;
        case 4: { // moved to another stage
            lists[below(lists.size())].push_back(list[at]);
            break;
        }
        default:
            list[at] = {(z3d_pass)below(Z3D_PASS_COUNT), (int)below((size_t)s.chunks + 1),
                        (int)below((size_t)s.micros + 1)};
        }
    };
    for (int round = 0; round < (is_long() ? 200000 : 20000); round++) {
        int kind = (int)below(Z3D_SCHEDULE_FILE), p = 1 + (int)below(3),
            m = p * (1 + (int)below(2));
        int v = kind == Z3D_SCHEDULE_INTERLEAVED || kind == Z3D_SCHEDULE_ZB_V ? 2 : 1;
        Schedule s = create((z3d_schedule_kind)kind, p, p * v, m);
        Lists lists = lists_of(*s);
        if (!z3d_schedule_row_of(s->kind)->halves)
            s->kind = Z3D_SCHEDULE_FILE; // which may have halves
        for (size_t i = 0; i < 1 + (size_t)round % 3; i++) change(lists, *s);
        Made made(*s, lists);
        bool expected = is_right(*s, lists);
        (expected ? right : wrong)++;
        ASSERT_EQ(made.check(), expected ? Z3D_OK : Z3D_ERR_CONFIG)
            << round << " " << z3d_error_message();
    }
    EXPECT_GT(right, 500);
    EXPECT_GT(wrong, 5000);
}

static const char TWO_STAGES[] = "# one forward, one backward\r\n"
                                 "stage,pass,chunk,micro\n"
                                 "0,forward,0,0\n"
                                 "0, forward, 0, 1\n"
                                 "1,forward,1,0\n"
                                 "1,backward_input,1,0\n"
                                 "\n"
                                 "0,backward,0,0\n"
                                 "  # halves and whole backwards\n"
                                 "1,forward,1,1\r\n"
                                 "1,backward_weight,1,0\n"
                                 "1,backward,1,1\n"
                                 "0,backward,0,1";

TEST(ScheduleFile, Reads) {
    Folder folder;
    write_file(folder / "s.csv", TWO_STAGES);
    z3d_schedule *out;
    ASSERT_Z3D(z3d_schedule_read((folder / "s.csv").c_str(), 2, 2, 2, &out));
    Schedule s(out, z3d_schedule_destroy);
    EXPECT_EQ(s->kind, Z3D_SCHEDULE_FILE);
    EXPECT_EQ(text_of(*s, 0), "F0 F1 B0 B1");
    EXPECT_EQ(text_of(*s, 1), "F0 I0 F1 W0 B1");
}

// docs/pipelines.md shows a file.
TEST(ScheduleFile, TheExampleIsRight) {
    Folder folder;
    std::string page = read_file(ZERO3D_TEST_DATA "/../../docs/pipelines.md");
    size_t begin = page.find("```csv\n") + 7, end = page.find("```", begin);
    ASSERT_LT(end, page.size());
    write_file(folder / "s.csv", page.substr(begin, end - begin));
    z3d_schedule *out;
    ASSERT_Z3D(z3d_schedule_read((folder / "s.csv").c_str(), 2, 2, 2, &out));
    Schedule s(out, z3d_schedule_destroy);
    EXPECT_EQ(text_of(*s, 0), "F0 F1 I0 W0 I1 W1");
    EXPECT_EQ(text_of(*s, 1), "F0 B0 F1 B1");
}

TEST(ScheduleFile, WhatIsWrittenIsReadAgain) {
    Folder folder;
    std::string path = folder / "s.csv";
    each_schedule([&](const z3d_schedule &s, int p, int v, int m) {
        if (m != p && m != 2 * p) return;
        ASSERT_Z3D(z3d_schedule_write(&s, path.c_str()));
        z3d_schedule *out;
        z3d_status status = z3d_schedule_read(path.c_str(), p, p * v, m, &out);
        if (s.kind == Z3D_SCHEDULE_ZB_V && p > 1) {
            EXPECT_EQ(status, Z3D_ERR_CONFIG);
            return;
        }
        ASSERT_Z3D(status);
        Schedule again(out, z3d_schedule_destroy);
        for (int stage = 0; stage < p; stage++)
            EXPECT_EQ(text_of(*again, stage), text_of(s, stage));
    });
    Schedule s = create(Z3D_SCHEDULE_1F1B, 2, 2, 2);
    EXPECT_EQ(z3d_schedule_write(s.get(), (folder / "none/s.csv").c_str()), Z3D_ERR_IO);
    EXPECT_EQ(z3d_schedule_write(s.get(), "/dev/full"), Z3D_ERR_IO);
}

TEST(ScheduleFile, RefusesWithTheLine) {
    Folder folder;
    std::string path = folder / "s.csv";
    auto refused = [&](const std::string &text) {
        write_file(path, text);
        z3d_schedule *out;
        EXPECT_EQ(z3d_schedule_read(path.c_str(), 2, 2, 2, &out), Z3D_ERR_CONFIG);
        EXPECT_EQ(out, nullptr);
        std::string message = z3d_error_message();
        EXPECT_EQ(message.find(path), 0u) << message;
        return message.substr(std::min(path.size(), message.size()));
    };
    auto changed = [&](const std::string &from, const std::string &to) {
        std::string text = TWO_STAGES;
        size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos);
        return refused(text.replace(at, from.size(), to));
    };
    EXPECT_EQ(changed("1,forward,1,0", "1,forward,1"),
              ", line 5: expected 4 columns (stage,pass,chunk,micro), not '1,forward,1'");
    EXPECT_EQ(changed("1,forward,1,0", "1,forward,1,0,0"),
              ", line 5: expected 4 columns (stage,pass,chunk,micro), not '1,forward,1,0,0'");
    EXPECT_EQ(changed("1,forward,1,0", "1,fwd,1,0"),
              ", line 5: there is no pass 'fwd'; use forward, backward, backward_input or "
              "backward_weight");
    EXPECT_EQ(changed("1,forward,1,0", "2,forward,1,0"),
              ", line 5: there is no pipeline stage 2; stages are 0 to 1");
    EXPECT_EQ(changed("1,forward,1,0", "-1,forward,1,0"),
              ", line 5: stage '-1' is not a number from 0 to 999999999");
    EXPECT_EQ(changed("1,forward,1,0", "1,forward,1,99999999999"),
              ", line 5: micro-batch '99999999999' is not a number from 0 to 999999999");
    EXPECT_EQ(changed("1,forward,1,0", "1,forward,,0"),
              ", line 5: chunk '' is not a number from 0 to 999999999");
    EXPECT_EQ(changed("1,forward,1,0", "1,forward,1,7"),
              ", line 5: pipeline stage 1: forward of chunk 1, micro-batch 7: there is no such "
              "micro-batch; micro-batches are 0 to 1");
    EXPECT_EQ(changed("1,backward,1,1", "1,backward,1,0"),
              ", line 12: pipeline stage 1: backward of chunk 1, micro-batch 0 comes a second time "
              "(a whole backward is both halves)");
    EXPECT_EQ(changed("1,backward,1,1", "#"),
              ": pipeline stage 1: there is no backward of chunk 1, micro-batch 1");
    EXPECT_EQ(
        changed("stage,pass", "rank,pass"),
        ", line 2: expected the header 'stage,pass,chunk,micro', not 'rank,pass,chunk,micro'");
    EXPECT_EQ(refused(""),
              ": expected a schedule with the header 'stage,pass,chunk,micro'; the file "
              "has no line with text");
    EXPECT_EQ(refused(std::string("stage,pass,chunk,micro\n0,forward,0,0\0x\n", 39)),
              ", line 2: the line has a byte 0; expected text");
    std::string many = "stage,pass,chunk,micro\n";
    for (int i = 0; i < 13; i++) many += "0,forward,0,0\n";
    EXPECT_EQ(refused(many),
              ", line 14: more rows than passes of all chunks and micro-batches (12)");
    z3d_schedule *out;
    EXPECT_EQ(z3d_schedule_read((folder / "none.csv").c_str(), 2, 2, 2, &out), Z3D_ERR_IO);
    EXPECT_EQ(z3d_schedule_read(folder.path.c_str(), 2, 2, 2, &out), Z3D_ERR_IO);
}

// A row says its chunks per pipeline stage twice: in numbers and in words.
TEST(Schedule, ARowsWordsAreItsNumbers) {
    for (int kind = 0; kind < Z3D_SCHEDULE_COUNT; kind++) {
        const z3d_schedule_row *row = z3d_schedule_row_of((z3d_schedule_kind)kind);
        std::string words = std::to_string(row->least);
        if (row->most > row->least) words = row->least == 1 ? "any number" : words + " or more";
        EXPECT_EQ(row->chunks, words) << row->name;
        EXPECT_TRUE(row->most == row->least || row->most == Z3D_MAX_CHUNKS) << row->name;
        EXPECT_EQ(z3d_schedule_of_key(kind + 1, 1), kind);
    }
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
