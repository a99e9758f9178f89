/* zero3d plan */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/cli/cli.h"
#include "src/plan/choose/advice.h"
#include "src/plan/choose/choose.h"
#include "src/plan/memory.h"

static const char help[] =
    "usage: zero3d plan CONFIG [key=value ...] [--ranks N] [--rank R] [--print-program]\n"
    "                   [--memory [FILE.svg]] [--hardware FILE [--software NAME] [--tokens N]\n"
    "                   [--json] [--trace FILE] [--schedule FILE.svg]] [--force]\n"
    "       zero3d plan CONFIG [key=value ...] --fit SIZE [--ranks N] [--hardware FILE] [--json]\n"
    "                   [--write FILE]\n"
    "       zero3d plan CONFIG [key=value ...] --recommend --hardware FILE [--ranks N] [--json]\n"
    "                   [--write FILE]\n"
    "       zero3d plan CONFIG [key=value ...] --calibrate STEPS.csv|RUN --hardware FILE --write "
    "FILE\n"
    "\n"
    "Shows what a run would need, without running it: of any rank of any world the memory by\n"
    "category, the arena that holds it, the elements that it sends along each axis, and its work.\n"
    "\n"
    "  --ranks N         number of ranks; default: parallel.world_size, or what the tensor and "
    "pipeline\n"
    "                    sizes and the batch keys imply\n"
    "  --rank R          the rank to plan (default 0)\n"
    "  --print-program   also prints its training step, one instruction per line\n"
    "  --memory          also prints the memory of its training step: the plan, a lower bound and\n"
    "                    other allocators; with FILE.svg, also draws a picture\n"
    "  --hardware FILE   the description of a machine (configs/hardware): also predicts whether "
    "the\n"
    "                    run fits, the time of a step and its parts, TFLOPS, MFU and HFU\n"
    "  --software NAME   what software reaches on it: a file, or one of configs/software; on GPUs\n"
    "                    megatron-2025 is the default\n"
    "  --tokens N        also predicts the time and device hours to train on N tokens\n"
    "  --json            prints the prediction as one JSON object\n"
    "  --trace FILE      writes the predicted timeline, for Perfetto\n"
    "  --schedule FILE.svg  draws the predicted timeline of all pipeline stages\n"
    "  --fit SIZE        finds the ten fastest ways to train this model and batch on devices of "
    "SIZE\n"
    "                    (16GiB; or `device`: the size in --hardware FILE). Chooses tensor and\n"
    "                    pipeline size, chunks and schedule where the configuration does not set\n"
    "                    them, and ZeRO stage, recompute, P_a, host memory, micro-batch, and\n"
    "                    sequence parallelism and offload where it does not set that\n"
    "  --recommend       the same on the machine of --hardware; chooses the sizes and the "
    "schedule\n"
    "                    also where the configuration sets them; train_batch_size stays\n"
    "  --calibrate STEPS.csv  fits software to measured steps, of any framework or of a RUN\n"
    "                    (docs/software.md), and writes it to --write FILE; may be given again\n"
    "  --write FILE      with --fit or --recommend: saves the fastest one as a configuration\n"
    "  --force           FILE may replace a file of another kind\n"
    "\n"
    "examples: zero3d plan configs/demo.yaml --print-program\n"
    "          zero3d plan configs/gpt2-124m.yaml --ranks 64 --rank 37 train_batch_size=256\n";

static z3d_status read_number(const char *text, const char *option, int64_t low, int *out) {
    int64_t value;
    if (!text) return Z3D_OK;
    if (z3d_parse_int(text, &value) != Z3D_OK || value < low || value > INT32_MAX)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s %s: expected a whole number of at least %lld", option,
                         text, (long long)low);
    *out = (int)value;
    return Z3D_OK;
}

typedef struct priced {
    const char *hardware, *software, *tokens, *trace, *schedule, *fit, *write, *picture;
    cli_values steps; /* of --calibrate */
    bool json, print_program, memory, recommend, force;
} priced;

