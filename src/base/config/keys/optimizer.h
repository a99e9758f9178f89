/* Keys: the optimizer. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_OPTIMIZER_H
#define ZERO3D_BASE_CONFIG_KEYS_OPTIMIZER_H

#include "src/base/optimizers.h"

/* clang-format off */
#define Z3D_CONFIG_OPTIMIZER_KEYS(X) \
    X(optimizer_type, "optimizer.type", \
      ENUM, "AdamW", Z3D_OPTIMIZER_RULE, UPDATE, KEPT, STAYS, \
      "optimizer, as in torch.optim: SGD with momentum; Adam is AdamW unless " \
      "optimizer.params.adam_w_mode is false, as in DeepSpeed. Lion as in its paper: sign(0) is " \
      "0") \
    X(optimizer_params_lr, "optimizer.params.lr", \
      FLOAT, "6e-4", "[0,1e6]", UPDATE, KEPT, STAYS, \
      "peak learning rate") \
    X(optimizer_params_betas, "optimizer.params.betas", \
      FLOAT2, "[0.9, 0.95]", "[0,1)", UPDATE, KEPT, STAYS, \
      "AdamW, Adam: decay rates of momentum and variance. Lion: of the update and the momentum; " \
      "its paper has [0.9, 0.99]") \
    X(optimizer_params_eps, "optimizer.params.eps", \
      FLOAT, "1e-8", "(0,1]", DECIDE, KEPT, STAYS, \
      "AdamW, Adam, Adagrad: added to the root of the variance, or of the sum of squares; " \
      "torch.optim.Adagrad has 1e-10") \
    X(optimizer_params_momentum, "optimizer.params.momentum", \
      FLOAT, "0.9", "[0,1)", DECIDE, KEPT, STAYS, \
      "SGD: decay rate of the momentum") \
    X(optimizer_params_weight_decay, "optimizer.params.weight_decay", \
      FLOAT, "0.1", "[0,1e3]", DECIDE, KEPT, STAYS, \
      "weight decay of matrices, decoupled (AdamW, Lion) or added to the gradient (Adam, SGD, " \
      "Adagrad); biases and norms have none") \
    X(optimizer_params_adam_w_mode, "optimizer.params.adam_w_mode", \
      BOOL, "true", "", DECIDE, KEPT, STAYS, \
      "Adam: true: AdamW; false: L2 regularization, as in torch.optim.Adam") \
    X(optimizer_params_exp_avg_dtype, "optimizer.params.exp_avg_dtype", \
      ENUM, "fp32", "fp32|bf16", DECIDE, KEPT, STAYS, \
      "AdamW, Adam: type of the momentum between steps. bf16 (for both moments): 4 bytes a " \
      "parameter instead of 8; random rounding by training.seed, step and place gives every " \
      "topology the same bits") \
    X(optimizer_params_exp_avg_sq_dtype, "optimizer.params.exp_avg_sq_dtype", \
      ENUM, "fp32", "fp32|bf16", DECIDE, KEPT, STAYS, \
      "AdamW, Adam: type of the variance; must be that of exp_avg_dtype") \
    X(optimizer_ema_decay, "optimizer.ema_decay", \
      FLOAT, "0", "[0,1)", SUM, KEPT, STAYS, \
      "above 0: keep an exponential moving average of the parameters with the optimizer's " \
      "states, 4 bytes a parameter; it begins as a copy in the first step. checkpoint export, " \
      "evaluate and generate use it with --ema") \
    X(optimizer_param_groups, "optimizer.param_groups", \
      LIST, "", "groups", DECIDE, KEPT, STAYS, \
      "parameters with their own learning rate or weight decay: a list of {params: [patterns], " \
      "lr, lr_scale, weight_decay}. lr is a peak, lr_scale a factor of optimizer.params.lr; the " \
      "schedule is the same. A pattern with * or ? must match a whole name, any other a part of " \
      "one; the first group that matches is used. checkpoint show prints the names")
/* clang-format on */

#endif
