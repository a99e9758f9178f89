/* Element types: sizes and names. */
#include "src/base/dtype.h"

size_t z3d_dtype_size(z3d_dtype dtype) {
    static const size_t sizes[] = {
#define X(NAME, name, bytes) bytes,
        Z3D_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)dtype < Z3D_DTYPE_COUNT ? sizes[dtype] : 0;
}

const char *z3d_dtype_name(z3d_dtype dtype) {
    static const char *const names[] = {
#define X(NAME, name, bytes) #name,
        Z3D_DTYPE_MAP(X)
#undef X
    };
    return (unsigned)dtype < Z3D_DTYPE_COUNT ? names[dtype] : "?";
}