/* Of a case that does not fit. */
static z3d_status advise(const z3d_config *config, const z3d_case *of, int threads,
                         const z3d_memory_need *need, z3d_string *text) {
    z3d_room room = {.device = need->arena + (int64_t)need->free,
                     .host = (int64_t)need->host_capacity};
    z3d_string_append(text, "\n");
    return z3d_plan_advice(config, z3d_mesh_size(&of->mesh, Z3D_AXES_WORLD), threads, &room, text);
}

static z3d_status draw_schedule(const z3d_case *of, const z3d_hardware *hardware,
                                const char *path) {
    z3d_string drawn = {0};
    z3d_status status = z3d_schedule_picture(of, hardware, &drawn);
    if (status == Z3D_OK) status = cli_write(path, &drawn);
    z3d_string_free(&drawn);
    return status;
}

static z3d_status price(z3d_config *config, const z3d_case *of, z3d_sim_node node,
                        const z3d_hardware *hardware, const z3d_gather_price gathers[2],
                        const priced *options, z3d_string *text) {
    z3d_estimate estimate;
    z3d_saving saving;
    double tokens = 0;
    FILE *timeline = NULL;
    if (options->tokens &&
        (z3d_parse_float(options->tokens, &tokens) != Z3D_OK || tokens < 1 || tokens > 1e18))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--tokens %s: expected a number from 1 to 1e18",
                         options->tokens);
    if (options->trace && !(timeline = fopen(options->trace, "w")))
        return Z3D_ERROR(Z3D_ERR_IO, "--trace %s: cannot write it: %s", options->trace,
                         strerror(errno));
    z3d_timeline events = {timeline, of->simulation};
    z3d_spans spans = {z3d_timeline_take, &events};
    if (timeline) z3d_timeline_begin(&events);
    z3d_status status = z3d_estimate_make(of, hardware, 0, timeline ? &spans : NULL, &estimate);
    if (timeline && status == Z3D_OK) z3d_timeline_end(&events);
    bool failed = timeline && ferror(timeline);
    if (timeline && (fclose(timeline) != 0 || failed) && status == Z3D_OK)
        status = Z3D_ERROR(Z3D_ERR_IO, "--trace %s: cannot write it: %s", options->trace,
                           strerror(errno));
    Z3D_TRY(status);
    memcpy(estimate.gather, gathers, sizeof estimate.gather);
    if (options->schedule) Z3D_TRY(draw_schedule(of, hardware, options->schedule));
    Z3D_TRY(z3d_saving_find(of, hardware, &saving));
    if (options->json)
        z3d_estimate_json(of, hardware, &estimate, &saving, tokens, text);
    else
        z3d_estimate_print(of, hardware, &estimate, &saving, tokens, text);
    if (estimate.fullest.fits || options->json) return Z3D_OK;
    return advise(config, of, node.threads, &estimate.fullest, text);
}

/* The same configuration on the sim device. */
static z3d_status predict(z3d_config *config, int ranks, int rank, const z3d_hardware *hardware,
                          const z3d_gather_price gathers[2], const priced *options,
                          z3d_string *text) {
    z3d_case *of;
    z3d_sim_node node = z3d_case_node(config, hardware);
    Z3D_TRY(z3d_case_create(config, ranks, rank, node, &of));
    z3d_status status = price(config, of, node, hardware, gathers, options, text);
    z3d_case_destroy(of);
    return status;
}

/* The machine of --hardware, or the one that the configuration names. */
static z3d_status read_hardware(z3d_config *config, const priced *options, bool *known,
                                z3d_hardware *out) {
    const char *path = options->hardware;
    bool chosen;
    if (!path && config->training_hardware[0] && strcmp(config->training_hardware, "measure") != 0)
        path = config->training_hardware;
    *known = path != NULL;
    if (!path) return Z3D_OK;
    Z3D_TRY(z3d_hardware_read_with(path, options->software, out));
    Z3D_TRY(z3d_choose_device(config, out, &chosen));
    return z3d_choose_nodes(config, (int64_t)out->devices);
}

