#include "src/model/interop.h"

#include <string.h>

bool z3d_ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

int64_t z3d_positions_of(const z3d_config *c) {
    int64_t own = c->checkpoint_export_max_position_embeddings;
    return own == Z3D_AUTO ? c->model_seq_length : own;
}

z3d_status z3d_refuse_member(const z3d_json *member, const char *supported) {
    static const char *const types[] = {"null", NULL, NULL, NULL, "[...]", "{...}"};
    char key[Z3D_SHOWN + 1], text[Z3D_SHOWN + 1];
    const char *value = member->type == Z3D_JSON_BOOL ? member->truth ? "true" : "false"
                        : member->type == Z3D_JSON_NUMBER || member->type == Z3D_JSON_STRING
                            ? z3d_shown(member->text, text)
                            : types[member->type];
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s: %s is not supported; only %s is",
                     z3d_shown(member->key, key), value, supported);
}

/* ---- which keys there may be ---- */

const z3d_known_key z3d_common_keys[] = {{"is_encoder_decoder", Z3D_KEY_FALSE},
                                         {"add_cross_attention", Z3D_KEY_FALSE},
                                         {"model_type", Z3D_KEY_ANY},
                                         {"architectures", Z3D_KEY_ANY},
                                         {"dtype", Z3D_KEY_ANY},
                                         {"torch_dtype", Z3D_KEY_ANY},
                                         {"use_cache", Z3D_KEY_ANY},
                                         {"initializer_range", Z3D_KEY_ANY},
                                         {"id2label", Z3D_KEY_ANY},
                                         {"label2id", Z3D_KEY_ANY},
                                         {"num_labels", Z3D_KEY_ANY},
                                         {"problem_type", Z3D_KEY_ANY},
                                         {"finetuning_task", Z3D_KEY_ANY},
                                         {"task_specific_params", Z3D_KEY_ANY},
                                         {"tokenizer_class", Z3D_KEY_ANY},
                                         {"return_dict", Z3D_KEY_ANY},
                                         {"return_dict_in_generate", Z3D_KEY_ANY},
                                         {"output_attentions", Z3D_KEY_ANY},
                                         {"output_hidden_states", Z3D_KEY_ANY},
                                         {"output_scores", Z3D_KEY_ANY},
                                         {"output_past", Z3D_KEY_ANY},
                                         {"chunk_size_feed_forward", Z3D_KEY_ANY},
                                         {"is_decoder", Z3D_KEY_ANY},
                                         {"tie_encoder_decoder", Z3D_KEY_ANY},
                                         {"pruned_heads", Z3D_KEY_ANY},
                                         {"torchscript", Z3D_KEY_ANY},
                                         {"tf_legacy_loss", Z3D_KEY_ANY},
                                         {"use_bfloat16", Z3D_KEY_ANY},
                                         {"gradient_checkpointing", Z3D_KEY_ANY},
                                         {"prefix", Z3D_KEY_ANY},
                                         {"xla_device", Z3D_KEY_ANY},
                                         {"bad_words_ids", Z3D_KEY_ANY},
                                         {"begin_suppress_tokens", Z3D_KEY_ANY},
                                         {"diversity_penalty", Z3D_KEY_ANY},
                                         {"do_sample", Z3D_KEY_ANY},
                                         {"early_stopping", Z3D_KEY_ANY},
                                         {"encoder_no_repeat_ngram_size", Z3D_KEY_ANY},
                                         {"exponential_decay_length_penalty", Z3D_KEY_ANY},
                                         {"length_penalty", Z3D_KEY_ANY},
                                         {"max_length", Z3D_KEY_ANY},
                                         {"min_length", Z3D_KEY_ANY},
                                         {"no_repeat_ngram_size", Z3D_KEY_ANY},
                                         {"num_beam_groups", Z3D_KEY_ANY},
                                         {"num_beams", Z3D_KEY_ANY},
                                         {"num_return_sequences", Z3D_KEY_ANY},
                                         {"remove_invalid_values", Z3D_KEY_ANY},
                                         {"repetition_penalty", Z3D_KEY_ANY},
                                         {"suppress_tokens", Z3D_KEY_ANY},
                                         {"temperature", Z3D_KEY_ANY},
                                         {"top_k", Z3D_KEY_ANY},
                                         {"top_p", Z3D_KEY_ANY},
                                         {"typical_p", Z3D_KEY_ANY},
                                         {NULL, Z3D_KEY_ANY}};

static bool is_harmless(const char *key) {
    return *key == '_' || strncmp(key, "transformers", 12) == 0 ||
           strncmp(key, "unsloth", 7) == 0 || z3d_ends_with(key, "_token_id");
}

z3d_status z3d_check_key(const z3d_json *m, z3d_key_rule rule) {
    if (rule == Z3D_KEY_FALSE && !(m->type == Z3D_JSON_BOOL && !m->truth))
        return z3d_refuse_member(m, "false");
    if (rule == Z3D_KEY_ONE && !z3d_json_is_number(m, 1)) return z3d_refuse_member(m, "1");
    if (rule == Z3D_KEY_SILU && !z3d_json_is_text(m, "silu")) return z3d_refuse_member(m, "silu");
    return Z3D_OK;
}

static const z3d_known_key *find_key(const z3d_known_key *list, const char *key) {
    while (list && list->key && strcmp(list->key, key) != 0) list++;
    return list && list->key ? list : NULL;
}

void z3d_check_keys(const z3d_json *object, const z3d_known_key *known, const z3d_known_key *common,
                    z3d_problems *problems) {
    char shown[Z3D_SHOWN + 1];
    for (const z3d_json *m = object->first; m; m = m->next) {
        if (m->type == Z3D_JSON_NULL || is_harmless(m->key)) continue;
        const z3d_known_key *found = find_key(known, m->key);
        if (!found) found = find_key(common, m->key);
        z3d_problems_add(problems,
                         found ? z3d_check_key(m, found->rule)
                               : Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                                           "%s: this key is not known; if it does not change what "
                                           "the model computes, remove it from the file",
                                           z3d_shown(m->key, shown)));
    }
}
