/* Fuzzes recordings of a rank: any bytes are refused, or are played. The input's first byte says
 * what the rest is: r: the file; t: what its blocks hold, with digests that fit. The engine here
 * has two entries: a collective of 8 floats, and one that writes 8 bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/replay/tape.h"
#include "zero/program.h"

enum { KEPT_BYTES = 64, FIELD_TOKENS = 4, VOCABULARY = 16, RUNS = 2, RUN_FLOATS = 4 };

/* ---- an engine ---- */

static const z3d_model model = {.num_fields = 2};
static const z3d_program program = {.model = &model, .config.accumulation = 2};

static struct {
    z3d_engine_state state;
    float memory[RUNS * RUN_FLOATS];
    z3d_status (*finished)(void *context, const z3d_program *program, int index,
                           const uint64_t *digest);
    z3d_status (*result)(void *context, z3d_group *group, const z3d_collective *call);
    void *context;
} engine;

const z3d_program *z3d_engine_program(const z3d_engine *unused, z3d_mode mode) {
    (void)unused, (void)mode;
    return &program;
}
z3d_device *z3d_engine_device(const z3d_engine *unused) {
    (void)unused;
    return NULL;
}
void z3d_engine_get_state(const z3d_engine *unused, z3d_engine_state *out) {
    (void)unused;
    *out = engine.state;
}
void z3d_engine_set_state(z3d_engine *unused, const z3d_engine_state *state) {
    (void)unused;
    if (state->step < 0 || state->good_steps < 0) abort();
    engine.state = *state;
}
z3d_status z3d_engine_move_kept(z3d_engine *unused, bool in,
                                z3d_status (*move)(void *context, void *piece, int64_t bytes),
                                void *context) {
    char piece[KEPT_BYTES];
    (void)unused;
    if (!in) abort();
    return move(context, piece, sizeof piece);
}
int64_t z3d_program_field_bytes(const z3d_program *unused, int field) {
    (void)unused, (void)field;
    return FIELD_TOKENS * (int64_t)sizeof(int32_t);
}
void z3d_engine_set_finished(z3d_engine *unused,
                             z3d_status (*finished)(void *context, const z3d_program *program,
                                                    int index, const uint64_t *digest),
                             void *context) {
    (void)unused;
    engine.finished = finished;
    engine.context = context;
}
void z3d_group_set_result_observer(z3d_group *group,
                                   z3d_status (*result)(void *context, z3d_group *group,
                                                        const z3d_collective *call),
                                   void *context) {
    (void)group, (void)context;
    engine.result = result;
}
z3d_axes z3d_group_axes(const z3d_group *group) {
    (void)group;
    return Z3D_AXES_DATA;
}
bool z3d_collective_result(const z3d_group *group, const z3d_collective *call, int run, void **at,
                           int64_t *bytes) {
    (void)group, (void)call;
    if (run >= RUNS) return false;
    *at = engine.memory + (ptrdiff_t)run * RUN_FLOATS;
    *bytes = RUN_FLOATS * (int64_t)sizeof(float);
    return true;
}
z3d_status z3d_device_read(z3d_device *device, void *host, const void *source, int64_t bytes) {
    (void)device, (void)host, (void)source, (void)bytes;
    abort(); /* nothing is recorded here */
}
z3d_status z3d_device_write(z3d_device *device, void *destination, const void *host,
                            int64_t bytes) {
    (void)device;
    memcpy(destination, host, (size_t)bytes);
    return Z3D_OK;
}
const char *z3d_device_description(const z3d_device *device) {
    (void)device;
    return "a device";
}

static void check_tokens(const z3d_step_input *input) {
    for (int m = 0; m < program.config.accumulation; m++)
        for (int f = 0; f < model.num_fields; f++)
            for (int k = 0; k < FIELD_TOKENS; k++) {
                const int32_t token = ((const int32_t *)input->micro[m].field[f])[k];
                if (token >= VOCABULARY || (f == 0 && token < 0)) abort();
            }
}

z3d_status z3d_engine_train_step(z3d_engine *unused, const z3d_step_input *input,
                                 z3d_step_result *out) {
    z3d_group *group = NULL;
    const z3d_collective call = {.count = (int64_t)RUNS * RUN_FLOATS};
    const uint64_t digest = 0x3131313131313131;
    (void)unused;
    check_tokens(input);
    if (input->sample_base < 0 || input->global_targets < 0) abort();
    Z3D_TRY(engine.result(engine.context, group, &call));
    Z3D_TRY(engine.finished(engine.context, &program, 0, NULL));
    Z3D_TRY(engine.finished(engine.context, &program, 1, &digest));
    *out = (z3d_step_result){.step = ++engine.state.step, .loss = 1, .grad_norm = 2};
    return Z3D_OK;
}

/* ---- a recording ---- */

static void play(const char *path) {
    int32_t tokens[2][2][FIELD_TOKENS];
    z3d_micro_batch micro[2];
    z3d_group *group[Z3D_AXES_COUNT] = {NULL};
    z3d_rank_tape tape = {.plays = true, .group = group, .vocab_size = VOCABULARY};
    char *config = NULL;
    for (int m = 0; m < 2; m++)
        for (int f = 0; f < 2; f++) micro[m].field[f] = tokens[m][f];
    group[Z3D_AXES_DATA] = (z3d_group *)&engine; /* never looked into */
    z3d_status status = z3d_block_file_open(path, &tape.file);
    if (status == Z3D_OK) status = z3d_rank_tape_get_title(&tape, &config);
    if (status == Z3D_OK && strlen(config) > (size_t)tape.title.config_bytes) abort();
    free(config);
    for (int64_t step = tape.title.steps.first; status == Z3D_OK && step <= tape.title.steps.last;
         step++) {
        z3d_step_input input = {.micro = micro};
        z3d_step_result result;
        status = z3d_rank_tape_step(&tape, &input, &result);
    }
    z3d_block_file_close(tape.file);
}

static void put(const char *path, const uint8_t *data, size_t size) {
    z3d_block_file *file = NULL;
    if (size == 0 || *data != 't') {
        FILE *raw = fopen(path, "w");
        if (!raw || (size && fwrite(data + 1, 1, size - 1, raw) != size - 1) || fclose(raw) != 0)
            abort();
        return;
    }
    if (z3d_block_file_create(path, &file) != Z3D_OK ||
        z3d_block_file_put(file, data + 1, (int64_t)size - 1) != Z3D_OK ||
        z3d_block_file_flush(file) != Z3D_OK)
        abort();
    z3d_block_file_close(file);
}

static char path[] = "/dev/shm/zero3d-fuzz-XXXXXX";

static void remove_file(void) {
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    if (!made && close(mkstemp(path)) != 0) abort();
    if (!made) atexit(remove_file);
    made = true;
    memset(&engine, 0, sizeof engine);
    put(path, data, size);
    play(path);
    return 0;
}
