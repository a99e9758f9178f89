/* What a device backend provides, and how device.c finds it. Private to src/device. */
#ifndef ZERO3D_DEVICE_INTERFACE_OPS_H
#define ZERO3D_DEVICE_INTERFACE_OPS_H

#include "src/device/device.h"

/* `self` is what create gave. A slot may be NULL where "optional" is said. */
typedef struct z3d_device_ops {
    const char *name; /* as in z3d_device_config.backend */
    /* Checks the configuration's values for this backend and makes its state. */
    z3d_status (*create)(const z3d_device_config *config, void **self);
    void (*destroy)(void *self);
    const char *(*description)(const void *self);
    /* Optional: see device.h. */
    int (*threads)(const void *self);
    uint64_t (*identity)(const void *self);
    int64_t (*used_bytes)(const void *self);
    /* Whether the host must not follow device pointers. */
    bool apart;
    /* One block; bytes is not negative. */
    z3d_status (*alloc)(void *self, z3d_space space, int64_t bytes, void **out);
    void (*free)(void *self, z3d_space space, void *block, int64_t bytes);
    /* Optional (together): where HOST space is memory of the host that the device is told of. It
     * lies on memory node host_node (-1: anywhere). Where pin fails, alloc gives such memory of its
     * own; unpin answers false for a block that it freed because it was of alloc. */
    int (*host_node)(const void *self);
    z3d_status (*pin)(void *self, void *block, int64_t bytes);
    bool (*unpin)(void *self, void *block);
    /* Optional: see z3d_device_memory and z3d_device_available. */
    int64_t (*memory)(const void *self);
    int64_t (*available)(const void *self);
    /* Optional: scratch and poll, where kernels use them. */
    void (*set_scratch)(void *self, void *scratch, int64_t bytes);
    void (*set_poll)(void *self, void (*poll)(void *context), void *context);
    /* Whether launch takes products with an epilogue (kernels.h); otherwise the epilogue comes as
     * separate kernels. */
    bool fuses;
    /* One kernel whose kind is known to be valid. */
    z3d_status (*launch)(void *self, const z3d_kernel *kernel);
    /* Optional: the same alone, by the device's own clock, where the device has a tape. */
    z3d_status (*launch_timed)(void *self, const z3d_kernel *kernel, double *seconds);
    /* Optional: nothing to wait for where launches are synchronous. */
    z3d_status (*synchronize)(void *self);
    /* Host <- device, device <- host. Optional where there is enqueue_copy. */
    z3d_status (*read)(void *self, void *host, const void *source, int64_t bytes);
    z3d_status (*write)(void *self, void *destination, const void *host, int64_t bytes);
    /* Optional: see z3d_device_post; either way between the device and pinned memory, or any of the
     * host's where the device has nothing else to do. */
    z3d_status (*enqueue_copy)(void *self, void *to, const void *from, int64_t bytes);
    /* Optional (together): see z3d_capture_begin. region NULL: forget what was captured. */
    z3d_status (*capture_begin)(void *self);
    z3d_status (*capture_end)(void *self, void **region, int64_t *launches);
    z3d_status (*region_launch)(void *self, const void *region);
    void (*region_destroy)(void *self, void *region);
    /* Optional (together): copies beside compute; without them nothing is copied. */
    z3d_status (*copy_start)(void *self, void *to, const void *from, int64_t bytes, int64_t *id);
    z3d_status (*copy_wait)(void *self, int64_t id);
    /* Optional: where copy_wait does not block, the wait that does. */
    z3d_status (*copy_finish)(void *self, int64_t id);
    /* Optional: where copy_wait does not block, the seconds that kernels waited for copies up to
     * the last synchronisation. */
    double (*copies_waited)(const void *self);
    /* Optional: where there are methods to choose from. */
    z3d_status (*measure_gemm)(void *self, z3d_dtype dtype, int64_t m, int64_t n, int64_t k,
                               z3d_gemm_method *best, double *gflops);
    /* Optional (together): see z3d_device_gemm_choice. */
    z3d_status (*gemm_machine)(void *self, char *out, size_t size);
    z3d_status (*gemm_choice)(void *self, const z3d_gemm *gemm, z3d_gemm_choice *out);
    z3d_status (*choose_gemm)(void *self, const z3d_gemm_choice *choice);
    /* Optional: only where kernels are observed. */
    void (*set_recorder)(void *self, z3d_status (*observe)(void *, const z3d_kernel *),
                         void *context);
} z3d_device_ops;

extern const z3d_device_ops z3d_device_ops_cpu, z3d_device_ops_record, z3d_device_ops_sim;

#endif
