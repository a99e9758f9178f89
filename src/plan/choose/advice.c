/* Tries every single change that could make a configuration smaller: plans it and compares the
 * memory. */
#include "src/plan/choose/advice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/disk.h"
#include "src/plan/choose/ways.h"

/* ---- the memory of a configuration ---- */

/* With offload to a disk, digests stay in host memory. */
static int64_t host_bytes(const z3d_need *need) {
    const z3d_disk_config disk = {.bytes = need->arena[Z3D_SPACE_DISK]};
    return need->arena[Z3D_SPACE_HOST] + need->snapshot +
           (disk.bytes > 0 ? z3d_disk_memory(&disk) : 0);
}

/* Only NCCL copies buckets; other backends work in place, or in host memory. */
static int64_t bucket_bytes(const z3d_config *config, const z3d_program *program) {
    int64_t bucket[Z3D_AXES_COUNT] = {0}, bytes = 0;
    if (config->training_device == Z3D_TRAINING_CPU ||
        config->training_collectives == Z3D_COLLECTIVES_HOST)
        return 0;
    z3d_program_buckets(program, bucket);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) bytes += bucket[axes];
    return bytes;
}

static z3d_status need_of_rank(const z3d_config *config, const z3d_program_config *program,
                               const z3d_model *model, const z3d_mesh *mesh, int threads,
                               z3d_need *out) {
    z3d_program_set set = {0};
    *out = (z3d_need){.rank = mesh->rank, .outside = z3d_plan_outside(mesh)};
    z3d_status status = z3d_program_set_create(model, mesh, program, threads, false, &set);
    if (status == Z3D_OK) {
        const z3d_program *train = set.program[Z3D_MODE_TRAIN];
        memcpy(out->arena, train->arena, sizeof out->arena);
        for (int axes = 1; axes < Z3D_AXES_COUNT; axes++)
            if ((axes & Z3D_ROLE_ROWS) == axes)
                out->sent += z3d_program_volume(train, (z3d_axes)axes, true);
        out->buckets = bucket_bytes(config, train);
        z3d_program_ledger(train, Z3D_SPACE_DEVICE, &out->ledger);
        status = z3d_plan_snapshot(config, program, model, mesh, &out->snapshot);
    }
    z3d_program_set_release(&set);
    return status;
}

/* Plans one rank of each pipeline stage: the stage's other ranks need no more. */
static z3d_status need_of_stages(const z3d_config *config, const z3d_program_config *program,
                                 const z3d_model *model, z3d_mesh mesh, int threads,
                                 z3d_need *out) {
    int first = z3d_plan_largest_share(program, &mesh);
    for (int i = 0; i < z3d_mesh_size(&mesh, Z3D_ROLE_STAGES); i++) {
        z3d_need need;
        mesh.rank = z3d_mesh_member(&mesh, Z3D_ROLE_STAGES, first, i);
        Z3D_TRY(need_of_rank(config, program, model, &mesh, threads, &need));
        if (i == 0 || need.arena[Z3D_SPACE_DEVICE] + host_bytes(&need) >
                          out->arena[Z3D_SPACE_DEVICE] + host_bytes(out))
            *out = need;
    }
    return Z3D_OK;
}

z3d_status z3d_plan_need(z3d_config *config, const z3d_choice *at, z3d_need *out) {
    z3d_mesh mesh;
    z3d_program_config program = {0};
    z3d_model *model = NULL;
    Z3D_TRY(z3d_plan_place(config, at->ranks, 0, &mesh));
    Z3D_TRY(z3d_model_from_config(config, &model));
    z3d_status status = z3d_plan_program_config(config, model, &program);
    if (status == Z3D_OK) status = need_of_stages(config, &program, model, mesh, at->threads, out);
    z3d_plan_program_config_release(&program);
    z3d_model_destroy(model);
    return status;
}

int64_t z3d_need_total(const z3d_need *need, const z3d_room *room) {
    return need->arena[Z3D_SPACE_DEVICE] + need->buckets +
           (room->shared ? host_bytes(need) + need->outside : 0);
}

int64_t z3d_need_missing(const z3d_need *need, const z3d_room *room) {
    int64_t device = z3d_need_total(need, room), host = host_bytes(need);
    if (device > room->device) return device - room->device;
    return !room->shared && host > room->host ? host - room->host : 0;
}

/* ---- changes ---- */

#define OPTIMIZER "zero_optimization.offload_optimizer"
#define PARAM "zero_optimization.offload_param"

