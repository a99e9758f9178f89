// Ranks along axes, members of every set of axes, Megatron-LM's own example, refusals, and tensor
// groups against node maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <set>
#include <string>
#include <vector>

extern "C" {
#include "parallel/interface/launcher.h"
}

static std::vector<int> members(const z3d_mesh &mesh, z3d_axes axes, int rank) {
    std::vector<int> out;
    for (int i = 0; i < z3d_mesh_size(&mesh, axes); i++)
        out.push_back(z3d_mesh_member(&mesh, axes, rank, i));
    return out;
}

TEST(Mesh, MegatronExample) {
    z3d_mesh mesh;
    ASSERT_EQ(z3d_mesh_make(2, 2, 4, 0, &mesh), Z3D_OK);
    EXPECT_EQ(members(mesh, Z3D_AXES_TENSOR, 0), (std::vector<int>{0, 1}));
    EXPECT_EQ(members(mesh, Z3D_AXES_DATA, 0), (std::vector<int>{0, 2}));
    EXPECT_EQ(members(mesh, Z3D_AXES_PIPELINE, 0), (std::vector<int>{0, 4, 8, 12}));
    EXPECT_EQ(members(mesh, Z3D_AXES_TENSOR, 7), (std::vector<int>{6, 7}));
    EXPECT_EQ(members(mesh, Z3D_AXES_DATA, 7), (std::vector<int>{5, 7}));
    EXPECT_EQ(members(mesh, Z3D_AXES_PIPELINE, 7), (std::vector<int>{3, 7, 11, 15}));
    EXPECT_EQ(members(mesh, Z3D_AXES_WORLD, 7).size(), 16u);
}

// Coordinates counted by hand: the ranks of one group are those that differ along its axes only.
TEST(Mesh, GroupsOfEverySetOfAxes) {
    z3d_mesh mesh;
    ASSERT_EQ(z3d_mesh_make(2, 3, 2, 0, &mesh), Z3D_OK);
    auto fixed = [&](int axes, int rank) {
        std::vector<int> at;
        for (int axis = 0; axis < Z3D_AXIS_COUNT; rank /= mesh.size[axis++])
            at.push_back(axes >> axis & 1 ? -1 : rank % mesh.size[axis]);
        return at;
    };
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        SCOPED_TRACE(z3d_axes_name((z3d_axes)axes).text);
        std::set<std::vector<int>> groups;
        std::set<int> ranks;
        for (int rank = 0; rank < 12; rank++) {
            std::vector<int> expected;
            for (int other = 0; other < 12; other++)
                if (fixed(axes, other) == fixed(axes, rank)) expected.push_back(other);
            std::vector<int> group = members(mesh, (z3d_axes)axes, rank);
            EXPECT_EQ(group, expected); // ascending, too
            int index = z3d_mesh_index(&mesh, (z3d_axes)axes, rank);
            EXPECT_EQ(z3d_mesh_member(&mesh, (z3d_axes)axes, rank, index), rank);
            if (groups.insert(group).second) ranks.insert(group.begin(), group.end());
        }
        int each = z3d_mesh_size(&mesh, (z3d_axes)axes);
        EXPECT_EQ((int)groups.size() * each, 12); // with 12 ranks in them: a partition
        EXPECT_EQ(ranks.size(), 12u);
    }
}

