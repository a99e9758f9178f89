/* Makes a list of files with weights from the words of --data-path. */
#include "src/base/config/convert/megatron.h"

#include <stdlib.h>
#include <string.h>

static z3d_status split(const char *word, z3d_data_list *out) {
    char *copy = strdup(word), *rest = NULL;
    z3d_status status = copy ? Z3D_OK : Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for data paths");
    char *part = copy ? strtok_r(copy, " ", &rest) : NULL;
    for (; status == Z3D_OK && part; part = strtok_r(NULL, " ", &rest))
        status = config_list_append(out, part, 1);
    free(copy);
    return status;
}

static bool is_weight(const char *word) {
    double number;
    return z3d_parse_float(word, &number) == Z3D_OK && number > 0;
}

/* Whether the words are two or more weights with paths; "2 files" may be one path. */
static bool is_blend(const z3d_data_list *words) {
    for (int i = 0; i < words->count; i += 2)
        if (!is_weight(words->path[i])) return false;
    return words->count >= 4 && words->count % 2 == 0;
}

z3d_status megatron_data_list(const z3d_data_list *words, z3d_data_list *out) {
    z3d_data_list parts = {0};
    double weight = 0;
    z3d_status status = words->count == 1 ? split(words->path[0], &parts) : Z3D_OK;
    const z3d_data_list *list = is_blend(&parts) ? &parts : words;
    for (int i = 0; status == Z3D_OK && i < list->count; i++) {
        if (weight == 0 && is_weight(list->path[i])) {
            status = z3d_parse_float(list->path[i], &weight);
            continue;
        }
        status = config_list_append(out, list->path[i], weight == 0 ? 1 : weight);
        weight = 0;
    }
    if (status == Z3D_OK && weight > 0)
        status = Z3D_ERROR(Z3D_ERR_DATA, "the last weight has no path");
    config_list_free(&parts);
    return status;
}
