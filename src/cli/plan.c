/* zero3d plan */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/cli/plan.h"
#include "src/plan/memory.h"

static const char help[] =
    "usage: zero3d plan CONFIG [key=value ...] [--ranks N] [--rank R] [--print-program]\n"
    "                   [--memory [FILE.svg]] [--hardware NAME [--software NAME] [--tokens N]\n"
    "                   [--json] [--trace FILE] [--schedule FILE.svg]] [--force]\n"
    "       zero3d plan CONFIG [key=value ...] --recommend --hardware NAME [--ranks N]\n"
    "                   [--tokens N [--days D]] [--verbose] [--json] [--write FILE]\n"
    "       zero3d plan CONFIG [key=value ...] --fit SIZE [--hardware NAME] [the same]\n"
    "       zero3d plan CONFIG [key=value ...] --calibrate STEPS.csv|RUN --hardware NAME --write "
    "FILE\n"
    "\n"
    "Shows the needs of a run without running it, for any rank of any world: memory by category,\n"
    "the arena that holds it, bytes sent along each axis, and FLOPs.\n"
    "\n"
    "  --ranks N         number of ranks; default: parallel.world_size, or a node's devices with\n"
    "                    --recommend and --fit, or what parallel sizes and batch keys imply\n"
    "  --rank R          the rank to plan (default 0)\n"
    "  --print-program   also prints its training step, one instruction per line\n"
    "  --memory          also prints the memory of its training step; FILE.svg: draws it\n"
    "  --hardware NAME   a described machine (h100; `list` shows all), or a FILE.yaml: predicts\n"
    "                    whether the run fits, the time of a step and its parts, TFLOPS and MFU\n"
    "  --software NAME   the speeds that software reaches on it (default on GPUs: megatron-2025)\n"
    "  --tokens N        also the days, energy and price of training on N tokens (1T, 300B)\n"
    "  --days D          with --recommend or --fit: finds how many nodes train N tokens in D days\n"
    "  --price-per-device-hour P  price of a device for an hour, in any currency\n"
    "  --json            prints the prediction as one JSON object\n"
    "  --trace FILE      writes the predicted timeline for Perfetto; --schedule FILE.svg draws it\n"
    "  --recommend       finds the best way to train this model and batch on the machine:\n"
    "                    parallel sizes, schedule, ZeRO stage, micro-batch, recompute, offload\n"
    "  --fit SIZE        the same on devices of SIZE (24GiB, or `device`: as described); keeps\n"
    "                    parallel sizes and schedule that the configuration sets\n"
    "  --verbose         with --recommend or --fit: all tables\n"
    "  --write FILE      with --fit or --recommend: saves the best candidate as a configuration\n"
    "  --calibrate STEPS.csv  fits software to measured steps, of any framework or of a RUN\n"
    "                    (docs/software.md), and writes it to --write FILE; may be given again\n"
    "  --force           FILE may replace a file of another kind\n"
    "\n"
    "examples: zero3d plan configs/demo.yaml --print-program\n"
    "          zero3d plan configs/gpt2-124m.yaml --recommend --hardware h100\n";

static z3d_status advise(const z3d_config *config, const z3d_case *of, int threads,
                         const z3d_memory_need *need, const z3d_hardware *hardware,
                         z3d_string *text) {
    const z3d_room room = {.device = need->arena + (int64_t)need->free,
                           .host = (int64_t)need->host_capacity};
    const z3d_choice at = {z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD), threads, hardware, &room};
    z3d_string_append(text, "\n");
    return z3d_plan_advice(config, &at, text);
}

/* z3d_estimate_make; the timeline goes to the file `trace`. */
static z3d_status estimate_traced(const z3d_case *of, const z3d_hardware *hardware,
                                  const char *trace, z3d_estimate *out) {
    z3d_timeline events = {fopen(trace, "w"), of->simulation};
    z3d_spans spans = {z3d_timeline_take, &events};
    z3d_status status = Z3D_OK;
    bool failed = !events.file;
    if (!failed) {
        z3d_timeline_begin(&events);
        status = z3d_estimate_make(of, hardware, 0, &spans, out);
        if (status == Z3D_OK) z3d_timeline_end(&events);
        failed = ferror(events.file);
        if (fclose(events.file) != 0) failed = true;
    }
    return status == Z3D_OK && failed
               ? Z3D_ERROR(Z3D_ERR_IO, "--trace %s: cannot write it: %s", trace, strerror(errno))
               : status;
}

