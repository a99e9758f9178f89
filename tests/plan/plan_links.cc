// How groups lie on nodes, who shares the adapters, and what collectives cost there.
#include <gtest/gtest.h>

extern "C" {
#include "parallel/sim/links.h"
}

namespace {

z3d_links find(int tensor, int data, int devices, z3d_axes axes) {
    z3d_mesh mesh;
    z3d_links links{};
    EXPECT_EQ(z3d_mesh_make(tensor, data, 1, 0, &mesh), Z3D_OK);
    EXPECT_EQ(z3d_links_find(&mesh, axes, devices, &links), Z3D_OK);
    return links;
}

z3d_hardware machine() {
    z3d_hardware hardware{};
    hardware.devices = 4;
    hardware.link_bandwidth = 100;
    hardware.link_efficiency = 0.5;
    hardware.network_bandwidth = 10;
    hardware.network_efficiency = 0.5;
    hardware.link_latency_us = 1;
    hardware.network_latency_us = 100;
    hardware.gather_pieces = hardware.reduce_pieces = 1;
    return hardware;
}

z3d_event call(z3d_collective_kind kind, int64_t count) {
    z3d_event event{};
    event.kind = Z3D_EVENT_START;
    event.of = kind;
    event.dtype = Z3D_F16;
    event.count = count;
    return event;
}

TEST(Links, Map) {
    z3d_links inside = find(4, 8, 4, Z3D_AXES_TENSOR);
    EXPECT_EQ(inside.members, 4);
    EXPECT_EQ(inside.nodes, 1);
    EXPECT_EQ(inside.hops, 0);
    z3d_links across = find(4, 8, 4, Z3D_AXES_DATA); // one member a node, four groups a node
    EXPECT_EQ(across.members, 8);
    EXPECT_EQ(across.nodes, 8);
    EXPECT_EQ(across.sharing, 4);
    z3d_links half = find(2, 8, 4, Z3D_AXES_DATA); // two members a node, two groups a node
    EXPECT_EQ(half.nodes, 4);
    EXPECT_EQ(half.sharing, 2);
    z3d_links wide = find(8, 4, 4, Z3D_AXES_TENSOR); // a group over two nodes, alone on them
    EXPECT_EQ(wide.nodes, 2);
    EXPECT_EQ(wide.sharing, 1);
    z3d_links odd = find(3, 4, 4, Z3D_AXES_TENSOR); // ranks 3-5 and 6-8 straddle nodes
    EXPECT_EQ(odd.nodes, 2);
    EXPECT_EQ(odd.sharing, 2);
    EXPECT_EQ(find(4, 3, 4, Z3D_AXES_WORLD).nodes, 3);
}

// A ring visits node after node, wherever the ranks of a node are in the group.
TEST(Links, HopsOfRanksThatDoNotFillNodes) {
    z3d_mesh mesh;
    ASSERT_EQ(z3d_mesh_make(1, 4, 1, 0, &mesh), Z3D_OK);
    const int back[] = {0, 1, 1, 0}, turns[] = {0, 1, 0, 1}, one[] = {2, 2, 2, 2};
    const z3d_places first = {back, 0}, second = {turns, 0}, third = {one, 0};
    EXPECT_EQ(z3d_links_hops(&mesh, Z3D_AXES_DATA, &first), 2);
    EXPECT_EQ(z3d_links_hops(&mesh, Z3D_AXES_DATA, &second), 2);
    EXPECT_EQ(z3d_links_hops(&mesh, Z3D_AXES_DATA, &third), 0);
}

// Software that fetches or reduces parameters one by one pays the latency for each; other gathers
// do not change.
TEST(Links, InPieces) {
    z3d_hardware hardware = machine();
    z3d_links links = find(1, 8, 4, Z3D_ROLE_ROWS);
    z3d_event parameters = call(Z3D_COLLECTIVE_ALL_GATHER, 1000), others = parameters;
    parameters.axes = Z3D_ROLE_ROWS;
    others.axes = Z3D_ROLE_PARTS;
    const double whole = z3d_links_collective(&hardware, &links, &parameters);
    hardware.gather_pieces = 12;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &parameters) - whole, 11 * 106e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_collective(&hardware, &links, &others), whole);
    z3d_event gradients = call(Z3D_COLLECTIVE_REDUCE_SCATTER, 1000);
    gradients.axes = Z3D_ROLE_ROWS;
    EXPECT_DOUBLE_EQ(z3d_links_collective(&hardware, &links, &gradients), whole);
    hardware.reduce_pieces = 12;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &gradients) - whole, 11 * 106e-6, 1e-12);
    // Each piece is a list of as many tensors as there are members.
    EXPECT_EQ(z3d_links_lists(&hardware, &links, &gradients), 0);
    hardware.list_us = 4;
    EXPECT_NEAR(z3d_links_lists(&hardware, &links, &gradients), 12 * links.members * 4e-6, 1e-12);
    EXPECT_EQ(z3d_links_lists(&hardware, &links, &others), 0);
}

