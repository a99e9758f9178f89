// ZeRO-R: where activation checkpoints lie and how much is recomputed changes no bit of the
// training, and takes the bytes it says. ZERO3D_LONG: every stage in every type, and longer.
#include "tests/zero/harness.h"

using namespace harness;

namespace {

struct Way {
    const char *name;
    bool recompute, selective, partition;
    z3d_space space;
    int every;
    bool keep_activation = false;
};

const Way WAYS[] = {
    {"none", false, false, false, Z3D_SPACE_DEVICE, 1},
    {"selective", false, true, false, Z3D_SPACE_DEVICE, 1},
    {"P_a", true, false, true, Z3D_SPACE_DEVICE, 1},
    {"cpu", true, false, false, Z3D_SPACE_HOST, 1},
    {"P_a+cpu", true, false, true, Z3D_SPACE_HOST, 1},
    {"nvme", true, false, false, Z3D_SPACE_DISK, 1},
    {"P_a+nvme", true, false, true, Z3D_SPACE_DISK, 1},
    {"none, activation kept", false, false, false, Z3D_SPACE_DEVICE, 1, true},
    {"selective, activation kept", false, true, false, Z3D_SPACE_DEVICE, 1, true},
    {"activation kept", true, false, false, Z3D_SPACE_DEVICE, 1, true},
    {"every 3", true, false, false, Z3D_SPACE_DEVICE, 3},
    {"every 2, P_a+cpu", true, false, true, Z3D_SPACE_HOST, 2},
    {"every 2, nvme", true, false, false, Z3D_SPACE_DISK, 2},
    {"every 2, P_a, activation kept", true, false, true, Z3D_SPACE_DEVICE, 2, true},
};

Options base(int tensor, int stage, z3d_dtype dtype) {
    Options o;
    o.tensor = tensor;
    o.stage = stage;
    o.dtype = dtype;
    o.layers = 4;
    o.sequence = 15;
    o.hidden = 36;
    o.accumulation = stage == 3 ? 2 : 1;
    o.steps = is_long() ? o.steps : 4; // the same program in every step
    return o;
}

} // namespace

TEST(Residual, ChangesNoBit) {
    int ranks = z3d_world_size(world);
    for (int tensor = ranks == 8 ? 4 : 1; tensor <= 4 && tensor <= ranks; tensor *= 2) {
        if (SANITIZED && tensor < ranks / 2) continue; // fewer ranks show it
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
            if (SANITIZED && dtype == Z3D_F32) continue; // in the next test
            for (int stage = 0; stage < 4; stage++) {
                if (SANITIZED && stage == 1) continue; // its programs are stage 2's and stage 0's
                bool shards = tensor < ranks;          // among data ranks
                if (!shards && stage > 0 && (SANITIZED || stage < 3)) continue;
                // Each stage in one type on one tensor size, in the other on the next.
                bool wide = dtype == Z3D_F32;
                if (!is_long() && !SANITIZED && wide == ((stage + tensor / 2) % 2 == 0)) continue;
                Result reference = train(base(tensor, stage, dtype));
                for (const Way &way : WAYS) {
                    Options o = base(tensor, stage, dtype);
                    if (way.partition && tensor == 1) continue;
                    bool disk = way.space == Z3D_SPACE_DISK;
                    if (disk && tensor > 1 && !way.partition && way.every == 1) continue;
                    if (stage != 3 && way.every > 1) continue;
                    o.recompute = way.recompute;
                    o.selective = way.selective;
                    o.partition = way.partition;
                    o.checkpoint_space = way.space;
                    o.checkpoint_every = way.every;
                    o.keep_activation = way.keep_activation;
                    for (int overlap = 0; overlap < 2; overlap++) {
                        o.overlap = overlap == 1;
                        if (!o.overlap && stage != 3) continue;
                        Result r = train(o);
                        std::string what = std::string(way.name) + ", tensor " +
                                           std::to_string(tensor) + ", stage " +
                                           std::to_string(stage) + ", " + z3d_dtype_name(dtype);
                        EXPECT_TRUE(same_bits(reference.loss, r.loss)) << what;
                        EXPECT_TRUE(same_bits(reference.norm, r.norm)) << what;
                    }
                }
            }
        }
    }
}

// The same under sequence parallelism, where checkpoints are parts by nature.
TEST(Residual, ChangesNoBitUnderSequenceParallelism) {
    int ranks = z3d_world_size(world);
    for (int tensor = 2; tensor <= 4 && tensor <= ranks; tensor *= 2) {
        for (z3d_dtype dtype : {Z3D_F32, Z3D_BF16}) {
            int stage = dtype == Z3D_F32 ? 3 : 1;
            Options o = base(tensor, stage, dtype);
            o.sequence = 12; // eight samples of three rows a rank of four, of which some are cut
            o.sequence_parallel = true;
            o.dropout = 0.1;
            Result reference = train(o);
            for (const Way &way : WAYS) {
                o.recompute = way.recompute;
                o.selective = way.selective;
                o.partition = way.partition;
                o.checkpoint_space = way.space;
                o.checkpoint_every = way.every;
                o.keep_activation = way.keep_activation;
                Result r = train(o);
                std::string what = std::string(way.name) + ", tensor " + std::to_string(tensor) +
                                   ", stage " + std::to_string(stage) + ", " +
                                   z3d_dtype_name(dtype);
                EXPECT_TRUE(same_bits(reference.loss, r.loss)) << what;
                EXPECT_TRUE(same_bits(reference.norm, r.norm)) << what;
            }
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
