/* The price of a whole training. */
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
