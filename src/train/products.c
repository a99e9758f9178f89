/* training.gemm.cuda: the cuBLASLt algorithms of matrix products. `timed` becomes a list: that of
 * the resumed run, or the fastest algorithms on this device. The sim device runs a step first, so
 * the products of a step are known before the engine exists. */
#include <stdlib.h>
#include <string.h>

#include "src/device/gemm_choices.h"
#include "src/plan/price/simulate.h"
#include "src/train/trainer.h"

#define KEY "training.gemm.cuda"

/* ---- the configuration's list as text ---- */

static z3d_status join_list(const z3d_config *config, z3d_string *out) {
    const z3d_data_list *list = &config->training_gemm_cuda;
    for (int i = 0; i < list->count; i++) z3d_string_append(out, "%s\n", list->path[i]);
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for choices of products") : Z3D_OK;
}

static z3d_status write_list(z3d_config *config, const char *text) {
    z3d_string assignment = {0};
    const char *between = KEY "=[";
    for (size_t length; *text; text += length + 1) {
        length = strcspn(text, "\n");
        z3d_string_append(&assignment, "%s", between);
        z3d_string_append_json_bytes(&assignment, text, length);
        between = ", ";
    }
    z3d_string_append(&assignment, "]");
    z3d_status status = assignment.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for choices of products")
                            : z3d_config_override(config, assignment.text);
    z3d_string_free(&assignment);
    return status;
}

z3d_status z3d_trainer_use_products(z3d_trainer *trainer) {
    z3d_gemm_choices choices = {.count = 0};
    z3d_string text = {0};
    if (z3d_config_cuda_gemm(trainer->config) != Z3D_CUDA_GEMM_LIST) return Z3D_OK;
    z3d_status status = join_list(trainer->config, &text);
    if (status == Z3D_OK) status = z3d_gemm_choices_read(&choices, trainer->device, text.text);
    z3d_gemm_choices_free(&choices);
    z3d_string_free(&text);
    return status == Z3D_OK ? status : z3d_error_context(status, KEY);
}

/* ---- timing ---- */

typedef struct timing {
    z3d_device *device;
    z3d_gemm_choices choices;
    void *memory; /* for a product's operands; NULL: only their bytes are computed */
    int64_t bytes;
    double seconds[2]; /* of a step's products: with the heuristic's algorithms, with the fastest
                          ones */
} timing;

/* New places of a product's operands. */
typedef struct places {
    z3d_cost cost;
    void *at[Z3D_MAX_OPERANDS];
} places;

static void *find_place(const places *p, const void *was) {
    for (int i = 0; i < p->cost.num_operands; i++)
        if (p->cost.operands[i].pointer == was) return p->at[i];
    return NULL;
}

/* Gives the same product operands in `memory`, one after the other, with the same alignment.
 * Returns the bytes. */
static int64_t place(const z3d_gemm *like, uintptr_t memory, z3d_gemm *out) {
    enum { ALIGNED = 256 };
    const z3d_kernel kernel = {.kind = Z3D_KERNEL_gemm, .as.gemm = *like};
    places p;
    int64_t used = 0;
    z3d_kernel_cost(&kernel, &p.cost);
    for (int i = 0; i < p.cost.num_operands; i++) {
        const uintptr_t was = (uintptr_t)p.cost.operands[i].pointer;
        p.at[i] = (void *)(memory + (uintptr_t)used + was % ALIGNED);
        used += z3d_round_up(p.cost.operands[i].bytes + ALIGNED, ALIGNED);
    }
    *out = *like;
    out->a = find_place(&p, like->a);
    out->b = find_place(&p, like->b);
    out->c = find_place(&p, like->c);
    out->bias = find_place(&p, like->bias);
    out->residual = find_place(&p, like->residual);
    out->gelu = find_place(&p, like->gelu);
    out->before_gelu = find_place(&p, like->before_gelu);
    out->bias_gradient = find_place(&p, like->bias_gradient);
    return used;
}

static z3d_status visit(void *context, const z3d_kernel *kernel) {
    timing *t = context;
    z3d_gemm gemm;
    double seconds[2];
    if (kernel->kind != Z3D_KERNEL_gemm) return Z3D_OK;
    const int64_t bytes = place(&kernel->as.gemm, (uintptr_t)t->memory, &gemm);
    if (bytes > t->bytes) t->bytes = bytes;
    if (!t->memory) return Z3D_OK;
    Z3D_TRY(z3d_gemm_choices_time(&t->choices, t->device, &gemm, seconds));
    for (int i = 0; i < 2; i++) t->seconds[i] += seconds[i];
    return Z3D_OK;
}

