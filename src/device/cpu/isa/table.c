/* The table of this instruction set's kernels. */
#include "src/device/cpu/isa/isa.h"

#define Z3D_TEXT_(x) #x
#define Z3D_TEXT(x) Z3D_TEXT_(x)
#define Z3D_TABLE_PASTE_(a, b) a##b
#define Z3D_TABLE_PASTE(a, b) Z3D_TABLE_PASTE_(a, b)

static void widen_any(float *to, const void *from, z3d_dtype from_dtype, int64_t n) {
    widen(to, from, from_dtype, n);
}

static void narrow_any(void *to, z3d_dtype to_dtype, const float *from, int64_t n) {
    narrow(to, to_dtype, from, n);
}

#define KERNEL(name) [Z3D_KERNEL_##name] = Z3D_CPU_NAME(name)

const z3d_cpu_isa Z3D_TABLE_PASTE(z3d_cpu_isa_, Z3D_ISA) = {
    .name = Z3D_TEXT(Z3D_ISA),
    .kernel =
        {
            KERNEL(fill),
            KERNEL(cast),
            KERNEL(accumulate),
            KERNEL(scale),
            KERNEL(add_bias),
            KERNEL(bias_backward),
            KERNEL(layernorm_forward),
            KERNEL(layernorm_backward),
            KERNEL(rmsnorm_forward),
            KERNEL(rmsnorm_backward),
            KERNEL(rotary),
            KERNEL(gelu_forward),
            KERNEL(gelu_backward),
            KERNEL(swiglu_forward),
            KERNEL(swiglu_backward),
            KERNEL(dropout_forward),
            KERNEL(dropout_backward),
            KERNEL(attention_forward),
            KERNEL(attention_backward),
            KERNEL(cache_store),
            KERNEL(embedding_forward),
            KERNEL(embedding_backward),
            KERNEL(position_forward),
            KERNEL(position_backward),
            KERNEL(cross_entropy_max),
            KERNEL(cross_entropy_sum),
            KERNEL(cross_entropy_loss),
            KERNEL(cross_entropy_backward),
            KERNEL(select_row),
#define X(_, id, name, reads, states, flops) KERNEL(id),
            Z3D_OPTIMIZER_KERNELS(X, )
#undef X
                KERNEL(sum_squares),
            KERNEL(control_begin),
            KERNEL(control_end),
            KERNEL(init_normal),
        },
    .widen = widen_any,
    .narrow = narrow_any,
    .few_rows_gemm = Z3D_CPU_NAME(few_rows_gemm),
    .portable_gemm = Z3D_CPU_NAME(portable_gemm),
};
