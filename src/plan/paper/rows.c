/* A table of every row in the paper's figures; makes configurations from rows. */
#include "src/plan/paper/paper.h"
#include "zero/program/layout.h"

#include <math.h>
#include <stdio.h>

/* Shorthands of the table: published numbers, and the systems of Table 3. */
#define SPEED(value) .shows = PAPER_SPEED | PAPER_FITS, .speed = (value), .fits = true
#define TUNED(value)                                                                               \
    .shows = PAPER_SPEED | PAPER_FITS | PAPER_FITTED, .speed = (value), .fits = true
#define CACHED(value) .shows = PAPER_MEMORY, .memory = (value), .fits = true
#define TUNED_CACHED(value) .shows = PAPER_MEMORY | PAPER_FITTED, .memory = (value), .fits = true
#define LARGEST(value) .shows = PAPER_FITS | PAPER_LARGEST, .largest = (value), .fits = true
#define OUT_OF_MEMORY .shows = PAPER_FITS, .fits = false
#define MEGATRON .stage = 0, .fused_buffer = true
#define ZERO .stage = 2
#define C1 .stage = 1
#define C2 .stage = 1, .partition = true
#define C3 .stage = 2
#define C4 .stage = 2, .partition = true
#define C5 .stage = 2, .partition = true, .offload = true

