/* Rules of offload: optimizer states, parameters and activation checkpoints in host memory or on a
 * disk. */
#include "src/base/config/table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGE "zero_optimization.stage"
#define GROUP "zero_optimization.sub_group_size"
#define OVERLAP "zero_optimization.overlap_comm"
#define PREFETCH "zero_optimization.stage3_prefetch_bucket_size"
#define OPTIMIZER "zero_optimization.offload_optimizer"
#define DELAYED OPTIMIZER ".delayed_param_update"
#define PARAM "zero_optimization.offload_param"
#define CHECKPOINTS "activation_checkpointing"

/* ---- folders ---- */

/* Gets the name of the variable after a $; returns the text after it. NULL: no name. */
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
    const char *device, *path;
    bool nvme;
    const char *folder;
} offload_block;

static offload_block optimizer_block(const z3d_config *c) {
    return (offload_block){OPTIMIZER ".device", OPTIMIZER ".nvme_path",
                           c->zero_optimization_offload_optimizer_device == Z3D_OFFLOAD_DEVICE_NVME,
                           c->zero_optimization_offload_optimizer_nvme_path};
}

static offload_block param_block(const z3d_config *c) {
    return (offload_block){PARAM ".device", PARAM ".nvme_path",
                           c->zero_optimization_offload_param_device == Z3D_OFFLOAD_DEVICE_NVME,
                           c->zero_optimization_offload_param_nvme_path};
}

static offload_block checkpoint_block(const z3d_config *c) {
    return (offload_block){CHECKPOINTS ".cpu_checkpointing", CHECKPOINTS ".nvme_path",
                           c->activation_checkpointing_cpu_checkpointing == Z3D_OFFLOAD_NVME,
                           c->activation_checkpointing_nvme_path};
}

static void check_disk(config_checker *k, const offload_block *b) {
    char because[96];
    bool switched = config_is_written(k->c, b->device) || k->c->origin->report;
    /* A pasted block may have a folder with any device. */
    snprintf(because, sizeof because, "unless %s is nvme", b->device);
    if (!b->nvme)
        config_note_idle(k, b->path, b->device, because, "set it to nvme", switched);
    else if (!*b->folder && config_sound(k, b->device, b->path, NULL))
        config_complain(k, b->device, "nvme needs a folder on a local disk; set %s", b->path);
}

/* Only the host's step can be delayed. */
static void check_delayed(config_checker *k) {
    const z3d_config *c = k->c;
    if (c->zero_optimization_offload_optimizer_delayed_param_update &&
        c->zero_optimization_offload_optimizer_ratio != 1 &&
        config_sound(k, OPTIMIZER ".ratio", DELAYED, NULL))
        config_complain(k, DELAYED,
                        "this key needs " OPTIMIZER
                        ".ratio 1: the device steps its part at once, not a "
                        "step later; write ratio: 1, or leave this key out");
}

static void check_optimizer(config_checker *k) {
    const z3d_config *c = k->c;
    const int where = c->zero_optimization_offload_optimizer_device;
    const offload_block block = optimizer_block(c);
    check_disk(k, &block);
    if (where == Z3D_OFFLOAD_DEVICE_NONE) {
        config_note_idle(k, GROUP, block.device,
                         "while " OPTIMIZER
                         ".device is none: the optimizer steps whole parameter groups",
                         "set it to cpu or nvme", true);
        config_note_idle(k, OPTIMIZER ".buffer_count " OPTIMIZER ".ratio " DELAYED, block.device,
                         "while " OPTIMIZER ".device is none", "set it to cpu or nvme",
                         config_is_written(c, block.device) || c->origin->report);
    } else {
        check_delayed(k);
    }
}

static void check_folders(config_checker *k, const offload_block *one, const offload_block *other) {
    if (!one->nvme || !other->nvme || !*one->folder || !*other->folder ||
        strcmp(one->folder, other->folder) == 0)
        return;
    if (config_sound(k, one->device, one->path, other->device, other->path, NULL))
        config_complain(k, other->path,
                        "'%.200s', but %s is '%.200s': a rank has one file for both; write the "
                        "same folder",
                        other->folder, one->path, one->folder);
}

static void check_param(config_checker *k) {
    const z3d_config *c = k->c;
    const bool off = c->zero_optimization_offload_param_device == Z3D_OFFLOAD_DEVICE_NONE;
    const offload_block block = param_block(c), optimizer = optimizer_block(c);
    static const char instead[] = "set the stage to 3";
    if (off || !config_refuse_below_3(k, block.device, instead, false)) {
        check_disk(k, &block);
        check_folders(k, &optimizer, &block);
    } else if (config_sound(k, block.device, NULL)) {
        /* One error is enough: the other keys depend on the device. */
        config_refuse_below_3(k, block.path, instead, false);
    }
}

static void check_prefetch(config_checker *k) {
    const z3d_config *c = k->c;
    if (c->zero_optimization_stage < 3 && config_sound(k, STAGE, NULL))
        config_note_idle(k, PREFETCH, STAGE,
                         "below " STAGE " 3: parameters are gathered once a step",
                         "set the stage to 3", true);
    else if (!c->zero_optimization_overlap_comm)
        config_note_idle(k, PREFETCH, OVERLAP,
                         "while " OVERLAP " is false: each unit gathers its own parameters",
                         "set it to true", true);
}

void config_check_offload_alone(config_checker *k) {
    const z3d_config *c = k->c;
    if (c->zero_optimization_offload_param_device != Z3D_OFFLOAD_DEVICE_NONE &&
        c->zero_optimization_offload_optimizer_device == Z3D_OFFLOAD_DEVICE_NONE &&
        config_sound(k, PARAM ".device", OPTIMIZER ".device", STAGE, NULL))
        config_complain(k, PARAM ".device",
                        "in training the host steps these parameters; set " OPTIMIZER
                        ".device to cpu or nvme, too");
}

void config_check_offload(config_checker *k) {
    check_optimizer(k);
    check_param(k);
    check_prefetch(k);
}

/* Without a folder, activation checkpoints use that of offload_optimizer or offload_param. */
void config_check_checkpoint_folder(config_checker *k) {
    const offload_block optimizer = optimizer_block(k->c), param = param_block(k->c);
    const offload_block *other = optimizer.nvme ? &optimizer : &param;
    const offload_block own = checkpoint_block(k->c);
    if (own.nvme && !*own.folder && other->nvme && *other->folder) return;
    check_disk(k, &own);
    check_folders(k, other, &own);
}
