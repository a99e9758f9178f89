/* A rank's timeline in Chrome's trace format, a line for each event. src/train/trace reads it back,
 * so each event also has its step, entry, unit and micro-batch. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "zero/execute/executor.h"
#include "zero/program/layout.h"

enum { COMPUTE, WAITS }; /* rows */

static void name_row(FILE *trace, int rank, int row, const char *name) {
    fprintf(trace,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
            "\"args\":{\"name\":\"%s\"}},\n",
            rank, row, name);
}

/* The first event is for our own reader. */
void z3d_trace_begin(FILE *trace, const z3d_engine_config *config, int entries) {
    const z3d_mesh *mesh = &config->mesh;
    z3d_axes axes[Z3D_AXIS_COUNT];
    const int count = z3d_mesh_axes(mesh, axes);
    z3d_string run = {0};
    z3d_string_append_json(&run, config->trace_run);
    fprintf(trace,
            "[\n{\"name\":\"zero3d\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"run\":%s,"
            "\"node\":%d,\"entries\":%d",
            mesh->rank, run.failed ? "null" : run.text,
            config->world ? z3d_world_node(config->world, mesh->rank) : 0, entries);
    for (int i = 0; i < count; i++)
        fprintf(trace, ",\"%s\":%d", z3d_axes_name(axes[i]).text, z3d_mesh_size(mesh, axes[i]));
    fprintf(trace, "}},\n");
    fprintf(trace,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d",
            mesh->rank, mesh->rank);
    for (int i = 0; i < count; i++)
        if (z3d_mesh_size(mesh, axes[i]) > 1)
            fprintf(trace, ", %s %d", z3d_axes_name(axes[i]).text,
                    z3d_mesh_index(mesh, axes[i], mesh->rank));
    fprintf(trace, "\"}},\n");
    name_row(trace, mesh->rank, COMPUTE, "compute");
    name_row(trace, mesh->rank, WAITS, "waits");
    z3d_string_free(&run);
}

void z3d_trace_end(FILE *trace) {
    fprintf(trace, "{}]\n");
}

static void append_int(z3d_string *line, const char *key, int value) {
    if (value >= 0) z3d_string_append(line, ",\"%s\":%d", key, value);
}

/* After the name, a JSON string. */
static void append_event(z3d_string *line, const z3d_executor *executor, const char *category,
                         double begin, double end) {
    const z3d_instruction *i = &executor->program->instruction[executor->position];
    z3d_string_append(line,
                      ",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,"
                      "\"tid\":%d,\"args\":{\"step\":%" PRId64 ",\"entry\":%d",
                      category, begin * 1e6, (end - begin) * 1e6, executor->program->mesh.rank,
                      i->phase == Z3D_PHASE_WAIT ? WAITS : COMPUTE, executor->step,
                      executor->position);
}

static void write_event(z3d_executor *executor, z3d_string *line) {
    if (!line->failed) fprintf(executor->trace, "%s}},\n", line->text);
    z3d_string_free(line);
}

void z3d_executor_trace_wait(void *context, const z3d_group *group, const z3d_collective *call,
                             double begin, double end) {
    z3d_executor *executor = context;
    z3d_string line = {0};
    char what[96], name[192]; /* "all_reduce (tensor group): forward block.1 (micro 0)" */
    const char *of =
        z3d_instruction_describe(executor->program, executor->position, what, sizeof what);
    if (strncmp(of, "wait ", 5) == 0) of += 5;
    snprintf(name, sizeof name, "%s (%s group): %s", z3d_collective_name(call->kind),
             z3d_axes_name(z3d_group_axes(group)).text, of);
    z3d_string_append(&line, "{\"name\":");
    z3d_string_append_json(&line, name);
    append_event(&line, executor, "wait", begin, end);
    z3d_string_append(&line, ",\"elements\":%" PRId64 ",\"type\":\"%s\"", call->count,
                      z3d_dtype_name(call->dtype));
    write_event(executor, &line);
}

void z3d_executor_trace(z3d_executor *executor, double begin, double end) {
    static const char *const phases[] = {[Z3D_PHASE_START] = "start", [Z3D_PHASE_WAIT] = "wait"};
    const z3d_program *p = executor->program;
    const z3d_instruction *i = &p->instruction[executor->position];
    z3d_string line = {0};
    char what[96];
    z3d_string_append(&line, "{\"name\":"); /* a user's units have any name */
    z3d_string_append_json(&line,
                           z3d_instruction_describe(p, executor->position, what, sizeof what));
    append_event(&line, executor, z3d_opcode_name(i->opcode), begin, end);
    z3d_string_append(&line, ",\"program\":\"%s\"", z3d_mode_name(p->mode));
    if (i->phase != Z3D_PHASE_WHOLE)
        z3d_string_append(&line, ",\"phase\":\"%s\"", phases[i->phase]);
    append_int(&line, "chunk", i->unit < 0 ? -1 : p->layout->chunk_of_unit[i->unit]);
    append_int(&line, "unit", i->unit);
    append_int(&line, "micro", i->micro);
    append_int(&line, "ticket", i->ticket);
    append_int(&line, "peer", i->peer);
    write_event(executor, &line);
}
