/* Describes Llama: its parameter groups, its units, its facts. */
#include "src/model/limits.h"
#include "src/model/llama/units.h"

int64_t z3d_llama_padded_vocab(const z3d_llama_config *config) {
    return z3d_round_up(config->vocab_size, config->vocab_multiple * config->tensor_size);
}

static z3d_status check(const z3d_llama_config *config) {
    z3d_refusal refusal = {"Llama", false};
    z3d_config_judge judge = z3d_refusal_judge(&refusal);
    z3d_llama_check(config, &judge);
    return refusal.any ? Z3D_ERR_CONFIG : Z3D_OK;
}

z3d_status z3d_llama_create(const z3d_llama_config *config, z3d_model **out) {
    *out = NULL;
    Z3D_TRY(check(config));
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "model.type llama: not built yet");
}