TEST(Links, CopiesOfWhatGathersAndReduceScattersMove) {
    z3d_hardware hardware = machine();
    z3d_links links = find(4, 8, 4, Z3D_AXES_TENSOR);
    hardware.memory_bandwidth = 100;
    hardware.memory_efficiency = 0.5;
    const z3d_event gather = call(Z3D_COLLECTIVE_ALL_GATHER, 1000000);
    EXPECT_EQ(z3d_links_taken(&hardware, &links, &gather, 0), 0);
    hardware.collective_copies = 1;
    EXPECT_NEAR(z3d_links_taken(&hardware, &links, &gather, 0), 2 * 8e6 / 50e9, 1e-12);
    const z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000);
    EXPECT_EQ(z3d_links_taken(&hardware, &links, &sum, 0), 0);
}

TEST(Links, TcpTakesACore) {
    z3d_hardware hardware = machine();
    z3d_links links = find(1, 8, 4, Z3D_AXES_DATA);
    const z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000);
    EXPECT_EQ(z3d_links_taken(&hardware, &links, &sum, 1e6), 0);
    hardware.network_core_ns = 3;
    EXPECT_NEAR(z3d_links_taken(&hardware, &links, &sum, 1e6), 3e-3, 1e-12);
}

TEST(Links, RingInsideANode) {
    z3d_hardware hardware = machine();
    z3d_links links = find(4, 8, 4, Z3D_AXES_TENSOR);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000);
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &sum), 2 * 0.75 * 2e6 / 50e9 + 2 * 3e-6,
                1e-12);
    double between;
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &sum, &between), 3e6);
    EXPECT_DOUBLE_EQ(between, 0);
}

TEST(Links, RingsThatShareTheAdapters) {
    z3d_hardware hardware = machine();
    z3d_links links = find(4, 8, 4, Z3D_AXES_DATA);
    z3d_event gather = call(Z3D_COLLECTIVE_ALL_GATHER, 1000000); // a row; the matrix has 8
    double bytes = 7 * 2e6, width = 5e9 / 4;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &gather), bytes / width + 7 * 1e-4, 1e-9);
    double between;
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &gather, &between), bytes);
    EXPECT_DOUBLE_EQ(between, bytes); // every hop leaves a node
    z3d_event scatter = call(Z3D_COLLECTIVE_REDUCE_SCATTER, 1000000);
    EXPECT_DOUBLE_EQ(z3d_links_collective(&hardware, &links, &scatter),
                     z3d_links_collective(&hardware, &links, &gather));
}

// Two nodes of four ranks: 3 of 7 peers are inside, 4 across; all four of a node send at once.
TEST(Links, SumsThatTravelInAnotherType) {
    z3d_hardware hardware = machine();
    z3d_links links = find(8, 1, 4, Z3D_AXES_TENSOR);
    z3d_event scatter = call(Z3D_COLLECTIVE_REDUCE_SCATTER, 1000000);
    scatter.dtype = Z3D_F32;
    scatter.form = Z3D_BF16;
    double between;
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &scatter, &between), 14e6);
    EXPECT_DOUBLE_EQ(between, 8e6);
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &scatter),
                6e6 / 50e9 + 8e6 / (5e9 / 4) + 403e-6, 1e-12);
    scatter.of = Z3D_COLLECTIVE_ALL_REDUCE; // of a vector: 2/8 of it to each of them
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &scatter, &between), 3.5e6);
    EXPECT_DOUBLE_EQ(between, 2e6);
    // One rank a node: half of what the ring sends, in the same time otherwise.
    links = find(4, 8, 4, Z3D_AXES_DATA);
    scatter.of = Z3D_COLLECTIVE_REDUCE_SCATTER;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &scatter), 14e6 / (5e9 / 4) + 7e-4, 1e-9);
}

