// Every collective against the reference, to the bit, on 1 to 4 ranks: types, sizes around the
// segments, strides, many under way at once, polling, the observer, traffic, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/parallel/reference.h"

extern "C" {
#include "parallel/interface/internal.h"
}

static z3d_world *world;
static z3d_device *device;
static z3d_mesh mesh;
static z3d_group *group; // of the whole world, of the way that is tested

// Shared memory and reading each other's memory, shared slots and messages, messages only.
static z3d_group *groups[3];

class Collectives : public testing::TestWithParam<int> {
    void SetUp() override {
        group = groups[GetParam()];
        world->sharing = z3d_sharing(GetParam());
    }
};
INSTANTIATE_TEST_SUITE_P(, Collectives, testing::Values(0, 1, 2), [](const auto &info) {
    return std::string(info.param == 0 ? "everything" : info.param == 1 ? "slots" : "messages");
});

static const z3d_dtype kTypes[] = {Z3D_F32, Z3D_F64, Z3D_BF16, Z3D_F16, Z3D_I32};
// Bytes of a row or vector: nothing, one element, around 4096 (the small path), the chunks, the
// segments, the slots, 3 MB.
static const int64_t kBytes[] = {
    0,       8, 24, 4096, 4104, 262136, 262152, 524296, 1048576 + 8,
#ifndef ZERO3D_SANITIZED // more of the same there, and slow
    3 << 20,
#endif
};
// The way a collective goes depends on its bytes, its arithmetic on the type: all sizes for one
// type, the small ones for all.
#ifdef ZERO3D_SANITIZED
static const int64_t kMostOfAll = 5000;
#else
static const int64_t kMostOfAll = 300000;
#endif
static bool too_much(z3d_dtype dtype, int64_t bytes) {
    return dtype != Z3D_BF16 && bytes > kMostOfAll;
}

static z3d_collective call_of(z3d_collective_kind kind, z3d_dtype dtype, void *buffer,
                              int64_t count) {
    z3d_collective call = {};
    call.kind = kind;
    call.dtype = dtype;
    call.buffer = buffer;
    call.count = count;
    call.stride = count;
    return call;
}

static std::vector<Bytes> inputs_of_all(z3d_dtype dtype, int64_t count, uint64_t seed,
                                        int64_t first = 0) {
    std::vector<Bytes> inputs;
    for (int member = 0; member < z3d_group_size(group); member++)
        inputs.push_back(make_input(dtype, count, seed, member, first));
    return inputs;
}

static void run(const z3d_collective &call) {
    ASSERT_EQ(z3d_collective_run(group, &call), Z3D_OK) << z3d_error_message();
}

TEST_P(Collectives, AllReduceIsTheContractToTheBit) {
    uint64_t seed = 10;
    for (z3d_dtype dtype : kTypes)
        for (int64_t bytes : kBytes)
            for (z3d_reduce_op op : {Z3D_SUM, Z3D_MAX}) {
                if (too_much(dtype, bytes)) continue;
                int64_t count = bytes / int64_t(z3d_dtype_size(dtype)) + (bytes > 5000 ? 1 : 0);
                auto inputs = inputs_of_all(dtype, count, seed++);
                Bytes mine = inputs[size_t(z3d_group_index(group))];
                z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, dtype, mine.data(), count);
                call.op = op;
                run(call);
                ASSERT_TRUE(mine == reference_all_reduce(dtype, op, inputs))
                    << z3d_dtype_name(dtype) << " " << bytes << " bytes";
            }
}

// Rows are longer than what takes part: the rest of a row must stay as it was.
TEST_P(Collectives, ReduceScatterOfColumns) {
    uint64_t seed = 1000;
    int size = z3d_group_size(group), index = z3d_group_index(group);
    for (z3d_dtype dtype : kTypes)
        for (int64_t bytes : kBytes) {
            if (too_much(dtype, bytes)) continue;
            int64_t element = int64_t(z3d_dtype_size(dtype)), count = bytes / element;
            int64_t stride = count + 5;
            auto inputs = inputs_of_all(dtype, count, seed, index * stride);
            Bytes mine = make_input(dtype, stride * size, seed++, index), before = mine;
            z3d_collective call = call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, dtype, mine.data(), count);
            call.stride = stride;
            run(call);
            Bytes want(static_cast<size_t>(count * element));
            reduce_elements(dtype, Z3D_SUM, inputs, 0, count, index + 1, want.data());
            ASSERT_TRUE(
                std::equal(want.begin(), want.end(), mine.begin() + index * stride * element))
                << z3d_dtype_name(dtype) << " " << bytes << " bytes";
            for (int row = 0; row < size; row++) {
                auto from = (row * stride + count) * element, to = (row + 1) * stride * element;
                ASSERT_TRUE(
                    std::equal(mine.begin() + from, mine.begin() + to, before.begin() + from));
            }
        }
}

