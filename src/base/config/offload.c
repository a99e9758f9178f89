/* Rules of offload: where optimizer states and parameters lie when not on the device. */
#include "src/base/config/idle.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE "zero_optimization.stage"
#define GROUP "zero_optimization.sub_group_size"
#define OPTIMIZER "zero_optimization.offload_optimizer"
#define PARAM "zero_optimization.offload_param"

/* ---- folders ---- */

/* The variable that the text after a $ names, and what follows it; NULL: it names none. */
static const char *variable_of(const char *at, char *name, size_t size) {
    bool braces = *at == '{';
    size_t length = 0;
    at += braces;
    while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
    if (length == 0 || length >= size || (braces && at[length] != '}')) return NULL;
    memcpy(name, at, length);
    name[length] = '\0';
    return at + length + braces;
}

static z3d_status append_variable(const z3d_config *config, const char *path, const char *name,
                                  z3d_string *out) {
    const char *value = getenv(name);
    if (!value || !*value)
        return z3d_config_error(config, path,
                                "$%s is not set on this rank; set it, or write the folder", name);
    z3d_string_append(out, "%s", value);
    return Z3D_OK;
}

z3d_status z3d_config_expand(const z3d_config *config, const char *path, z3d_string *out) {
    const char *at = *(const char *const *)config_field(config, &config_table[config_find(path)]);
    char name[64];
    if (at[0] == '~' && (at[1] == '/' || at[1] == '\0')) {
        Z3D_TRY(append_variable(config, path, "HOME", out));
        at++;
    }
    for (size_t plain; plain = strcspn(at, "$"), at[plain];) {
        const char *rest = variable_of(at + plain + 1, name, sizeof name);
        if (!rest)
            return z3d_config_error(config, path,
                                    "'%.200s': a $ without the name of a variable; write $NAME or "
                                    "${NAME}",
                                    at + plain);
        z3d_string_append_bytes(out, at, plain);
        Z3D_TRY(append_variable(config, path, name, out));
        at = rest;
    }
    z3d_string_append(out, "%s", at);
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a path") : Z3D_OK;
}

/* ---- the checks ---- */

typedef struct offload_block {
    const char *device;
    idle_key path;
    int where; /* z3d_offload_device */
} offload_block;

static void check_disk(config_checker *k, const offload_block *b) {
    char because[96];
    bool switched = config_is_written(k->c, b->device) || k->c->origin->report;
    /* A pasted block has a folder whatever its device is. */
    const idle_reason unused = {{b->device}, because, "set it to nvme", switched};
    snprintf(because, sizeof because, "unless %s is nvme", b->device);
    if (b->where != Z3D_OFFLOAD_DEVICE_NVME)
        config_refuse_idle(k, &b->path, 1, &unused);
    else if (!b->path.differs && config_sound(k, b->device, b->path.path, NULL))
        config_complain(k, b->device, "nvme needs a folder on a local disk; set %s", b->path.path);
}

static void check_optimizer(config_checker *k) {
    const z3d_config *c = k->c;
    const int where = c->zero_optimization_offload_optimizer_device;
    const idle_key group = {GROUP, c->zero_optimization_sub_group_size != 1000000000};
    const idle_key count = {OPTIMIZER ".buffer_count",
                            c->zero_optimization_offload_optimizer_buffer_count != 4};
    const idle_key ratio = {OPTIMIZER ".ratio", c->zero_optimization_offload_optimizer_ratio != 1};
    const offload_block block = {
        OPTIMIZER ".device",
        {OPTIMIZER ".nvme_path", *c->zero_optimization_offload_optimizer_nvme_path != '\0'},
        where};
    const idle_reason on_device = {{block.device},
                                   "while " OPTIMIZER
                                   ".device is none: the optimizer steps whole parameter groups",
                                   "set it to cpu or nvme",
                                   true};
    const idle_reason off = {{block.device},
                             "while " OPTIMIZER ".device is none",
                             "set it to cpu or nvme",
                             config_is_written(c, block.device) || c->origin->report};
    check_disk(k, &block);
    if (where == Z3D_OFFLOAD_DEVICE_NONE) {
        config_refuse_idle(k, &group, 1, &on_device);
        config_refuse_idle(k, &count, 1, &off);
        config_refuse_idle(k, &ratio, 1, &off);
    }
}

/* A rank has one file. */
static void check_folders(config_checker *k) {
    const z3d_config *c = k->c;
    const char *one = c->zero_optimization_offload_optimizer_nvme_path;
    const char *other = c->zero_optimization_offload_param_nvme_path;
    if (c->zero_optimization_offload_optimizer_device != Z3D_OFFLOAD_DEVICE_NVME ||
        c->zero_optimization_offload_param_device != Z3D_OFFLOAD_DEVICE_NVME)
        return;
    if (strcmp(one, other) != 0 &&
        config_sound(k, PARAM ".nvme_path", OPTIMIZER ".nvme_path", NULL))
        config_complain(k, PARAM ".nvme_path",
                        "'%.200s', but " OPTIMIZER
                        ".nvme_path is '%.200s': a rank has one file for "
                        "both; write the same folder",
                        other, one);
}

static void check_param(config_checker *k) {
    const z3d_config *c = k->c;
    const offload_block block = {
        PARAM ".device",
        {PARAM ".nvme_path", *c->zero_optimization_offload_param_nvme_path != '\0'},
        c->zero_optimization_offload_param_device};
    const idle_key keys[] = {{block.device, block.where != Z3D_OFFLOAD_DEVICE_NONE}, block.path};
    const idle_reason whole = {{STAGE},
                               "below " STAGE " 3: every rank keeps whole parameters",
                               "set the stage to 3",
                               false};
    bool below = c->zero_optimization_stage < 3 && config_sound(k, STAGE, NULL);
    if (block.where == Z3D_OFFLOAD_DEVICE_NONE || !below) {
        check_disk(k, &block);
        check_folders(k);
        return;
    }
    /* One error: the other keys follow the device. */
    config_refuse_idle(k, keys, 1, &whole);
    if (config_sound(k, block.device, NULL)) config_refuse_idle(k, keys + 1, 1, &whole);
}

void config_check_offload(config_checker *k) {
    check_optimizer(k);
    check_param(k);
}