/* Takes memory for the operands of the largest product. */
static z3d_status take_memory(const z3d_trainer *trainer, const z3d_simulation *step, timing *t) {
    Z3D_TRY(z3d_simulation_observe(step, visit, t));
    Z3D_TRY(z3d_device_alloc(t->device, Z3D_SPACE_DEVICE, t->bytes, &t->memory));
    const z3d_dtype dtype = trainer->program.dtype;
    return z3d_device_fill_random(t->device, t->memory, z3d_values_in(dtype, t->bytes), dtype);
}

static z3d_status time_products(const z3d_trainer *trainer, timing *t) {
    z3d_simulation *step;
    Z3D_TRY(z3d_simulation_create(trainer->model, &trainer->mesh, &trainer->program,
                                  trainer->config->gradient_clipping, (z3d_sim_node){.threads = 0},
                                  &step));
    z3d_status status = take_memory(trainer, step, t);
    if (status == Z3D_OK) {
        status = z3d_simulation_observe(step, visit, t);
    } else if (status == Z3D_ERR_MEMORY) {
        z3d_log(Z3D_LOG_WARN, KEY " timed: rank %d does not time products: %s", trainer->rank,
                z3d_error_message());
        status = Z3D_OK;
    }
    z3d_device_free(t->device, Z3D_SPACE_DEVICE, t->memory, t->bytes);
    z3d_simulation_destroy(step);
    return status;
}

/* ---- all ranks choose the same ---- */

/* If several ranks have the same shape, the lowest rank's choice is used: the ranks tell their
 * choices in order, and each leaves out shapes that a lower rank has told. text: at the end all
 * choices, in the same order on all ranks. Collective, agreed. */
static z3d_status exchange(z3d_trainer *trainer, timing *t, z3d_string *text) {
    z3d_status status = Z3D_OK;
    for (int rank = 0; rank < z3d_world_size(trainer->world) && status == Z3D_OK; rank++) {
        z3d_string_clear(text);
        if (trainer->rank == rank) status = z3d_gemm_choices_write(&t->choices, t->device, text);
        Z3D_TRY(z3d_trainer_agree(trainer, status));
        Z3D_TRY(z3d_trainer_share(trainer, rank, text));
        if (trainer->rank != rank)
            status = z3d_gemm_choices_read(&t->choices, t->device, text->text);
        status = z3d_trainer_agree(trainer, status);
    }
    return status;
}

/* Takes the list of the resumed run, if it was made for this device. Collective, agreed. */
static z3d_status take_saved(z3d_trainer *trainer, timing *t, z3d_string *text) {
    z3d_config *saved = NULL;
    z3d_status status = trainer->rank == 0 ? z3d_trainer_saved_config(trainer, &saved) : Z3D_OK;
    if (saved && z3d_config_cuda_gemm(saved) == Z3D_CUDA_GEMM_LIST) status = join_list(saved, text);
    z3d_config_destroy(saved);
    Z3D_TRY(z3d_trainer_agree(trainer, status));
    Z3D_TRY(z3d_trainer_share(trainer, 0, text));
    if (text->length == 0) return Z3D_OK;
    status = z3d_trainer_agree(trainer, z3d_gemm_choices_read(&t->choices, t->device, text->text));
    if (status != Z3D_ERR_UNSUPPORTED) return status;
    z3d_log(Z3D_LOG_WARN, KEY " timed: products are timed again: %s", z3d_error_message());
    z3d_string_clear(text);
    return Z3D_OK;
}

z3d_status z3d_trainer_time_products(z3d_trainer *trainer) {
    timing t = {.device = trainer->device};
    z3d_string text = {0};
    if (z3d_config_cuda_gemm(trainer->config) != Z3D_CUDA_GEMM_TIMED) return Z3D_OK;
    z3d_trainer_place(trainer, "start-up: timing matrix products");
    z3d_status status = take_saved(trainer, &t, &text);
    if (status == Z3D_OK && text.length == 0) {
        status = z3d_trainer_agree(trainer, time_products(trainer, &t));
        if (status == Z3D_OK) status = exchange(trainer, &t, &text);
        if (status != Z3D_OK) z3d_error_context(status, KEY " timed");
        if (status == Z3D_OK)
            z3d_log(Z3D_LOG_INFO,
                    KEY " timed: %d shapes of products; a step's take %.3g s on rank 0, with the "
                        "heuristic's choices %.3g s",
                    t.choices.count, t.seconds[1], t.seconds[0]);
    }
    if (status == Z3D_OK)
        status = z3d_trainer_agree(trainer, write_list(trainer->config, text.text));
    z3d_gemm_choices_free(&t.choices);
    z3d_string_free(&text);
    return status;
}
