/* The console. */
#include "src/train/report/console.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"
#include "src/train/trainer.h"
#include "zero/program/layout.h"

/* A closed standard output does not end a run: metrics.jsonl has all numbers. */
static void flush(z3d_console *console) {
    bool failed = fflush(console->out) != 0 || ferror(console->out);
    if (failed && !console->failure_said)
        z3d_log(Z3D_LOG_WARN,
                "cannot write the run's progress to standard output: %s; training continues",
                strerror(errno));
    console->failure_said = console->failure_said || failed;
    clearerr(console->out);
}

void z3d_console_say(z3d_console *console, const char *format, ...) {
    if (!console->out) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(console->out, format, arguments);
    va_end(arguments);
    fputc('\n', console->out);
    flush(console);
}

static void say_model(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_model_facts *model = &trainer->model->facts;
    z3d_console_say(console,
                    "model       %s, %s: %s, %lld tokens per sample, vocabulary %lld (padded %lld)",
                    model->type, z3d_model_parameters_text(trainer->model).text, model->shape,
                    (long long)model->tokens, (long long)model->vocabulary,
                    (long long)model->padded_vocabulary);
}

static void say_mesh(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_mesh *mesh = &trainer->mesh;
    const int nodes = z3d_world_nodes(trainer->world);
    z3d_console_say(console, "ranks       %d = %s on %d node%s",
                    z3d_mesh_size(mesh, Z3D_AXES_WORLD), z3d_mesh_name(mesh).text, nodes,
                    nodes == 1 ? "" : "s");
    z3d_console_say(console, "device      %s", z3d_device_description(trainer->device));
    if (trainer->options->verbose && trainer->peak_tflops > 0)
        z3d_console_say(console, "peak        %.4g %s per rank, 100 %% of MFU (%s)",
                        trainer->peak_tflops >= 1 ? trainer->peak_tflops
                                                  : trainer->peak_tflops * 1e3,
                        trainer->peak_tflops >= 1 ? "TFLOP/s" : "GFLOP/s",
                        trainer->peak_kept       ? "measured at an earlier start"
                        : trainer->peak_measured ? "measured with matrix products"
                                                 : "training.peak_tflops");
}

/* Tells where offloaded states are, and the method of reading and writing the disk. */
static void say_offload(z3d_console *console, const z3d_trainer *trainer) {
    static const char *const where[] = {"on the device", "in host memory", "on the disk"};
    const z3d_program_config *program = &trainer->program;
    const z3d_offload_plan *offload = &program->offload;
    const bool states =
        offload->optimizer != Z3D_SPACE_DEVICE || offload->parameters != Z3D_SPACE_DEVICE;
    const bool checkpoints = program->checkpoint_space != Z3D_SPACE_DEVICE;
    const char *disk = z3d_engine_disk(trainer->engine);
    z3d_string line = {0};
    if (!states && !checkpoints) return;
    if (states && offload->resident > 0)
        z3d_string_append(&line, "%.0f %% of the parameter groups' elements: ",
                          100 * z3d_offloaded_share(z3d_engine_layout(trainer->engine)));
    if (states)
        z3d_string_append(&line, "optimizer states %s, parameters %s", where[offload->optimizer],
                          where[offload->parameters]);
    if (checkpoints)
        z3d_string_append(&line, "%sactivation checkpoints %s", states ? ", " : "",
                          where[program->checkpoint_space]);
    if (disk) z3d_string_append(&line, "; disk: %s", disk);
    if (!line.failed) z3d_console_say(console, "offload     %s", line.text);
    if (offload->delayed)
        z3d_console_say(console, "offload     delayed_param_update: a step's gradients change the "
                                 "parameters one step later; losses differ from those without");
    z3d_string_free(&line);
}

