// A composite collective of the test's own: a backend whose collectives consist of collectives on
// two groups of fewer axes, by a table of phases. To its callers it is one collective like all
// others: one start, one wait, one call of each observer.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/parallel/reference.h"
#include "tests/ranks.h"

extern "C" {
#include "parallel/interface/internal.h"
}

namespace {

// ---- the composite: inside a node, between nodes, inside a node ----

struct Phase {
    z3d_collective_kind kind;
    z3d_axes axes;
};

std::vector<Phase> phases_of(z3d_collective_kind kind) {
    switch (kind) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        return {{Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_ROLE_BLOCKS},
                {Z3D_COLLECTIVE_ALL_REDUCE, Z3D_ROLE_NODES},
                {Z3D_COLLECTIVE_ALL_GATHER, Z3D_ROLE_BLOCKS}};
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        return {{Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_ROLE_BLOCKS},
                {Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_ROLE_NODES}};
    case Z3D_COLLECTIVE_ALL_GATHER:
        return {{Z3D_COLLECTIVE_ALL_GATHER, Z3D_ROLE_NODES},
                {Z3D_COLLECTIVE_ALL_GATHER, Z3D_ROLE_BLOCKS}};
    default:
        return {};
    }
}

// A queue, as that of messages: one operation is in progress at a time. So all members start the
// phases in one order.
struct Composite {
    z3d_group *inner[Z3D_AXES_COUNT] = {};
    std::vector<z3d_operation *> queue;
    size_t phase = 0;
    z3d_ticket ticket = {}; // of the phase in progress; id 0: none is
};

Composite &composite_of(const z3d_group *group) {
    return *static_cast<Composite *>(group->state);
}

// Each member of a node works on one block, between nodes as well as inside its node.
z3d_collective call_of_phase(const z3d_group *group, const z3d_collective &whole, Phase phase) {
    Composite &own = composite_of(group);
    const z3d_group *blocks = own.inner[Z3D_ROLE_BLOCKS], *nodes = own.inner[Z3D_ROLE_NODES];
    const bool all_reduce = whole.kind == Z3D_COLLECTIVE_ALL_REDUCE;
    const int64_t block = all_reduce ? whole.count / blocks->size : whole.count * nodes->size;
    z3d_collective call = whole;
    call.kind = phase.kind;
    call.count = phase.axes == Z3D_ROLE_NODES && !all_reduce ? whole.count : block;
    call.stride = call.count;
    if (phase.axes == Z3D_ROLE_NODES)
        call.buffer =
            static_cast<char *>(whole.buffer) + z3d_bytes_of(whole.dtype, blocks->index * block);
    return call;
}

z3d_status begin_phase(z3d_group *group, Phase phase) {
    Composite &own = composite_of(group);
    const z3d_collective call = call_of_phase(group, own.queue.front()->call, phase);
    return z3d_collective_start(own.inner[phase.axes], &call, &own.ticket);
}

z3d_status advance(z3d_group *group, bool *moved) {
    Composite &own = composite_of(group);
    while (!own.queue.empty()) {
        const std::vector<Phase> phases = phases_of(own.queue.front()->call.kind);
        if (own.ticket.id == 0) Z3D_TRY(begin_phase(group, phases[own.phase]));
        z3d_status status = z3d_collective_test(own.inner[phases[own.phase].axes], own.ticket);
        if (status == Z3D_AGAIN) return Z3D_OK;
        Z3D_TRY(status);
        *moved = true;
        own.ticket.id = 0;
        if (++own.phase < phases.size()) continue;
        own.phase = 0;
        z3d_operation_finish(group, own.queue.front());
        own.queue.erase(own.queue.begin());
    }
    return Z3D_OK;
}

z3d_status start(z3d_group *group, z3d_operation *operation) {
    Composite &own = composite_of(group);
    const z3d_collective &call = operation->call;
    const bool divides = call.count % own.inner[Z3D_ROLE_BLOCKS]->size == 0;
    if (call.kind == Z3D_COLLECTIVE_ALL_REDUCE ? !divides : call.stride != call.count)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "the composite works on whole, equal blocks");
    if (phases_of(call.kind).empty())
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "the composite has no phases for this collective");
    own.queue.push_back(operation);
    z3d_world_progress(group->world);
    return Z3D_OK;
}

void destroy(z3d_group *group) {
    Composite *own = static_cast<Composite *>(group->state);
    for (z3d_group *inner : own->inner) z3d_group_destroy(inner);
    delete own;
}

z3d_group_ops composite_ops() {
    z3d_group_ops ops = {};
    ops.name = "composite";
    ops.start = start;
    ops.progress = advance;
    ops.destroy = destroy;
    return ops;
}

