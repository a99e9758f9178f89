/* Log lines to standard error: "zero3d: ..." from rank 0, "zero3d[rank 3]: ..." from other ranks.
 */
#ifndef ZERO3D_BASE_LOG_H
#define ZERO3D_BASE_LOG_H

typedef enum z3d_log_level {
    Z3D_LOG_ERROR,
    Z3D_LOG_WARN,
    Z3D_LOG_INFO,
    Z3D_LOG_DEBUG
} z3d_log_level;

/* The only global mutable state of the library. rank < 0: not known yet. Only rank 0 writes info
 * lines. */
void z3d_log_configure(z3d_log_level level, int rank);

/* Writes one line with one write(), so lines of several ranks do not mix. */
void z3d_log(z3d_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