static z3d_status price(z3d_config *config, const z3d_case *of, z3d_sim_node node,
                        const z3d_hardware *hardware, const z3d_gather_price gathers[2],
                        const cli_plan_asked *options, z3d_string *text) {
    z3d_estimate estimate;
    z3d_saving saving;
    z3d_string drawn = {0};
    Z3D_TRY(options->trace ? estimate_traced(of, hardware, options->trace, &estimate)
                           : z3d_estimate_make(of, hardware, 0, NULL, &estimate));
    memcpy(estimate.gather, gathers, sizeof estimate.gather);
    if (options->schedule)
        Z3D_TRY(cli_save(z3d_schedule_picture(of, hardware, &drawn), options->schedule, &drawn));
    Z3D_TRY(z3d_bill_check(options->train_tokens, estimate.tokens));
    Z3D_TRY(z3d_saving_find(of, hardware, &saving));
    (options->json ? z3d_estimate_json : z3d_estimate_print)(of, hardware, &estimate, &saving,
                                                             options->train_tokens, text);
    if (estimate.fullest.fits || options->json) return Z3D_OK;
    return advise(config, of, node.threads, &estimate.fullest, hardware, text);
}

static z3d_status predict(z3d_config *config, const z3d_hardware *hardware,
                          const z3d_gather_price gathers[2], const cli_plan_asked *options,
                          z3d_string *text) {
    z3d_case *of;
    z3d_sim_node node = z3d_case_node(config, hardware);
    Z3D_TRY(z3d_case_create(config, (int)options->ranks, (int)options->rank, node, &of));
    z3d_status status = price(config, of, node, hardware, gathers, options, text);
    z3d_case_destroy(of);
    return status;
}

z3d_status cli_plan_hardware(z3d_config *config, const cli_plan_asked *options, bool *known,
                             z3d_hardware *out) {
    const char *path = options->hardware;
    bool chosen;
    if (!path && config->training_hardware[0] && strcmp(config->training_hardware, "measure") != 0)
        path = config->training_hardware;
    *known = path != NULL;
    if (!path) return Z3D_OK;
    Z3D_TRY(z3d_hardware_read_with(path, options->software, out));
    Z3D_TRY(z3d_hardware_check_products(out, z3d_plan_dtype(config)));
    if (options->price > 0) out->price = options->price;
    Z3D_TRY(z3d_choose_device(config, out, &chosen));
    return z3d_choose_nodes(config, (int64_t)out->devices);
}

static z3d_status show_memory(const z3d_plan *plan, const char *picture, z3d_string *text) {
    z3d_string drawn = {0};
    Z3D_TRY(z3d_plan_memory_print(plan, text));
    return picture ? cli_save(z3d_plan_picture(plan, &drawn), picture, &drawn) : Z3D_OK;
}

/* Says whether a run of one rank fits on this machine now; if not, what to change. */
static z3d_status say_room_here(const z3d_config *config, const z3d_plan *plan, z3d_string *text) {
    z3d_host_memory host;
    if (config->training_device != Z3D_TRAINING_CPU) {
        z3d_string_append(text, "\nthis machine: its GPU is not examined; --hardware FILE says "
                                "whether the run fits on a described machine\n");
        return Z3D_OK;
    }
    z3d_host_memory_find(&host);
    const z3d_room room = {
        .device = host.bytes, .host = host.bytes, .from = host.from, .shared = true};
    z3d_need need = {.snapshot = plan->snapshot, .outside = z3d_plan_outside(&plan->mesh)};
    memcpy(need.arena, plan->set.program[Z3D_MODE_TRAIN]->arena, sizeof need.arena);
    z3d_string_append(text, "\nthis machine: ");
    if (z3d_need_missing(&need, &room) > 0)
        return z3d_plan_advice(
            config, &(z3d_choice){.ranks = 1, .threads = plan->threads, .room = &room}, text);
    z3d_string_append(text, "it fits: the rank needs %s (%s of it outside the plan)",
                      z3d_bytes_text(z3d_need_total(&need, &room)).text,
                      z3d_bytes_text(need.outside).text);
    if (host.bytes < INT64_MAX)
        z3d_string_append(text, " of %s that are free%s", z3d_bytes_text(host.bytes).text,
                          host.from);
    z3d_string_append(text, "\n");
    return Z3D_OK;
}

