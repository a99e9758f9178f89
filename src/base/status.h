/* Result codes and the error text that goes with them. A library function never exits, prints or
 * aborts: it returns a z3d_status, and the failing place stores one line of text (what, where,
 * which values). */
#ifndef ZERO3D_BASE_STATUS_H
#define ZERO3D_BASE_STATUS_H

#include <stddef.h>
#include <stdint.h>

/* X(name, text). AGAIN is not an error: a resumable call has not finished yet. ERR_START happens
 * before a rank can talk to the others, so each rank prints its own. */
#define Z3D_STATUS_MAP(X)                                                                          \
    X(OK, "success")                                                                               \
    X(AGAIN, "not finished yet, call again")                                                       \
    X(ERR_USAGE, "wrong usage")                                                                    \
    X(ERR_CONFIG, "bad configuration")                                                             \
    X(ERR_DATA, "bad data")                                                                        \
    X(ERR_IO, "input/output error")                                                                \
    X(ERR_MEMORY, "out of memory")                                                                 \
    X(ERR_TOPOLOGY, "bad topology")                                                                \
    X(ERR_COMM, "communication error")                                                             \
    X(ERR_PROGRAM, "invalid step program")                                                         \
    X(ERR_NUMERIC, "numeric failure")                                                              \
    X(ERR_DEVICE, "device error")                                                                  \
    X(ERR_START, "the ranks did not find each other")                                              \
    X(ERR_PEER, "another rank failed")                                                             \
    X(ERR_UNSUPPORTED, "not supported")                                                            \
    X(ERR_INTERNAL, "internal error")

typedef enum z3d_status {
#define X(name, text) Z3D_##name,
    Z3D_STATUS_MAP(X)
#undef X
        Z3D_STATUS_COUNT
} z3d_status;

/* "ERR_CONFIG" and "bad configuration". Unknown codes give "?". */
const char *z3d_status_name(z3d_status status);
const char *z3d_status_text(z3d_status status);

/* Stores the error's text for this thread and returns `status`. Use Z3D_ERROR, which fills in file
 * and line. */
z3d_status z3d_error_set(z3d_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts "context: " before the stored text, to say during which work the error occurred. Returns
 * `status`. */
z3d_status z3d_error_context(z3d_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Stores a text of several lines, separated by newlines: configurations and files of other programs
 * (problems.h) have several errors. */
z3d_status z3d_error_set_lines(z3d_status status, const char *file, int line, const char *lines);

/* The text of this thread's last error: one line (except z3d_error_set_lines), no newline at the
 * end; "" if there was none. */
const char *z3d_error_message(void);

/* The place in the code that stored the last error: "zero/build/builder.c:120". */
const char *z3d_error_place(void);

/* A saved error, to report it after a clean-up that may fail too, in a later call, or in another
 * thread. All zeros means Z3D_OK. */
typedef struct z3d_kept_error {
    z3d_status status;
    char message[8192];
    char place[160];
} z3d_kept_error;

/* `status` with this thread's text and place. */
z3d_kept_error z3d_error_keep(z3d_status status);
/* Makes the saved error this thread's last error, unless Z3D_OK was kept. Returns the kept status.
 */
z3d_status z3d_error_restore(const z3d_kept_error *kept);

#define Z3D_ERROR(status, ...) z3d_error_set((status), __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the calling function with the failed status. */
#define Z3D_TRY(call)                                                                              \
    do {                                                                                           \
        z3d_status z3d_try_status = (call);                                                        \
        if (z3d_try_status != Z3D_OK) return z3d_try_status;                                       \
    } while (0)

/* Stores the status in `status`; on failure jumps to `label`, where clean-up begins. */
#define Z3D_TRY_GOTO(status, call, label)                                                          \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != Z3D_OK) goto label;                                                        \
    } while (0)

/* For conditions that only a bug in zero3d can break. Checked in release builds too. */
#define Z3D_REQUIRE(condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition)) return Z3D_ERROR(Z3D_ERR_INTERNAL, __VA_ARGS__);                         \
    } while (0)

/* calloc of count x bytes; ERR_MEMORY names `what`. Free with free(). */
z3d_status z3d_new(size_t count, size_t bytes, const char *what, void *out_pointer);
/* Makes room for element `count` of a growing array, whose pointer is at `array`: doubles a full
 * array. count: at most *capacity. ERR_MEMORY names `what`; the array is then unchanged. */
z3d_status z3d_grow(int64_t count, int64_t *capacity, size_t bytes, const char *what, void *array);

#endif
