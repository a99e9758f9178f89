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

static z3d_status append_list(config_reader *r, const config_key *key, z3d_string *out) {
    for (bool end = false; !end;) {
        yaml_event_t event;
        z3d_status status = reader_next(r, &event);
        end = status == Z3D_OK && event.type == YAML_SEQUENCE_END_EVENT;
        if (status == Z3D_OK && !end) status = append_word(r, key, "params", &event, out);
        yaml_event_delete(&event);
        Z3D_TRY(status);
    }
    return Z3D_OK;
}

/* Reads one entry of the mapping; *end: the mapping ended instead. */
static z3d_status read_field(config_reader *r, const config_key *key, z3d_string *out, bool *end) {
    yaml_event_t name, value;
    memset(&value, 0, sizeof value);
    z3d_status status = reader_next(r, &name);
    *end = status == Z3D_OK && name.type == YAML_MAPPING_END_EVENT;
    if (status != Z3D_OK || *end) goto done;
    const char *field;
    Z3D_TRY_GOTO(status,
                 reader_field(r, key, &name, "params lr lr_scale weight_decay",
                              "write params, lr, lr_scale or weight_decay", &field),
                 done);
    Z3D_TRY_GOTO(status, reader_next(r, &value), done);
    status = value.type == YAML_SEQUENCE_START_EVENT && strcmp(field, "params") == 0
                 ? append_list(r, key, out)
                 : append_word(r, key, field, &value, out);
done:
    yaml_event_delete(&value);
    yaml_event_delete(&name);
    return status;
}

z3d_status reader_param_group(config_reader *r, const config_key *key, z3d_data_list *list) {
    z3d_string text = {0};
    z3d_status status = Z3D_OK;
    bool end = false;
    while (status == Z3D_OK && !end) status = read_field(r, key, &text, &end);
    if (status == Z3D_OK && text.failed)
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a parameter group");
    if (status == Z3D_OK) status = config_list_append(list, text.text ? text.text : " ", 1);
    z3d_string_free(&text);
    return status;
}