/* Decides the keys that are `auto`, and says why. */
static z3d_status choose(z3d_config *config, const cli_plan_asked *options,
                         const z3d_hardware *hardware, z3d_gather_price gathers[2],
                         z3d_string *text) {
    static const char *const key[] = {"granularity", "cpu_checkpointing", "offload_optimizer.ratio",
                                      "pipeline_gather", "recompute_activation"};
    enum { KEYS = sizeof key / sizeof *key };
    z3d_string why[KEYS] = {{0}};
    const z3d_choice at = {.ranks = (int)options->ranks, .hardware = hardware};
    z3d_status status = z3d_choose_granularity(config, &at, Z3D_GRANULARITY_NONE, &why[0]);
    if (status == Z3D_OK) status = z3d_choose_offload(config, &at, &why[1]);
    if (status == Z3D_OK) status = z3d_choose_ratio(config, &at, &why[2]);
    if (status == Z3D_OK) status = z3d_choose_gather(config, &at, gathers, &why[3]);
    if (status == Z3D_OK) status = z3d_choose_activation(config, &at, &why[4]);
    for (int k = 0; k < KEYS; k++) {
        if (why[k].length && !options->json)
            z3d_string_append(text, "%s auto: %s\n\n", key[k], why[k].text);
        z3d_string_free(&why[k]);
    }
    return status;
}

static z3d_status plan_config(z3d_config *config, const cli_plan_asked *options, z3d_string *text) {
    z3d_hardware hardware;
    z3d_gather_price gathers[2];
    z3d_plan *plan = NULL;
    bool known;
    z3d_status status = cli_plan_hardware(config, options, &known, &hardware);
    if (status == Z3D_OK) status = choose(config, options, known ? &hardware : NULL, gathers, text);
    if (status == Z3D_OK && (!options->hardware || options->print_program || options->memory)) {
        status = z3d_plan_create(config, (int)options->ranks, (int)options->rank, &plan);
        if (status == Z3D_OK) z3d_plan_print(plan, options->print_program, text);
        if (status == Z3D_OK && options->memory) status = show_memory(plan, options->picture, text);
        if (status == Z3D_OK && !known && z3d_mesh_size(&plan->mesh, Z3D_AXES_WORLD) == 1)
            status = say_room_here(config, plan, text);
        if (options->hardware) z3d_string_append(text, "\n");
    }
    if (status == Z3D_OK && options->hardware)
        status = predict(config, &hardware, gathers, options, text);
    z3d_plan_destroy(plan);
    return status;
}

/* Checks the options of --fit and --recommend. */
static z3d_status check_choice(const cli_plan_asked *p) {
    if (p->fit && p->recommend)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fit keeps the parallel sizes that the configuration "
                                        "sets, --recommend none; use one of the two");
    if (p->trace || p->schedule || p->rank >= 0 || p->print_program || p->memory)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--%s accepts only --hardware, --software, --ranks, --tokens, --days, "
                         "--price-per-device-hour, --verbose, --json and --write",
                         p->fit ? "fit" : "recommend");
    if (p->days && (!p->train_tokens || p->ranks > 0))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--days D finds how many nodes train --tokens N in D days: "
                                        "write --tokens, and leave out --ranks");
    return Z3D_OK;
}

