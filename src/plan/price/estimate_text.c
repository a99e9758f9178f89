/* An estimate as text and as JSON. */
#include <math.h>
#include <stdio.h>

#include "src/plan/price/bill.h"
#include "zero/program/layout.h"

static const z3d_ledger *ledger_of(const z3d_case *of) {
    return z3d_engine_planned(of->simulation->engine, Z3D_SPACE_DEVICE);
}

static void print_case(const z3d_case *of, z3d_string *out) {
    const z3d_program_config *c = &of->program;
    const z3d_mesh *mesh = &of->mesh;
    z3d_string_append(out,
                      "%s: %s, sequence %lld; %d ranks "
                      "= %s\nZeRO-%d, %s, micro-batch %lld x accumulation %d%s%s%s%s\n\n",
                      z3d_model_parameters_text(of->model).text, of->model->facts.shape,
                      (long long)of->model->facts.tokens, z3d_mesh_size(mesh, Z3D_AXES_WORLD),
                      z3d_mesh_name(mesh).text, c->stage, z3d_dtype_name(c->dtype),
                      (long long)c->micro_batch, c->accumulation, c->recompute ? ", recompute" : "",
                      c->partition_activations ? ", P_a" : "",
                      (const char *const[]){"", ", checkpoints in host memory",
                                            ", checkpoints on the disk"}[c->checkpoint_space],
                      of->model->sequence_parallel ? ", sequence parallel" : "");
}

/* Memory is in GiB; sent and stored bytes are in GB, like rates. */
static const double GIB = 1.0 / 1073741824;

static void print_memory(const z3d_case *of, const z3d_hardware *hardware,
                         const z3d_memory_need *need, z3d_string *out) {
    z3d_string_append(out, "memory of rank %d on %s, GiB\n", of->mesh.rank, hardware->device);
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "  %-28s %10.3f\n", z3d_category_name(category),
                          (double)ledger_of(of)->peak[category] * GIB);
    z3d_string_append(out, "  %-28s %10.3f\n", "arena (peaks do not coincide)",
                      (double)need->arena * GIB);
    z3d_string_append(out, "  %-28s %10.3f\n", "outside the arena", need->overhead * GIB);
    if (need->snapshot > 0)
        z3d_string_append(out, "  %-28s %10.3f  in host memory\n", "copy of checkpoint.async",
                          (double)need->snapshot * GIB);
    if (need->host_arena + need->snapshot > 0)
        z3d_string_append(out, "  %-28s %10.3f  of %.1f\n", "host memory",
                          (double)(need->host_arena + need->snapshot) * GIB,
                          need->host_capacity * GIB);
    if (need->disk_arena > 0)
        z3d_string_append(out, "  %-28s %10.3f", "on the disk", (double)need->disk_arena * GIB);
    if (need->disk_arena > 0 && isfinite(need->disk_capacity))
        z3d_string_append(out, "  of %.1f", need->disk_capacity * GIB);
    if (need->disk_arena > 0) z3d_string_append(out, "\n");
    z3d_string_append(out, "  %-28s %10.3f  %s %.3f\n", "capacity", need->capacity * GIB,
                      need->free >= 0 ? "fits," : "does not fit,",
                      (need->free >= 0 ? need->free : -need->free) * GIB);
    if (need->free >= 0 && z3d_memory_host_free(need) < 0)
        z3d_string_append(out, "  does not fit into host memory: %.3f too much\n",
                          -z3d_memory_host_free(need) * GIB);
    if (need->free >= 0 && z3d_memory_disk_free(need) < 0)
        z3d_string_append(out, "  does not fit on the disks: %.3f too much\n",
                          -z3d_memory_disk_free(need) * GIB);
}

static void line(z3d_string *out, const char *name, double seconds, double of) {
    z3d_string_append(out, "  %-28s %12.6f s  %5.1f %%\n", name, seconds, 100 * seconds / of);
}

/* Whether to print a line for a group; the world's waits are in the line of the control. */
static bool has_line(const z3d_case *of, int axes) {
    const bool cut = z3d_mesh_size(&of->mesh, Z3D_ROLE_NODES) > 1;
    return z3d_axes_have_group(&of->mesh, (z3d_axes)axes) && axes != Z3D_AXES_WORLD &&
           !(cut && axes == Z3D_ROLE_ROWS) &&
           (axes != Z3D_ROLE_STAGES || of->simulation->stages > 1);
}

