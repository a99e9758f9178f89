// The optimizers on a shard, and initial values.
#include "src/device/cuda/kernels/each.cuh"
#include "src/device/cuda/kernels/philox.cuh"

namespace {

// base^exponent by squaring. Each thread computes it; pow() would cost more than all the rest.
__device__ inline double power(double base, int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base)
        if (exponent % 2) result *= base;
    return result;
}

__device__ inline float rate_of(const z3d_optimizer_update &k) {
    return k.state->learning_rate * k.constants.lr_scale;
}

// Updates the average of the parameters and their narrow copy.
template <class T, int N>
__device__ inline void end(const z3d_optimizer_update &k, int64_t i, const float (&p)[N]) {
    if (k.ema) {
        const float kept = k.state->optimizer_step > 1 ? k.constants.ema_decay : 0.0f;
        const float added = (float)(1.0 - (double)kept);
        float ema[N];
        load<float>(ema, k.ema, i);
#pragma unroll
        for (int j = 0; j < N; j++) ema[j] = kept * ema[j] + added * p[j];
        store<float>(k.ema, i, ema);
    }
    if (k.parameter) store<T>(k.parameter, i, p);
}

// The rule of AdamW for an element, or of Adam with L2 regularization.
template <bool decoupled> struct adam_rule {
    float beta1, beta2, factor, rate, decay, rest1, rest2, correction1, correction2, weight_decay;
    float epsilon;
    __device__ explicit adam_rule(const z3d_optimizer_update &k)
        : beta1(k.constants.beta1), beta2(k.constants.beta2), factor(k.state->gradient_factor),
          rate(rate_of(k)), decay((float)(1.0 - (double)rate * (double)k.constants.weight_decay)),
          rest1((float)(1.0 - (double)beta1)), rest2((float)(1.0 - (double)beta2)),
          correction1((float)(1.0 - power((double)beta1, k.state->optimizer_step))),
          correction2((float)(1.0 - power((double)beta2, k.state->optimizer_step))),
          weight_decay(k.constants.weight_decay), epsilon(k.constants.epsilon) {}
    __device__ float gradient(float g, float p, bool decays) const {
        g *= factor;
        return decoupled ? g : g + (decays ? weight_decay : 0.0f) * p;
    }
    __device__ void step(float g, float &p, float &m, float &v, bool decays) const {
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * (g * g);
        const float denominator = sqrtf(v / correction2) + epsilon;
        if (decoupled) p *= decays ? decay : 1.0f;
        p -= rate * (m / correction1) / denominator;
    }
};

// k.parameter is NULL if it is the master.
template <bool decoupled, class T, class G> struct adam_step {
    z3d_optimizer_update k;
    template <int N> __device__ void at(int64_t i) const {
        if (k.state->skip == 1.0f) return;
        const adam_rule<decoupled> rule(k);
        float p[N], m[N], v[N], g[N];
        load<float>(p, k.master, i);
        load<G>(g, k.gradient, i);
#pragma unroll
        for (int j = 0; j < N; j++) // before the loads below, for fewer registers
            g[j] = rule.gradient(g[j], p[j], i + j < k.decayed);
        load<float>(m, k.momentum, i);
        load<float>(v, k.variance, i);
#pragma unroll
        for (int j = 0; j < N; j++) rule.step(g[j], p[j], m[j], v[j], i + j < k.decayed);
        store<float>(k.master, i, p);
        store<float>(k.momentum, i, m);
        store<float>(k.variance, i, v);
        end<T>(k, i, p);
    }
};

template <class T, class G> struct adamw_operation : adam_step<true, T, G> {};
template <class T, class G> struct adam_operation : adam_step<false, T, G> {};

// Rounds to the upper 16 bits, up or down in proportion, by 16 random bits. Infinity and NaN stay.
__device__ inline uint32_t round_at_random(float x, uint32_t random) {
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits >> 16 : (bits + (random & 0xffffu)) >> 16;
}

// The global index of element i of a part of a parameter.
__device__ inline uint64_t global_index(const z3d_parameter_place &place, int64_t i) {
    const int64_t slice = place.local * place.inner, local = place.first + i;
    return (uint64_t)((local / slice * place.global + place.offset) * place.inner + local % slice);
}

// Both moments are in the four bytes of an element, as in src/device/cpu/isa/adam_bf16.c.
template <bool decoupled, class T, class G> struct adam_bf16_step {
    z3d_optimizer_update k;
    __device__ uint32_t random(int64_t i) const {
        uint32_t word[4];
        const uint64_t global = global_index(k.place, i);
        philox(word, k.place.key + k.state->seed * 0x9e3779b97f4a7c15u,
               (uint64_t)k.state->optimizer_step, global / 4);
        const bool second = global % 4 > 1;
        return global % 2 ? (second ? word[3] : word[1]) : (second ? word[2] : word[0]);
    }
    template <int N> __device__ void at(int64_t i) const {
        if (k.state->skip == 1.0f) return;
        const adam_rule<decoupled> rule(k);
        float p[N], packed[N], g[N];
        load<float>(p, k.master, i);
        load<float>(packed, k.moments, i);
        load<G>(g, k.gradient, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const bool decays = i + j < k.decayed;
            const uint32_t bits = __float_as_uint(packed[j]), word = random(i + j);
            float m = __uint_as_float(bits << 16), v = __uint_as_float(bits & 0xffff0000u);
            rule.step(rule.gradient(g[j], p[j], decays), p[j], m, v, decays);
            packed[j] =
                __uint_as_float(round_at_random(m, word) | round_at_random(v, word >> 16) << 16);
        }
        store<float>(k.master, i, p);
        store<float>(k.moments, i, packed);
        end<T>(k, i, p);
    }
};