/* clang-format off */
const z3d_paper_row z3d_paper_rows[] = {
    /* figure, system, size, layers, hidden, heads, GPUs, tensor, batch */
    {"fig2", "zero", "1.5B", 48, 1600, 16, 400, 1, 24, ZERO, TUNED(30.3)},
    {"fig2", "zero", "8B", 72, 3072, 24, 400, 4, 64, C4, SPEED(36.9)},
    {"fig2", "zero", "40B", 88, 6144, 32, 400, 4, 12, C4, TUNED(35.9)},
    {"fig2", "zero", "60B", 132, 6144, 32, 400, 16, 64, C4, SPEED(NAN)},
    {"fig2", "zero", "80B", 100, 8192, 64, 400, 16, 32, C4, SPEED(37.6)},
    {"fig2", "zero", "100B", 125, 8192, 64, 400, 16, 32, C4, TUNED(38.7)},
    {"fig2", "zero", "120B", 150, 8192, 64, 400, 16, 24, C4, SPEED(NAN)},
    {"fig2", "zero", "140B", 175, 8192, 64, 400, 16, 16, C4, SPEED(NAN)},
    {"fig2", "zero", "170B", 212, 8192, 64, 400, 16, 12, C5, TUNED(20.9)},
    {"fig2", "megatron", "1.5B", 48, 1600, 16, 400, 2, 16, MEGATRON, TUNED(26.4)},
    {"fig2", "megatron", "8B", 72, 3072, 24, 400, 8, 8, MEGATRON, SPEED(NAN)},
    {"fig2", "megatron", "40B", 88, 6144, 64, 384, 32, 4, MEGATRON, SPEED(5.0)},
    {"fig2", "megatron", "60B", 132, 6144, 64, 384, 64, 4, MEGATRON, SPEED(NAN)},
    {"fig2", "megatron", "80B", 100, 8192, 128, 384, 128, 4, MEGATRON, TUNED(5.2)},
    {"fig2", "megatron", "100B", 125, 8192, 128, 384, 128, 2, MEGATRON, TUNED(3.8)},
    {"fig2", "megatron", "120B", 150, 8192, 128, 384, 128, 2, MEGATRON, SPEED(NAN)},
    {"fig2", "megatron", "140B", 175, 8192, 128, 384, 128, 2, MEGATRON, SPEED(NAN)},
    {"fig2", "megatron", "170B", 212, 8192, 256, 256, 256, 2, MEGATRON, TUNED(2.2)},

    {"fig3", "zero", "60B", 75, 8192, 32, 64, 16, 16, C4, TUNED(25.7)},
    {"fig3", "zero", "60B", 75, 8192, 32, 128, 16, 48, C4, SPEED(NAN)},
    {"fig3", "zero", "60B", 75, 8192, 32, 256, 16, 48, C4, SPEED(NAN)},
    {"fig3", "zero", "60B", 75, 8192, 32, 400, 16, 64, C4, SPEED(NAN)},

    {"fig4", "zero", "1.5B", 34, 1920, 16, 128, 1, 24, ZERO, TUNED(40.3)},
    {"fig4", "zero", "2.5B", 54, 1920, 16, 128, 1, 24, ZERO, SPEED(41.9)},
    {"fig4", "zero", "4B", 64, 2304, 24, 128, 1, 16, ZERO, SPEED(NAN)},
    {"fig4", "zero", "6B", 52, 3072, 24, 128, 1, 12, ZERO, TUNED(46.9)},
    {"fig4", "zero", "8B", 72, 3072, 24, 128, 1, 8, ZERO, SPEED(46.9)},
    {"fig4", "zero", "10B", 50, 4096, 32, 128, 1, 6, ZERO, SPEED(NAN)},
    {"fig4", "zero", "11B", 54, 4096, 32, 128, 1, 4, ZERO, SPEED(35.7)},
    {"fig4", "zero", "12B", 58, 4096, 32, 128, 1, 4, ZERO, TUNED(32.8)},
    {"fig4", "zero", "13B", 62, 4096, 32, 128, 1, 2, ZERO, SPEED(NAN)},
    {"fig4", "ddp", "1.16B", 24, 1920, 16, 128, 1, 8, .stage = 0, TUNED(39.3)},
    {"fig4", "ddp", "1.38B", 40, 1536, 16, 128, 1, 1, .stage = 0, SPEED(NAN)},

    {"fig6", "C1", "40B", 50, 8192, 32, 400, 16, 16, C1, LARGEST(40e9)},
    {"fig6", "C2", "60B", 132, 6144, 64, 400, 16, 16, C2, LARGEST(60e9)},
    {"fig6", "C3", "50B", 62, 8192, 32, 400, 16, 16, C3, LARGEST(NAN)},
    {"fig6", "C4", "140B", 175, 8192, 64, 400, 16, 16, C4, LARGEST(140e9)},
    {"fig6", "C5", "150B", 187, 8192, 64, 400, 16, 16, C5, LARGEST(NAN)},

    {"fig7", "C1", "40B", 50, 8192, 32, 400, 16, 16, C1, TUNED_CACHED(29.7)},
    {"fig7", "C2", "40B", 50, 8192, 32, 400, 16, 16, C2, CACHED(NAN)},
    {"fig7", "C3", "40B", 50, 8192, 32, 400, 16, 16, C3, CACHED(25.5)},
    {"fig7", "C4", "40B", 50, 8192, 32, 400, 16, 16, C4, CACHED(NAN)},
    {"fig7", "C5", "40B", 50, 8192, 32, 400, 16, 16, C5, CACHED(19.9)},
    {"fig7", "C4", "100B", 125, 8192, 64, 400, 16, 32, C4, TUNED_CACHED(29.6)},
    {"fig7", "C5", "100B", 125, 8192, 64, 400, 16, 32, C5, CACHED(26.6)},

    {"fig8", "C1", "60B", 75, 8192, 64, 128, 16, 2, C1, SPEED(11.9)},
    {"fig8", "C2", "60B", 75, 8192, 64, 128, 16, 4, C2, TUNED(12.4)},
    {"fig8", "C3", "60B", 75, 8192, 64, 128, 16, 8, C3, SPEED(NAN)},
    {"fig8", "C4", "60B", 75, 8192, 64, 128, 16, 32, C4, TUNED(35.2)},
    {"fig8", "C5", "60B", 75, 8192, 64, 128, 16, 32, C5, TUNED(32.0)},
    {"fig8", "C1", "170B", 212, 8192, 64, 400, 16, 12, C1, OUT_OF_MEMORY},
    {"fig8", "C2", "170B", 212, 8192, 64, 400, 16, 12, C2, OUT_OF_MEMORY},
    {"fig8", "C3", "170B", 212, 8192, 64, 400, 16, 12, C3, OUT_OF_MEMORY},
    {"fig8", "C4", "170B", 212, 8192, 64, 400, 16, 12, C4, OUT_OF_MEMORY},
    {"fig8", "C5", "170B", 212, 8192, 64, 400, 16, 12, C5, SPEED(21.0)},
};
/* clang-format on */
const int z3d_paper_row_count = sizeof z3d_paper_rows / sizeof *z3d_paper_rows;

const char *z3d_paper_file(const z3d_paper_row *row, char *buf, size_t size) {
    snprintf(buf, size, "%s-%s-%s-%dgpus.yaml", row->figure, row->system, row->size, row->gpus);
    return buf;
}

static void append_config(const z3d_paper_row *row, int layers, z3d_string *out) {
    z3d_string_append(out,
                      "model:\n  num_layers: %d\n  hidden_size: %d\n  num_attention_heads: %d\n"
                      "  seq_length: %d\n  vocab_size: %d\n",
                      layers, row->hidden, row->heads, PAPER_SEQUENCE, PAPER_VOCABULARY);
    z3d_string_append(out, "parallel:\n  tensor_model_parallel_size: %d\n  world_size: %d\n",
                      row->tensor, row->gpus);
    if (row->fused_buffer && row->tensor > 1)
        z3d_string_append(out, "  allow_tensor_across_nodes: true\n");
    z3d_string_append(out,
                      "train_batch_size: %d\ntrain_micro_batch_size_per_gpu: %d\n"
                      "gradient_accumulation_steps: 1\ngradient_clipping: 1.0\n",
                      row->batch * (row->gpus / row->tensor), row->batch);
    z3d_string_append(out, "zero_optimization:\n  stage: %d\n", row->stage);
    z3d_string_append(out, "activation_checkpointing:\n  granularity: full\n  replay: full\n"
                           "  recompute_activation: true\n");
    if (row->partition)
        z3d_string_append(out, "  partition_activations: true\n  cpu_checkpointing: %s\n",
                          row->offload ? "true" : "false");
    z3d_string_append(out, "fp16:\n  enabled: true\n"
                           "optimizer:\n  type: AdamW\n  params: { lr: 1.5e-4 }\n"
                           "data:\n  train: data/train.bin\n"
                           "training:\n  device: cuda\n"
                           "run:\n  dir: runs/paper\n");
}

