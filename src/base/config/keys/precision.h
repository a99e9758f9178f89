/* Keys: types and loss scales. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_PRECISION_H
#define ZERO3D_BASE_CONFIG_KEYS_PRECISION_H

/* clang-format off */
#define Z3D_CONFIG_PRECISION_KEYS(X) \
    X(data_types_grad_accum_dtype, "data_types.grad_accum_dtype", \
      ENUM, "auto", "auto|fp32|bf16|fp16", DIFFER_SUMS, PENDING, STANDARD, \
      "type in which gradients accumulate and are reduced: fp32 or the model's. auto: fp32 in " \
      "bf16 runs with several micro-batches a step (gradient_accumulation_steps above 1), 2 more " \
      "bytes a gradient; else the model's type") \
    X(fp16_enabled, "fp16.enabled", \
      BOOL, "false", "", DIFFER_SUMS, PENDING, STAYS, \
      "train in fp16 with loss scaling") \
    X(fp16_loss_scale, "fp16.loss_scale", \
      FLOAT, "0", "[0,1e38]", BOUND, FREE, STAYS, \
      "fixed loss scale; 0: dynamic") \
    X(fp16_initial_scale_power, "fp16.initial_scale_power", \
      INT, "16", "[0,126]", BOUND, FREE, STAYS, \
      "first loss scale is 2 to this power") \
    X(fp16_loss_scale_window, "fp16.loss_scale_window", \
      INT, "1000", "[1,1e9]", BOUND, FREE, STAYS, \
      "steps without overflow before the scale doubles") \
    X(fp16_hysteresis, "fp16.hysteresis", \
      INT, "2", "[1,1e6]", BOUND, FREE, STAYS, \
      "number of overflows before the scale halves") \
    X(fp16_min_loss_scale, "fp16.min_loss_scale", \
      FLOAT, "1", "(0,1e38]", BOUND, FREE, STAYS, \
      "lowest dynamic loss scale") \
    X(bf16_enabled, "bf16.enabled", \
      BOOL, "false", "", DIFFER_SUMS, PENDING, STAYS, \
      "train in bf16 (fp32 if neither fp16 nor bf16 is enabled)")
/* clang-format on */

#endif