template <class T, class G> struct adamw_bf16_operation : adam_bf16_step<true, T, G> {};
template <class T, class G> struct adam_bf16_operation : adam_bf16_step<false, T, G> {};

template <class T, class G> struct lion_operation {
    z3d_optimizer_update k;
    template <int N> __device__ void at(int64_t i) const {
        if (k.state->skip == 1.0f) return;
        const float beta1 = k.constants.beta1, beta2 = k.constants.beta2;
        const float factor = k.state->gradient_factor, rate = rate_of(k);
        const float decay = (float)(1.0 - (double)rate * (double)k.constants.weight_decay);
        const float rest1 = (float)(1.0 - (double)beta1), rest2 = (float)(1.0 - (double)beta2);
        float p[N], m[N], g[N];
        load<float>(p, k.master, i);
        load<float>(m, k.momentum, i);
        load<G>(g, k.gradient, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float scaled = g[j] * factor, c = beta1 * m[j] + rest1 * scaled;
            const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
            m[j] = beta2 * m[j] + rest2 * scaled;
            p[j] = p[j] * (i + j < k.decayed ? decay : 1.0f) - rate * sign;
        }
        store<float>(k.master, i, p);
        store<float>(k.momentum, i, m);
        end<T>(k, i, p);
    }
};

template <class T, class G> struct adagrad_operation {
    z3d_optimizer_update k;
    template <int N> __device__ void at(int64_t i) const {
        if (k.state->skip == 1.0f) return;
        float p[N], s[N], g[N];
        load<float>(p, k.master, i);
        load<float>(s, k.square_sum, i);
        load<G>(g, k.gradient, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float decay = i + j < k.decayed ? k.constants.weight_decay : 0.0f;
            const float change = g[j] * k.state->gradient_factor + decay * p[j];
            s[j] += change * change;
            p[j] -= rate_of(k) * change / (sqrtf(s[j]) + k.constants.epsilon);
        }
        store<float>(k.master, i, p);
        store<float>(k.square_sum, i, s);
        end<T>(k, i, p);
    }
};

template <class T, class G> struct sgd_operation {
    z3d_optimizer_update k;
    template <int N> __device__ void at(int64_t i) const {
        if (k.state->skip == 1.0f) return;
        float p[N], m[N], g[N];
        load<float>(p, k.master, i);
        load<float>(m, k.momentum, i);
        load<G>(g, k.gradient, i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float decay = i + j < k.decayed ? k.constants.weight_decay : 0.0f;
            const float change = g[j] * k.state->gradient_factor + decay * p[j];
            m[j] = k.constants.momentum * m[j] + change;
            p[j] = p[j] - rate_of(k) * m[j];
        }
        store<float>(k.master, i, p);
        store<float>(k.momentum, i, m);
        end<T>(k, i, p);
    }
};

template <template <class, class> class Operation>
z3d_status update(const z3d_cuda_lane *lane, const char *name, z3d_optimizer_update kernel) {
    if (kernel.parameter == kernel.master) kernel.parameter = nullptr;
    const bool wide = aligned(kernel.master, kernel.momentum, kernel.variance, kernel.square_sum,
                              kernel.moments, kernel.ema, kernel.gradient, kernel.parameter);
    return each_element<Operation>(lane, name, &kernel, wide, kernel.dtype, kernel.gradient_dtype);
}

// As z3d_philox_normal: in double, so that the last bits of a libm do not change the float.
__device__ inline float normal(uint64_t key, uint64_t index) {
    uint32_t word[4];
    philox(word, key, index / 4, 0);
    const bool second = index % 4 > 1;
    const uint32_t word0 = second ? word[2] : word[0], word1 = second ? word[3] : word[1];
    const double uniform = ((double)word0 + 1.0) * 0x1p-32;
    const double angle = (double)word1 * (0x1p-32 * 6.283185307179586476925);
    const double radius = sqrt(-2.0 * log(uniform));
    return (float)(radius * (index % 2 ? sin(angle) : cos(angle)));
}

struct init_operation {
    z3d_init_normal k;
    template <int N> __device__ void at(int64_t i) const {
        for (int j = 0; j < N; j++)
            k.x[i + j] = normal(k.place.key, global_index(k.place, i + j)) * k.standard_deviation;
    }
};

} // namespace

#define X(_, id, name, reads, states, flops)                                                       \
    z3d_status z3d_cuda_##id(const z3d_cuda_lane *lane, const z3d_##id *kernel) {                  \
        return update<id##_operation>(lane, #id, *kernel);                                         \
    }
Z3D_OPTIMIZER_KERNELS(X, )
#undef X

z3d_status z3d_cuda_init_normal(const z3d_cuda_lane *lane, const z3d_init_normal *kernel) {
    const z3d_parameter_place &place = kernel->place;
    Z3D_REQUIRE(place.local > 0 && place.inner > 0 && place.offset >= 0 &&
                    place.offset + place.local <= place.global,
                "kernel init_normal: rows %lld + %lld of %lld, inner %lld", (long long)place.offset,
                (long long)place.local, (long long)place.global, (long long)place.inner);
    return each_element(lane, "init_normal", kernel->count, false, init_operation{*kernel});
}
