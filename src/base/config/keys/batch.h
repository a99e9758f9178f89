/* Keys: the batch and its gradient. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_BATCH_H
#define ZERO3D_BASE_CONFIG_KEYS_BATCH_H

/* clang-format off */
#define Z3D_CONFIG_BATCH_KEYS(X) \
    X(train_batch_size, "train_batch_size", \
      INT, "auto", "[1,1000000000] auto", DIFFER, KEPT, STANDARD, \
      "samples per optimizer step over all ranks") \
    X(train_micro_batch_size_per_gpu, "train_micro_batch_size_per_gpu", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STAYS, \
      "samples per rank and micro-batch (on average, if parallel.device_speeds differ); any two " \
      "of the three batch keys give the third") \
    X(gradient_accumulation_steps, "gradient_accumulation_steps", \
      INT, "auto", "[1,1000000] auto", SUM, FREE, STAYS, \
      "micro-batches per optimizer step") \
    X(gradient_clipping, "gradient_clipping", \
      FLOAT, "0", "[0,1e9]", BOUND, KEPT, STAYS, \
      "largest global gradient norm; 0: no clipping") \
    X(communication_data_type, "communication_data_type", \
      ENUM, "auto", "auto|fp32|bf16|fp16", SUM, FREE, STANDARD, \
      "type in which fp32 gradients are sent to be summed: bf16 or fp16 halves the bytes; the " \
      "sums are still in fp32. auto, fp32: no conversion (fp32 is refused for gradients of 16 " \
      "bits). With bf16 and fp16 each rank sends to all others, so with several data ranks per " \
      "node use parallel.collective_algorithm hierarchical. With one data rank the choice has no " \
      "effect and is allowed")
/* clang-format on */

#endif