// fp32 sums that travel in 16 bits: odd counts, no elements, fewer than members, several segments.
static const z3d_dtype kWires[] = {Z3D_BF16, Z3D_F16};
static const int64_t kTravelling[] = {
    0,       1, 2, 3, 5, 1023, 1025, 262143, 262145,
#ifndef ZERO3D_SANITIZED
    1100003,
#endif
};

TEST_P(Collectives, ReduceScatterThatTravelsInAnotherType) {
    uint64_t seed = 7000;
    int size = z3d_group_size(group), index = z3d_group_index(group);
    for (z3d_dtype wire : kWires)
        for (int64_t count : kTravelling) {
            int64_t stride = count + 7;
            auto inputs = inputs_of_all(Z3D_F32, count, seed, index * stride);
            Bytes mine = make_input(Z3D_F32, stride * size, seed++, index), before = mine;
            z3d_collective call =
                call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, mine.data(), count);
            call.stride = stride;
            call.wire = wire;
            run(call);
            Bytes want(static_cast<size_t>(count * 4));
            reduce_rounded(wire, inputs, 0, count, index, want.data());
            ASSERT_TRUE(std::equal(want.begin(), want.end(), mine.begin() + index * stride * 4))
                << z3d_dtype_name(wire) << " " << count;
            for (int row = 0; row < size; row++) {
                auto from = (row * stride + count) * 4, to = (row + 1) * stride * 4;
                ASSERT_TRUE(
                    std::equal(mine.begin() + from, mine.begin() + to, before.begin() + from));
            }
        }
}

TEST_P(Collectives, AllReduceThatTravelsInAnotherTypeIsEqualOnAllMembers) {
    uint64_t seed = 8000;
    for (z3d_dtype wire : kWires)
        for (int64_t count : kTravelling) {
            auto inputs = inputs_of_all(Z3D_F32, count, seed++);
            Bytes mine = inputs[size_t(z3d_group_index(group))];
            z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine.data(), count);
            call.wire = wire;
            run(call);
            ASSERT_TRUE(mine == reference_rounded_all_reduce(wire, inputs))
                << z3d_dtype_name(wire) << " " << count;
        }
}

// A value beyond fp16 arrives as an infinity, and what is no number as no number.
TEST_P(Collectives, WhatAnotherTypeCannotHoldIsSeen) {
    int size = z3d_group_size(group), index = z3d_group_index(group);
    if (size == 1) GTEST_SKIP() << "nothing travels";
    std::vector<float> data(size_t(size) * 3, 1.0f);
    for (int row = 0; row < size && index == 0; row++) {
        data[size_t(row) * 3] = 70000.0f;
        data[size_t(row) * 3 + 1] = NAN;
    }
    z3d_collective call = call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, data.data(), 3);
    call.wire = Z3D_F16;
    run(call);
    const float *own = &data[size_t(index) * 3];
    EXPECT_EQ(own[0], index == 0 ? 70000.0f + float(size - 1) : INFINITY);
    EXPECT_TRUE(std::isnan(own[1]));
    EXPECT_EQ(own[2], float(size));
}