static bool steps_on_host(const z3d_case *of) {
    return of->program.offload.optimizer != Z3D_SPACE_DEVICE;
}

static bool uses_disk(const z3d_case *of) {
    return of->simulation->stage[of->simulation->own].arena[Z3D_SPACE_DISK] > 0;
}

static void print_time(const z3d_case *of, const z3d_hardware *hardware, const z3d_step_time *t,
                       z3d_string *out) {
    z3d_string_append(out, "\nstep time (predicted");
    z3d_software_print(hardware, out);
    z3d_string_append(out, ")\n");
    line(out, "compute", t->compute, t->seconds);
    if (hardware->host_launch_us > 0) line(out, "exposed: launches", t->launch, t->seconds);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        char name[64];
        snprintf(name, sizeof name, "exposed: %s group", z3d_axes_name((z3d_axes)axes).text);
        if (has_line(of, axes)) line(out, name, t->exposed[axes], t->seconds);
    }
    line(out, "exposed: control", t->control, t->seconds);
    line(out, "exposed: host transfers", t->transfer, t->seconds);
    if (steps_on_host(of)) line(out, "exposed: host optimizer", t->host, t->seconds);
    if (uses_disk(of)) line(out, "exposed: disk", t->disk, t->seconds);
    line(out, "bubble: pipeline", t->bubble, t->seconds);
    line(out, "allocator", t->allocator, t->seconds);
    line(out, "step", t->seconds, t->seconds);
    z3d_string_append(out, "  ");
    const z3d_run_kind kind = z3d_case_kind(of);
    z3d_compared_print(hardware, &kind, t->seconds, out);
    z3d_compared_others_print(hardware, out);
    z3d_string_append(out, "\ncommunication a step and rank, GB sent\n");
    for (int axes = 0; axes < Z3D_AXES_WORLD; axes++)
        if (t->bytes[axes] > 0)
            z3d_string_append(out, "  %-28s %10.3f  inside a node %.3f, between nodes %.3f\n",
                              z3d_axes_name((z3d_axes)axes).text, t->bytes[axes] * 1e-9,
                              (t->bytes[axes] - t->bytes_between_nodes[axes]) * 1e-9,
                              t->bytes_between_nodes[axes] * 1e-9);
}

static const char *const gathers[] = {"per_microbatch", "per_step"};

static void print_gathers(const z3d_case *of, const z3d_estimate *e, z3d_string *out) {
    if (!(e->gather[0].seconds > 0)) return;
    z3d_string_append(out, "  zero_optimization.pipeline_gather, both ways\n");
    for (int way = 0; way < 2; way++)
        z3d_string_append(out, "    %-24s %12.6f s a step, arena %.3f GiB, %s%s\n", gathers[way],
                          e->gather[way].seconds, (double)e->gather[way].arena * GIB,
                          e->gather[way].fits ? "fits" : "does not fit",
                          way == of->program.pipeline.gather_per_step ? ": used here" : "");
}

static void print_pipeline(const z3d_case *of, const z3d_estimate *e, z3d_string *out) {
    const z3d_simulation *simulation = of->simulation;
    const z3d_layout *layout = z3d_engine_layout(simulation->engine);
    if (simulation->stages == 1) return;
    z3d_string_append(
        out,
        "\npipeline (predicted): %s, %d stages x %d chunk%s\n"
        "  bubble %.2f %% of all stages' time, exposed sends and receives %.2f %%; stage %d waits "
        "least; stage %d needs most memory and %s\n"
        "  stage memory GiB    compute s    exposed s     bubble s    sent GB  units\n",
        z3d_schedule_name(of->program.pipeline.schedule), simulation->stages,
        layout->num_chunks / simulation->stages, layout->num_chunks > simulation->stages ? "s" : "",
        100 * e->bubble, 100 * e->sends, e->slowest_stage, e->fullest_stage,
        e->fullest.fits ? "fits" : "does not fit");
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_sim_stage *stage = &simulation->stage[s];
        const z3d_step_time *t = &stage->time;
        z3d_string_append(out, "  %5d %10.3f %12.6f %12.6f %12.6f %10.3f  ", s,
                          (double)stage->arena[Z3D_SPACE_DEVICE] * GIB, t->compute,
                          t->seconds - t->compute - t->bubble, t->bubble,
                          t->bytes[Z3D_ROLE_STAGES] * 1e-9);
        z3d_stage_units(of->model, layout, s, out);
        z3d_string_append(out, "\n");
    }
    print_gathers(of, e, out);
    z3d_plan_few_micro_batches(&of->program, simulation->stages, "  warning: ", out);
}

