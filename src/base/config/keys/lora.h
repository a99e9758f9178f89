/* Keys: adapters. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_LORA_H
#define ZERO3D_BASE_CONFIG_KEYS_LORA_H

/* clang-format off */
#define Z3D_CONFIG_LORA_KEYS(X) \
    X(lora_r, "lora.r", \
      INT, "0", "[0,65536]", DECIDE_SUMS, SCALE, STAYS, \
      "rank of adapters beside the model's layers (LoRA, with PEFT's names): only these are " \
      "trained. 0: no adapters") \
    X(lora_lora_alpha, "lora.lora_alpha", \
      FLOAT, "8", "(0,1e6]", DECIDE_SUMS, SCALE, STAYS, \
      "the output of an adapter is multiplied by lora_alpha / r") \
    X(lora_lora_dropout, "lora.lora_dropout", \
      FLOAT, "0", "[0,1)", DECIDE_SUMS, KEPT, STAYS, \
      "dropout on the input of an adapter") \
    X(lora_use_rslora, "lora.use_rslora", \
      BOOL, "false", "", DECIDE_SUMS, SCALE, STAYS, \
      "multiply by lora_alpha / sqrt(r) instead") \
    X(lora_target_modules, "lora.target_modules", \
      LIST, "", "texts", DECIDE_SUMS, ADAPTED, STAYS, \
      "layers that have adapters, as Hugging Face names them: all-linear, or a list such as " \
      "[q_proj, mlp.c_proj]; unset: gpt2 c_attn, llama q_proj and v_proj") \
    X(lora_modules_to_save, "lora.modules_to_save", \
      LIST, "", "texts", DECIDE_SUMS, KEPT, STAYS, \
      "modules that are trained as a whole, beside the adapters, such as [lm_head]") \
    X(lora_init_from, "lora.init_from", \
      STRING, "", "", DECIDE_SUMS, FREE, STAYS, \
      "folder with PEFT's adapter_model.safetensors: a new run starts with these adapters; " \
      "unset: with new ones, whose output is 0 at first")
/* clang-format on */

#endif