/* Tells the decisions of other keys that were auto. */
static void say_choices(z3d_console *console, const z3d_trainer *trainer) {
    const struct {
        const char *what, *why;
    } choices[] = {{"offload     cpu_checkpointing auto: ", trainer->offload_why.text},
                   {"offload     offload_optimizer.ratio auto: ", trainer->ratio_why.text},
                   {"activation  recompute_activation auto: ", trainer->activation_why.text},
                   {"products    ", trainer->products_why.text},
                   {"gather      pipeline_gather auto: ", trainer->gather_why.text}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].why) z3d_console_say(console, "%s%s", choices[i].what, choices[i].why);
}

static void say_method(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const z3d_program_config *program = &trainer->program;
    bool whole = z3d_keeps_whole_gradients(z3d_engine_layout(trainer->engine));
    static const char *const cut[] = {[Z3D_SHARDING_FLAT] = "",
                                      [Z3D_SHARDING_HIERARCHICAL] = ", hierarchical collectives",
                                      [Z3D_SHARDING_HPZ] = ", hpZ",
                                      [Z3D_SHARDING_HYBRID] = ", hybrid sharding"};
    z3d_string sharding = {0};
    const int inner = z3d_mesh_size(&trainer->mesh, Z3D_ROLE_BLOCKS);
    if (z3d_mesh_size(&trainer->mesh, Z3D_ROLE_NODES) > 1)
        z3d_string_append(&sharding, "%s over %d data ranks each", cut[program->sharding], inner);
    z3d_console_say(
        console, "method      ZeRO stage %d%s, %s, gradients %s%s%sreduced once per %s%s, %s",
        program->stage, sharding.text ? sharding.text : "", z3d_dtype_name(z3d_plan_dtype(config)),
        program->grad_dtype != program->dtype ? "in fp32, " : "",
        program->wire != Z3D_F32 ? z3d_dtype_name(program->wire) : "",
        program->wire != Z3D_F32 ? " on the wire, " : "",
        program->reduce_per_step ? "step" : "micro-batch", whole ? ", kept whole until then" : "",
        program->recompute   ? "activations recomputed"
        : program->selective ? "layernorms and attention recomputed"
                             : "activations kept");
    z3d_string_free(&sharding);
    say_offload(console, trainer);
    if (trainer->granularity_why.text)
        z3d_console_say(console, "activation  granularity auto: %s", trainer->granularity_why.text);
    if (trainer->options->verbose) say_choices(console, trainer);
    int64_t data = z3d_mesh_size(&trainer->mesh, Z3D_ROLE_SAMPLES);
    char tokens[32];
    z3d_console_say(
        console,
        "batch       %lld sample%s per step = %lld per rank%s x %lld micro-batch%s x %lld "
        "data rank%s, %s tokens",
        (long long)config->train_batch_size, z3d_plural(config->train_batch_size),
        (long long)config->train_micro_batch_size_per_gpu,
        program->first_sample ? " on average" : "", (long long)config->gradient_accumulation_steps,
        config->gradient_accumulation_steps == 1 ? "" : "es", (long long)data, data == 1 ? "" : "s",
        z3d_format_count((double)(config->train_batch_size * config->model_seq_length), tokens,
                         sizeof tokens));
}

/* Tells optimizer and learning rate: "AdamW, lr 0.002, WarmupCosineLR". */
static void say_optimizer(z3d_console *console, const z3d_config *config) {
    const z3d_lr_schedule schedule = (z3d_lr_schedule)config->scheduler_type;
    const long long warm = (long long)config->scheduler_params_warmup_num_steps;
    char warms[48] = "";
    if (warm > 0 && z3d_lr_schedule_reads(schedule, "warmup_num_steps"))
        snprintf(warms, sizeof warms, ", warm-up of %lld step%s", warm, z3d_plural(warm));
    z3d_console_say(console, "optimizer   %s, lr %g, %s%s%s",
                    z3d_optimizer_name((z3d_optimizer)config->optimizer_type),
                    config->optimizer_params_lr, z3d_lr_schedule_name(schedule), warms,
                    config->optimizer_param_groups.count ? ", groups of parameters with their own"
                                                         : "");
}

