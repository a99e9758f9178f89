// Ranks and coordinates, Megatron-LM's own example, refusals, and tensor groups against node maps.
#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <vector>

extern "C" {
#include "parallel/interface/launcher.h"
}

static std::vector<int> members(const z3d_topology &topology, z3d_axis axis) {
    std::vector<int> out;
    for (int i = 0; i < topology.size[axis]; i++)
        out.push_back(z3d_topology_peer(&topology, axis, i));
    return out;
}

TEST(Topology, MegatronExample) {
    z3d_topology t;
    ASSERT_EQ(z3d_topology_make(2, 2, 4, 0, &t), Z3D_OK);
    EXPECT_EQ(members(t, Z3D_AXIS_TENSOR), (std::vector<int>{0, 1}));
    EXPECT_EQ(members(t, Z3D_AXIS_DATA), (std::vector<int>{0, 2}));
    EXPECT_EQ(members(t, Z3D_AXIS_PIPELINE), (std::vector<int>{0, 4, 8, 12}));
    ASSERT_EQ(z3d_topology_make(2, 2, 4, 7, &t), Z3D_OK);
    EXPECT_EQ(members(t, Z3D_AXIS_TENSOR), (std::vector<int>{6, 7}));
    EXPECT_EQ(members(t, Z3D_AXIS_DATA), (std::vector<int>{5, 7}));
    EXPECT_EQ(members(t, Z3D_AXIS_PIPELINE), (std::vector<int>{3, 7, 11, 15}));
    EXPECT_EQ(members(t, Z3D_AXIS_WORLD).size(), 16u);
}

TEST(Topology, EveryRankIsItsOwnPeer) {
    for (int rank = 0; rank < 24; rank++) {
        z3d_topology t;
        ASSERT_EQ(z3d_topology_make(2, 3, 4, rank, &t), Z3D_OK);
        for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
            EXPECT_EQ(z3d_topology_peer(&t, z3d_axis(axis), t.coordinate[axis]), rank);
        EXPECT_EQ(t.coordinate[0] + 2 * (t.coordinate[1] + 3 * t.coordinate[2]), rank);
    }
}

TEST(Topology, Refusals) {
    z3d_topology t;
    EXPECT_EQ(z3d_topology_make(0, 1, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_topology_make(1, -2, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_topology_make(2, 2, 1, 4, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_topology_make(2, 2, 1, -1, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_topology_make(INT_MAX, INT_MAX, INT_MAX, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_topology_make(65536, 65536, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_STREQ(z3d_axis_name(Z3D_AXIS_DATA), "data");
    EXPECT_STREQ(z3d_axis_name(z3d_axis(99)), "?");
}

TEST(Topology, StraddlingTensorGroupIsNamed) {
    z3d_topology t;
    ASSERT_EQ(z3d_topology_make(2, 3, 1, 0, &t), Z3D_OK);
    int even[] = {0, 0, 0, 0, 1, 1};
    EXPECT_EQ(z3d_topology_check_node_map(&t, even), Z3D_OK);
    int odd[] = {0, 0, 0, 1, 1, 1};
    ASSERT_EQ(z3d_topology_check_node_map(&t, odd), Z3D_ERR_TOPOLOGY);
    std::string message = z3d_error_message();
    EXPECT_NE(message.find("ranks 2-3"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 3 on node 1"), std::string::npos) << message;
}

TEST(Launcher, FirstHostOfSlurmsList) {
    auto first = [](const char *list) {
        char host[16];
        return std::string(z3d_hostlist_first(list, host, sizeof host) ? host : "none");
    };
    EXPECT_EQ(first("node7"), "node7");
    EXPECT_EQ(first("b,a"), "b");
    EXPECT_EQ(first("n[1-3,07],m1"), "n1");
    EXPECT_EQ(first("n[007-010]-ib.x"), "n007-ib.x");
    EXPECT_EQ(first("r[2,4]n[11-12]"), "r2n11");
    for (const char *bad :
         {"", ",a", "n[1-3", "n]", "a b", "a-name-of-16-byte", "n[0000000000000000]"})
        EXPECT_EQ(first(bad), "none") << bad;
}

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
