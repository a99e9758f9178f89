/* Shared by the converters of other frameworks' settings. */
#ifndef ZERO3D_BASE_CONFIG_CONVERT_H
#define ZERO3D_BASE_CONFIG_CONVERT_H

#include "src/base/config/table.h"

typedef struct config_conversion {
    z3d_config *config;
    config_report report;
    const char *file, *peer; /* the file's name; "DeepSpeed" */
    const char *remark;      /* a comment at the top of the YAML; NULL: none */
} config_conversion;

/* Refuses a text with another program's settings; the message says what to do. ERR_DATA. */
z3d_status config_refuse_format(const char *text, const char *file, const char *option);

z3d_status config_conversion_begin(config_conversion *v, const char *file, const char *peer);
void config_conversion_end(config_conversion *v);

/* Whether the report has a row of this name. */
bool config_is_mentioned(const config_conversion *v, const char *name);
/* Sets a key to `text` and adds a row for the setting `name`; also if the key refuses the value. */
void config_take(config_conversion *v, const char *name, const char *path, const char *text);
/* Sets a key to `text`, another framework's default (`whose` in the row), if ours differs and no
 * unknown setting may be about the key. */
void config_take_default(config_conversion *v, const char *path, const char *text,
                         const char *whose);
/* Sets training.device to cuda unless the file has it: both frameworks train on GPUs. */
void config_take_device(config_conversion *v);
/* Whether an unknown setting may be about this key. */
bool config_is_doubted(const config_conversion *v, const char *path);
/* Sets a key without a row, even to its default. */
void config_take_quietly(config_conversion *v, const char *path, const char *text);

/* Drops keys that z3d_config_check refuses, with a row each, and writes both texts. ERR_MEMORY. */
z3d_status config_conversion_finish(config_conversion *v, const z3d_config_rules *rules,
                                    z3d_string *yaml, z3d_string *table, bool *complete);

#endif