// Two nodes of four ranks, by hand: 50 GB/s and 1 us inside, 5 GB/s a node and 100 us between.
TEST(Links, InLevels) {
    z3d_hardware hardware = machine();
    z3d_links links = find(8, 1, 4, Z3D_AXES_TENSOR);
    EXPECT_EQ(links.local, 4);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000),
              gather = call(Z3D_COLLECTIVE_ALL_GATHER, 1000000),
              scatter = call(Z3D_COLLECTIVE_REDUCE_SCATTER, 1000000);
    // One ring: 2 x 7/8 of 2 MB over 5 GB/s, 2 x (6 x 1 + 100) us; 2 of its 8 hops leave a node.
    double between;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &sum), 700e-6 + 212e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &sum, &between), 3.5e6);
    EXPECT_DOUBLE_EQ(between, 0.875e6);
    // In levels: twice 3/4 of 2 MB at 50 GB/s, 60 us; twice 1/2 of a quarter of it at 5/4 GB/s, 400
    // us; 2 x (3 x 1 + 100) us.
    hardware.hierarchical = 1;
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &sum), 60e-6 + 400e-6 + 206e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &sum, &between), 3.5e6);
    EXPECT_DOUBLE_EQ(between, 0.5e6);
    // Of a matrix of 16 MB: 3/4 at 50 GB/s, 1/2 of a quarter at 5/4 GB/s, 3 x 1 + 100 us.
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &gather), 240e-6 + 1600e-6 + 103e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_collective(&hardware, &links, &scatter),
                     z3d_links_collective(&hardware, &links, &gather));
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &links, &gather, &between), 14e6);
    EXPECT_DOUBLE_EQ(between, 2e6);
    hardware.network_bandwidth = 1000; // wider than a member's own link
    EXPECT_NEAR(z3d_links_collective(&hardware, &links, &sum), 60e-6 + 10e-6 + 206e-6, 1e-12);
}

TEST(Links, WhatHasNoLevels) {
    const struct {
        int tensor, data;
        z3d_axes axes;
    } cases[] = {{4, 2, Z3D_AXES_TENSOR}, // inside a node
                 {2, 3, Z3D_AXES_DATA},   // two members on one node, one on the other
                 {3, 4, Z3D_AXES_TENSOR}, // some groups straddle, two and one
                 {6, 1, Z3D_AXES_WORLD}}; // four and two
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000);
    for (const auto &c : cases) {
        z3d_hardware hardware = machine();
        z3d_links links = find(c.tensor, c.data, 4, c.axes);
        double ring = z3d_links_collective(&hardware, &links, &sum), ring_between, between;
        z3d_links_bytes(&hardware, &links, &sum, &ring_between);
        hardware.hierarchical = 1;
        EXPECT_EQ(z3d_links_collective(&hardware, &links, &sum), ring) << c.tensor;
        z3d_links_bytes(&hardware, &links, &sum, &between);
        EXPECT_EQ(between, ring_between) << c.tensor;
    }
    EXPECT_EQ(find(2, 8, 4, Z3D_AXES_DATA).local, 2);
    EXPECT_EQ(find(4, 3, 4, Z3D_AXES_WORLD).local, 4);
    z3d_hardware hardware = machine();
    z3d_links alone = find(4, 8, 4, Z3D_AXES_DATA); // one member a node: levels are the ring
    double ring = z3d_links_collective(&hardware, &alone, &sum);
    hardware.hierarchical = 1;
    EXPECT_NEAR(z3d_links_collective(&hardware, &alone, &sum), ring, 1e-12);
    hardware.tree_kib = 1e6;
    double tree = z3d_links_collective(&hardware, &alone, &sum);
    hardware.hierarchical = 0;
    EXPECT_EQ(z3d_links_collective(&hardware, &alone, &sum), tree); // small sums: a tree
}