// Sizes at random, among them axes of size 1: every set of axes divides the world into groups, and
// size, index and member agree.
TEST(Mesh, RandomMeshes) {
    std::mt19937 random(20261122);
    for (int i = 0; i < 60; i++) {
        z3d_mesh mesh;
        int tensor = 1 + (int)(random() % 4), data = 1 + (int)(random() % 5),
            pipeline = 1 + (int)(random() % 4), ranks = tensor * data * pipeline;
        SCOPED_TRACE(testing::Message() << tensor << " x " << data << " x " << pipeline);
        ASSERT_EQ(z3d_mesh_make(tensor, data, pipeline, (int)(random() % (unsigned)ranks), &mesh),
                  Z3D_OK);
        ASSERT_EQ(z3d_mesh_size(&mesh, Z3D_AXES_WORLD), ranks);
        for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
            int size = 1;
            for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
                if (axes >> axis & 1) size *= mesh.size[axis];
            ASSERT_EQ(z3d_mesh_size(&mesh, (z3d_axes)axes), size);
            for (int rank = 0; rank < ranks; rank++) {
                std::vector<int> group = members(mesh, (z3d_axes)axes, rank);
                ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
                ASSERT_EQ(group[(size_t)z3d_mesh_index(&mesh, (z3d_axes)axes, rank)], rank);
                for (int other : group) { // coordinates: rank = tensor + T (data + D pipeline)
                    ASSERT_TRUE(other >= 0 && other < ranks);
                    ASSERT_EQ(members(mesh, (z3d_axes)axes, other), group);
                    ASSERT_TRUE(axes & Z3D_AXES_TENSOR || other % tensor == rank % tensor);
                    ASSERT_TRUE(axes & Z3D_AXES_DATA ||
                                other / tensor % data == rank / tensor % data);
                    ASSERT_TRUE(axes & Z3D_AXES_PIPELINE ||
                                other / (tensor * data) == rank / (tensor * data));
                }
            }
        }
    }
}

// Own rows, those of the inner group and all rows nest, and stay neighbours: member i of the data
// group is i = inner x outer size + outer, of rank tensor + T (inner + I (outer + O pipeline)).
TEST(Mesh, ACutDataAxisIsInnerMajor) {
    const int T = 2, I = 3, O = 2, P = 2;
    z3d_mesh mesh = {{T, I, O, P}, 0};
    ASSERT_EQ(z3d_mesh_check(&mesh), Z3D_OK);
    EXPECT_EQ(members(mesh, Z3D_ROLE_ROWS, 0), (std::vector<int>{0, 6, 2, 8, 4, 10}));
    EXPECT_EQ(members(mesh, Z3D_AXES_DATA_INNER, 7), (std::vector<int>{7, 9, 11}));
    EXPECT_EQ(members(mesh, Z3D_AXES_DATA_OUTER, 9), (std::vector<int>{3, 9}));
    for (int rank = 0; rank < T * I * O * P; rank++) {
        int inner = z3d_mesh_index(&mesh, Z3D_AXES_DATA_INNER, rank);
        int outer = z3d_mesh_index(&mesh, Z3D_AXES_DATA_OUTER, rank);
        EXPECT_EQ(z3d_mesh_index(&mesh, Z3D_ROLE_ROWS, rank), inner * O + outer);
        EXPECT_EQ(rank / T % (I * O), inner + I * outer);
    }
    for (int axes = 1; axes < Z3D_AXES_COUNT; axes++) { // each a partition, with its places
        std::set<int> ranks;
        for (int rank = 0; rank < T * I * O * P; rank++) {
            std::vector<int> group = members(mesh, (z3d_axes)axes, rank);
            EXPECT_EQ(group[(size_t)z3d_mesh_index(&mesh, (z3d_axes)axes, rank)], rank);
            EXPECT_EQ(members(mesh, (z3d_axes)axes, group.back()), group);
            ranks.insert(group.begin(), group.end());
        }
        EXPECT_EQ(ranks.size(), (size_t)T * I * O * P);
    }
    z3d_axes seen[Z3D_AXIS_COUNT];
    ASSERT_EQ(z3d_mesh_axes(&mesh, seen), 4);
    EXPECT_EQ(seen[1], Z3D_AXES_DATA_INNER);
    mesh.size[Z3D_AXIS_DATA_OUTER] = 1;
    ASSERT_EQ(z3d_mesh_axes(&mesh, seen), 3);
    EXPECT_EQ(seen[1], Z3D_AXES_DATA);
}

