/* parallel.device_speeds `measured`: all ranks do the same work at the same time, and each is
 * timed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"
#include "src/train/trainer.h"

/* Long enough that ranks which share a core get their shares of it. */
static const double MEASURED_SECONDS = 1;

/* The work: a block's largest product, for up to 256 tokens. */
typedef struct work {
    z3d_kernel kernel;
    void *memory[4]; /* a, b, c, scratch */
    int64_t bytes[4];
} work;

static z3d_status make_work(const z3d_trainer *trainer, work *out) {
    const z3d_model_facts *facts = &trainer->model->facts;
    z3d_dtype dtype = trainer->program.dtype;
    int64_t m = facts->tokens < 256 ? facts->tokens : 256, n = facts->product_outputs,
            k = facts->product_inputs;
    z3d_gemm *gemm = &out->kernel.as.gemm;
    out->kernel.kind = Z3D_KERNEL_gemm;
    *gemm = (z3d_gemm){
        .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .dtype = dtype, .c_dtype = dtype};
    out->bytes[0] = z3d_bytes_of(dtype, m * k), out->bytes[1] = z3d_bytes_of(dtype, k * n);
    out->bytes[2] = z3d_bytes_of(dtype, m * n);
    out->bytes[3] = z3d_kernel_scratch(&out->kernel, z3d_device_threads(trainer->device));
    for (int i = 0; i < 4; i++)
        Z3D_TRY(
            z3d_device_alloc(trainer->device, Z3D_SPACE_DEVICE, out->bytes[i], &out->memory[i]));
    gemm->a = out->memory[0], gemm->b = out->memory[1], gemm->c = out->memory[2];
    for (int i = 0; i < 3; i++)
        Z3D_TRY(Z3D_LAUNCH(trainer->device, fill, .x = out->memory[i],
                           .count = z3d_values_in(dtype, out->bytes[i]), .dtype = dtype,
                           .value = 0.01F));
    z3d_device_set_scratch(trainer->device, out->memory[3], out->bytes[3]);
    return Z3D_OK;
}

static void release_work(const z3d_trainer *trainer, work *work) {
    z3d_device_set_scratch(trainer->device, NULL, 0);
    for (int i = 0; i < 4; i++)
        z3d_device_free(trainer->device, Z3D_SPACE_DEVICE, work->memory[i], work->bytes[i]);
}

/* *speed: products per second. */
static z3d_status run_work(const z3d_trainer *trainer, const work *work, double *speed) {
    double begin = z3d_now(), now = begin;
    for (*speed = 0; now < begin + MEASURED_SECONDS; *speed += 1) {
        Z3D_TRY(z3d_launch(trainer->device, &work->kernel));
        Z3D_TRY(z3d_device_synchronize(trainer->device));
        now = z3d_now();
    }
    *speed /= now - begin;
    return Z3D_OK;
}

/* all[]: the ranks' speeds as parts of the fastest rank's, rounded to hundredths. Collective,
 * agreed. */
static z3d_status measure(z3d_trainer *trainer, double *all) {
    int ranks = z3d_world_size(trainer->world);
    work work = {0};
    double mine = 0, fastest = 0;
    z3d_trainer_place(trainer, "start-up: measuring the ranks' speeds");
    z3d_trainer_wait_place(trainer);
    z3d_status status = z3d_trainer_agree(trainer, make_work(trainer, &work));
    if (status == Z3D_OK) status = z3d_trainer_agree(trainer, run_work(trainer, &work, &mine));
    release_work(trainer, &work);
    if (status == Z3D_OK) status = z3d_world_gather_all(trainer->world, &mine, all, sizeof mine);
    for (int r = 0; r < ranks; r++) fastest = fmax(fastest, all[r]);
    for (int r = 0; r < ranks && fastest > 0; r++)
        all[r] = fmax(0.01, round(100 * all[r] / fastest) / 100);
    return status;
}

/* Rank 0: the speeds of the resumed run, if it had as many ranks. */
static z3d_status find_saved(const z3d_trainer *trainer, double *all) {
    z3d_config *saved;
    int count;
    Z3D_TRY(z3d_trainer_saved_config(trainer, &saved));
    if (!saved) return Z3D_OK;
    if (z3d_config_device_speeds(saved, NULL, 0, &count) == Z3D_SPEEDS_LIST &&
        count == z3d_world_size(trainer->world))
        (void)z3d_config_device_speeds(saved, all, count, &count);
    z3d_config_destroy(saved);
    return Z3D_OK;
}

/* Writes the measured speeds to the configuration. */
static z3d_status write_speeds(z3d_config *config, const double *all, int ranks) {
    z3d_string text = {0};
    z3d_string_append(&text, "parallel.device_speeds=[");
    for (int r = 0; r < ranks; r++) {
        z3d_string_append(&text, "%s", r ? ", " : "");
        z3d_string_append_number(&text, all[r]);
    }
    z3d_string_append(&text, "]");
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the ranks' speeds")
                                    : z3d_config_override(config, text.text);
    z3d_string_free(&text);
    return status;
}

z3d_status z3d_trainer_choose_speeds(z3d_trainer *trainer) {
    int unused, ranks = z3d_world_size(trainer->world);
    double *all = NULL;
    if (z3d_config_device_speeds(trainer->config, NULL, 0, &unused) != Z3D_SPEEDS_MEASURED)
        return Z3D_OK;
    z3d_status status = z3d_new((size_t)ranks, sizeof *all, "the ranks' speeds", &all);
    if (status == Z3D_OK && trainer->rank == 0) status = find_saved(trainer, all);
    Z3D_TRY_GOTO(status, z3d_trainer_agree(trainer, status), end);
    z3d_trainer_wait_place(trainer);
    int64_t bytes = ranks * (int64_t)sizeof *all;
    Z3D_TRY_GOTO(status, z3d_world_broadcast(trainer->world, all, bytes, 0), end);
    if (all[0] == 0) Z3D_TRY_GOTO(status, measure(trainer, all), end);
    status = z3d_trainer_agree(trainer, write_speeds(trainer->config, all, ranks));
    if (status == Z3D_OK) status = z3d_trainer_make_program(trainer);
end:
    free(all);
    return status;
}