// Sums in both types, gathers and barriers of two groups take turns.
TEST_P(Collectives, EncodedOnesTakeTurnsWithOthers) {
    z3d_group *second;
    ASSERT_EQ(z3d_group_create(world, &mesh, Z3D_AXES_DATA, device, &second), Z3D_OK);
    const int ops = 24;
    const int64_t counts[] = {5, 300000, 1000, 600001};
    std::vector<Bytes> buffers, wants;
    std::vector<z3d_ticket> tickets(ops);
    for (size_t i = 0; i < ops; i++) {
        int64_t count = counts[i % 4];
        auto inputs = inputs_of_all(Z3D_F32, count, 9000 + i);
        z3d_dtype wire = i % 3 == 0 ? Z3D_F32 : kWires[i % 2];
        buffers.push_back(inputs[size_t(z3d_group_index(group))]);
        wants.push_back(wire == Z3D_F32 ? reference_all_reduce(Z3D_F32, Z3D_SUM, inputs)
                                        : reference_rounded_all_reduce(wire, inputs));
        z3d_collective call =
            call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, buffers.back().data(), count);
        call.wire = wire;
        ASSERT_EQ(z3d_collective_start(i % 5 ? group : second, &call, &tickets[i]), Z3D_OK);
    }
    for (size_t i = ops; i-- > 0;) {
        ASSERT_EQ(z3d_collective_wait(i % 5 ? group : second, tickets[i]), Z3D_OK);
        EXPECT_TRUE(buffers[i] == wants[i]) << "operation " << i;
    }
    z3d_group_destroy(second);
}

TEST_P(Collectives, AllGatherOfColumns) {
    uint64_t seed = 2000;
    int size = z3d_group_size(group), index = z3d_group_index(group);
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16, Z3D_F64, Z3D_U8})
        for (int64_t bytes : kBytes) {
            if (too_much(dtype, bytes)) continue;
            int64_t element = int64_t(z3d_dtype_size(dtype)), count = bytes / element;
            int64_t stride = count + 3;
            Bytes mine = make_input(dtype, stride * size, seed, index), want = mine;
            for (int row = 0; row < size; row++) {
                Bytes theirs = make_input(dtype, count, seed, row, row * stride);
                std::copy(theirs.begin(), theirs.end(), want.begin() + row * stride * element);
            }
            seed++;
            z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_GATHER, dtype, mine.data(), count);
            call.stride = stride;
            run(call);
            ASSERT_TRUE(mine == want) << z3d_dtype_name(dtype) << " " << bytes << " bytes";
        }
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
    uint64_t seed = 3000;
    for (int root = 0; root < z3d_group_size(group); root++)
        for (int64_t bytes : kBytes) {
            Bytes mine = make_input(Z3D_U8, bytes, ++seed, z3d_group_index(group));
            z3d_collective call = call_of(Z3D_COLLECTIVE_BROADCAST, Z3D_U8, mine.data(), bytes);
            call.peer = root;
            run(call);
            ASSERT_TRUE(mine == make_input(Z3D_U8, bytes, seed, root))
                << "root " << root << ", " << bytes << " bytes";
        }
}

// Everybody starts a large send, then a receive, on top of a collective: nothing may wait for the
// order of the starts.
TEST_P(Collectives, SendsAndReceivesDoNotQueue) {
    int size = z3d_group_size(group), index = z3d_group_index(group);
    if (size == 1) {
        float x = 0;
        z3d_collective call = call_of(Z3D_COLLECTIVE_SEND, Z3D_F32, &x, 1);
        EXPECT_EQ(z3d_collective_run(group, &call), Z3D_ERR_COMM);
        return;
    }
    const int64_t sizes[] = {3 << 20, 0, 8, 700000};
    std::vector<Bytes> out, in;
    std::vector<z3d_ticket> tickets;
    auto sum_inputs = inputs_of_all(Z3D_F32, 300000, 4000);
    Bytes sum = sum_inputs[size_t(index)];
    z3d_collective all = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, sum.data(), 300000);
    z3d_ticket all_ticket, ticket;
    ASSERT_EQ(z3d_collective_start(group, &all, &all_ticket), Z3D_OK);
    for (int64_t bytes : sizes) {
        out.push_back(make_input(Z3D_U8, bytes, 4001, index));
        in.emplace_back(size_t(bytes));
        z3d_collective send = call_of(Z3D_COLLECTIVE_SEND, Z3D_U8, out.back().data(), bytes);
        send.peer = (index + 1) % size;
        ASSERT_EQ(z3d_collective_start(group, &send, &ticket), Z3D_OK) << z3d_error_message();
        tickets.push_back(ticket);
        z3d_collective receive = call_of(Z3D_COLLECTIVE_RECV, Z3D_U8, in.back().data(), bytes);
        receive.peer = (index + size - 1) % size;
        ASSERT_EQ(z3d_collective_start(group, &receive, &ticket), Z3D_OK) << z3d_error_message();
        tickets.push_back(ticket);
    }
    std::reverse(tickets.begin(), tickets.end());
    for (z3d_ticket t : tickets)
        ASSERT_EQ(z3d_collective_wait(group, t), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(z3d_collective_wait(group, all_ticket), Z3D_OK);
    for (size_t i = 0; i < in.size(); i++)
        EXPECT_TRUE(in[i] == make_input(Z3D_U8, sizes[i], 4001, (index + size - 1) % size)) << i;
    EXPECT_TRUE(sum == reference_all_reduce(Z3D_F32, Z3D_SUM, sum_inputs));
}