/* rate: the key of the hardware file that decides the time. */
static void saving_line(z3d_string *out, const char *name, double bytes, double seconds,
                        const char *rate) {
    z3d_string_append(out, "  %-28s %10.3f GB  ", name, bytes * 1e-9);
    if (seconds < 0)
        z3d_string_append(out, "time not known (the hardware file has no %s)\n", rate);
    else
        z3d_string_append(out, "%.3f s\n", seconds);
}

static void print_saving(const z3d_case *of, const z3d_saving *s, z3d_string *out) {
    z3d_string_append(out, "\ncheckpoint (predicted): %.3f GB of fp32 parameters, ",
                      s->bytes * 1e-9);
    z3d_append_kinds(
        out, z3d_state_kinds(&of->program) & ~(Z3D_KIND(PARAMETER) | Z3D_KIND(PENDING)), ", ");
    z3d_string_append(out, "\n");
    saving_line(out, "a node's ranks write", s->node_saved, s->save_seconds,
                "node.disk_write_gb_per_s");
    saving_line(out, "a node's ranks read", s->node_loaded, s->load_seconds,
                "node.disk_read_gb_per_s");
}

static void print_speed(const z3d_case *of, const z3d_estimate *e, z3d_string *out) {
    const int devices = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    z3d_string_append(out, "\nspeed\n");
    if (of->program.recompute)
        z3d_string_append(out,
                          "  %.2f TFLOPS a device, %.3f PFLOPS in all (96 B s l h^2 ..., "
                          "recompute counted)\n",
                          e->tflops_96, e->tflops_96 * devices * 1e-3);
    z3d_string_append(out,
                      "  %.2f TFLOPS a device, %.3f PFLOPS in all (72 B s l h^2 ...%s)\n"
                      "  MFU %.1f %%, HFU %.1f %%\n"
                      "  %.0f tokens a second, %.0f a device\n",
                      e->tflops_72, e->tflops_72 * devices * 1e-3,
                      of->program.recompute ? ", recompute not counted" : "", 100 * e->mfu,
                      100 * e->hfu, e->tokens / e->time.seconds,
                      e->tokens / e->time.seconds / devices);
}

static z3d_bill bill_of(const z3d_case *of, const z3d_hardware *hardware, const z3d_estimate *e,
                        double tokens) {
    return z3d_bill_make(hardware, z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD), tokens,
                         e->tokens / e->time.seconds);
}

void z3d_estimate_print(const z3d_case *of, const z3d_hardware *hardware, const z3d_estimate *e,
                        const z3d_saving *saving, double train_tokens, z3d_string *out) {
    print_case(of, out);
    print_memory(of, hardware, &e->memory, out);
    print_time(of, hardware, &e->time, out);
    print_pipeline(of, e, out);
    print_saving(of, saving, out);
    print_speed(of, e, out);
    if (train_tokens <= 0) return;
    if (!e->memory.fits) {
        z3d_string_append(out,
                          "\ntime and price of the tokens are not shown: the plan does not fit\n");
        return;
    }
    const z3d_bill bill = bill_of(of, hardware, e, train_tokens);
    z3d_goodput goodput;
    z3d_string_append(out, "\n");
    z3d_bill_print(hardware, &bill, out);
    if (bill.nodes == 1) return;
    const z3d_status found = z3d_goodput_find(hardware, saving, &bill, e->time.seconds, &goodput);
    z3d_goodput_print(hardware, &goodput, &bill, out);
    if (found != Z3D_OK) z3d_string_append(out, "  no goodput: %s\n", z3d_error_message());
}

/* ---- JSON ---- */