/* Tells the schedule, and the number of units in each of its chunks. */
static void say_pipeline(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_layout *layout = z3d_engine_layout(trainer->engine);
    const z3d_program_config *program = &trainer->program;
    z3d_string chunks = {0};
    if (layout->stages == 1) return;
    for (int c = 0; c < layout->num_chunks; c++)
        z3d_string_append(&chunks, "%s%d", c ? ", " : "",
                          layout->first_unit[c + 1] - layout->first_unit[c]);
    z3d_console_say(console, "pipeline    %s, %d stages, units of the %d chunks: %s%s",
                    z3d_schedule_name(program->pipeline.schedule), layout->stages,
                    layout->num_chunks, chunks.text ? chunks.text : "?",
                    z3d_state_is_whole(layout, 0, Z3D_STATE_VALUE) ? ""
                    : program->pipeline.gather_per_step ? "; parameters gathered once per step"
                                                        : "; parameters gathered for each pass");
    z3d_string_clear(&chunks);
    z3d_plan_few_micro_batches(program, layout->stages, "warning: ", &chunks);
    if (chunks.length) z3d_console_say(console, "%.*s", (int)chunks.length - 1, chunks.text);
    z3d_string_free(&chunks);
}

/* Tells the speeds of ranks, and the samples that data ranks get for them. */
static void say_speeds(z3d_console *console, const z3d_trainer *trainer) {
    enum { SHOWN = 16 };
    const z3d_program_config *program = &trainer->program;
    double speed[SHOWN];
    int count, unused, data = z3d_mesh_size(&trainer->mesh, Z3D_ROLE_SAMPLES);
    z3d_string text = {0};
    if (z3d_config_device_speeds(trainer->config, speed, SHOWN, &count) != Z3D_SPEEDS_LIST) return;
    for (int r = 0; r < count && r < SHOWN; r++)
        z3d_string_append(&text, "%s%g", r ? ", " : "", speed[r]);
    if (count > SHOWN) z3d_string_append(&text, ", ...");
    for (int d = 0; d < data && d < SHOWN && program->first_sample; d++)
        z3d_string_append(&text, "%s%lld", d ? ", " : "; a micro-batch's samples per data rank: ",
                          (long long)(program->first_sample[d + 1] - program->first_sample[d]));
    if (data > SHOWN) z3d_string_append(&text, ", ...");
    if (z3d_config_partition(trainer->config, NULL, 0, &unused) == Z3D_PARTITION_LIST)
        z3d_string_append(&text, "; units as in parallel.pipeline_partition");
    z3d_console_say(console, "speeds      %s", text.text ? text.text : "?");
    z3d_string_free(&text);
}

/* Tells whether steps are CUDA graphs; the cpu device has none. */
static void say_graph(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    if (config->training_device == Z3D_TRAINING_CPU) return;
    if (config->training_cuda_graph == Z3D_CUDA_GRAPH_OFF)
        z3d_console_say(console, "graph       none: training.cuda_graph is off");
    else if (trainer->graph_obstacle)
        z3d_console_say(console, "graph       none: %s", trainer->graph_obstacle);
    else
        z3d_console_say(console, "graph       one CUDA graph per step, from step 2 on");
}

/* Tells the most elements that one collective of the data group moves. */
static void say_buckets(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_program_config *program = &trainer->program;
    char reduce[32], gather[32], most[32];
    int64_t largest = z3d_layout_largest(z3d_engine_layout(trainer->engine));
    if (z3d_mesh_size(&trainer->mesh, Z3D_ROLE_ROWS) == 1) return;
    bool whole = program->reduce_bucket >= largest && program->gather_bucket >= largest;
    z3d_console_say(
        console, "buckets     reduce %s, gather %s elements; the largest parameter group has %s%s",
        z3d_format_count((double)program->reduce_bucket, reduce, sizeof reduce),
        z3d_format_count((double)program->gather_bucket, gather, sizeof gather),
        z3d_format_count((double)largest, most, sizeof most), whole ? ": none is split" : "");
}

