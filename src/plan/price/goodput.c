/* The share of its time that a run trains on machines that fail. */
#include "src/plan/price/goodput.h"

#include <math.h>

double z3d_young_interval(double mtbf, double stall) {
    return sqrt(2 * stall * mtbf);
}

double z3d_daly_interval(double mtbf, double stall) {
    const double ratio = stall / (2 * mtbf);
    if (ratio >= 1) return mtbf;
    return sqrt(2 * stall * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall;
}

double z3d_goodput_share(double mtbf, double stall, double restart, double interval) {
    return interval / (mtbf * exp(restart / mtbf) * expm1((interval + stall) / mtbf));
}

static z3d_status refuse(const z3d_hardware *hardware, const z3d_goodput *g, int nodes) {
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "a checkpoint takes %s, and a run on %d nodes of %s fails every %s: too "
                     "little time is left to train between failures; %suse fewer nodes, or "
                     "describe a faster node.disk_write_gb_per_s",
                     z3d_seconds_text(g->write).text, nodes, hardware->name,
                     z3d_seconds_text(g->mtbf).text,
                     g->stall < g->write ? "" : "write checkpoint.async=true, ");
}

static z3d_status refuse_all(const z3d_hardware *hardware, const z3d_goodput *g, int nodes) {
    return Z3D_ERROR(Z3D_ERR_CONFIG,
                     "a run on %d nodes of %s fails every %s, which is too often for a step, its "
                     "checkpoint and a restart: use fewer nodes, or correct node.mtbf_hours and "
                     "node.restart_seconds",
                     nodes, hardware->name, z3d_seconds_text(g->mtbf).text);
}

/* Chooses an interval in whole steps. A write of checkpoint.async must end before the next copy. */
static z3d_status choose_interval(const z3d_hardware *hardware, const z3d_bill *bill,
                                  double step_seconds, z3d_goodput *g) {
    const bool beside = g->stall < g->write;
    g->young = z3d_young_interval(g->mtbf, g->stall);
    g->daly = z3d_daly_interval(g->mtbf, g->stall);
    if (beside ? g->write >= g->mtbf : g->daly < g->stall) return refuse(hardware, g, bill->nodes);
    g->steps = fmax(1, round(g->daly / step_seconds));
    if (beside) g->steps = fmax(g->steps, ceil(g->write / step_seconds));
    g->interval = g->steps * step_seconds;
    return Z3D_OK;
}

z3d_status z3d_goodput_find(const z3d_hardware *hardware, const z3d_saving *saving,
                            const z3d_bill *bill, double step_seconds, z3d_goodput *out) {
    z3d_goodput *g = out;
    *g = (z3d_goodput){.mtbf = -1,
                       .start = hardware->restart > 0 ? hardware->restart : -1,
                       .load = saving->load_seconds,
                       .stall = saving->stall_seconds,
                       .write = saving->save_seconds,
                       .young = -1,
                       .daly = -1,
                       .interval = -1,
                       .steps = -1,
                       .failures = -1,
                       .share = -1,
                       .seconds = -1};
    if (!(hardware->node_mtbf > 0)) return Z3D_OK;
    g->mtbf = hardware->node_mtbf * 3600 / bill->nodes;
    g->failures = bill->seconds / g->mtbf;
    if (g->start < 0 || g->load < 0 || g->write < 0 || g->stall < 0) return Z3D_OK;
    Z3D_TRY(choose_interval(hardware, bill, step_seconds, g));
    /* If a failure interrupts a write of checkpoint.async, its time of training is lost, too. */
    const double again = g->stall < g->write ? g->write : 0;
    const double lost = g->start + g->load + again;
    const double share = z3d_goodput_share(g->mtbf, g->stall, lost, g->interval);
    g->seconds = g->start + bill->seconds / share;
    if (!(g->seconds < 1e15)) {
        g->seconds = -1;
        return refuse_all(hardware, g, bill->nodes);
    }
    g->share = bill->seconds / g->seconds;
    g->failures = g->seconds / g->mtbf;
    return Z3D_OK;
}

/* ---- text ---- */

static void line(z3d_string *out, const char *name, double seconds, const char *key) {
    if (seconds < 0)
        z3d_string_append(out, "  %-28s not known (the machine's description has no %s)\n", name,
                          key);
    else
        z3d_string_append(out, "  %-28s %s\n", name, z3d_seconds_text(seconds).text);
}

static void interval_line(z3d_string *out, const char *name, double seconds, double step) {
    z3d_string_append(out, "  %-28s %s, %.0f step%s\n", name, z3d_seconds_text(seconds).text,
                      fmax(1, round(seconds / step)),
                      fmax(1, round(seconds / step)) > 1 ? "s" : "");
}

static void print_interval(const z3d_hardware *hardware, const z3d_goodput *g, const z3d_bill *bill,
                           z3d_string *out) {
    const double step = g->interval / g->steps;
    interval_line(out, "interval by Young (1974)", g->young, step);
    interval_line(out, "interval by Daly (2006)", g->daly, step);
    if (round(g->interval / step) > fmax(1, round(g->daly / step)))
        interval_line(out, "interval: a write's time", g->interval, step);
    z3d_string_append(out,
                      "  %-28s %.2f %% with checkpoint.interval=%.0f, %.4g failures in the run\n",
                      "goodput", 100 * g->share, g->steps, g->failures);
    z3d_bill whole = z3d_bill_make(hardware, bill->ranks, bill->tokens, bill->tokens / g->seconds);
    z3d_string_append(out, "with failures, ");
    z3d_bill_print(hardware, &whole, out);
}

void z3d_goodput_print(const z3d_hardware *hardware, const z3d_goodput *g, const z3d_bill *bill,
                       z3d_string *out) {
    z3d_string_append(out, "\nfailures (predicted)\n");
    line(out, "launch of all ranks", g->start, "node.restart_seconds");
    line(out, "loading a checkpoint", g->load, "node.disk_read_gb_per_s");
    line(out, "writing a checkpoint", g->write, "node.disk_write_gb_per_s");
    if (g->write >= 0 && g->stall < g->write) line(out, "  training stands still", g->stall, "");
    line(out, "between failures of the run", g->mtbf, "node.mtbf_hours");
    if (g->share > 0)
        print_interval(hardware, g, bill, out);
    else if (g->mtbf > 0)
        z3d_string_append(out, "  %-28s not known; %.4g failures in the run's time without them\n",
                          "goodput", g->failures);
}

/* ---- JSON ---- */

void z3d_goodput_json(const z3d_goodput *g, z3d_string *out) {
    z3d_string_append(out, ", \"failures\": {");
    z3d_known_json(out, "mtbf_seconds", g->mtbf);
    z3d_known_json(out, "launch_seconds", g->start);
    z3d_known_json(out, "load_seconds", g->load);
    z3d_known_json(out, "write_seconds", g->write);
    z3d_known_json(out, "stall_seconds", g->stall);
    z3d_known_json(out, "young_seconds", g->young);
    z3d_known_json(out, "daly_seconds", g->daly);
    z3d_known_json(out, "checkpoint_interval", g->steps);
    z3d_known_json(out, "failures", g->failures);
    z3d_known_json(out, "goodput", g->share);
    z3d_known_json(out, "train_seconds", g->seconds);
    z3d_string_append(out, "}");
}