static void memory_json(const z3d_case *of, const z3d_memory_need *need, z3d_string *out) {
    z3d_string_append(out, ", \"memory\": {");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s\"%s\": %lld", category ? ", " : "", z3d_category_name(category),
                          (long long)ledger_of(of)->peak[category]);
    z3d_string_append_member(out, "arena", (double)need->arena);
    z3d_string_append_member(out, "host_arena", (double)need->host_arena);
    if (need->disk_arena > 0) z3d_string_append_member(out, "disk_arena", (double)need->disk_arena);
    z3d_string_append_member(out, "checkpoint_copy", (double)need->snapshot);
    z3d_string_append_member(out, "outside", need->overhead);
    z3d_string_append_member(out, "capacity", need->capacity);
    z3d_string_append_member(out, "free", need->free);
    z3d_string_append(out, ", \"fits\": %s}", need->fits ? "true" : "false");
}

static void member_of(z3d_string *out, const char *what, int axes, const char *where,
                      double value) {
    char key[64];
    snprintf(key, sizeof key, "%s%s%s", what, z3d_axes_name((z3d_axes)axes).text, where);
    z3d_string_append_member(out, key, value);
}

static void range_json(const z3d_case *of, const z3d_hardware *hardware, double seconds,
                       z3d_string *out) {
    z3d_compared range;
    const z3d_run_kind kind = z3d_case_kind(of);
    const bool known = z3d_compared_find(hardware, &kind, &range);
    z3d_known_json(out, "compared_steps", known ? range.runs : -1);
    z3d_known_json(out, "step_low", known ? range.low * seconds : -1);
    z3d_known_json(out, "step_high", known ? range.high * seconds : -1);
}

static void time_json(const z3d_case *of, const z3d_hardware *hardware, const z3d_step_time *t,
                      z3d_string *out) {
    z3d_string_append(out, ", \"seconds\": {");
    z3d_string_append_member(out, "step", t->seconds);
    range_json(of, hardware, t->seconds, out);
    z3d_string_append_member(out, "compute", t->compute);
    z3d_string_append_member(out, "exposed_launches", t->launch);
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (has_line(of, axes)) member_of(out, "exposed_", axes, "", t->exposed[axes]);
    z3d_string_append_member(out, "exposed_control", t->control);
    z3d_string_append_member(out, "exposed_transfer", t->transfer);
    if (steps_on_host(of)) z3d_string_append_member(out, "exposed_host_optimizer", t->host);
    if (uses_disk(of)) z3d_string_append_member(out, "exposed_disk", t->disk);
    z3d_string_append_member(out, "bubble", t->bubble);
    z3d_string_append_member(out, "allocator", t->allocator);
    z3d_string_append(out, "}, \"bytes_sent\": {");
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        if (!has_line(of, axes)) continue;
        member_of(out, "", axes, "", t->bytes[axes]);
        member_of(out, "", axes, "_between_nodes", t->bytes_between_nodes[axes]);
    }
    z3d_string_append(out, "}");
}

