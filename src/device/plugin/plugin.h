/* The interface between the program and its CUDA plugin (libzero3d_cuda.so). The plugin contains
 * everything that links CUDA and is loaded only when a cuda device is created, so the program runs
 * on machines without CUDA. It has its own copy of src/base and exports one symbol. */
#ifndef ZERO3D_DEVICE_CUDA_PLUGIN_H
#define ZERO3D_DEVICE_CUDA_PLUGIN_H

#include "src/device/collectives.h"
#include "src/device/interface/ops.h"

/* Raise it when a shared struct changes its meaning but not its size; Z3D_PLUGIN_BYTES shows
 * changes of size. */
#define Z3D_PLUGIN_INTERFACE 7
#define Z3D_PLUGIN_MAGIC "zero3d plugin"
#define Z3D_PLUGIN_SYMBOL "z3d_plugin_tables"
#define Z3D_PLUGIN_FILE "libzero3d_cuda.so"

typedef struct z3d_plugin {
    char magic[16];
    uint32_t interface;           /* Z3D_PLUGIN_INTERFACE of its build */
    uint32_t bytes;               /* Z3D_PLUGIN_BYTES of its build */
    const char *(*message)(void); /* the plugin's z3d_error_message */
    const z3d_device_ops *device;
    const z3d_stream_collectives *collectives;
} z3d_plugin;

/* The sizes of all structs that the program and the plugin share. */
#define Z3D_PLUGIN_BYTES                                                                           \
    ((uint32_t)(sizeof(z3d_plugin) + 64 * sizeof(z3d_kernel) + sizeof(z3d_device_config) +         \
                sizeof(z3d_device_ops) + sizeof(z3d_step_state) + sizeof(z3d_collective) +         \
                sizeof(z3d_stream_collectives)))

/* The plugin's one symbol. */
typedef const z3d_plugin *z3d_plugin_tables_function(void);

/* load.c: finds, loads and checks the plugin. It searches the folders of the environment variable
 * ZERO3D_PLUGIN_PATH (separated by colons) if that is set, else the program's folder and
 * ../lib/zero3d next to it. The plugin stays loaded until the process ends. Errors: ERR_MEMORY;
 * ERR_UNSUPPORTED, with the folders that were searched or with the fault of the plugin. */
z3d_status z3d_plugin_load(const z3d_plugin **out);

#endif