/* Tells how documents are packed in samples. */
static void say_packing(z3d_console *console, const z3d_config *config,
                        const z3d_packing_facts *p) {
    static const char *const become[] = {[Z3D_TOO_LONG_TRUNCATE] = "truncated",
                                         [Z3D_TOO_LONG_DROP] = "left out",
                                         [Z3D_TOO_LONG_SPLIT] = "split"};
    const double room = (double)p->samples * (double)config->model_seq_length;
    z3d_console_say(console,
                    "documents   %lld in %lld sample%s an epoch, which they fill to %.1f %%",
                    (long long)p->documents, (long long)p->samples, p->samples == 1 ? "" : "s",
                    100 * (double)p->tokens / room);
    if (p->too_long)
        z3d_console_say(console, "            %lld with more than %lld tokens: %s (data.too_long)",
                        (long long)p->too_long, (long long)config->model_seq_length,
                        become[config->data_too_long]);
    if (p->untrained)
        z3d_console_say(console, "            %lld without a token that is trained: left out",
                        (long long)p->untrained);
    if (p->untrained_parts)
        z3d_console_say(
            console,
            "            %lld part%s of split documents without a token that is trained: left out",
            (long long)p->untrained_parts, z3d_plural(p->untrained_parts));
}

/* Appends the number of validation tokens, " 12.3 M", and how many of them a validation reads. */
static void append_validation(const z3d_trainer *trainer, z3d_string *out) {
    const long long batches = (long long)trainer->config->training_eval_steps;
    char count[32] = "none";
    if (trainer->validation)
        z3d_format_count((double)z3d_dataset_tokens(trainer->validation), count, sizeof count);
    z3d_string_append(out, "%s", count);
    if (trainer->validation && z3d_trainer_validation_is_cut(trainer))
        z3d_string_append(out, " (a loss takes %lld batch%s of %s: training.eval_steps)", batches,
                          batches == 1 ? "" : "es",
                          trainer->config->data_validation.count > 1 ? "each file" : "it");
}

/* The number of passes over the data. */
static double passes_of(const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const z3d_packing_facts packing = z3d_dataset_packing(trainer->train);
    const double samples = (double)config->training_steps * (double)config->train_batch_size;
    return packing.documents > 0 ? samples / (double)packing.samples
                                 : samples * (double)config->model_seq_length /
                                       (double)z3d_dataset_tokens(trainer->train);
}

static void say_passes(z3d_console *console, const z3d_trainer *trainer) {
    enum { MANY = 10 };
    const int64_t steps = trainer->config->training_steps;
    const int64_t samples = z3d_dataset_samples(trainer->train);
    if (trainer->epochs > 0)
        z3d_console_say(console,
                        "            training.epochs %g: %lld step%s; a pass is %lld sample%s",
                        trainer->epochs, (long long)steps, z3d_plural(steps), (long long)samples,
                        z3d_plural(samples));
    else if (passes_of(trainer) > MANY)
        z3d_console_say(console,
                        "            more than %d passes over the data; training.epochs=3 makes 3",
                        MANY);
}

static void say_data(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const double epochs = passes_of(trainer);
    const z3d_packing_facts packing = z3d_dataset_packing(trainer->train);
    const int files = config->data_train.count;
    char train[32], largest[64] = "", passes[64];
    z3d_string validation = {0};
    append_validation(trainer, &validation);
    snprintf(passes, sizeof passes, "; the run is %.*g epoch%s", epochs < 0.1 ? 1 : 3, epochs,
             fabs(epochs - 1) < 0.005 ? "" : "s");
    if (trainer->largest_token >= 0)
        snprintf(largest, sizeof largest, "; largest token %d of vocabulary %lld",
                 trainer->largest_token, (long long)config->model_vocab_size);
    z3d_console_say(
        console, "data        %s tokens in %d file%s, validation %s%s%s",
        z3d_format_count((double)z3d_dataset_tokens(trainer->train), train, sizeof train), files,
        z3d_plural(files), validation.text ? validation.text : "?",
        trainer->epochs > 0 ? "" : passes, largest);
    z3d_string_free(&validation);
    say_passes(console, trainer);
    if (packing.documents > 0)
        say_packing(console, config, &packing);
    else if (z3d_dataset_masked(trainer->train))
        z3d_console_say(console, "            conversations or prompts are cut where a window "
                                 "ends: data.samples=documents keeps them whole");
}

