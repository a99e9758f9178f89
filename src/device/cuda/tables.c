/* The plugin's one symbol. */
#include "src/device/cuda/tables.h"

__attribute__((visibility("default"))) z3d_plugin_tables_function z3d_plugin_tables;

const z3d_plugin *z3d_plugin_tables(void) {
    static const z3d_plugin plugin = {
        .magic = Z3D_PLUGIN_MAGIC,
        .interface = Z3D_PLUGIN_INTERFACE,
        .bytes = Z3D_PLUGIN_BYTES,
        .message = z3d_error_message,
        .device = &z3d_device_ops_cuda,
        .collectives = &z3d_cuda_collectives,
    };
    return &plugin;
}