TEST(Links, SmallSumsTakeATree) {
    z3d_hardware hardware = machine();
    z3d_links links = find(16, 1, 4, Z3D_AXES_TENSOR);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 512);
    double ring = z3d_links_collective(&hardware, &links, &sum);
    hardware.tree_kib = 1;
    double tree = z3d_links_collective(&hardware, &links, &sum);
    EXPECT_NEAR(ring - tree, 2 * ((12 - 2) * 1e-6 + (3 - 2) * 1e-4), 1e-12);
}

TEST(Links, MeasuredInsideANode) {
    z3d_hardware hardware = machine();
    z3d_links inside = find(4, 8, 4, Z3D_AXES_TENSOR), across = find(4, 8, 4, Z3D_AXES_DATA);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000),
              gather = call(Z3D_COLLECTIVE_ALL_GATHER, 500);
    double between = z3d_links_collective(&hardware, &across, &sum);
    z3d_sample sample;
    ASSERT_EQ(z3d_sample_parse("all_reduce plain fp16 3000", &sample), Z3D_OK);
    sample.seconds = 7e-6;
    ASSERT_EQ(z3d_measured_add(&hardware.measured, &sample), Z3D_OK);
    ASSERT_EQ(z3d_sample_parse("all_gather plain fp32 3000", &sample), Z3D_OK); // of any type
    sample.seconds = 5e-6;
    ASSERT_EQ(z3d_measured_add(&hardware.measured, &sample), Z3D_OK);
    EXPECT_NEAR(z3d_links_collective(&hardware, &inside, &sum), 7e-6, 1e-9); // 2 x 3/4 x 2000 bytes
    EXPECT_NEAR(z3d_links_collective(&hardware, &inside, &gather), 5e-6, 1e-9);
    EXPECT_EQ(z3d_links_collective(&hardware, &across, &sum), between);
}

// Switches add: 2 MB cross once, at a quarter of 5 GB/s, 100 us each way; a ring sends 2 x 7/8 of
// them, 2 x 700 us. Inside a node it goes as in levels. A gather and a scatter win nothing.
TEST(Links, SumsInTheNetwork) {
    z3d_hardware hardware = machine();
    z3d_links alone = find(4, 8, 4, Z3D_AXES_DATA), even = find(1, 16, 4, Z3D_AXES_DATA),
              inside = find(4, 8, 4, Z3D_AXES_TENSOR);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000000),
              gather = call(Z3D_COLLECTIVE_ALL_GATHER, 1000000);
    EXPECT_NEAR(z3d_links_collective(&hardware, &alone, &sum), 2800e-6 + 1400e-6, 1e-12);
    const double gathered = z3d_links_collective(&hardware, &alone, &gather),
                 here = z3d_links_collective(&hardware, &inside, &sum);
    hardware.in_network = 1;
    hardware.tree_kib = 1e6; // also small ones
    double between;
    EXPECT_NEAR(z3d_links_collective(&hardware, &alone, &sum), 1600e-6 + 200e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &alone, &sum, &between), 2e6);
    EXPECT_DOUBLE_EQ(between, 2e6);
    // Four members on each of four nodes: twice 3/4 of 2 MB at 50 GB/s, a quarter at 5/4 GB/s.
    EXPECT_NEAR(z3d_links_collective(&hardware, &even, &sum), 60e-6 + 400e-6 + 206e-6, 1e-12);
    EXPECT_DOUBLE_EQ(z3d_links_bytes(&hardware, &even, &sum, &between), 3.5e6);
    EXPECT_DOUBLE_EQ(between, 0.5e6);
    EXPECT_EQ(z3d_links_collective(&hardware, &alone, &gather), gathered);
    hardware.tree_kib = 0;
    EXPECT_EQ(z3d_links_collective(&hardware, &inside, &sum), here);
}

TEST(Links, OneMemberCostsNothing) {
    z3d_hardware hardware = machine();
    z3d_links links = find(1, 4, 4, Z3D_AXES_TENSOR);
    z3d_event sum = call(Z3D_COLLECTIVE_ALL_REDUCE, 1000);
    EXPECT_EQ(z3d_links_collective(&hardware, &links, &sum), 0);
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