/* "parameters 1.50 MiB, gradients ..." */
static void append_ledger(z3d_string *out, const z3d_ledger *ledger) {
    char bytes[32];
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s%s %s", category ? ", " : "",
                          z3d_category_name((z3d_category)category),
                          z3d_format_bytes(ledger->peak[category], bytes, sizeof bytes));
}

static void say_planned(z3d_console *console, const z3d_trainer *trainer,
                        const z3d_rank_memory *of) {
    z3d_string memory = {0};
    char bytes[32], buffers[32], beside[96] = "", whose[48] = "per rank";
    if (of->buffer_bytes > 0)
        snprintf(beside, sizeof beside, ", plus %s of communication buffers",
                 z3d_format_bytes(of->buffer_bytes, buffers, sizeof buffers));
    if (z3d_mesh_size(&trainer->mesh, Z3D_ROLE_STAGES) > 1)
        snprintf(whose, sizeof whose, "on rank %d, which takes most,", of->rank);
    if (trainer->options->verbose) z3d_string_append(&memory, "; peak use:\n            ");
    if (trainer->options->verbose) append_ledger(&memory, &of->planned[Z3D_SPACE_DEVICE]);
    z3d_console_say(console, "memory      %s %s in one block%s%s",
                    z3d_format_bytes(of->arena_bytes, bytes, sizeof bytes), whose, beside,
                    memory.text ? memory.text : "");
    z3d_string_free(&memory);
}

static const char no_checkpoints[] =
    "this run saves no checkpoints; set checkpoint.interval to keep the model";

static void say_checkpoints(z3d_console *console, const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    const char *also = config->checkpoint_keep_best ? " and at each lower validation loss" : "";
    char kept[48] = "all";
    if (config->checkpoint_keep > 0)
        snprintf(kept, sizeof kept, "the latest %lld%s", (long long)config->checkpoint_keep,
                 config->checkpoint_keep_best ? " and the best" : "");
    if (config->checkpoint_interval == 0)
        z3d_console_say(console, "checkpoints none; %s", no_checkpoints);
    else if (config->checkpoint_interval > config->training_steps)
        z3d_console_say(console, "checkpoints at the end%s, in %s, keeps %s", also,
                        trainer->checkpoint_dir, kept);
    else
        z3d_console_say(console, "checkpoints every %lld step%s%s in %s, keeps %s",
                        (long long)config->checkpoint_interval,
                        config->checkpoint_interval == 1 ? "" : "s", also, trainer->checkpoint_dir,
                        kept);
}

void z3d_console_start(z3d_console *console, FILE *out, const z3d_trainer *trainer,
                       const z3d_rank_memory *memory) {
    *console = (z3d_console){.out = out,
                             .steps = trainer->config->training_steps,
                             .log_interval = trainer->config->training_log_interval,
                             .rate_unit = trainer->peak_tflops >= 1 ? 1e12 : 1e9};
    if (!out || trainer->complete) return; /* a complete run announces no step */
    say_model(console, trainer);
    say_mesh(console, trainer);
    say_method(console, trainer);
    say_optimizer(console, trainer->config);
    say_pipeline(console, trainer);
    say_speeds(console, trainer);
    if (trainer->options->verbose) {
        say_graph(console, trainer);
        say_buckets(console, trainer);
    }
    say_data(console, trainer);
    z3d_console_say(console, "weights     %s", trainer->weights.text ? trainer->weights.text : "?");
    say_planned(console, trainer, memory);
    say_checkpoints(console, trainer);
    z3d_console_say(
        console, "run folder  %s%s", trainer->config->run_dir,
        trainer->options->verbose ? "" : " (config.yaml has all keys; --verbose tells more)");
}

