/* A memory plan as text. */
#include "src/plan/memory.h"

static const char *const space_names[] = {"device", "host", "disk"};

/* Bytes by category that are alive at instruction `n`. */
static void print_alive(const z3d_program *program, z3d_space space, int n, z3d_string *out) {
    int64_t sum[Z3D_CATEGORY_COUNT] = {0};
    for (int i = 0; i < program->num_buffers; i++) {
        const z3d_buffer *b = &program->buffer[i];
        if (b->space == space && b->first <= n && n <= b->last) sum[b->category] += b->bytes;
    }
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        if (sum[category] > 0)
            z3d_string_append(out, "    %-20s %16lld  %10s\n",
                              z3d_category_name((z3d_category)category), (long long)sum[category],
                              z3d_bytes_text(sum[category]).text);
}

static void line(const char *name, int64_t bytes, int64_t bound, z3d_string *out) {
    z3d_string_append(out, "  %-22s %16lld  %10s  %.2f %% above the bound\n", name,
                      (long long)bytes, z3d_bytes_text(bytes).text,
                      100 * (double)(bytes - bound) / (double)bound);
}

z3d_status z3d_plan_memory_print(const z3d_plan *plan, z3d_string *out) {
    const z3d_program *program = plan->set.program[Z3D_MODE_TRAIN];
    for (int space = 0; space < Z3D_SPACE_COUNT; space++) {
        z3d_packing packing;
        char what[96];
        Z3D_TRY(z3d_plan_packing(program, (z3d_space)space, &packing));
        if (packing.bound == 0) continue;
        z3d_string_append(out,
                          "\n%s memory of the training step on rank %d\n"
                          "  %-22s %16lld  %10s  the largest sum of live bytes, at %d: %s\n",
                          space_names[space], plan->mesh.rank, "lower bound",
                          (long long)packing.bound, z3d_bytes_text(packing.bound).text,
                          packing.peak,
                          z3d_instruction_describe(program, packing.peak, what, sizeof what));
        print_alive(program, (z3d_space)space, packing.peak, out);
        line("arena, as planned", packing.arena, packing.bound, out);
        if (packing.first_fit < 0) {
            z3d_string_append(out, "  other allocators are not compared: more than %d buffers\n",
                              Z3D_COMPARED_BUFFERS);
            continue;
        }
        line("a first-fit allocator", packing.first_fit, packing.bound, out);
        line("a caching allocator", packing.caching, packing.bound, out);
    }
    return Z3D_OK;
}