enum { MAX_CHANGES = 40, MAX_ASSIGNMENTS = 4 };

typedef struct change {
    char assignment[MAX_ASSIGNMENTS][96];
    int count;
    z3d_need need;
    bool possible;
    double seconds; /* of a step with this change; 0: not priced */
} change;

typedef struct advisor {
    z3d_string given; /* the configuration, as text */
    const z3d_choice *at;
    change change[MAX_CHANGES];
    int count, first_part; /* from first_part on: a half, a quarter ... of the micro-batch */
} advisor;

static change *new_change(advisor *a) {
    a->change[a->count] = (change){.count = 0};
    return &a->change[a->count++];
}

static void assign(change *c, const char *key, const char *value) {
    snprintf(c->assignment[c->count++], sizeof c->assignment[0], "%s=%s", key, value);
}

static void assign_number(change *c, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    assign(c, key, text);
}

/* Twice the tensor size, or a part of the micro-batch: more micro-batches for the same batch. */
static void add_fewer_samples(advisor *a, const z3d_config *settled, int64_t tensor, int64_t part) {
    change *c = new_change(a);
    if (tensor > 1)
        assign_number(c, "parallel.tensor_model_parallel_size",
                      tensor * settled->parallel_tensor_model_parallel_size);
    assign_number(c, "train_micro_batch_size_per_gpu",
                  settled->train_micro_batch_size_per_gpu / part);
    assign_number(c, "gradient_accumulation_steps",
                  tensor * part * settled->gradient_accumulation_steps);
    assign_number(c, "train_batch_size", settled->train_batch_size);
}

/* With a checkpoint every k blocks, layers / k inputs are kept, and while a stretch is recomputed,
 * 12 b s h for each of its blocks: the sum is least at k = sqrt(layers / 12). */
static int64_t few_checkpoints(int64_t layers) {
    int64_t stretch = (int64_t)sqrt((double)layers / 12);
    return stretch < 2 ? layers : (layers + stretch - 1) / stretch;
}

static void add_offload(advisor *a, bool param, bool disk) {
    change *c = new_change(a);
    assign(c, param ? PARAM ".device" : OPTIMIZER ".device", disk ? "nvme" : "cpu");
    if (disk) assign(c, param ? PARAM ".nvme_path" : OPTIMIZER ".nvme_path", z3d_tiers_folder);
}

/* If host memory is device memory (cpu), offload to it frees nothing. */
static void list_offload(advisor *a, const z3d_config *settled) {
    int optimizer = settled->zero_optimization_offload_optimizer_device,
        param = settled->zero_optimization_offload_param_device;
    if (optimizer < Z3D_OFFLOAD_DEVICE_CPU && !a->at->room->shared) add_offload(a, false, false);
    if (optimizer < Z3D_OFFLOAD_DEVICE_NVME) add_offload(a, false, true);
    if (!z3d_way_shards((int)settled->zero_optimization_stage, Z3D_STATE_VALUE) ||
        optimizer == Z3D_OFFLOAD_DEVICE_NONE)
        return;
    if (param < Z3D_OFFLOAD_DEVICE_CPU && !a->at->room->shared) add_offload(a, true, false);
    if (param < optimizer && optimizer == Z3D_OFFLOAD_DEVICE_NVME) add_offload(a, true, true);
}