static int step_width(const z3d_console *console) {
    char text[32];
    return snprintf(text, sizeof text, "%lld", (long long)console->steps);
}

static void say_header(z3d_console *console) {
    if (console->header_said) return;
    console->header_said = true;
    int width = 2 * step_width(console) + 1;
    z3d_console_say(console, "\n%*s  %10s  %9s  %9s  %9s  %12s  %6s  %s", width < 4 ? 4 : width,
                    "step", "loss", "grad norm", "lr", "tokens/s",
                    console->rate_unit == 1e12 ? "TFLOP/s/rank" : "GFLOP/s/rank", "MFU", "left");
}

void z3d_console_step(z3d_console *console, const z3d_step_record *record) {
    if (!console->out) return;
    console->tokens += record->tokens;
    console->seconds += record->seconds;
    console->model_tflops_seconds += record->model_tflops * record->seconds;
    /* The first step is slower than the others, so the second one replaces it in the mean. */
    console->step_seconds =
        console->seen < 2 ? record->seconds : 0.9 * console->step_seconds + 0.1 * record->seconds;
    console->seen++;
    bool last = record->result.step == console->steps;
    say_header(console);
    int width = step_width(console);
    if (record->result.skipped && record->result.targets == 0)
        z3d_console_say(console, "%*lld/%lld  skipped: no token of its data is trained", width,
                        (long long)record->result.step, (long long)console->steps);
    else if (record->result.skipped)
        z3d_console_say(console, "%*lld/%lld  skipped: overflow in %s at loss scale %g", width,
                        (long long)record->result.step, (long long)console->steps,
                        record->overflow_group ? record->overflow_group : "the forward pass",
                        (double)record->result.loss_scale);
    if (console->seen > 1 && record->result.step % console->log_interval != 0 && !last) return;
    char tokens[32], left[32], mfu[32] = "-";
    double seconds = console->seconds > 0 ? console->seconds : NAN;
    double rate = console->model_tflops_seconds / seconds;
    if (isfinite(record->mfu) && record->model_tflops > 0)
        snprintf(mfu, sizeof mfu, "%.1f %%", 100 * rate * record->mfu / record->model_tflops);
    z3d_format_seconds((double)(console->steps - record->result.step) * console->step_seconds, left,
                       sizeof left);
    z3d_console_say(console, "%*lld/%lld  %10.6f  %9.4f  %9.3e  %9s  %12.4g  %6s  %s", width,
                    (long long)record->result.step, (long long)console->steps,
                    isnan(record->result.loss) ? NAN : record->result.loss, /* not "-nan" */
                    isnan(record->result.grad_norm) ? NAN : record->result.grad_norm,
                    (double)record->lr,
                    z3d_format_count((double)console->tokens / seconds, tokens, sizeof tokens),
                    rate * 1e12 / console->rate_unit, mfu, last ? "-" : left);
    console->tokens = 0;
    console->seconds = console->model_tflops_seconds = 0;
}

void z3d_console_validation(z3d_console *console, int64_t step, double loss, double seconds) {
    if (!console->out) return;
    char text[32];
    z3d_console_say(console, "%*lld/%lld  %10.6f  validation loss, nats per token (%s)",
                    step_width(console), (long long)step, (long long)console->steps, loss,
                    z3d_format_seconds(seconds, text, sizeof text));
}

/* ---- the end ---- */

static void say_memory(z3d_console *console, const z3d_run_end *end) {
    char all[32], planned[32], outside[32], beside[96] = "";
    int64_t bytes = 0;
    for (int space = 0; space < Z3D_SPACE_DISK; space++)
        bytes += end->memory->measured[space].total_peak;
    if (end->memory->outside > 0)
        snprintf(beside, sizeof beside, ": %s of the plan, %s outside of it",
                 z3d_format_bytes(bytes, planned, sizeof planned),
                 z3d_format_bytes(end->memory->outside, outside, sizeof outside));
    z3d_console_say(console, "memory   peak %s on rank %d%s",
                    z3d_format_bytes(bytes + (end->memory->outside > 0 ? end->memory->outside : 0),
                                     all, sizeof all),
                    end->memory->rank, beside);
}

