/* Reads all timelines of a run, checks that they are of one run, chooses a step, and aligns clocks.
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/trace/trace.h"

/* ---- the steps of a rank ---- */

static z3d_status take_step(void *context, const z3d_trace_line *line) {
    z3d_trace_rank *rank = context;
    const z3d_trace_event *e = line->event;
    if (line->begin > 0 && rank->first == 0) rank->first = line->begin;
    if (!e || e->wait) return Z3D_OK;
    if (e->entry == 0) {
        Z3D_TRY(z3d_grow(rank->num_steps, &rank->capacity, sizeof *rank->step, "a timeline's steps",
                         &rank->step));
        rank->step[rank->num_steps++] = (z3d_trace_step){e->step, -1, false};
    }
    z3d_trace_step *step = &rank->step[rank->num_steps - 1];
    if (e->opcode == Z3D_OP_STEP_CONTROL) step->control_end = e->end;
    step->whole = e->entry == rank->head.entries - 1 && step->control_end >= 0;
    return Z3D_OK;
}

static z3d_status compare(const z3d_trace_run *run, int rank) {
    const z3d_trace_head *first = &run->rank[0].head, *head = &run->rank[rank].head;
    if (head->mesh.rank != rank)
        return Z3D_ERROR(Z3D_ERR_DATA, "%.300s/trace-rank%d.json is the timeline of rank %d",
                         run->folder, rank, head->mesh.rank);
    if (strcmp(head->run, first->run) != 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%.300s/trace-rank%d.json is of another run than trace-rank0.json: \"%s\" "
                         "and \"%s\"",
                         run->folder, rank, head->run, first->run);
    if (memcmp(head->mesh.size, first->mesh.size, sizeof first->mesh.size) != 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%.300s/trace-rank%d.json has other parallel sizes than trace-rank0.json",
                         run->folder, rank);
    return Z3D_OK;
}

static z3d_status read_rank(z3d_trace_run *run, int rank) {
    Z3D_TRY(z3d_grow(rank, &run->capacity, sizeof *run->rank, "the ranks' timelines", &run->rank));
    run->rank[rank] = (z3d_trace_rank){0};
    run->read = rank + 1;
    Z3D_TRY(z3d_trace_read_rank(run, rank, &run->rank[rank].head, take_step, &run->rank[rank]));
    const z3d_trace_rank *read = &run->rank[rank];
    if (run->cut < 0 && read->num_steps > 0 && !read->step[read->num_steps - 1].whole)
        run->cut = rank;
    if (rank == 0) run->count = z3d_mesh_size(&run->rank[0].head.mesh, Z3D_AXES_WORLD);
    return compare(run, rank);
}

/* ---- one step, one clock ---- */

static const z3d_trace_step *find(const z3d_trace_rank *rank, int64_t step) {
    for (int s = rank->num_steps - 1; s >= 0; s--)
        if (rank->step[s].step == step && rank->step[s].whole) return &rank->step[s];
    return NULL;
}

static z3d_status lacks_step(const z3d_trace_run *run, int rank, int64_t step) {
    const z3d_trace_rank *r = &run->rank[rank];
    int whole = r->num_steps - (r->num_steps > 0 && !r->step[r->num_steps - 1].whole);
    char has[96] = "no whole step (an earlier start's timelines have a number: trace-rank0.1.json)";
    if (whole > 0)
        snprintf(has, sizeof has, "steps %lld to %lld", (long long)r->step[0].step,
                 (long long)r->step[whole - 1].step);
    if (step > 0)
        return Z3D_ERROR(Z3D_ERR_DATA,
                         "%.300s/trace-rank%d.json does not have step %lld: it has %s", run->folder,
                         rank, (long long)step, has);
    return Z3D_ERROR(Z3D_ERR_DATA,
                     "%.300s: no step is in the timelines of all ranks; trace-rank%d.json has %s",
                     run->folder, rank, has);
}

/* The requested step, or the last step of rank 0 that all ranks have. */
static z3d_status choose_step(z3d_trace_run *run, int64_t asked) {
    const z3d_trace_rank *first = &run->rank[0];
    int lacks = 0;
    for (int s = first->num_steps - 1; s >= -1; s--) {
        run->step = asked > 0 ? asked : s >= 0 ? first->step[s].step : 0;
        int r = 0;
        while (r < run->count && find(&run->rank[r], run->step)) r++;
        if (r == run->count) return Z3D_OK;
        if (r > lacks) lacks = r;
        if (asked > 0) break;
    }
    return lacks_step(run, lacks, asked);
}

/* When the first rank of a node left the step's step_control. */
static double left(const z3d_trace_run *run, int node) {
    double earliest = DBL_MAX;
    for (int r = 0; r < run->count; r++) {
        double end = find(&run->rank[r], run->step)->control_end;
        if (run->rank[r].head.node == node && end < earliest) earliest = end;
    }
    return earliest;
}

static void set_clocks(z3d_trace_run *run) {
    double reference = left(run, run->rank[0].head.node);
    for (int r = 0; r < run->count; r++) {
        z3d_trace_rank *before = r > 0 ? &run->rank[r - 1] : NULL, *rank = &run->rank[r];
        bool known = before && before->head.node == rank->head.node;
        rank->ahead = known ? before->ahead : left(run, rank->head.node) - reference;
    }
}

z3d_status z3d_trace_run_read(const char *folder, int64_t step, z3d_trace_run *out) {
    *out = (z3d_trace_run){.folder = folder, .count = 1, .cut = -1};
    for (int r = 0; r < out->count; r++) Z3D_TRY(read_rank(out, r));
    Z3D_TRY(choose_step(out, step));
    set_clocks(out);
    return Z3D_OK;
}

void z3d_trace_run_release(z3d_trace_run *run) {
    for (int r = 0; r < run->read; r++) free(run->rank[r].step);
    free(run->rank);
    *run = (z3d_trace_run){0};
}