TEST_P(Collectives, BarrierWaitsForEverybody) {
    z3d_collective call = call_of(Z3D_COLLECTIVE_BARRIER, Z3D_F32, nullptr, 0);
    for (int i = 0; i < 20; i++) run(call);
    // Nobody is through before the last one has come: rank 0 comes late.
    z3d_ticket ticket;
    z3d_status status = Z3D_OK;
    if (z3d_group_index(group) != 0 || z3d_group_size(group) == 1) {
        ASSERT_EQ(z3d_collective_start(group, &call, &ticket), Z3D_OK);
        status = z3d_collective_test(group, ticket);
    }
    std::vector<int> tested(size_t(z3d_world_size(world)));
    int mine = 1;
    ASSERT_EQ(z3d_world_gather_all(world, &mine, tested.data(), sizeof mine), Z3D_OK);
    if (z3d_group_size(group) > 1) {
        if (z3d_group_index(group) == 0)
            run(call);
        else {
            EXPECT_EQ(status, Z3D_AGAIN);
            EXPECT_EQ(z3d_collective_wait(group, ticket), Z3D_OK);
        }
    }
}

// Many collectives of two groups are under way; each rank waits for them in an order of its own.
TEST_P(Collectives, ManyInFlightWaitedInAnyOrder) {
    z3d_group *second;
    ASSERT_EQ(z3d_group_create(world, &mesh, Z3D_AXES_DATA, device, &second), Z3D_OK);
    const int ops = 40;
    std::mt19937 shared(7), own(unsigned(100 + z3d_world_rank(world)));
    std::vector<Bytes> buffers(ops), wants(ops);
    std::vector<std::pair<z3d_group *, z3d_ticket>> waits(ops);
    int size = z3d_group_size(group), index = z3d_group_index(group);
    for (size_t i = 0; i < ops; i++) {
        int64_t count = int64_t(shared() % 100000) + (shared() % 3 ? 0 : 250000);
        if (shared() % 4 == 0) count %= 600;
        z3d_dtype dtype = shared() % 2 ? Z3D_F32 : Z3D_BF16;
        bool gather = shared() % 3 == 0;
        buffers[i] = make_input(dtype, gather ? count * size : count, 5000 + i, index);
        for (int row = 0; row < size && gather; row++) {
            Bytes theirs = make_input(dtype, count, 5000 + i, row, row * count);
            wants[i].insert(wants[i].end(), theirs.begin(), theirs.end());
        }
        if (!gather)
            wants[i] = reference_all_reduce(dtype, Z3D_SUM, inputs_of_all(dtype, count, 5000 + i));
        z3d_collective call =
            call_of(gather ? Z3D_COLLECTIVE_ALL_GATHER : Z3D_COLLECTIVE_ALL_REDUCE, dtype,
                    buffers[i].data(), count);
        waits[i].first = shared() % 2 ? group : second;
        ASSERT_EQ(z3d_collective_start(waits[i].first, &call, &waits[i].second), Z3D_OK);
    }
    std::vector<size_t> order(ops);
    for (size_t i = 0; i < ops; i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), own);
    for (size_t i : order) {
        if (own() % 2) {
            z3d_status status;
            while ((status = z3d_collective_test(waits[i].first, waits[i].second)) == Z3D_AGAIN) {
            }
            ASSERT_EQ(status, Z3D_OK) << z3d_error_message();
        } else {
            ASSERT_EQ(z3d_collective_wait(waits[i].first, waits[i].second), Z3D_OK);
        }
        EXPECT_TRUE(buffers[i] == wants[i]) << "operation " << i;
    }
    z3d_group_destroy(second);
}