static void pipeline_json(const z3d_case *of, const z3d_estimate *e, z3d_string *out) {
    const z3d_simulation *simulation = of->simulation;
    const z3d_layout *layout = z3d_engine_layout(simulation->engine);
    int chunks = layout->num_chunks / simulation->stages;
    if (simulation->stages == 1) return;
    z3d_string_append(out, ", \"pipeline\": {\"schedule\": \"%s\"",
                      z3d_schedule_name(of->program.pipeline.schedule));
    z3d_string_append_member(out, "chunks_per_stage", chunks);
    z3d_string_append_member(out, "bubble_share", e->bubble);
    z3d_string_append_member(out, "exposed_sends_share", e->sends);
    z3d_string_append_member(out, "slowest_stage", e->slowest_stage);
    z3d_string_append_member(out, "fullest_stage", e->fullest_stage);
    z3d_string_append(out, ", \"fits\": %s, \"stages\": [", e->fullest.fits ? "true" : "false");
    for (int s = 0; s < simulation->stages; s++) {
        const z3d_sim_stage *stage = &simulation->stage[s];
        z3d_string units = {0};
        z3d_stage_units(of->model, layout, s, &units);
        z3d_string_append(out, "%s{\"units\": ", s ? ", " : "");
        z3d_string_append_json(out, units.text ? units.text : "");
        z3d_string_free(&units);
        z3d_string_append_member(out, "arena", (double)stage->arena[Z3D_SPACE_DEVICE]);
        z3d_string_append_member(out, "host_arena", (double)stage->arena[Z3D_SPACE_HOST]);
        z3d_string_append_member(out, "compute", stage->time.compute);
        z3d_string_append_member(out, "exposed",
                                 stage->time.seconds - stage->time.compute - stage->time.bubble);
        z3d_string_append_member(out, "bubble", stage->time.bubble);
        z3d_string_append_member(out, "bytes_passed", stage->time.bytes[Z3D_ROLE_STAGES]);
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "]");
    for (int way = 0; way < 2 && e->gather[0].seconds > 0; way++) {
        z3d_string_append(out, "%s\"%s\": {", way ? ", " : ", \"pipeline_gather\": {",
                          gathers[way]);
        z3d_string_append_member(out, "step", e->gather[way].seconds);
        z3d_string_append_member(out, "arena", (double)e->gather[way].arena);
        z3d_string_append(out, ", \"fits\": %s}", e->gather[way].fits ? "true" : "false");
        if (way)
            z3d_string_append(out, ", \"used\": \"%s\"}",
                              gathers[of->program.pipeline.gather_per_step]);
    }
    z3d_string_append(out, "}");
}

static void saving_json(const z3d_saving *s, z3d_string *out) {
    z3d_string_append(out, ", \"checkpoint\": {");
    z3d_string_append_member(out, "bytes", s->bytes);
    z3d_string_append_member(out, "node_bytes_saved", s->node_saved);
    z3d_string_append_member(out, "node_bytes_loaded", s->node_loaded);
    z3d_known_json(out, "save_seconds", s->save_seconds);
    z3d_known_json(out, "load_seconds", s->load_seconds);
    z3d_string_append(out, "}");
}

void z3d_estimate_json(const z3d_case *of, const z3d_hardware *hardware, const z3d_estimate *e,
                       const z3d_saving *saving, double train_tokens, z3d_string *out) {
    int devices = z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD);
    z3d_string_append(out, "{");
    z3d_string_append_member_text(out, "hardware", hardware->name);
    z3d_string_append_member_text(out, "software",
                                  hardware->software[0] ? hardware->software : NULL);
    z3d_string_append(out, ", \"rank\": %d, \"ranks\": %d, \"tensor\": %d, \"data\": %d",
                      of->mesh.rank, devices, z3d_mesh_size(&of->mesh, Z3D_ROLE_PARTS),
                      z3d_mesh_size(&of->mesh, Z3D_ROLE_SAMPLES));
    if (of->simulation->stages > 1)
        z3d_string_append_member(out, "pipeline_size", of->simulation->stages);
    z3d_string_append_member(out, "parameters", (double)z3d_model_parameter_count(of->model));
    z3d_string_append_member(out, "trained_parameters", (double)z3d_model_trained_count(of->model));
    memory_json(of, &e->memory, out);
    time_json(of, hardware, &e->time, out);
    pipeline_json(of, e, out);
    saving_json(saving, out);
    z3d_string_append_member(out, "tokens_per_step", e->tokens);
    z3d_string_append_member(out, "tflops_per_gpu", e->tflops_96);
    z3d_string_append_member(out, "tflops_per_gpu_without_recompute", e->tflops_72);
    z3d_string_append(out, ", \"flop_convention\": \"96*B*s*l*h^2*(1+s/(6h)+V/(16lh))\"");
    z3d_known_json(out, "mfu", e->mfu);
    z3d_known_json(out, "hfu", e->hfu);
    if (train_tokens > 0 && e->memory.fits) {
        const z3d_bill bill = bill_of(of, hardware, e, train_tokens);
        z3d_goodput goodput;
        z3d_bill_json(&bill, out);
        if (bill.nodes > 1) {
            /* unknown and impossible values become null */
            (void)z3d_goodput_find(hardware, saving, &bill, e->time.seconds, &goodput);
            z3d_goodput_json(&goodput, out);
        }
    }
    z3d_string_append(out, "}\n");
}