static z3d_status check_options(const cli_plan_asked *p) {
    const bool chooses = p->fit || p->recommend, priced = p->tokens || p->price_text;
    if (p->steps.count && (chooses || priced || p->trace || p->schedule || p->rank >= 0 ||
                           p->print_program || p->memory || p->json || !p->hardware || !p->write))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--calibrate needs --hardware NAME and --write FILE, and "
                                        "accepts only --software beside them");
    if (chooses) Z3D_TRY(check_choice(p));
    if (!chooses && (p->days || p->verbose))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--days and --verbose need --recommend or --fit");
    if (p->write && !chooses && !p->steps.count)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--write needs --fit, --recommend or --calibrate: it saves "
                                        "what they find");
    bool needs = p->software || priced || p->trace || p->schedule || (p->json && !chooses);
    if (needs && !p->hardware)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--software, --tokens, --price-per-device-hour, --json, --trace and "
                         "--schedule need --hardware NAME");
    if (p->price_text && !p->tokens)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--price-per-device-hour needs --tokens N: it prices a "
                                        "whole training");
    if ((p->print_program || p->memory) && p->json)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--json cannot be combined with --print-program or --memory");
    return Z3D_OK;
}

static z3d_status check_outputs(const cli_plan_asked *p, const char *config) {
    const cli_output outputs[] = {
        {p->write, p->steps.count ? &z3d_output_software : &z3d_output_config},
        {p->trace, &z3d_output_timeline},
        {p->schedule, &z3d_output_picture},
        {p->picture, &z3d_output_picture}};
    const char *inputs[CLI_MAX_VALUES + 3] = {config, p->hardware, p->software};
    for (int i = 0; i < p->steps.count; i++) inputs[3 + i] = p->steps.value[i];
    return cli_check_outputs(outputs, sizeof outputs / sizeof *outputs, inputs, 3 + p->steps.count,
                             p->force);
}

static z3d_status read_count(const char *text, const char *option, double most, double *out) {
    if (!text) return Z3D_OK;
    if (z3d_parse_count(text, out) == Z3D_OK && *out > 0 && *out <= most) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected a number above 0, at most %g%s", option,
                     text, most, strcmp(option, "tokens") == 0 ? ", such as 300B or 1T" : "");
}

static z3d_status read_numbers(cli_plan_asked *p) {
    Z3D_TRY(read_count(p->tokens, "tokens", 1e18, &p->train_tokens));
    Z3D_TRY(read_count(p->days_text, "days", 1e6, &p->days));
    return read_count(p->price_text, "price-per-device-hour", 1e6, &p->price);
}

static z3d_status show(int count, char **arguments, const cli_plan_asked *p, z3d_string *text) {
    z3d_config *config;
    if (p->hardware && strcmp(p->hardware, "list") == 0) return z3d_machines_list(text);
    Z3D_TRY(cli_read_config(count ? arguments[0] : NULL, count - 1, arguments + 1, 0, &config));
    z3d_status status = p->steps.count           ? cli_plan_calibrate(config, p, text)
                        : p->fit || p->recommend ? cli_plan_best(&config, p, text)
                                                 : plan_config(config, p, text);
    z3d_config_destroy(config);
    return status;
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    cli_plan_asked p = {.rank = -1};
    const cli_option options[] = {{"fit", .value = &p.fit},
                                  {"recommend", .flag = &p.recommend},
                                  {"calibrate", .values = &p.steps},
                                  {"write", .value = &p.write},
                                  {"hardware", .value = &p.hardware},
                                  {"software", .value = &p.software},
                                  {"tokens", .value = &p.tokens},
                                  {"days", .value = &p.days_text},
                                  {"price-per-device-hour", .value = &p.price_text},
                                  {"trace", .value = &p.trace},
                                  {"schedule", .value = &p.schedule},
                                  {"json", .flag = &p.json},
                                  {"verbose", .flag = &p.verbose},
                                  {"ranks", .number = &p.ranks, .least = 1, .most = INT32_MAX},
                                  {"rank", .number = &p.rank, .most = INT32_MAX},
                                  {"print-program", .flag = &p.print_program},
                                  {"memory", .value = &p.picture, .flag = &p.memory},
                                  {"force", .flag = &p.force},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(read_numbers(&p));
    Z3D_TRY(check_options(&p));
    if (p.rank < 0) p.rank = 0;
    Z3D_TRY(check_outputs(&p, count > 0 ? argv[1] : NULL));
    return show(count, argv + 1, &p, &out->text);
}

const cli_command cli_plan = {
    "plan", "show memory, communication and program of any rank, without a run",
    help,   answer,
    NULL,   false,
    NULL,   true};
