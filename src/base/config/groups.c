/* Reads {params: [...], lr: ..., weight_decay: ...} of optimizer.param_groups as one text
 * (src/base/param_groups.h). */
#include "src/base/config/yaml.h"

#include <string.h>

/* Appends one pattern, or the value of `field`. */
static z3d_status append_word(config_reader *r, const config_key *key, const char *field,
                              const yaml_event_t *event, z3d_string *out) {
    config_scalar scalar;
    const bool pattern = strcmp(field, "params") == 0;
    if (event->type != YAML_SCALAR_EVENT)
        return reader_refuse(r, event->start_mark, "%s: %s needs %s", key->path, field,
                             pattern ? "a pattern of names, or a list of them" : "one value");
    Z3D_TRY(reader_scalar(r, event, &scalar));
    if (!scalar.text[0] || strpbrk(scalar.text, pattern ? " \t\n=" : " \t\n"))
        return reader_refuse(r, event->start_mark, "%s: %s: '%.60s' is not %s", key->path, field,
                             scalar.text, pattern ? "a pattern of names" : "a number");
    z3d_string_append(out, "%s%s%s%s", out->length ? " " : "", pattern ? "" : field,
                      pattern ? "" : "=", scalar.text);
    return Z3D_OK;
}

static z3d_status append_pattern(config_reader *r, const config_key *key, const yaml_event_t *event,
                                 void *out) {
    return append_word(r, key, "params", event, out);
}

static z3d_status append_field(config_reader *r, const config_key *key, const char *field,
                               const yaml_event_t *event, void *out) {
    const bool list = event->type == YAML_SEQUENCE_START_EVENT && strcmp(field, "params") == 0;
    return list ? reader_list(r, key, append_pattern, out) : append_word(r, key, field, event, out);
}

z3d_status reader_param_group(config_reader *r, const config_key *key, z3d_data_list *list) {
    z3d_string text = {0};
    z3d_status status =
        reader_fields(r, key, "params lr lr_scale weight_decay",
                      "write params, lr, lr_scale or weight_decay", append_field, &text);
    if (status == Z3D_OK && text.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a parameter group");
    if (status == Z3D_OK) status = config_list_append(list, text.text ? text.text : " ", 1);
    z3d_string_free(&text);
    return status;
}
