// Texts of any length, read in the parts that the decoder chooses, and read one token at a time:
// the same logits.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/zero/harness.h"

extern "C" {
#include "src/train/generation/decoder.h"
}

namespace {

const int64_t SAMPLES = 3;

// Reads all, and says how often each program ran.
std::vector<float> read(z3d_engine *engine, const std::vector<int64_t> &lengths, bool by_one,
                        std::vector<int> *calls) {
    z3d_decoder d;
    std::vector<std::vector<int32_t>> text(lengths.size());
    std::vector<z3d_sequence> sequence(lengths.size());
    std::vector<z3d_sequence *> all;
    EXPECT_Z3D(z3d_decoder_create(engine, &d));
    for (size_t s = 0; s < lengths.size(); s++) {
        for (int64_t i = 0; i < lengths[s]; i++)
            text[s].push_back(harness::token((int64_t)s, i, 67));
        sequence[s].token = text[s].data();
        sequence[s].length = lengths[s];
        all.push_back(lengths[s] > 0 ? &sequence[s] : nullptr);
    }
    std::vector<float> logits((size_t)(SAMPLES * d.columns), NAN);
    calls->assign(Z3D_MODE_COUNT, 0);
    for (;;) {
        const z3d_decoder_work work = z3d_decoder_look(&d, all.data());
        if (work.sequences == 0) break;
        const z3d_mode mode = by_one ? Z3D_MODE_DECODE : z3d_decoder_mode(&d, &work);
        const std::vector<z3d_sequence> before(sequence);
        (*calls)[mode]++;
        if (z3d_decoder_read(&d, mode, all.data()) != Z3D_OK) {
            ADD_FAILURE() << z3d_error_message();
            break;
        }
        for (size_t s = 0; s < all.size(); s++)
            if (all[s] && sequence[s].read == lengths[s] && before[s].read < lengths[s])
                std::copy_n(d.logits + (int64_t)s * d.columns, d.columns,
                            logits.begin() + (int64_t)s * d.columns);
    }
    z3d_decoder_release(&d);
    return logits;
}

} // namespace

TEST(Decoder, PartsAreReadAsTokensAre) {
    harness::Options o;
    o.sequence = 700;
    o.micro_batch = 1;
    o.generate_batch = SAMPLES;
    o.inference = true;
    o.tensor = z3d_world_size(world);
    // Lengths, and how often prefill, prefill_short and decode run.
    const struct {
        std::vector<int64_t> lengths;
        std::vector<int> calls;
    } cases[] = {{{600, 690, 20}, {2, 6, 0}}, // 512 of two; then 64 at a time: 178, 88, 20 are left
                 {{3, 4, 0}, {0, 0, 4}},
                 {{5, 5, 5}, {0, 3, 0}},
                 {{257, 0, 0}, {1, 0, 0}},
                 {{256, 0, 1}, {0, 4, 1}}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.lengths[0]);
        std::vector<int> calls, ones;
        harness::Trainer t(o), other(o);
        ASSERT_Z3D(t.create());
        ASSERT_Z3D(other.create());
        const std::vector<float> parts = read(t.engine, c.lengths, false, &calls);
        const std::vector<float> tokens = read(other.engine, c.lengths, true, &ones);
        EXPECT_EQ(std::vector<int>(calls.begin() + Z3D_MODE_PREFILL, calls.end()), c.calls);
        for (size_t i = 0; i < parts.size(); i++) {
            if (std::isnan(tokens[i])) continue; // nobody is there
            ASSERT_NEAR(parts[i], tokens[i], 1e-4) << "logit " << i;
        }
    }
}

int main(int argc, char **argv) {
    return main_on_ranks(argc, argv);
}