// Whoever asks for a role finds its process group.
TEST(Mesh, EachRoleHasAGroup) {
    std::set<int> have;
    z3d_mesh mesh;
    ASSERT_EQ(z3d_mesh_make(2, 4, 1, 0, &mesh), Z3D_OK);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (z3d_axes_have_group(&mesh, (z3d_axes)axes)) have.insert(axes);
    EXPECT_EQ(have, (std::set<int>{Z3D_ROLE_SAMPLES, Z3D_ROLE_ROWS, Z3D_ROLE_PARTS,
                                   Z3D_ROLE_REPLICAS, Z3D_ROLE_STAGES, Z3D_AXES_WORLD}));
    EXPECT_EQ(have.size(), 4u);
    for (z3d_axes part : {Z3D_ROLE_BLOCKS, Z3D_ROLE_NODES}) {
        EXPECT_FALSE(z3d_axes_have_group(&mesh, part));
        z3d_mesh cut = mesh;
        cut.size[Z3D_AXIS_DATA_INNER] = cut.size[Z3D_AXIS_DATA_OUTER] = 2;
        EXPECT_TRUE(z3d_axes_have_group(&cut, part));
    }
}

TEST(Mesh, SizesForPeople) {
    EXPECT_STREQ(z3d_sizes_name(2, 1, 4).text, "tensor 2 x data 4");
    EXPECT_STREQ(z3d_sizes_name(2, 3, 4).text, "tensor 2 x pipeline 3 x data 4");
    EXPECT_STREQ(z3d_sizes_name(INT_MIN, INT_MIN, INT_MIN).text,
                 "tensor -2147483648 x pipeline -2147483648 x data -2147483648");
}

TEST(Mesh, Names) {
    auto name = [](int axes) { return std::string(z3d_axes_name((z3d_axes)axes).text); };
    EXPECT_EQ(name(Z3D_AXES_TENSOR), "tensor");
    EXPECT_EQ(name(Z3D_AXES_DATA), "data");
    EXPECT_EQ(name(Z3D_AXES_PIPELINE), "pipeline");
    EXPECT_EQ(name(Z3D_AXES_TENSOR | Z3D_AXES_DATA), "tensor+data");
    EXPECT_EQ(name(Z3D_AXES_DATA | Z3D_AXES_PIPELINE), "data+pipeline");
    EXPECT_EQ(name(Z3D_AXES_DATA_INNER), "data_inner");
    EXPECT_EQ(name(Z3D_AXES_TENSOR | Z3D_AXES_DATA_OUTER), "tensor+data_outer");
    EXPECT_EQ(name(Z3D_AXES_WORLD), "world");
    EXPECT_EQ(name(Z3D_AXES_NONE), "none");
    EXPECT_EQ(name(Z3D_AXES_COUNT), "?");
}

TEST(Mesh, Refusals) {
    z3d_mesh t;
    EXPECT_EQ(z3d_mesh_make(0, 1, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_make(1, -2, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_make(2, 2, 1, 4, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_make(2, 2, 1, -1, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_make(INT_MAX, INT_MAX, INT_MAX, 0, &t), Z3D_ERR_TOPOLOGY);
    EXPECT_EQ(z3d_mesh_make(65536, 65536, 1, 0, &t), Z3D_ERR_TOPOLOGY);
    t = {{2, 2, 0, 1}, 0};
    ASSERT_EQ(z3d_mesh_check(&t), Z3D_ERR_TOPOLOGY);
    EXPECT_STREQ(z3d_error_message(), "parallel sizes must be positive: tensor 2 x data_inner 2 x "
                                      "data_outer 0 x pipeline 1");
}

TEST(Mesh, StraddlingTensorGroupIsNamed) {
    z3d_mesh t;
    ASSERT_EQ(z3d_mesh_make(2, 3, 1, 0, &t), Z3D_OK);
    int even[] = {0, 0, 0, 0, 1, 1};
    EXPECT_EQ(z3d_mesh_check_node_map(&t, even), Z3D_OK);
    int odd[] = {0, 0, 0, 1, 1, 1};
    ASSERT_EQ(z3d_mesh_check_node_map(&t, odd), Z3D_ERR_TOPOLOGY);
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
