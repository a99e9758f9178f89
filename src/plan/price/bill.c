/* A whole training, also on machines that fail. */
#include "src/plan/price/bill.h"

#include <math.h>

z3d_status z3d_bill_check(double tokens, double of_a_step) {
    if (tokens <= 0 || tokens >= of_a_step) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE, "--tokens %s: one step has %s", z3d_count_text(tokens).text,
                     z3d_count_text(of_a_step).text);
}

z3d_bill z3d_bill_make(const z3d_hardware *hardware, int ranks, double tokens,
                       double tokens_per_second) {
    z3d_bill out = {.tokens = tokens,
                    .seconds = tokens / tokens_per_second,
                    .ranks = ranks,
                    .nodes = (int)ceil(ranks / hardware->devices),
                    .joules = -1,
                    .device_joules = -1,
                    .price = -1};
    out.device_hours = out.seconds / 3600 * ranks;
    if (hardware->node_watts > 0) out.joules = out.nodes * hardware->node_watts * out.seconds;
    if (hardware->device_watts > 0)
        out.device_joules = ranks * hardware->device_watts * out.seconds;
    if (hardware->price > 0) out.price = hardware->price * out.device_hours;
    return out;
}

static const double MWH = 1 / 3.6e9; /* of a joule */

/* Energy of the nodes, their devices, or both. Machines without node.watts are compared by their
 * devices. */
static void print_energy(const z3d_hardware *hardware, const z3d_bill *b, z3d_string *out) {
    const bool nodes = b->joules >= 0, devices = b->device_joules >= 0;
    if (nodes) z3d_string_append(out, "  about %.3g J, %.4g MWh", b->joules, b->joules * MWH);
    if (nodes && devices)
        z3d_string_append(out, " (%.4g MWh of them the devices)", b->device_joules * MWH);
    if (nodes)
        z3d_string_append(out, ": %.4g W a node, without switches and cooling",
                          hardware->node_watts);
    else if (devices)
        z3d_string_append(out,
                          "  at least %.3g J, %.4g MWh (the devices alone): %.4g W a device; "
                          "node.watts is not known",
                          b->device_joules, b->device_joules * MWH, hardware->device_watts);
    else
        z3d_string_append(out, "  energy: not known (the machine's description has no node.watts)");
}

void z3d_bill_print(const z3d_hardware *hardware, const z3d_bill *b, z3d_string *out) {
    z3d_string_append(out, "%s tokens: %s on %d rank%s (%d node%s), %.0f device hours\n",
                      z3d_count_text(b->tokens).text, z3d_seconds_text(b->seconds).text, b->ranks,
                      z3d_plural(b->ranks), b->nodes, z3d_plural(b->nodes), b->device_hours);
    print_energy(hardware, b, out);
    if (b->price >= 0)
        z3d_string_append(out, "; price %.0f, at %.4g a device hour\n", b->price, hardware->price);
    else
        z3d_string_append(out, "\n  price: not known (--price-per-device-hour P)\n");
}

void z3d_known_json(z3d_string *out, const char *name, double value) {
    z3d_string_append_member(out, name, value < 0 ? NAN : value); /* null */
}

void z3d_bill_json(const z3d_bill *b, z3d_string *out) {
    z3d_known_json(out, "train_tokens", b->tokens);
    z3d_known_json(out, "train_seconds", b->seconds);
    z3d_known_json(out, "device_hours", b->device_hours);
    z3d_known_json(out, "joules", b->joules);
    z3d_known_json(out, "device_joules", b->device_joules);
    z3d_known_json(out, "price", b->price);
}

/* ---- machines that fail ---- */

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
                            const z3d_bill *bill, double step_seconds, z3d_goodput *g) {
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

static void line(z3d_string *out, const char *name, double seconds, const char *key) {
    if (seconds < 0)
        z3d_string_append(out, "  %-28s not known (the machine's description has no %s)\n", name,
                          key);
    else
        z3d_string_append(out, "  %-28s %s\n", name, z3d_seconds_text(seconds).text);
}

static void interval_line(z3d_string *out, const char *name, double seconds, double step) {
    const double steps = fmax(1, round(seconds / step));
    z3d_string_append(out, "  %-28s %s, %.0f step%s\n", name, z3d_seconds_text(seconds).text, steps,
                      steps > 1 ? "s" : "");
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
