/* The table of optimizers. A new one is a row here and a kernel of that name (src/device/cpu/isa/,
 * src/device/cuda/kernels/): its configuration, memory, checkpoints, plans and prices follow. A new
 * hyperparameter needs a key (config/keys.h) and a field of z3d_optimizer_constants
 * (src/device/kernels.h). */
#ifndef ZERO3D_BASE_OPTIMIZERS_H
#define ZERO3D_BASE_OPTIMIZERS_H

#include "src/base/strings.h"

/* State tensors: X(NAME, name). Each has its parameter's shape and four bytes per element: fp32;
 * for MOMENTS momentum, then variance, in bf16. Checkpoints use the names; memory and files have
 * this order. */
#define Z3D_OPTIMIZER_STATES(X)                                                                    \
    X(MOMENTUM, momentum)                                                                          \
    X(VARIANCE, variance)                                                                          \
    X(SQUARE_SUM, square_sum)                                                                      \
    X(MOMENTS, moments)                                                                            \
    X(EMA, ema) /* average of the parameter, with any optimizer: optimizer.ema_decay */

/* X(_, id, name, reads, states, flops). id: the kernel; name: the value of optimizer.type; reads:
 * the keys of optimizer.params that it reads; states: its state tensors for each parameter; flops:
 * floating-point operations per element. _ is passed through. */
#define Z3D_ADAM_READS "lr betas eps weight_decay exp_avg_dtype exp_avg_sq_dtype"
#define Z3D_ADAM_STATES (Z3D_KIND(MOMENTUM) | Z3D_KIND(VARIANCE))
#define Z3D_OPTIMIZERS(X, _)                                                                       \
    X(_, adamw, "AdamW", Z3D_ADAM_READS, Z3D_ADAM_STATES, 16)                                      \
    X(_, sgd, "SGD", "lr momentum weight_decay", Z3D_KIND(MOMENTUM), 7)                            \
    X(_, lion, "Lion", "lr betas weight_decay", Z3D_KIND(MOMENTUM), 10)                            \
    X(_, adam, "Adam", Z3D_ADAM_READS " adam_w_mode", Z3D_ADAM_STATES, 17)                         \
    X(_, adagrad, "Adagrad", "lr eps weight_decay", Z3D_KIND(SQUARE_SUM), 9)

/* All kernels: those that optimizer.type names, then the same optimizers with other states. */
#define Z3D_OPTIMIZER_KERNELS(X, _)                                                                \
    Z3D_OPTIMIZERS(X, _)                                                                           \
    X(_, adamw_bf16, "AdamW", Z3D_ADAM_READS, Z3D_KIND(MOMENTS), 30)                               \
    X(_, adam_bf16, "Adam", Z3D_ADAM_READS " adam_w_mode", Z3D_KIND(MOMENTS), 31)

/* The tensors of a logical parameter. */
typedef enum z3d_tensor_kind {
    Z3D_TENSOR_PARAMETER, /* in fp32: for 16-bit parameters the master copy */
#define X(NAME, name) Z3D_TENSOR_##NAME,
    Z3D_OPTIMIZER_STATES(X)
#undef X
        Z3D_TENSOR_PENDING,               /* gradients that wait for the next step */
    Z3D_TENSOR_GRADIENT,                  /* of the last step */
    Z3D_STATE_KINDS = Z3D_TENSOR_GRADIENT /* the kinds before it persist */
} z3d_tensor_kind;

/* A set of kinds has one bit for each kind. */
#define Z3D_KIND(NAME) (1U << Z3D_TENSOR_##NAME)

typedef enum z3d_optimizer {
#define X(_, id, name, reads, states, flops) Z3D_OPTIMIZER_##id,
    Z3D_OPTIMIZER_KERNELS(X, )
#undef X
        Z3D_OPTIMIZER_COUNT
} z3d_optimizer;

/* The rule of optimizer.type: "AdamW|...". */
#define Z3D_OPTIMIZER_OPTION(_, id, name, reads, states, flops) "|" name
#define Z3D_OPTIMIZER_RULE (&(Z3D_OPTIMIZERS(Z3D_OPTIMIZER_OPTION, ))[1])

const char *z3d_optimizer_name(z3d_optimizer optimizer);
/* The kernel of this optimizer with both moments in bf16; the optimizer itself if there is none. */
z3d_optimizer z3d_optimizer_in_bf16(z3d_optimizer optimizer);
/* The value of optimizer.type that DeepSpeed, PyTorch or transformers call `text`, in upper or
 * lower case; `text` itself if none. */
const char *z3d_optimizer_named(const char *text);
/* Whether `text` names an optimizer that we plan to add: LAMB, Adafactor, Muon, 8-bit states. */
bool z3d_optimizer_is_planned(const char *text);
/* Whether the optimizer reads this key: "betas" or "optimizer.params.betas". */
bool z3d_optimizer_reads(z3d_optimizer optimizer, const char *key);
/* The kinds of tensors that make up a run's state: the parameter and the optimizer's own. */
unsigned z3d_optimizer_kinds(z3d_optimizer optimizer);
/* "parameter", "momentum", ...; "?" for a kind that does not persist. */
const char *z3d_tensor_kind_name(int kind);
/* The number of kinds in a set; their names ("momentum and variance" with separator " and "). */
int z3d_count_kinds(unsigned kinds);
void z3d_append_kinds(z3d_string *out, unsigned kinds, const char *separator);

#endif