// The device's poll alone finishes what was started: no test, no wait.
TEST_P(Collectives, PollingMovesThem) {
    auto inputs = inputs_of_all(Z3D_F32, 500000, 6000);
    Bytes mine = inputs[size_t(z3d_group_index(group))];
    z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine.data(), 500000);
    z3d_ticket ticket;
    ASSERT_EQ(z3d_collective_start(group, &call, &ticket), Z3D_OK);
    while (group->pending > 0) z3d_world_poll(world);
    EXPECT_TRUE(mine == reference_all_reduce(Z3D_F32, Z3D_SUM, inputs));
    double exposed = z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->exposed_seconds;
    EXPECT_EQ(z3d_collective_wait(group, ticket), Z3D_OK);
    EXPECT_EQ(z3d_collective_wait(group, ticket), Z3D_ERR_USAGE); // a ticket is used once
    EXPECT_LT(z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->exposed_seconds - exposed, 0.5);
}

// Collectives take turns: the time that one waits for its turn is not its own.
TEST_P(Collectives, QueuedOnesAreTimedFromTheirTurnOn) {
    enum { COUNT = 32 };
    if (z3d_group_size(group) == 1) GTEST_SKIP() << "needs ranks";
    std::vector<std::vector<float>> data(COUNT, std::vector<float>(200000, 1));
    std::vector<z3d_ticket> tickets(COUNT);
    double before = z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->seconds;
    double begin = z3d_now();
    for (size_t i = 0; i < COUNT; i++) {
        z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, data[i].data(), 200000);
        ASSERT_EQ(z3d_collective_start(group, &call, &tickets[i]), Z3D_OK);
    }
    for (z3d_ticket ticket : tickets) ASSERT_EQ(z3d_collective_wait(group, ticket), Z3D_OK);
    double seconds = z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->seconds - before;
    EXPECT_GT(seconds, 0);
    EXPECT_LE(seconds, z3d_now() - begin);
}

// One rank goes to a blocking helper with a collective under way, the others finish that first.
TEST_P(Collectives, HelpersLetPendingOnesMoveOn) {
    auto inputs = inputs_of_all(Z3D_F32, 900000, 6500);
    Bytes mine = inputs[size_t(z3d_group_index(group))];
    z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine.data(), 900000);
    z3d_ticket ticket;
    ASSERT_EQ(z3d_collective_start(group, &call, &ticket), Z3D_OK);
    bool first = z3d_group_index(group) == 0;
    z3d_status waited = first ? Z3D_OK : z3d_collective_wait(group, ticket);
    ASSERT_EQ(waited, Z3D_OK);
    int value = first ? 7 : 0;
    ASSERT_EQ(z3d_world_agree(world, Z3D_OK), Z3D_OK);
    ASSERT_EQ(z3d_world_broadcast(world, &value, sizeof value, 0), Z3D_OK);
    EXPECT_EQ(value, 7);
    waited = first ? z3d_collective_wait(group, ticket) : Z3D_OK;
    ASSERT_EQ(waited, Z3D_OK);
    EXPECT_TRUE(mine == reference_all_reduce(Z3D_F32, Z3D_SUM, inputs));
}

struct Seen {
    std::vector<z3d_collective> calls;
    bool fail = false;
};

static z3d_status observe(void *context, z3d_group *, const z3d_collective *call) {
    auto *seen = static_cast<Seen *>(context);
    seen->calls.push_back(*call);
    return seen->fail ? z3d_error_set(Z3D_ERR_PROGRAM, "here", 1, "not what was recorded") : Z3D_OK;
}

TEST_P(Collectives, ObserverSeesEveryStartAndCanRefuse) {
    Seen seen;
    z3d_group_set_observer(group, observe, &seen);
    float x[3] = {1, 2, 3};
    z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, x, 3);
    run(call);
    ASSERT_EQ(seen.calls.size(), 1u);
    EXPECT_EQ(seen.calls[0].count, 3);
    EXPECT_EQ(seen.calls[0].buffer, (void *)x);
    seen.fail = true;
    z3d_ticket ticket;
    int64_t calls = z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->calls;
    EXPECT_EQ(z3d_collective_start(group, &call, &ticket), Z3D_ERR_PROGRAM);
    EXPECT_EQ(z3d_group_traffic(group, Z3D_COLLECTIVE_ALL_REDUCE)->calls, calls);
    z3d_group_set_observer(group, nullptr, nullptr);
    run(call); // nothing of the refused one was sent: numbering is still in step
    EXPECT_EQ(x[0], float(z3d_group_size(group) * z3d_group_size(group)));
}

