/* Reads {params: [...], lr: ..., weight_decay: ...} of optimizer.param_groups as one text
 * (src/base/param_groups.h). */
#include "src/base/config/yaml.h"

#include <string.h>

/* Appends one pattern, or the value of `field`. */
static z3d_status append_word(config_reader *r, const config_key *key, const char *field,
                              const config_node *node, z3d_string *out) {
    config_scalar scalar;
    const bool pattern = strcmp(field, "params") == 0;
    Z3D_TRY(reader_look(r, node));
    if (node->event.type != YAML_SCALAR_EVENT)
        return reader_refuse(r, node->event.start_mark, "%s: %s needs %s", key->path, field,
                             pattern ? "a pattern of names, or a list of them" : "one value");
    Z3D_TRY(reader_scalar(r, node, &scalar));
    if (!scalar.text[0] || strpbrk(scalar.text, pattern ? " \t\n=" : " \t\n"))
        return reader_refuse(r, node->event.start_mark, "%s: %s: '%.60s' is not %s", key->path,
                             field, scalar.text, pattern ? "a pattern of names" : "a number");
    z3d_string_append(out, "%s%s%s%s", out->length ? " " : "", pattern ? "" : field,
                      pattern ? "" : "=", scalar.text);
    return Z3D_OK;
}

static z3d_status append_fields(config_reader *r, const config_key *key, const config_node *group,
                                z3d_string *out) {
    const config_node *end = group + group->size;
    for (const config_node *name = group + 1, *value; name < end; name = value + value->size) {
        const char *field;
        Z3D_TRY(reader_field(r, key, name, "params lr lr_scale weight_decay",
                             "write params, lr, lr_scale or weight_decay", &field));
        value = name + name->size;
        const bool list =
            value->event.type == YAML_SEQUENCE_START_EVENT && strcmp(field, "params") == 0;
        const config_node *item = list ? value + 1 : value;
        for (; item < value + value->size; item += item->size)
            Z3D_TRY(append_word(r, key, field, item, out));
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a parameter group") : Z3D_OK;
}

z3d_status reader_param_group(config_reader *r, const config_key *key, const config_node *group,
                              z3d_data_list *list) {
    z3d_string text = {0};
    z3d_status status = append_fields(r, key, group, &text);
    if (status == Z3D_OK) status = config_list_append(list, text.text ? text.text : " ", 1);
    z3d_string_free(&text);
    return status;
}
