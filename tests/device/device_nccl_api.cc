// src/device/cuda/nccl_api.h against the nccl.h that lies here: functions, values, sizes.
#include <gtest/gtest.h>
#include <nccl.h>

#include <type_traits>

namespace {
constexpr int symmetric = NCCL_WIN_COLL_SYMMETRIC;
}
#undef NCCL_WIN_COLL_SYMMETRIC

// Our names, beside theirs.
#define ncclResult_t ours_ncclResult_t
#define ncclSuccess ours_ncclSuccess
#define ncclSystemError ours_ncclSystemError
#define ncclInvalidArgument ours_ncclInvalidArgument
#define ncclInvalidUsage ours_ncclInvalidUsage
#define ncclRemoteError ours_ncclRemoteError
#define ncclInProgress ours_ncclInProgress
#define ncclDataType_t ours_ncclDataType_t
#define ncclUint8 ours_ncclUint8
#define ncclInt32 ours_ncclInt32
#define ncclFloat16 ours_ncclFloat16
#define ncclFloat32 ours_ncclFloat32
#define ncclFloat64 ours_ncclFloat64
#define ncclBfloat16 ours_ncclBfloat16
#define ncclRedOp_t ours_ncclRedOp_t
#define ncclSum ours_ncclSum
#define ncclMax ours_ncclMax
#define ncclComm ours_ncclComm
#define ncclComm_t ours_ncclComm_t
#define ncclWindow ours_ncclWindow
#define ncclWindow_t ours_ncclWindow_t
#define ncclUniqueId ours_ncclUniqueId
#define ncclConfig_t ours_ncclConfig_t
#include "src/device/cuda/nccl_api.h"
#undef ncclResult_t
#undef ncclSuccess
#undef ncclSystemError
#undef ncclInvalidArgument
#undef ncclInvalidUsage
#undef ncclRemoteError
#undef ncclInProgress
#undef ncclDataType_t
#undef ncclUint8
#undef ncclInt32
#undef ncclFloat16
#undef ncclFloat32
#undef ncclFloat64
#undef ncclBfloat16
#undef ncclRedOp_t
#undef ncclSum
#undef ncclMax
#undef ncclComm
#undef ncclComm_t
#undef ncclWindow
#undef ncclWindow_t
#undef ncclUniqueId
#undef ncclConfig_t

// Their types, in our list of functions.
TEST(NcclApi, FunctionsAreTheirs) {
#define X(result, name, arguments)                                                                 \
    EXPECT_TRUE((std::is_same<decltype(&name), result(*) arguments>::value)) << #name;
    NCCL_FUNCTIONS(X)
#undef X
}

TEST(NcclApi, ValuesAreTheirs) {
#define SAME(name) EXPECT_EQ((int)ours_##name, (int)name) << #name
    SAME(ncclSuccess);
    SAME(ncclSystemError);
    SAME(ncclInvalidArgument);
    SAME(ncclInvalidUsage);
    SAME(ncclRemoteError);
    SAME(ncclInProgress);
    SAME(ncclUint8);
    SAME(ncclInt32);
    SAME(ncclFloat16);
    SAME(ncclFloat32);
    SAME(ncclFloat64);
    SAME(ncclBfloat16);
    SAME(ncclSum);
    SAME(ncclMax);
#undef SAME
    EXPECT_EQ(NCCL_WIN_COLL_SYMMETRIC, symmetric);
    EXPECT_EQ(sizeof(ours_ncclUniqueId), sizeof(ncclUniqueId));
    EXPECT_EQ(sizeof(ours_ncclWindow_t), sizeof(ncclWindow_t));
}

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
