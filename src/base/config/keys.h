/* The one table of configuration keys, in the order of `zero3d config`:
 *
 *   X(field, path, type, default, rule, bits, resume, inference, help)
 *
 * default: the YAML text of the default ("" = unset, "auto" where the rule allows it).
 * rule: for numbers an interval, "[1,1000000]" or "(0,1)", then optionally " auto",
 * then " epoch"; for ENUM "a|b|c"; for STRING "" (any text), or "a|b|c [1, 2]": a word, or a
 * list like the example (with a point: of numbers, else of integers); for LIST ""
 * (data files), "texts" or "groups" (texts of src/base/param_groups.h).
 * bits (z3d_config_bits): how two values change the bits of losses and parameters. `zero3d prove`
 * relies on it: a class that is too weak makes its proofs wrong.
 * resume (z3d_config_resume): whether a resumed run must keep the value.
 * inference (z3d_config_inference): whether generate and evaluate take a checkpoint's value. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_H
#define ZERO3D_BASE_CONFIG_KEYS_H

#include "src/base/config/keys/activation_checkpointing.h"
#include "src/base/config/keys/batch.h"
#include "src/base/config/keys/checkpoint.h"
#include "src/base/config/keys/data.h"
#include "src/base/config/keys/generate.h"
#include "src/base/config/keys/lora.h"
#include "src/base/config/keys/model.h"
#include "src/base/config/keys/optimizer.h"
#include "src/base/config/keys/parallel.h"
#include "src/base/config/keys/precision.h"
#include "src/base/config/keys/run.h"
#include "src/base/config/keys/scheduler.h"
#include "src/base/config/keys/training.h"
#include "src/base/config/keys/zero_optimization.h"

#define Z3D_CONFIG_KEYS(X)                                                                         \
    Z3D_CONFIG_MODEL_KEYS(X)                                                                       \
    Z3D_CONFIG_PARALLEL_KEYS(X)                                                                    \
    Z3D_CONFIG_BATCH_KEYS(X)                                                                       \
    Z3D_CONFIG_ZERO_OPTIMIZATION_KEYS(X)                                                           \
    Z3D_CONFIG_ACTIVATION_CHECKPOINTING_KEYS(X)                                                    \
    Z3D_CONFIG_PRECISION_KEYS(X)                                                                   \
    Z3D_CONFIG_OPTIMIZER_KEYS(X)                                                                   \
    Z3D_CONFIG_SCHEDULER_KEYS(X)                                                                   \
    Z3D_CONFIG_LORA_KEYS(X)                                                                        \
    Z3D_CONFIG_DATA_KEYS(X)                                                                        \
    Z3D_CONFIG_TRAINING_KEYS(X)                                                                    \
    Z3D_CONFIG_CHECKPOINT_KEYS(X)                                                                  \
    Z3D_CONFIG_RUN_KEYS(X)                                                                         \
    Z3D_CONFIG_GENERATE_KEYS(X)

/* The axes of the mesh whose sizes are keys: X(AXIS, field, path). The ranks along them hold one
 * copy of the model; the data axis gets the rest of the world. */
#define Z3D_CONFIG_AXES(X)                                                                         \
    X(TENSOR, parallel_tensor_model_parallel_size, "parallel.tensor_model_parallel_size")          \
    X(PIPELINE, parallel_pipeline_model_parallel_size, "parallel.pipeline_model_parallel_size")

#endif
