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

const z3d_known_keys z3d_common_keys[] = {
    {Z3D_KEY_FALSE, "is_encoder_decoder add_cross_attention"},
    {Z3D_KEY_ANY,
     "model_type architectures dtype torch_dtype use_cache initializer_range id2label label2id "
     "num_labels problem_type finetuning_task task_specific_params tokenizer_class return_dict "
     "return_dict_in_generate output_attentions output_hidden_states output_scores output_past "
     "chunk_size_feed_forward is_decoder tie_encoder_decoder pruned_heads torchscript "
     "tf_legacy_loss use_bfloat16 gradient_checkpointing prefix xla_device bad_words_ids "
     "begin_suppress_tokens diversity_penalty do_sample early_stopping "
     "encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty max_length "
     "min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences "
     "remove_invalid_values repetition_penalty suppress_tokens temperature top_k top_p typical_p"},
    {Z3D_KEY_ANY, NULL}};

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

static const z3d_known_keys *find_key(const z3d_known_keys *list, const char *key) {
    while (list && list->names && !z3d_has_word(list->names, key)) list++;
    return list && list->names ? list : NULL;
}

void z3d_check_keys(const z3d_json *object, const z3d_known_keys *known,
                    const z3d_known_keys *common, z3d_problems *problems) {
    char shown[Z3D_SHOWN + 1];
    for (const z3d_json *m = object->first; m; m = m->next) {
        if (m->type == Z3D_JSON_NULL || is_harmless(m->key)) continue;
        const z3d_known_keys *found = find_key(known, m->key);
        if (!found) found = find_key(common, m->key);
        z3d_problems_add(problems,
                         found ? z3d_check_key(m, found->rule)
                               : Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                                           "%s: this key is not known; if it does not change what "
                                           "the model computes, remove it from the file",
                                           z3d_shown(m->key, shown)));
    }
}
