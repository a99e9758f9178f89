/* Private to the CUDA plugin: the two tables that it gives. */
#ifndef ZERO3D_DEVICE_CUDA_TABLES_H
#define ZERO3D_DEVICE_CUDA_TABLES_H

#include "src/device/plugin/plugin.h"

extern const z3d_device_ops z3d_device_ops_cuda;
extern const z3d_stream_collectives z3d_cuda_collectives;

#endif