z3d_status make_composite(z3d_group *group) {
    static const z3d_group_ops ops = composite_ops();
    Composite *own = new Composite;
    group->ops = &ops;
    group->state = own;
    for (z3d_axes axes : {Z3D_ROLE_BLOCKS, Z3D_ROLE_NODES})
        Z3D_TRY(
            z3d_group_create(group->world, &group->mesh, axes, group->device, &own->inner[axes]));
    return Z3D_OK;
}

// ---- what it must give ----

// A composite and a plain group over the same data ranks, two nodes of two.
class CompositeCollectives : public testing::TestWithParam<int> {
    void SetUp() override {
        z3d_device_config config = {};
        config.backend = "cpu";
        config.threads = 1;
        world->sharing = z3d_sharing(GetParam());
        ASSERT_Z3D(z3d_device_create(&config, &device));
        mesh.rank = z3d_world_rank(world);
        ASSERT_Z3D(z3d_group_create(world, &mesh, Z3D_ROLE_ROWS, device, &plain));
        ASSERT_Z3D(
            z3d_group_create_with(world, &mesh, Z3D_ROLE_ROWS, device, make_composite, &composite));
    }
    void TearDown() override {
        z3d_group_destroy(composite);
        z3d_group_destroy(plain);
        z3d_device_destroy(device);
    }

  protected:
    z3d_device *device = nullptr;
    z3d_mesh mesh = {{1, 2, 2, 1}, 0};
    z3d_group *plain = nullptr, *composite = nullptr;
};
INSTANTIATE_TEST_SUITE_P(, CompositeCollectives,
                         testing::Values(Z3D_SHARE_EVERYTHING, Z3D_SHARE_NOTHING));

z3d_collective call_of(z3d_collective_kind kind, z3d_dtype dtype, Bytes &buffer, int64_t count) {
    z3d_collective call = {};
    call.kind = kind;
    call.dtype = dtype;
    call.buffer = buffer.data();
    call.count = call.stride = count;
    return call;
}

// Small whole numbers, whose sums are exact in every order; with the reference's period.
Bytes whole_numbers(int64_t count, int member) {
    Bytes out(size_t(count) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        const float value = float(mix(uint64_t(4 * (i % PERIOD) + member)) % 1000);
        std::memcpy(&out[size_t(i) * sizeof value], &value, sizeof value);
    }
    return out;
}

// The own row, which is what a reduce-scatter defines, or everything.
Bytes defined_part(const z3d_group *group, const z3d_collective &call, const Bytes &buffer) {
    if (call.kind != Z3D_COLLECTIVE_REDUCE_SCATTER) return buffer;
    const int64_t bytes = z3d_bytes_of(call.dtype, call.count);
    return Bytes(buffer.begin() + z3d_group_index(group) * bytes,
                 buffer.begin() + (z3d_group_index(group) + 1) * bytes);
}

} // namespace

TEST_P(CompositeCollectives, GiveWhatPlainOnesGive) {
    for (z3d_collective_kind kind :
         {Z3D_COLLECTIVE_ALL_REDUCE, Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_COLLECTIVE_ALL_GATHER})
        for (int64_t count : {0, 2, 500, 1024, 40000, 300000}) {
            const int64_t rows = kind == Z3D_COLLECTIVE_ALL_REDUCE ? 1 : 4;
            Bytes want = whole_numbers(rows * count, z3d_group_index(plain)), have = want;
            z3d_collective expected = call_of(kind, Z3D_F32, want, count),
                           call = call_of(kind, Z3D_F32, have, count);
            ASSERT_Z3D(z3d_collective_run(plain, &expected));
            ASSERT_Z3D(z3d_collective_run(composite, &call));
            EXPECT_TRUE(defined_part(plain, call, have) == defined_part(plain, call, want))
                << z3d_collective_name(kind) << " of " << count;
        }
}

// The order of its sums is that of its phases: the members of a node, then the nodes. Sums of two
// have one order.
TEST_P(CompositeCollectives, AddInTheOrderOfTheirPhases) {
    for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
        const int64_t count = 10000;
        std::vector<Bytes> node;
        for (int outer = 0; outer < 2; outer++) {
            std::vector<Bytes> members;
            for (int inner = 0; inner < 2; inner++)
                members.push_back(make_input(dtype, count, 7, 2 * inner + outer));
            node.push_back(reference_all_reduce(dtype, Z3D_SUM, members));
        }
        Bytes mine = make_input(dtype, count, 7, z3d_group_index(composite));
        z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, dtype, mine, count);
        ASSERT_Z3D(z3d_collective_run(composite, &call));
        EXPECT_TRUE(mine == reference_all_reduce(dtype, Z3D_SUM, node)) << z3d_dtype_name(dtype);
    }
}