TEST_P(Collectives, TrafficIsTheFormula) {
    z3d_group *fresh;
    ASSERT_EQ(z3d_group_create(world, &mesh, Z3D_AXES_WORLD, device, &fresh), Z3D_OK);
    int64_t n = z3d_group_size(fresh);
    std::vector<uint16_t> data(size_t(n) * 3000);
    auto go = [&](z3d_collective_kind kind, int64_t count, bool scalar) {
        z3d_collective call = call_of(kind, Z3D_BF16, data.data(), count);
        call.scalar = scalar;
        ASSERT_EQ(z3d_collective_run(fresh, &call), Z3D_OK) << z3d_error_message();
    };
    auto traffic = [&](z3d_collective_kind kind) { return *z3d_group_traffic(fresh, kind); };
    go(Z3D_COLLECTIVE_ALL_REDUCE, 2520, false);
    go(Z3D_COLLECTIVE_ALL_REDUCE, 12, true);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_ALL_REDUCE).calls, 1);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_ALL_REDUCE).volume_elements, 2 * 2520 * (n - 1) / n);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_ALL_REDUCE).bytes, 2 * 2 * 2520 * (n - 1) / n);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_ALL_REDUCE).scalar_calls, 1);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_ALL_REDUCE).scalar_bytes, 2 * 2 * 12 * (n - 1) / n);
    for (auto kind : {Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_COLLECTIVE_ALL_GATHER}) {
        go(kind, 3000, false);
        go(kind, 1, false);
        EXPECT_EQ(traffic(kind).calls, 2);
        EXPECT_EQ(traffic(kind).volume_elements, 3001 * (n - 1));
        EXPECT_EQ(traffic(kind).bytes, 2 * 3001 * (n - 1));
    }
    int64_t before = traffic(Z3D_COLLECTIVE_REDUCE_SCATTER).bytes;
    for (z3d_dtype wire : {Z3D_F32, Z3D_BF16}) { // of fp32 elements: 4 bytes each, then 2
        z3d_collective call = call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, data.data(), 1000);
        call.wire = wire;
        ASSERT_EQ(z3d_collective_run(fresh, &call), Z3D_OK) << z3d_error_message();
        int64_t now = traffic(Z3D_COLLECTIVE_REDUCE_SCATTER).bytes;
        EXPECT_EQ(now - before, (wire == Z3D_F32 ? 4 : 2) * 1000 * (n - 1));
        before = now;
    }
    go(Z3D_COLLECTIVE_BROADCAST, 100, false);
    EXPECT_EQ(traffic(Z3D_COLLECTIVE_BROADCAST).volume_elements, n > 1 ? 100 : 0);
    EXPECT_GE(traffic(Z3D_COLLECTIVE_ALL_GATHER).seconds, 0);
    z3d_group_destroy(fresh);
}

TEST_P(Collectives, BadCallsAreRefused) {
    float x[8] = {};
    z3d_ticket ticket;
    auto refused = [&](z3d_collective call) {
        return z3d_collective_start(group, &call, &ticket) == Z3D_ERR_USAGE;
    };
    z3d_collective good = call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, x, 1);
    z3d_collective call = good;
    call.count = -1;
    EXPECT_TRUE(refused(call));
    call = good;
    call.count = 2, call.stride = 1;
    EXPECT_TRUE(refused(call));
    call = good;
    call.dtype = Z3D_U8;
    EXPECT_TRUE(refused(call));
    call = good;
    call.dtype = z3d_dtype(40);
    EXPECT_TRUE(refused(call));
    call = good;
    call.kind = z3d_collective_kind(40);
    EXPECT_TRUE(refused(call));
    call = good;
    call.buffer = nullptr;
    EXPECT_TRUE(refused(call));
    call = good;
    call.stride = INT64_MAX / 2;
    EXPECT_TRUE(refused(call));
    call = good;
    call.wire = Z3D_F64;
    EXPECT_TRUE(refused(call));
    call = good;
    call.wire = Z3D_BF16, call.op = Z3D_MAX;
    EXPECT_TRUE(refused(call));
    call = good;
    call.wire = Z3D_BF16, call.dtype = Z3D_F64;
    EXPECT_TRUE(refused(call));
    call = call_of(Z3D_COLLECTIVE_ALL_GATHER, Z3D_F32, x, 1);
    call.wire = Z3D_BF16;
    EXPECT_TRUE(refused(call));
    call = call_of(Z3D_COLLECTIVE_BROADCAST, Z3D_F32, x, 1);
    call.peer = z3d_group_size(group);
    EXPECT_TRUE(refused(call));
    call = call_of(Z3D_COLLECTIVE_SEND, Z3D_F32, x, 1);
    call.peer = -1;
    EXPECT_TRUE(refused(call));
    EXPECT_EQ(z3d_collective_wait(group, z3d_ticket{999999}), Z3D_ERR_USAGE);
    EXPECT_EQ(z3d_collective_test(group, z3d_ticket{0}), Z3D_ERR_USAGE);
}

