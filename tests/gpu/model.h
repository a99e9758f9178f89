/* A GPT with its engine, for the checks that train. */
#ifndef ZERO3D_TESTS_GPU_MODEL_H
#define ZERO3D_TESTS_GPU_MODEL_H

#include "tests/gpu/check.h"

typedef struct check_model {
    int64_t layers, hidden, heads, seq, vocabulary;
    int64_t batch; /* of the world, a step */
    int tensor, stage;
    z3d_dtype dtype;
    bool recompute, offload; /* offload: activation checkpoints to host memory */
    double dropout;
    int accumulation;       /* micro-batches a step; 0: one */
    z3d_loss_scaler scaler; /* scale 0: none */
    z3d_graph_mode graph;

    z3d_mesh mesh;
    z3d_model *model;
    z3d_device *device;
    z3d_group *group[Z3D_AXES_COUNT];
    z3d_engine *engine;
    int32_t *tokens, *targets; /* of this rank's micro-batches */
    int64_t step;
} check_model;

/* Collective over the world. */
z3d_status check_model_create(check_context *context, const z3d_device_config *device,
                              check_model *model);
void check_model_destroy(check_model *model);
z3d_status check_model_step(check_model *model, z3d_step_result *out);

#endif