// Composite and plain ones are under way together; each rank waits for them in an order of its own.
TEST_P(CompositeCollectives, AreUnderWayBesideOthers) {
    enum { OPERATIONS = 24 };
    std::mt19937 shared(5), own(unsigned(z3d_world_rank(world)));
    std::vector<Bytes> buffer(OPERATIONS);
    std::vector<std::pair<z3d_group *, z3d_ticket>> wait(OPERATIONS);
    std::vector<size_t> order;
    for (size_t i = 0; i < OPERATIONS; i++) {
        const int64_t count = 2 * int64_t(shared() % (shared() % 3 ? 400 : 60000));
        buffer[i] = whole_numbers(count, z3d_group_index(plain));
        z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, buffer[i], count);
        wait[i].first = shared() % 3 ? composite : plain;
        ASSERT_Z3D(z3d_collective_start(wait[i].first, &call, &wait[i].second));
        order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), own);
    while (own() % 2 && composite->pending > 0) z3d_world_poll(world);
    for (size_t i : order) {
        z3d_status status = Z3D_AGAIN;
        for (bool tests = own() % 2; tests && status == Z3D_AGAIN;)
            status = z3d_collective_test(wait[i].first, wait[i].second);
        if (status == Z3D_AGAIN) status = z3d_collective_wait(wait[i].first, wait[i].second);
        ASSERT_Z3D(status);
        std::vector<Bytes> inputs;
        const int64_t count = int64_t(buffer[i].size() / sizeof(float));
        for (int member = 0; member < 4; member++) inputs.push_back(whole_numbers(count, member));
        EXPECT_TRUE(buffer[i] == reference_all_reduce(Z3D_F32, Z3D_SUM, inputs)) << i;
    }
}

// Recorder, timeline and replay see one collective. The groups of the phases count what they move.
TEST_P(CompositeCollectives, AreOneCollectiveToObservers) {
    struct Seen {
        int starts, waits, results;
        int64_t bytes;
    } seen = {};
    z3d_group_set_observer(
        composite,
        [](void *context, z3d_group *, const z3d_collective *call) {
            static_cast<Seen *>(context)->starts += call->kind == Z3D_COLLECTIVE_ALL_REDUCE;
            return Z3D_OK;
        },
        &seen);
    z3d_group_set_wait_observer(
        composite,
        [](void *context, const z3d_group *, const z3d_collective *, double begin, double end) {
            static_cast<Seen *>(context)->waits += begin <= end;
        },
        &seen);
    z3d_group_set_result_observer(
        composite,
        [](void *context, z3d_group *group, const z3d_collective *call) {
            Seen &all = *static_cast<Seen *>(context);
            void *at;
            int64_t bytes;
            all.results++;
            for (int run = 0; z3d_collective_result(group, call, run, &at, &bytes); run++)
                all.bytes += bytes;
            return Z3D_OK;
        },
        &seen);
    const int64_t count = 8000;
    Bytes mine = whole_numbers(count, z3d_group_index(composite));
    z3d_collective call = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine, count);
    ASSERT_Z3D(z3d_collective_run(composite, &call));
    EXPECT_EQ(seen.starts, 1);
    EXPECT_EQ(seen.waits, 1);
    EXPECT_EQ(seen.results, 1);
    EXPECT_EQ(seen.bytes, count * int64_t(sizeof(float)));
    EXPECT_EQ(z3d_group_traffic(composite, Z3D_COLLECTIVE_ALL_REDUCE)->calls, 1);
    Composite &own = composite_of(composite);
    const z3d_group *blocks = own.inner[Z3D_ROLE_BLOCKS], *nodes = own.inner[Z3D_ROLE_NODES];
    for (z3d_collective_kind kind : {Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_COLLECTIVE_ALL_GATHER})
        EXPECT_EQ(z3d_group_traffic(blocks, kind)->volume_elements, count / 2);
    EXPECT_EQ(z3d_group_traffic(nodes, Z3D_COLLECTIVE_ALL_REDUCE)->volume_elements, count / 2);
}

// What it cannot do it refuses, before a phase starts; the next one is not disturbed.
TEST_P(CompositeCollectives, RefuseWhatTheyLack) {
    Bytes mine = whole_numbers(40, z3d_group_index(composite));
    z3d_collective odd = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine, 7),
                   columns = call_of(Z3D_COLLECTIVE_REDUCE_SCATTER, Z3D_F32, mine, 5),
                   other = call_of(Z3D_COLLECTIVE_BROADCAST, Z3D_F32, mine, 8),
                   good = call_of(Z3D_COLLECTIVE_ALL_REDUCE, Z3D_F32, mine, 8);
    columns.stride = 8;
    for (const z3d_collective &call : {odd, columns, other})
        EXPECT_EQ(z3d_collective_run(composite, &call), Z3D_ERR_UNSUPPORTED);
    EXPECT_Z3D(z3d_collective_run(composite, &good));
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