void z3d_paper_config(const z3d_paper_row *row, z3d_string *out) {
    z3d_string_append(out,
                      "# ZeRO paper (arXiv 1910.02054), %s: %s, %s, on %d V100-32GB. Written by "
                      "`zero3d reproduce --write-configs`.\n"
                      "# Price it: zero3d plan THIS --hardware configs/hardware/dgx2-v100.yaml "
                      "--software paper-2019\n"
                      "# A V100 needs a build with CUDA 12: CUDA 13 has dropped it.\n",
                      row->figure, row->system, row->size, row->gpus);
    if (row->fused_buffer)
        z3d_string_append(out,
                          "# Megatron-LM of 2019 also keeps all gradients in one fp32 buffer, 4 "
                          "bytes a parameter: not in this file.\n");
    append_config(row, row->layers, out);
}

z3d_status z3d_paper_case(const z3d_paper_row *row, int layers, z3d_case **out) {
    *out = NULL;
    z3d_config *config = NULL;
    z3d_string text = {0};
    append_config(row, layers > 0 ? layers : row->layers, &text);
    if (text.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "a row of the paper");
    z3d_status status = z3d_config_create(&config);
    if (status == Z3D_OK)
        status = z3d_config_read_text(config, text.text, text.length, "a row of the paper");
    if (status == Z3D_OK) status = z3d_case_create(config, row->gpus, 0, (z3d_sim_node){0}, out);
    if (status != Z3D_OK)
        status = z3d_error_context(status, "%s %s %s", row->figure, row->system, row->size);
    z3d_config_destroy(config);
    z3d_string_free(&text);
    return status;
}

z3d_status z3d_paper_estimate(const z3d_paper_row *row, const z3d_case *of,
                              const z3d_hardware *hardware, z3d_estimate *out) {
    const z3d_layout *layout = z3d_engine_layout(of->simulation->engine);
    double extra = row->fused_buffer ? 4.0 * (double)layout->padded_total : 0;
    return z3d_estimate_make(of, hardware, extra, NULL, out);
}

/* ---- the largest model ---- */

/* Free bytes with so many layers; the host's memory counts, too. */
static z3d_status spare(const z3d_paper_row *row, const z3d_hardware *hardware, int layers,
                        double *free_bytes, double *parameters) {
    z3d_case *of;
    z3d_estimate estimate;
    Z3D_TRY(z3d_paper_case(row, layers, &of));
    z3d_status status = z3d_paper_estimate(row, of, hardware, &estimate);
    double host = z3d_memory_host_free(&estimate.memory);
    *free_bytes = estimate.memory.free < host ? estimate.memory.free : host;
    *parameters = (double)z3d_model_parameter_count(of->model);
    z3d_case_destroy(of);
    return status;
}

/* Memory is nearly linear in the layers. So the next try is the zero of the line between a size
 * that fits and one that does not. */
z3d_status z3d_paper_largest(const z3d_paper_row *row, const z3d_hardware *hardware,
                             double *parameters) {
    enum { MOST = 4096 };
    int low = 1, high = row->layers > 16 ? row->layers : 16;
    double low_free, high_free, count;
    Z3D_TRY(spare(row, hardware, low, &low_free, parameters));
    if (low_free < 0) return Z3D_OK;
    Z3D_TRY(spare(row, hardware, high, &high_free, &count));
    while (high_free >= 0 && high < MOST) {
        double slope = (low_free - high_free) / (high - low);
        low = high;
        low_free = high_free;
        *parameters = count;
        high = slope > 0 ? high + (int)(high_free / slope) + 2 : 2 * high;
        if (high > MOST) high = MOST;
        Z3D_TRY(spare(row, hardware, high, &high_free, &count));
    }
    while (high - low > 1 && high_free < 0) {
        int middle = low + (int)((high - low) * low_free / (low_free - high_free));
        middle = middle <= low ? low + 1 : middle >= high ? high - 1 : middle;
        double free_bytes;
        Z3D_TRY(spare(row, hardware, middle, &free_bytes, &count));
        if (free_bytes >= 0) {
            low = middle;
            low_free = free_bytes;
            *parameters = count;
        } else {
            high = middle;
            high_free = free_bytes;
        }
    }
    return Z3D_OK;
}
