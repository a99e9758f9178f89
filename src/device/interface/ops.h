/* The table of functions that each device backend provides; device.c calls them. Private to
 * src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_OPS_H
#define ZERO3D_DEVICE_INTERFACE_OPS_H

#include "src/device/device.h"

/* `self` is the pointer that create made. A function may be NULL only if its comment says
 * "optional"; "optional (together)" means that all functions up to the next comment are NULL or
 * none is. */
typedef struct z3d_device_ops {
    const char *name; /* as in z3d_device_config.backend */
    /* Checks the configuration's values for this backend and makes its state. */
    z3d_status (*create)(const z3d_device_config *config, void **self);
    void (*destroy)(void *self);
    const char *(*description)(const void *self);
    /* Optional: see device.h. */
    int (*threads)(const void *self);
    uint64_t (*identity)(const void *self);
    /* true: the host must not read or write device memory. */
    bool apart;
    /* One block; bytes is not negative. */
    z3d_status (*alloc)(void *self, z3d_space space, int64_t bytes, void **out);
    void (*free)(void *self, z3d_space space, void *block, int64_t bytes);
    /* Optional (together): for a device whose HOST space is pinned host memory. The memory lies on
     * node host_node (-1: any node). If pin fails, alloc allocates pinned memory itself. unpin
     * returns false if it also freed the block, because alloc had made it. */
    int (*host_node)(const void *self);
    z3d_status (*pin)(void *self, void *block, int64_t bytes);
    bool (*unpin)(void *self, void *block);
    /* Optional: see z3d_device_memory and z3d_device_available. Sets the numbers that are known. */
    void (*memory)(const void *self, int64_t *all, int64_t *available);
    /* Optional: for devices whose kernels use scratch and poll. */
    void (*set_scratch)(void *self, void *scratch, int64_t bytes);
    void (*set_poll)(void *self, void (*poll)(void *context), void *context);
    /* Whether launch takes products with an epilogue (kernels.h); otherwise the epilogue comes as
     * separate kernels. */
    bool fuses;
    /* Launches one kernel; device.c has checked its kind. */
    z3d_status (*launch)(void *self, const z3d_kernel *kernel);
    /* Optional: runs one kernel alone and times it with the device's own clock, for the tape. */
    z3d_status (*launch_timed)(void *self, const z3d_kernel *kernel, double *seconds);
    /* Optional: NULL if launches are synchronous. */
    z3d_status (*synchronize)(void *self);
    /* read: device to host; write: host to device. Optional if enqueue_copy is given. */
    z3d_status (*read)(void *self, void *host, const void *source, int64_t bytes);
    z3d_status (*write)(void *self, void *destination, const void *host, int64_t bytes);
    /* Optional: see z3d_device_post. Copies in either direction between the device and pinned
     * memory. While the device has no other work, any host memory is allowed. */
    z3d_status (*enqueue_copy)(void *self, void *to, const void *from, int64_t bytes);
    /* Optional (together): see z3d_capture_begin. region NULL: discard the capture. */
    z3d_status (*capture_begin)(void *self);
    z3d_status (*capture_end)(void *self, void **region, int64_t *launches);
    z3d_status (*region_launch)(void *self, const void *region);
    void (*region_destroy)(void *self, void *region);
    /* Optional (together): copies beside compute. */
    z3d_status (*copy_start)(void *self, void *to, const void *from, int64_t bytes, int64_t *id);
    z3d_status (*copy_wait)(void *self, int64_t id);
    /* Optional: for devices whose copy_wait does not block: a wait that blocks. */
    z3d_status (*copy_finish)(void *self, int64_t id);
    /* Optional: for devices whose copy_wait does not block: the seconds that kernels waited for
     * copies, up to the last synchronisation. */
    double (*copies_waited)(const void *self);
    /* Optional: for devices with several methods. */
    z3d_status (*measure_gemm)(void *self, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                               z3d_gemm_method *best, double *gflops);
    /* Optional (together): see z3d_device_gemm_choice. */
    z3d_status (*gemm_machine)(void *self, char *out, size_t size);
    z3d_status (*gemm_choice)(void *self, const z3d_gemm *gemm, z3d_gemm_choice *out);
    z3d_status (*choose_gemm)(void *self, const z3d_gemm_choice *choice);
} z3d_device_ops;

extern const z3d_device_ops z3d_device_ops_cpu, z3d_device_ops_record, z3d_device_ops_sim;

#endif