static z3d_status fit_capacity(const char *wanted, bool known, z3d_hardware *hardware) {
    int64_t bytes;
    if (strcmp(wanted, "device") == 0 && known) return Z3D_OK;
    if (strcmp(wanted, "device") == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fit device needs --hardware FILE");
    if (z3d_parse_bytes(wanted, &bytes) != Z3D_OK || bytes < 1)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fit %s: expected a size such as 16GiB, or device",
                         wanted);
    hardware->memory_gib = (double)bytes / 1073741824.0;
    return Z3D_OK;
}

/* Saves the configuration that --fit or --recommend (`how`) found. */
static z3d_status write_best(const z3d_config *config, const char *how, double seconds,
                             const z3d_hardware *hardware, const priced *options,
                             z3d_string *said) {
    /* What the search decides is written also where it is the default. */
    static const char *const decided[] = {"parallel.tensor_model_parallel_size",
                                          "parallel.sequence_parallel",
                                          "parallel.pipeline_model_parallel_size",
                                          "parallel.virtual_pipeline_model_parallel_size",
                                          "parallel.pipeline_schedule",
                                          "train_batch_size",
                                          "train_micro_batch_size_per_gpu",
                                          "gradient_accumulation_steps",
                                          "zero_optimization.stage",
                                          "zero_optimization.offload_optimizer.device",
                                          "zero_optimization.offload_param.device",
                                          "activation_checkpointing.granularity",
                                          "activation_checkpointing.partition_activations",
                                          "activation_checkpointing.cpu_checkpointing",
                                          "training.device",
                                          NULL};
    z3d_string text = {0};
    if (!options->write) return Z3D_OK;
    z3d_string_append(&text, "%s%s --write`: %.4g s a step, predicted on %s.\n",
                      z3d_output_config.begins, how, seconds, hardware->name);
    z3d_config_write_changed(config, decided, &text);
    z3d_status status = cli_write(options->write, &text);
    z3d_string_free(&text);
    if (!options->json) z3d_string_append(said, "written: %s\n", options->write);
    return status;
}

/* --fit and --recommend. */
static z3d_status find_best(z3d_config *config, int ranks, const priced *options,
                            z3d_string *text) {
    z3d_hardware hardware;
    z3d_recommendation found;
    bool known;
    char how[80] = "--recommend";
    Z3D_TRY(read_hardware(config, options, &known, &hardware));
    if (!known && options->recommend)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--recommend needs --hardware FILE");
    if (!known) Z3D_TRY(z3d_nominal_machine(config, ranks, &hardware));
    if (options->fit) {
        Z3D_TRY(fit_capacity(options->fit, known, &hardware));
        snprintf(how, sizeof how, "--fit %s", options->fit);
    }
    Z3D_TRY(z3d_recommend(config, ranks, &hardware, options->fit != NULL, &found));
    if (options->json)
        z3d_recommend_json(&found, text);
    else
        z3d_recommend_print(&found, text);
    return write_best(config, how, found.row[0].seconds, &hardware, options, text);
}

static z3d_status calibrate(const z3d_config *config, const priced *p, z3d_string *text) {
    const cli_calibration asked = {p->hardware, p->software, p->write, &p->steps};
    return cli_plan_calibrate(config, &asked, text);
}

/* What --memory adds. */
static z3d_status show_memory(const z3d_plan *plan, const char *picture, z3d_string *text) {
    z3d_string drawn = {0};
    Z3D_TRY(z3d_plan_memory_print(plan, text));
    if (!picture) return Z3D_OK;
    z3d_status status = z3d_plan_picture(plan, &drawn);
    if (status == Z3D_OK) status = cli_write(picture, &drawn);
    z3d_string_free(&drawn);
    return status;
}