// After an error a group goes with receives still pending: nothing may write into freed memory, and
// other groups work on.
TEST_P(Collectives, PendingOnesGoWithTheirGroup) {
    int size = z3d_group_size(group), index = z3d_group_index(group);
    z3d_group *other;
    Bytes never(1000);
    ASSERT_EQ(z3d_group_create(world, &mesh, Z3D_AXES_WORLD, device, &other), Z3D_OK);
    if (size > 1) {
        z3d_collective call = call_of(Z3D_COLLECTIVE_RECV, Z3D_U8, never.data(), 1000);
        call.peer = (index + 1) % size;
        z3d_ticket ticket;
        ASSERT_EQ(z3d_collective_start(other, &call, &ticket), Z3D_OK);
        EXPECT_EQ(z3d_collective_test(other, ticket), Z3D_AGAIN);
    }
    z3d_group_destroy(other);
    float one = 1;
    run(call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, &one, 1));
    EXPECT_EQ(one, float(size));
}

TEST_P(Collectives, RecordingGroupsDoNothingButCountAndObserve) {
    z3d_group *recording;
    ASSERT_EQ(z3d_group_create_recording(Z3D_AXES_TENSOR, 8, 3, &recording), Z3D_OK);
    EXPECT_EQ(z3d_group_size(recording), 8);
    EXPECT_EQ(z3d_group_index(recording), 3);
    EXPECT_EQ(z3d_group_axes(recording), Z3D_AXES_TENSOR);
    Seen seen;
    z3d_group_set_observer(recording, observe, &seen);
    z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, (void *)64, 80);
    EXPECT_EQ(z3d_collective_run(recording, &call), Z3D_OK);
    EXPECT_EQ(seen.calls.size(), 1u);
    EXPECT_EQ(z3d_group_traffic(recording, Z3D_COLLECTIVE_ALL_REDUCE)->volume_elements, 140);
    z3d_ticket ticket;
    EXPECT_EQ(z3d_collective_start(recording, &call, &ticket), Z3D_OK);
    EXPECT_EQ(z3d_collective_test(recording, ticket), Z3D_OK);
    z3d_group_destroy(recording);
    EXPECT_EQ(z3d_group_create_recording(Z3D_AXES_TENSOR, 2, 2, &recording), Z3D_ERR_USAGE);
}

TEST(World, NodesAndGroups) {
    int size = z3d_world_size(world);
    EXPECT_EQ(z3d_world_nodes(world), 1);
    EXPECT_EQ(z3d_world_local_size(world), size);
    EXPECT_EQ(z3d_world_local_rank(world), z3d_world_rank(world));
    EXPECT_EQ(z3d_world_node(world, size - 1), 0);
    EXPECT_EQ(z3d_world_node(world, size), -1);
    EXPECT_GT(strlen(z3d_world_hostname(world)), 0u);
    z3d_mesh wrong;
    ASSERT_EQ(z3d_mesh_make(1, size + 1, 1, z3d_world_rank(world), &wrong), Z3D_OK);
    z3d_group *none;
    EXPECT_EQ(z3d_group_create(world, &wrong, Z3D_AXES_DATA, device, &none), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_check_nodes(world, &wrong), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_check_nodes(world, &mesh), Z3D_OK);
}