/* Changes that cost least come first. settled: the configuration with every number decided. */
static void list_changes(advisor *a, const z3d_config *settled) {
    bool full = settled->activation_checkpointing_granularity == Z3D_GRANULARITY_FULL;
    int64_t micro = settled->train_micro_batch_size_per_gpu;
    for (int64_t stage = settled->zero_optimization_stage + 1; stage <= 3; stage++) {
        change *c = new_change(a);
        assign_number(c, "zero_optimization.stage", stage);
        if (settled->zero_optimization_grad_reduce == Z3D_GRAD_REDUCE_PER_STEP &&
            settled->gradient_accumulation_steps > 1)
            assign(c, "zero_optimization.grad_reduce", "auto");
    }
    if (settled->activation_checkpointing_recompute_activation == Z3D_RECOMPUTE_FALSE)
        assign(new_change(a), "activation_checkpointing.recompute_activation", "true");
    if (settled->activation_checkpointing_granularity == Z3D_GRANULARITY_NONE)
        assign(new_change(a), "activation_checkpointing.granularity", "selective");
    if (!full) assign(new_change(a), "activation_checkpointing.granularity", "full");
    if (settled->parallel_tensor_model_parallel_size > 1 && !settled->parallel_sequence_parallel)
        assign(new_change(a), "parallel.sequence_parallel", "true");
    if (full) {
        int space = settled->activation_checkpointing_cpu_checkpointing;
        bool elsewhere = space == Z3D_OFFLOAD_ON || space == Z3D_OFFLOAD_NVME;
        assign(new_change(a), "activation_checkpointing.partition_activations", "true");
        assign(new_change(a), "activation_checkpointing.cpu_checkpointing",
               elsewhere ? "false" : "true");
        int64_t few = few_checkpoints(settled->model_num_layers);
        if (few < settled->model_num_layers)
            assign_number(new_change(a), "activation_checkpointing.number_checkpoints", few);
    }
    if (settled->zero_optimization_pipeline_gather == Z3D_PIPELINE_GATHER_PER_STEP)
        assign(new_change(a), "zero_optimization.pipeline_gather", "per_microbatch");
    if (settled->checkpoint_async) assign(new_change(a), "checkpoint.async", "false");
    list_offload(a, settled);
    add_fewer_samples(a, settled, 2, 1);
    a->first_part = a->count;
    for (int64_t part = 2; micro % part == 0 && a->count < MAX_CHANGES; part *= 2)
        add_fewer_samples(a, settled, 1, part);
}

/* Reads the given configuration again, with a change (NULL: without one). */
static z3d_status reread(const advisor *a, const change *c, z3d_config **out) {
    Z3D_TRY(z3d_config_create(out));
    Z3D_TRY(z3d_config_read_text(*out, a->given.text, a->given.length, "the configuration"));
    for (int k = 0; c && k < c->count; k++) Z3D_TRY(z3d_config_override(*out, c->assignment[k]));
    return Z3D_OK;
}

/* Drops a change that the configuration refuses because it has no effect or does not divide. */
static void try_change(const advisor *a, change *c) {
    z3d_config *config = NULL;
    z3d_status status = reread(a, c, &config);
    if (status == Z3D_OK) status = z3d_plan_need(config, a->at, &c->need);
    c->possible = status == Z3D_OK;
    z3d_config_destroy(config);
}

static bool does_fit(const advisor *a, const change *c) {
    return c->possible && z3d_need_missing(&c->need, a->at->room) == 0;
}

/* Prices a change that fits. A change that the sim refuses has no price. */
static void price_change(const advisor *a, change *c) {
    z3d_config *config = NULL;
    z3d_estimate e;
    z3d_status status = reread(a, c, &config);
    if (status == Z3D_OK) status = z3d_estimate_config(config, a->at->ranks, a->at->hardware, &e);
    if (status == Z3D_OK) c->seconds = e.time.seconds;
    z3d_config_destroy(config);
}

/* Sorts the changes: the fastest first, changes without a price last. */
static void price_changes(advisor *a) {
    if (!a->at->hardware) return;
    for (int k = 0; k < a->count; k++)
        if (does_fit(a, &a->change[k])) price_change(a, &a->change[k]);
    for (int k = 1; k < a->count; k++) {
        const change moved = a->change[k];
        int at = k;
        for (; at > 0 && moved.seconds > 0; at--) {
            const double before = a->change[at - 1].seconds;
            if (before > 0 && before <= moved.seconds) break;
            a->change[at] = a->change[at - 1];
        }
        a->change[at] = moved;
    }
}

/* ---- text ---- */

static void say_change(const advisor *a, const change *c, z3d_string *out) {
    int64_t short_by = z3d_need_missing(&c->need, a->at->room);
    z3d_string_append(out, "  ");
    for (int k = 0; k < c->count; k++)
        z3d_string_append(out, "%s%s", k ? " " : "", c->assignment[k]);
    z3d_string_append(out, " needs %s", z3d_bytes_text(z3d_need_total(&c->need, a->at->room)).text);
    if (short_by > 0) z3d_string_append(out, ", still %s too much", z3d_bytes_text(short_by).text);
    if (c->seconds > 0) z3d_string_append(out, ", %.4g s a step", c->seconds);
    z3d_string_append(out, "\n");
}