static void append_share(z3d_string *out, const z3d_run_end *end, const char *what,
                         double seconds) {
    if (isfinite(seconds) && end->sums->step_seconds > 0)
        z3d_string_append(out, "%s%s %.1f %%", out->length ? ", " : "", what,
                          100 * seconds / end->sums->step_seconds);
}

/* Leaves out communication for a single rank. */
static void say_exposed(z3d_console *console, const z3d_run_end *end) {
    const z3d_run_sums *sums = end->sums;
    z3d_string text = {0};
    if (sums->comm_seconds > 0) append_share(&text, end, "communication", sums->comm_seconds);
    if (end->offloaded) append_share(&text, end, "host transfers", sums->transfer_seconds);
    if (sums->disk_seconds > 0) append_share(&text, end, "disk", sums->disk_seconds);
    if (sums->host_step_seconds > 0) append_share(&text, end, "host step", sums->host_step_seconds);
    if (text.length || isnan(sums->comm_seconds))
        z3d_console_say(console, "exposed  %s%s", text.length ? text.text : "not timed",
                        text.length ? " of the steps' time" : "");
    z3d_string_free(&text);
}

void z3d_console_end(z3d_console *console, const z3d_run_end *end) {
    const z3d_config *config = end->trainer->config;
    const z3d_run_sums *sums = end->sums;
    if (!console->out) return;
    char seconds[32], tokens[32], skipped[48] = "", validation[48] = "", mfu[32] = "";
    char speed[96] = "";
    if (sums->skipped)
        snprintf(skipped, sizeof skipped, " (%lld skipped)", (long long)sums->skipped);
    if (isfinite(sums->validation_loss))
        snprintf(validation, sizeof validation, ", validation loss %.6f", sums->validation_loss);
    if (isfinite(end->mfu)) snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * end->mfu);
    if (isfinite(end->tokens_per_second)) /* a single step is only warming up */
        snprintf(speed, sizeof speed, ", %s tokens/s%s",
                 z3d_format_count(end->tokens_per_second, tokens, sizeof tokens), mfu);
    const char *how = end->early          ? "ended early"
                      : !end->stopped     ? "done"
                      : end->time_is_over ? "stopped by training.time_limit"
                                          : "stopped by a signal";
    z3d_console_say(console, "\n%s: %lld step%s%s in %s, loss %.6f -> %.6f%s%s", how,
                    (long long)sums->steps, sums->steps == 1 ? "" : "s", skipped,
                    z3d_format_seconds(end->seconds, seconds, sizeof seconds), sums->first_loss,
                    sums->last_loss, validation, speed);
    if (end->early) z3d_console_say(console, "early    %s", end->early);
    if (end->best)
        z3d_console_say(console, "best     validation loss %.6f at step %lld: %s",
                        end->trainer->evaluations.best_loss,
                        (long long)end->trainer->evaluations.best_step, end->best);
    say_memory(console, end);
    say_exposed(console, end);
    z3d_console_say(console, "files    %s: metrics.jsonl, events.jsonl, summary.json%s%s%s",
                    config->run_dir, config->generate_every > 0 ? ", samples.jsonl" : "",
                    end->checkpoint_dir ? "; checkpoints in " : "",
                    end->checkpoint_dir ? end->checkpoint_dir : "");
    if (!end->checkpoint_dir) z3d_console_say(console, "warning: %s", no_checkpoints);
    z3d_string text = {0};
    z3d_summary_tables(end, end->trainer->options->verbose, &text);
    if (text.length) z3d_console_say(console, "%.*s", (int)text.length - 1, text.text);
    z3d_string_clear(&text);
    z3d_summary_next(end, "\n         ", &text);
    if (text.length) z3d_console_say(console, "next     %s", text.text);
    z3d_string_free(&text);
}
