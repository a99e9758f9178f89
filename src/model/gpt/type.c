/* GPT's entry in the registry: reads its section of the configuration. */
#include "src/model/gpt/private.h"

#include "src/model/limits.h"

static z3d_gpt_config config_of(const z3d_config *config) {
    const int64_t h = config->model_hidden_size;
    return (z3d_gpt_config){.num_layers = config->model_num_layers,
                            .hidden_size = h,
                            .num_heads = config->model_num_attention_heads,
                            .seq_length = config->model_seq_length,
                            .vocab_size = config->model_vocab_size,
                            .vocab_multiple = config->model_make_vocab_size_divisible_by,
                            .hidden_dropout = config->model_hidden_dropout,
                            .attention_dropout = config->model_attention_dropout,
                            .init_std = config->model_init_method_std,
                            .tensor_size = (int)config->parallel_tensor_model_parallel_size,
                            .sequence_parallel = config->parallel_sequence_parallel,
                            .packed = config->data_samples == Z3D_SAMPLES_DOCUMENTS,
                            .tiling = z3d_tiling_of(config, 4 * h * h, 8 * h * h, 4 * h),
                            .lora = z3d_lora_of(config, z3d_gpt_modules)};
}

static void check(const z3d_config *config, const z3d_config_judge *judge) {
    z3d_gpt_config gpt = config_of(config);
    z3d_gpt_check(&gpt, judge);
    z3d_lora_check(config, z3d_gpt_modules, true, judge);
}

static void sizes(const z3d_config *config, z3d_model_sizes *out) {
    z3d_gpt_config gpt = config_of(config);
    int64_t inner = 4 * gpt.hidden_size,
            vocab = z3d_padded_vocab(gpt.vocab_size, gpt.vocab_multiple, gpt.tensor_size);
    *out = (z3d_model_sizes){.width = inner > vocab ? inner : vocab,
                             .tensor_limit = gpt.num_heads,
                             .units = gpt.num_layers * z3d_tiled_units(gpt.tiling) + 2,
                             .parameters = z3d_gpt_parameters(&gpt)};
}

static z3d_status create(const z3d_config *config, z3d_model **out) {
    z3d_gpt_config gpt = config_of(config);
    return z3d_gpt_create(&gpt, out);
}

const z3d_model_type z3d_gpt_type = {.name = "gpt2",
                                     .keys = (const char *const[]){"model.hidden_dropout", NULL},
                                     .check = check,
                                     .sizes = sizes,
                                     .create = create,
                                     .interop = &z3d_gpt_interop};
