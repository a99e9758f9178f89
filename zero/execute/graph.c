/* Runs a program: its list, or a train step as one operation. Then its list is captured once and
 * launched as a whole in every later step. All that changes from step to step is data, in the
 * mailbox and in the step state. The first step is not captured, because libraries make plans and
 * scratch when they meet a shape for the first time. */
#include <string.h>

#include "zero/execute/executor.h"

const char *z3d_graph_obstacle(const z3d_engine_config *config) {
    if (!z3d_device_captures(config->device)) return "this device cannot capture a step";
    if (config->digest_path) return "training.digest observes every instruction";
    if (config->trace_path) return "training.trace_steps observes every instruction";
    if (config->program.offload.optimizer != Z3D_SPACE_DEVICE ||
        config->program.offload.parameters != Z3D_SPACE_DEVICE ||
        config->program.checkpoint_space == Z3D_SPACE_DISK)
        return "the host takes part in a step (offload_optimizer, offload_param, "
               "cpu_checkpointing nvme)";
    if (config->enter) return "a callback observes every instruction";
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        if (!z3d_group_on_stream(config->group[axes]))
            return "collectives use host memory (training.collectives: host)";
    if (config->graph == Z3D_GRAPH_AUTO && config->world && z3d_world_nodes(config->world) > 1)
        return "the ranks are on several nodes, where only training.cuda_graph: on captures";
    return NULL;
}

/* ---- traffic: groups count starts, but a graph starts nothing ---- */

/* since: the counts before; becomes the difference. */
static void count_since(const z3d_executor *executor,
                        z3d_traffic since[Z3D_AXES_COUNT][Z3D_COLLECTIVE_COUNT]) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            z3d_traffic now = *z3d_group_traffic(executor->group[axes], (z3d_collective_kind)kind);
            z3d_traffic_add(&now, &since[axes][kind], -1);
            since[axes][kind] = now;
        }
}

static void count_again(z3d_executor *executor, int times) {
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++)
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++)
            z3d_group_count(executor->group[axes], (z3d_collective_kind)kind,
                            &executor->graph.traffic[axes][kind], times);
}

/* ---- capturing ---- */

static z3d_status capture(z3d_executor *executor, const z3d_host_step *host) {
    z3d_step_graph *graph = &executor->graph;
    memset(graph->traffic, 0, sizeof graph->traffic);
    count_since(executor, graph->traffic);
    z3d_status status = z3d_capture_begin(executor->device);
    if (status == Z3D_OK) status = z3d_executor_run_list(executor, host);
    count_since(executor, graph->traffic);
    if (status == Z3D_OK)
        return z3d_capture_end(executor->device, &graph->region, &graph->launches);
    const z3d_kept_error why = z3d_error_keep(status);
    z3d_capture_end(executor->device, NULL, NULL);
    return z3d_error_restore(&why);
}

/* Captures the step on all ranks, or on none. Collective. */
static z3d_status capture_everywhere(z3d_executor *executor, const z3d_host_step *host) {
    z3d_step_graph *graph = &executor->graph;
    z3d_status status = capture(executor, host);
    if (status != Z3D_OK)
        status = z3d_error_context(status, "step %lld, capturing its graph",
                                   (long long)host->state.step);
    z3d_executor_announce_wait(executor, "captured (waiting for all ranks)");
    if (executor->config->world) status = z3d_world_agree(executor->config->world, status);
    if (status == Z3D_OK) return Z3D_OK;
    z3d_region_destroy(executor->device, graph->region);
    graph->region = NULL;
    graph->launches = 0;
    count_again(executor, -1);
    z3d_executor_reset(executor);
    return status;
}

/* Launches the captured step, without its end; captures it first if needed. If a capture fails in
 * mode AUTO, a line says so, and *done false: the step must run as a list. */
static z3d_status run_graph(z3d_executor *executor, const z3d_host_step *host, bool *done) {
    z3d_step_graph *graph = &executor->graph;
    bool again = graph->region != NULL;
    *done = false;
    if (!again) {
        z3d_status status = capture_everywhere(executor, host);
        if (status != Z3D_OK && graph->mode == Z3D_GRAPH_ON) return status;
        if (status != Z3D_OK) {
            z3d_log(Z3D_LOG_INFO, "training.cuda_graph auto: steps run without a graph: %s",
                    z3d_error_message());
            graph->mode = Z3D_GRAPH_OFF;
            return Z3D_OK;
        }
    }
    count_again(executor, again);
    z3d_executor_announce_wait(executor, "in its graph");
    z3d_status status = z3d_region_launch(executor->device, graph->region);
    if (status != Z3D_OK)
        return z3d_error_context(status, "step %lld, starting its graph",
                                 (long long)host->state.step);
    *done = true;
    return Z3D_OK;
}

z3d_status z3d_executor_run(z3d_executor *executor, z3d_host_step *host) {
    const bool captured =
        executor->graph.mode != Z3D_GRAPH_OFF && executor->graph.warm && executor->mailbox != NULL;
    bool done = false;
    executor->step = host->state.step;
    executor->cache_first = host->cache_first;
    z3d_executor_give(executor, host);
    z3d_status status = captured ? run_graph(executor, host, &done) : Z3D_OK;
    if (status == Z3D_OK && !done) status = z3d_executor_run_list(executor, host);
    if (status == Z3D_OK) {
        if (executor->mailbox && !done) z3d_executor_announce_wait(executor, "what it enqueued");
        status = z3d_executor_end(executor, host);
        if (status != Z3D_OK)
            status = z3d_error_context(status, "step %lld, %s", (long long)host->state.step,
                                       done ? "in its graph" : "at its end");
    }
    executor->graph.warm |= status == Z3D_OK;
    if (executor->config->world)
        z3d_watchdog_position(executor->config->world, false, "between steps");
    return status;
}
