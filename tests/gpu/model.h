/* A GPT or a Llama that trains for some steps, and what came of it: what the checks compare and
 * time. */
#ifndef ZERO3D_TESTS_GPU_MODEL_H
#define ZERO3D_TESTS_GPU_MODEL_H

#include "tests/gpu/check.h"

typedef struct check_model {
    z3d_gpt_config gpt;
    int64_t kv_heads, intermediate; /* 0: it is a GPT; else a Llama of these and gpt's sizes */
    z3d_engine_config engine;       /* what is of a device, a mesh or the batch is filled in */
    int64_t batch;                  /* samples a step, of all ranks */
} check_model;

/* fp32, without ZeRO, in one micro-batch, on one tensor rank. */
check_model check_model_make(int64_t layers, int64_t hidden, int64_t heads, int64_t seq,
                             int64_t vocabulary, int64_t batch);

enum { CHECK_STEPS = 64 };

typedef struct check_run {
    z3d_step_result step[CHECK_STEPS];
    double validation; /* behind the second step */
    int64_t calls, peak[Z3D_SPACE_COUNT];
    int64_t buffers;     /* bytes that the groups' own buffers have */
    int untimed;         /* kinds of collectives that nobody timed */
    int64_t launches;    /* in a step's graph; 0: there is none */
    int64_t arena, used; /* bytes of device memory: the engine's, and of all processes */
    double flops;        /* a token's; of attention the half that is not masked */
} check_run;

/* So many steps on a new device; the device's tape, if it has one, has the last step alone.
 * Collective over the world. */
z3d_status check_train(check_context *context, const z3d_device_config *device, check_model model,
                       int steps, check_run *out);

#endif
