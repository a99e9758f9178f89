// The inline exp, log, sine and cosine against the C library in double, over floats of every
// magnitude.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

extern "C" {
#include "src/device/cpu/isa/math.h"
}

namespace {

const float INF = std::numeric_limits<float>::infinity();

// Distance from the true value in units of the last place.
double ulps(float got, double want) {
    float nearest = (float)want;
    if (std::isnan(want)) return std::isnan(got) ? 0 : INF;
    if (std::isinf(nearest) || std::isinf(got)) return nearest == got ? 0 : INF;
    float place = std::nextafter(std::fabs(nearest), INF) - std::fabs(nearest);
    return std::fabs((double)got - want) / (double)place;
}

void expect_accurate(float (*mine)(float), double (*theirs)(double)) {
    for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 4099) {
        float x = z3d_float_of_bits((uint32_t)bits);
        ASSERT_LE(ulps(mine(x), theirs((double)x)), 1.5) << x << " gives " << mine(x);
    }
    for (float x : {0.0f, 1.0f, 0.5f, 1e-30f, 1e-42f, 88.72283f, 88.72284f, -87.4f, -103.9f,
                    -104.0f, 0.625f, 0.7071068f, INF, 1e38f})
        for (float signed_x : {x, -x})
            EXPECT_LE(ulps(mine(signed_x), theirs((double)signed_x)), 1.5) << signed_x;
    EXPECT_TRUE(std::isnan(mine(NAN)));
}

TEST(Math, Exp) {
    expect_accurate(z3d_exp, std::exp);
    EXPECT_EQ(z3d_exp(-INF), 0);
    EXPECT_EQ(z3d_exp(0), 1);
}

TEST(Math, Log) {
    expect_accurate(z3d_log, std::log);
    EXPECT_EQ(z3d_log(0), -INF);
    EXPECT_EQ(z3d_log(1), 0);
    EXPECT_TRUE(std::isnan(z3d_log(-1)));
}

// Arguments of every size that angles have; the C library's are right to a double's last place.
TEST(Math, SineAndCosine) {
    for (double x = 1e-8; x < 3e6; x *= 1.0003)
        for (double signed_x : {x, -x}) {
            double s, c;
            z3d_sincos(signed_x, &s, &c);
            ASSERT_NEAR(s, std::sin(signed_x), 1e-9) << signed_x;
            ASSERT_NEAR(c, std::cos(signed_x), 1e-9) << signed_x;
        }
    double s, c;
    z3d_sincos(0, &s, &c);
    EXPECT_EQ(s, 0);
    EXPECT_EQ(c, 1);
    z3d_sincos(NAN, &s, &c);
    EXPECT_TRUE(std::isnan(s) && std::isnan(c));
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