static void say_shortage(const advisor *a, const z3d_need *need, z3d_string *out) {
    const z3d_category most = z3d_fit_largest(&need->ledger);
    bool device = a->at->room->shared || z3d_need_total(need, a->at->room) > a->at->room->device;
    const char *from =
        a->at->room->from && (a->at->room->shared || !device) ? a->at->room->from : "";
    z3d_string_append(
        out, "does not fit: rank %d needs %s, but has %s%s: %s too little %s memory\n", need->rank,
        z3d_bytes_text(device ? z3d_need_total(need, a->at->room) : host_bytes(need)).text,
        z3d_bytes_text(device ? a->at->room->device : a->at->room->host).text, from,
        z3d_bytes_text(z3d_need_missing(need, a->at->room)).text, device ? "device" : "host");
    z3d_string_append(out, "  the largest part is %s: %s", z3d_category_name(most),
                      z3d_bytes_text(need->ledger.peak[most]).text);
    if (a->at->room->shared)
        z3d_string_append(out, "; %s are outside the plan (libraries, heap, communication buffers)",
                          z3d_bytes_text(need->outside).text);
    if (device && a->at->room->reserved > 0)
        z3d_string_append(out, "; %s more are left for CUDA's libraries and NCCL",
                          z3d_bytes_text(a->at->room->reserved).text);
    z3d_string_append(out, "\n");
}

/* missing_now: the missing bytes without any change. */
static void say_changes(const advisor *a, int64_t missing_now, z3d_string *out) {
    const change *best = NULL;
    int64_t least = missing_now;
    int fitting = 0;
    for (int k = 0; k < a->count; k++) {
        const change *c = &a->change[k];
        if (!c->possible) continue;
        int64_t missing = z3d_need_missing(&c->need, a->at->room);
        if (missing == 0) fitting++;
        if (missing < least) best = c, least = missing;
    }
    z3d_string_append(
        out, fitting && a->at->hardware ? "one change that makes it fit, the fastest first:\n"
             : fitting                  ? "one change that makes it fit:\n"
             : best ? "no single change makes it fit; this one helps most (plan --fit "
                      "looks for several together):\n"
                    : "no single change helps\n");
    for (int k = 0; k < a->count && fitting; k++)
        if (does_fit(a, &a->change[k])) say_change(a, &a->change[k], out);
    if (best && !fitting) say_change(a, best, out);
}

static z3d_status advise(advisor *a, z3d_string *out) {
    z3d_config *settled = NULL;
    z3d_need need;
    z3d_status status = reread(a, NULL, &settled);
    if (status == Z3D_OK) status = z3d_plan_need(settled, a->at, &need);
    if (status == Z3D_OK && z3d_need_missing(&need, a->at->room) > 0) {
        list_changes(a, settled);
        for (int k = 0; k < a->count; k++) {
            change *c = &a->change[k];
            try_change(a, c);
            if (k >= a->first_part && does_fit(a, c))
                a->count = k + 1; /* smaller parts would fit, too */
        }
        price_changes(a);
        say_shortage(a, &need, out);
        say_changes(a, z3d_need_missing(&need, a->at->room), out);
    }
    z3d_config_destroy(settled);
    return status;
}

/* Joins lines to one: "a; b: the line after a colon". */
static void join_lines(const char *line, z3d_string *out) {
    while (*line) {
        line += strspn(line, " ");
        size_t length = strcspn(line, "\n");
        z3d_string_append_bytes(out, line, length);
        line += length;
        if (*line) line++;
        if (*line) z3d_string_append(out, length > 0 && line[-2] == ':' ? " " : "; ");
    }
}

z3d_status z3d_plan_check_room(const z3d_config *config, const z3d_choice *at) {
    z3d_string text = {0}, line = {0};
    z3d_status status = z3d_plan_advice(config, at, &text);
    if (text.text) join_lines(text.text, &line);
    if (status == Z3D_OK && (text.failed || line.failed))
        status = Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a line of text");
    if (status == Z3D_OK && line.length > 0) status = Z3D_ERROR(Z3D_ERR_MEMORY, "%s", line.text);
    z3d_string_free(&text);
    z3d_string_free(&line);
    return status;
}

z3d_status z3d_plan_advice(const z3d_config *config, const z3d_choice *at, z3d_string *out) {
    advisor *a;
    Z3D_TRY(z3d_new(1, sizeof *a, "advice", &a));
    a->at = at;
    z3d_config_write(config, &a->given);
    z3d_status status =
        a->given.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a configuration's text")
                        : advise(a, out);
    z3d_string_free(&a->given);
    free(a);
    return status;
}