/* Whether a run of one rank has room on this machine now; if not, what to change. */
static z3d_status say_room_here(const z3d_config *config, const z3d_plan *plan, z3d_string *text) {
    z3d_host_memory host;
    char needed[32], outside[32], there[32];
    if (config->training_device != Z3D_TRAINING_CPU) {
        z3d_string_append(text, "\nthis machine: its GPU is not looked at; --hardware FILE says "
                                "whether a described one has room\n");
        return Z3D_OK;
    }
    z3d_host_memory_find(&host);
    const z3d_room room = {
        .device = host.bytes, .host = host.bytes, .from = host.from, .shared = true};
    z3d_need need = {.snapshot = plan->snapshot, .outside = z3d_plan_outside(&plan->mesh)};
    memcpy(need.arena, plan->set.program[Z3D_MODE_TRAIN]->arena, sizeof need.arena);
    z3d_string_append(text, "\nthis machine: ");
    if (z3d_need_missing(&need, &room) > 0)
        return z3d_plan_advice(config, 1, plan->threads, &room, text);
    z3d_string_append(text, "it fits: the rank needs %s (%s of it outside the plan)",
                      z3d_format_bytes(z3d_need_total(&need, &room), needed, sizeof needed),
                      z3d_format_bytes(need.outside, outside, sizeof outside));
    if (host.bytes < INT64_MAX)
        z3d_string_append(text, " of %s that are free%s",
                          z3d_format_bytes(host.bytes, there, sizeof there), host.from);
    z3d_string_append(text, "\n");
    return Z3D_OK;
}

/* Decides what is `auto`, and says why. */
static z3d_status choose(z3d_config *config, int ranks, const z3d_hardware *hardware, bool quiet,
                         z3d_gather_price gathers[2], z3d_string *text) {
    z3d_string granularity = {0}, offload = {0}, ratio = {0}, gather = {0}, activation = {0};
    z3d_status status = z3d_choose_granularity(config, ranks, 0, hardware, NULL,
                                               Z3D_GRANULARITY_NONE, &granularity);
    if (status == Z3D_OK) status = z3d_choose_offload(config, ranks, hardware, &offload);
    if (status == Z3D_OK) status = z3d_choose_ratio(config, ranks, 0, hardware, NULL, &ratio);
    if (status == Z3D_OK)
        status = z3d_choose_gather(config, ranks, 0, hardware, NULL, gathers, &gather);
    if (status == Z3D_OK)
        status = z3d_choose_activation(config, ranks, 0, hardware, NULL, &activation);
    if (granularity.length && !quiet)
        z3d_string_append(text, "granularity auto: %s\n\n", granularity.text);
    if (offload.length && !quiet)
        z3d_string_append(text, "cpu_checkpointing auto: %s\n\n", offload.text);
    if (ratio.length && !quiet)
        z3d_string_append(text, "offload_optimizer.ratio auto: %s\n\n", ratio.text);
    if (gather.length && !quiet)
        z3d_string_append(text, "pipeline_gather auto: %s\n\n", gather.text);
    if (activation.length && !quiet)
        z3d_string_append(text, "recompute_activation auto: %s\n\n", activation.text);
    z3d_string_free(&granularity);
    z3d_string_free(&offload);
    z3d_string_free(&ratio);
    z3d_string_free(&gather);
    z3d_string_free(&activation);
    return status;
}

static z3d_status plan_config(z3d_config *config, int ranks, int rank, const priced *options,
                              z3d_string *text) {
    z3d_hardware hardware;
    z3d_gather_price gathers[2];
    z3d_plan *plan = NULL;
    bool known;
    z3d_status status = read_hardware(config, options, &known, &hardware);
    if (status == Z3D_OK)
        status = choose(config, ranks, known ? &hardware : NULL, options->json, gathers, text);
    if (status == Z3D_OK && (!options->hardware || options->print_program || options->memory)) {
        status = z3d_plan_create(config, ranks, rank, &plan);
        if (status == Z3D_OK) z3d_plan_print(plan, options->print_program, text);
        if (status == Z3D_OK && options->memory) status = show_memory(plan, options->picture, text);
        if (status == Z3D_OK && !known && z3d_mesh_size(&plan->mesh, Z3D_AXES_WORLD) == 1)
            status = say_room_here(config, plan, text);
        if (options->hardware) z3d_string_append(text, "\n");
    }
    if (status == Z3D_OK && options->hardware)
        status = predict(config, ranks, rank, &hardware, gathers, options, text);
    z3d_plan_destroy(plan);
    return status;
}

