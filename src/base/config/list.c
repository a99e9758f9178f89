/* Values that are a word of their rule or a list of numbers. */
#include "src/base/config/table.h"

#include <ctype.h>
#include <string.h>

bool config_is_numbers(const char *text) {
    text += strspn(text, " \t");
    return strchr("[-.,", *text) ? *text != '\0' : isdigit((unsigned char)*text) != 0;
}

config_type config_list_type(const config_key *key) {
    return strchr(key->rule, '.') ? CONFIG_FLOAT : CONFIG_INT;
}

/* Parses one entry of a list, without the spaces around it. */
static z3d_status parse_entry(const char *start, size_t length, config_type type, int64_t *integer,
                              double *number) {
    char text[32];
    while (length > 0 && isspace((unsigned char)*start)) start++, length--;
    while (length > 0 && isspace((unsigned char)start[length - 1])) length--;
    if (length == 0) return Z3D_ERROR(Z3D_ERR_CONFIG, "an entry of the list is empty");
    if (length >= sizeof text)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.*s...' is not %s", (int)sizeof text, start,
                         type == CONFIG_INT ? "an integer" : "a number");
    memcpy(text, start, length);
    text[length] = '\0';
    return type == CONFIG_INT ? z3d_parse_int(text, integer) : z3d_parse_float(text, number);
}

z3d_status config_parse_numbers(const char *text, config_type type, void *out, int capacity,
                                int *count) {
    const char *at = text + strspn(text, " \t");
    bool bracket = *at == '[';
    *count = 0;
    for (at += bracket;;) {
        int64_t integer = 0;
        double number = 0;
        size_t length = strcspn(at, ",]");
        Z3D_TRY(parse_entry(at, length, type, &integer, &number));
        if (*count < capacity && type == CONFIG_INT) ((int64_t *)out)[*count] = integer;
        if (*count < capacity && type == CONFIG_FLOAT) ((double *)out)[*count] = number;
        ++*count;
        at += length;
        if (*at != ',') break;
        at++;
    }
    bool closed = *at == ']';
    at += closed;
    at += strspn(at, " \t");
    if (closed != bracket || *at) return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.80s' is not a list", text);
    return Z3D_OK;
}

z3d_gemm_policy z3d_config_cuda_gemm(const z3d_config *config) {
    const z3d_data_list *list = &config->training_gemm_cuda;
    if (list->count == 0 || (list->count == 1 && strcmp(list->path[0], "heuristic") == 0))
        return Z3D_CUDA_GEMM_HEURISTIC;
    return list->count == 1 && strcmp(list->path[0], "timed") == 0 ? Z3D_CUDA_GEMM_TIMED
                                                                   : Z3D_CUDA_GEMM_LIST;
}

int config_word_or_list(const config_key *key, const char *text, void *out, int capacity,
                        int *count) {
    char word[32];
    int words = 0;
    *count = 0;
    for (; config_option(key->rule, words, word, sizeof word); words++)
        if (strcmp(word, text) == 0) return words;
    if (config_parse_numbers(text, config_list_type(key), out, out ? capacity : 0, count) != Z3D_OK)
        *count = 0;
    return words;
}
