/* The table of this instruction set's kernels. */
#include "src/device/cpu/isa/isa.h"

#define Z3D_TEXT_(x) #x
#define Z3D_TEXT(x) Z3D_TEXT_(x)

const z3d_cpu_isa Z3D_CPU_NAME(isa) = {
    .name = Z3D_TEXT(Z3D_ISA),
#define X(name, type) [Z3D_KERNEL_##name] = Z3D_CPU_NAME(name),
    .kernel = {Z3D_KERNEL_MAP(X)},
#undef X
    .widen = widen,
    .narrow = narrow,
    .portable_gemm = Z3D_CPU_NAME(portable_gemm),
};