// A group over several axes gathers the ranks that the mesh calls its members, in that order.
TEST(World, GroupsOverSetsOfAxes) {
    int size = z3d_world_size(world), rank = z3d_world_rank(world), tensor = size % 2 ? 1 : 2;
    z3d_mesh cut;
    ASSERT_EQ(z3d_mesh_make(tensor, 1, size / tensor, rank, &cut), Z3D_OK);
    for (int axes = 1; axes < Z3D_AXES_COUNT; axes++) {
        SCOPED_TRACE(z3d_axes_name((z3d_axes)axes).text);
        z3d_group *group;
        ASSERT_EQ(z3d_group_create(world, &cut, (z3d_axes)axes, device, &group), Z3D_OK);
        std::vector<float> ranks((size_t)z3d_mesh_size(&cut, (z3d_axes)axes));
        ranks[(size_t)z3d_group_index(group)] = (float)rank;
        z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_GATHER, Z3D_F32, ranks.data(), 1);
        ASSERT_EQ(z3d_collective_run(group, &call), Z3D_OK);
        for (size_t i = 0; i < ranks.size(); i++)
            EXPECT_EQ(ranks[i], (float)z3d_mesh_member(&cut, (z3d_axes)axes, rank, (int)i));
        z3d_group_destroy(group);
    }
    z3d_group *none;
    EXPECT_EQ(z3d_group_create(world, &cut, Z3D_AXES_NONE, device, &none), Z3D_ERR_USAGE);
    EXPECT_EQ(z3d_group_create(world, &cut, Z3D_AXES_COUNT, device, &none), Z3D_ERR_USAGE);
}

TEST(World, AgreeGivesTheFirstFailureToEverybody) {
    int size = z3d_world_size(world), rank = z3d_world_rank(world);
    EXPECT_EQ(z3d_world_agree(world, Z3D_OK), Z3D_OK);
    z3d_status mine = Z3D_OK;
    if (rank == size - 1)
        mine = z3d_error_set(Z3D_ERR_DATA, "f", 1, "token 99 is beyond the vocabulary");
    z3d_status all = z3d_world_agree(world, mine);
    EXPECT_EQ(all, Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("token 99 is beyond"), std::string::npos);
    if (size > 1) {
        EXPECT_EQ(std::string(z3d_error_message()).find("rank " + std::to_string(size - 1) + ": "),
                  0u);
        // Everybody fails: the lowest rank is heard; a message of any length arrives.
        std::string text(5000, char('a' + rank));
        all = z3d_world_agree(world, z3d_error_set(Z3D_ERR_IO, "f", 1, "%s", text.c_str()));
        EXPECT_EQ(all, Z3D_ERR_IO);
        EXPECT_EQ(std::string(z3d_error_message()).find("rank 0: aaaaaaaa"), 0u);
        // Once all know of it, it is no more for each to tell.
        EXPECT_EQ(z3d_world_agree(world, Z3D_ERR_START), Z3D_ERR_PEER);
    }
}

TEST(World, HostHelpers) {
    int size = z3d_world_size(world), rank = z3d_world_rank(world);
    std::vector<int> all(static_cast<size_t>(size));
    ASSERT_EQ(z3d_world_gather_all(world, &rank, all.data(), sizeof rank), Z3D_OK);
    for (int r = 0; r < size; r++) EXPECT_EQ(all[size_t(r)], r);
    int64_t value = rank == size - 1 ? 42 : 0;
    ASSERT_EQ(z3d_world_broadcast(world, &value, sizeof value, size - 1), Z3D_OK);
    EXPECT_EQ(value, 42);
    EXPECT_EQ(z3d_world_broadcast(world, &value, sizeof value, size), Z3D_ERR_USAGE);
    EXPECT_EQ(z3d_world_gather_all(world, &rank, all.data(), -1), Z3D_ERR_USAGE);
}

int main(int argc, char **argv) {
    if (z3d_world_create(&argc, &argv, &world) != Z3D_OK) {
        fprintf(stderr, "%s\n", z3d_error_message());
        return 1;
    }
    testing::InitGoogleTest(&argc, argv);
    z3d_device_config config = {};
    config.backend = "cpu";
    config.threads = 1;
    int result = 1;
    z3d_status status = z3d_device_create(&config, &device);
    if (status == Z3D_OK)
        status = z3d_mesh_make(1, z3d_world_size(world), 1, z3d_world_rank(world), &mesh);
    for (int way = 0; way < 3 && status == Z3D_OK; way++) {
        world->sharing = z3d_sharing(way);
        status = z3d_group_create(world, &mesh, Z3D_AXES_WORLD, device, &groups[way]);
    }
    if (status == Z3D_OK)
        result = RUN_ALL_TESTS();
    else
        fprintf(stderr, "%s\n", z3d_error_message());
    for (z3d_group *each : groups) z3d_group_destroy(each);
    z3d_device_destroy(device);
    z3d_world_destroy(world);
    return result;
}