/* Which options go together. */
static z3d_status check_options(const priced *p, bool rank) {
    bool chooses = p->fit || p->recommend;
    if (p->steps.count && (chooses || p->tokens || p->trace || p->schedule || rank ||
                           p->print_program || p->memory || p->json || !p->hardware || !p->write))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--calibrate needs --hardware FILE and --write FILE, and "
                                        "accepts only --software beside them");
    if (p->fit && p->recommend)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fit keeps the parallel sizes that the configuration "
                                        "sets, --recommend none; use one of the two");
    if (chooses && (p->tokens || p->trace || p->schedule || rank || p->print_program || p->memory))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--%s accepts only --hardware, --software, --ranks, --json and --write",
                         p->fit ? "fit" : "recommend");
    if (p->write && !chooses && !p->steps.count)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--write needs --fit, --recommend or --calibrate: it saves "
                                        "what they find");
    bool needs = p->software || p->tokens || p->trace || p->schedule || (p->json && !chooses);
    if (needs && !p->hardware)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--software, --tokens, --json, --trace and --schedule need --hardware "
                         "FILE");
    if ((p->print_program || p->memory) && p->json)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--json cannot be combined with --print-program or --memory");
    return Z3D_OK;
}

static z3d_status check_outputs(const priced *p, const char *config) {
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

static z3d_status make(int argc, char **argv, z3d_string *text) {
    const char *ranks_text = NULL, *rank_text = NULL;
    priced prediction = {.json = false};
    const cli_option options[] = {{"fit", &prediction.fit, NULL, NULL},
                                  {"recommend", NULL, &prediction.recommend, NULL},
                                  {"calibrate", NULL, NULL, &prediction.steps},
                                  {"write", &prediction.write, NULL, NULL},
                                  {"hardware", &prediction.hardware, NULL, NULL},
                                  {"software", &prediction.software, NULL, NULL},
                                  {"tokens", &prediction.tokens, NULL, NULL},
                                  {"trace", &prediction.trace, NULL, NULL},
                                  {"schedule", &prediction.schedule, NULL, NULL},
                                  {"json", NULL, &prediction.json, NULL},
                                  {"ranks", &ranks_text, NULL, NULL},
                                  {"rank", &rank_text, NULL, NULL},
                                  {"print-program", NULL, &prediction.print_program, NULL},
                                  {"memory", &prediction.picture, &prediction.memory, NULL},
                                  {"force", NULL, &prediction.force, NULL},
                                  {NULL, NULL, NULL, NULL}};
    int count, ranks = 0, rank = 0;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    Z3D_TRY(read_number(ranks_text, "ranks", 1, &ranks));
    Z3D_TRY(read_number(rank_text, "rank", 0, &rank));
    Z3D_TRY(check_options(&prediction, rank_text != NULL));
    Z3D_TRY(check_outputs(&prediction, count > 0 ? argv[1] : NULL));
    z3d_config *config;
    Z3D_TRY(cli_read_config(count, argv + 1, &config));
    z3d_status status = prediction.steps.count ? calibrate(config, &prediction, text)
                        : prediction.fit || prediction.recommend
                            ? find_best(config, ranks, &prediction, text)
                            : plan_config(config, ranks, rank, &prediction, text);
    z3d_config_destroy(config);
    return status;
}

static int run(int argc, char **argv) {
    z3d_string text = {0};
    z3d_status status = make(argc, argv, &text);
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "plan");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_plan = {
    "plan", "show memory, communication and program of any rank, without a run",
    help,   run,
    false,  NULL,
    true};
