/* Generates text from a checkpoint. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/train/generation/generate.h"
#include "src/train/generation/prompts.h"
#include "src/train/inference_config.h"
#include "src/train/text/text_files.h"
#include "src/train/train.h"
#include "src/train/trainer.h"

static bool has_text(const z3d_config *config) {
    return config->generate_prompt && *config->generate_prompt;
}

z3d_status z3d_generate_has_prompt(const char *path, char *const *assignments, int count,
                                   bool *out) {
    z3d_config *config;
    z3d_status status = z3d_inference_config(path, 1, true, assignments, count, &config);
    *out = status == Z3D_OK &&
           (has_text(config) || z3d_is_assigned(assignments, count, "generate.prompt"));
    z3d_config_destroy(config);
    return status;
}

/* A missing prompt is an error. An empty prompt on the command line starts a new text; then, and
 * for prompts of a file, the configuration gets a placeholder as generate.prompt. */
static z3d_status check_prompt(z3d_config *config, const z3d_generate_request *request,
                               bool *empty) {
    const bool given = z3d_is_assigned(request->assignments, request->count, "generate.prompt");
    *empty = false;
    if (request->prompts && given)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "generate.prompt and --prompts: give one of them");
    if (z3d_is_assigned(request->assignments, request->count, "generate.prompts"))
        return z3d_config_error(
            config, "generate.prompts",
            "a run uses these prompts; give --prompts FILE, with a prompt in each line");
    if (z3d_is_assigned(request->assignments, request->count, "generate.every"))
        return z3d_config_error(config, "generate.every", "only a run has steps; leave it out");
    if (!request->prompts && config->generate_batch != Z3D_AUTO &&
        z3d_is_assigned(request->assignments, request->count, "generate.batch"))
        return z3d_config_error(config, "generate.batch",
                                "one prompt has no batch; leave it out, or give --prompts FILE");
    if (has_text(config)) return Z3D_OK;
    *empty = given;
    if (given || request->prompts)
        return z3d_config_override(config, "generate.prompt=<|endoftext|>");
    return Z3D_ERROR(Z3D_ERR_CONFIG, "no prompt: give --prompt TEXT (the checkpoint's run has no "
                                     "generate.prompt; --prompt \"\" starts a new text)");
}

/* ---- generating ---- */

/* The destination of the generated text. */
typedef struct listener {
    z3d_status (*show)(void *context, const char *text, size_t length);
    void *context;
    const z3d_prompts *prompts; /* NULL: one text, which is shown piece by piece */
    const z3d_chat *chat;       /* NULL: none */
    z3d_line_file *output;      /* NULL: answers are shown */
    z3d_string line;
} listener;

/* Shows a piece, made fit for a terminal. */
static z3d_status show_piece(void *context, const char *text, size_t length) {
    listener *l = context;
    z3d_string_clear(&l->line);
    z3d_text_printable(text, length, &l->line);
    if (l->line.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the generated text");
    return l->show(l->context, l->line.text, l->line.length);
}

static z3d_status give_answer(void *context, int64_t prompt, const z3d_answer *answer) {
    listener *l = context;
    z3d_string_clear(&l->line);
    z3d_prompts_answer_line(&l->prompts->prompt[prompt].head, answer, &l->line);
    if (l->line.failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for an answer");
    if (l->output) return z3d_line_file_write(l->output, l->line.text, l->line.length);
    return l->show(l->context, l->line.text, l->line.length);
}

/* Continues prompts as the configuration says. Collective, agreed. */
static z3d_status continue_prompts(z3d_trainer *trainer, const z3d_prompt *prompt, int64_t count,
                                   listener *listener, z3d_generate_totals *totals) {
    const z3d_config *config = trainer->config;
    const bool ignore_eos = config->generate_ignore_eos == Z3D_IGNORE_EOS_AUTO
                                ? !listener->prompts && !listener->chat
                                : config->generate_ignore_eos == Z3D_IGNORE_EOS_TRUE;
    z3d_stops stops;
    z3d_generate_options options = {
        .prompt = prompt,
        .count = count,
        .sampling = {.repetition_penalty = config->generate_repetition_penalty,
                     .temperature = config->generate_temperature,
                     .top_k = config->generate_top_k,
                     .top_p = config->generate_top_p},
        .stops = &stops,
        .mesh = &trainer->mesh,
        .world = trainer->world,
        .piece = listener->prompts ? NULL : show_piece,
        .answer = listener->prompts ? give_answer : NULL,
        .context = listener};
    z3d_trainer_place(trainer, "generation");
    z3d_status status = z3d_stops_create(trainer->tokenizer, &config->generate_stop, !ignore_eos,
                                         listener->chat, &stops);
    if (status == Z3D_OK)
        status = z3d_generate(trainer->engine, trainer->tokenizer, &options, totals);
    if (status != Z3D_OK && status != Z3D_ERR_NUMERIC)
        status = z3d_trainer_stop_all(trainer, status);
    z3d_stops_release(&stops);
    return z3d_trainer_agree(trainer, status);
}

/* The style of prompts that are texts. */
static z3d_prompt_style style_of(const z3d_trainer *trainer) {
    return (z3d_prompt_style){.tokenizer = trainer->tokenizer,
                              .positions = trainer->model->positions,
                              .tokens = trainer->config->generate_tokens,
                              .seed = (uint64_t)trainer->config->generate_seed};
}

static z3d_status encode_prompt(const z3d_prompt_style *style, const char *text, z3d_prompt *out) {
    *out = (z3d_prompt){.tokens = style->tokens, .seed = style->seed};
    Z3D_TRY(z3d_prompt_encode(style, text, strlen(text), out));
    return z3d_prompt_check(style, out, Z3D_ERR_CONFIG);
}

/* Positions for the longest text, prompt and answer. Equal on all ranks. */
static int64_t positions_for(const z3d_prompt *prompt, int64_t count) {
    enum { ROUND = 128 };
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        if (prompt[i].length + prompt[i].tokens > longest)
            longest = prompt[i].length + prompt[i].tokens;
    return (longest + ROUND - 1) / ROUND * ROUND;
}

static z3d_status load(z3d_trainer *trainer, const z3d_generate_request *request,
                       const z3d_prompt *prompt, int64_t count) {
    bool stage = z3d_is_assigned(request->assignments, request->count, "zero_optimization.stage");
    int64_t step;
    Z3D_TRY(z3d_trainer_setup_inference(trainer, count, positions_for(prompt, count), stage));
    return z3d_trainer_load_weights(trainer, request->path, request->ema, &step);
}

/* Shows the text, unless it is a message, then each piece of its continuation. request: the weights
 * to load; NULL: they are loaded. Collective, agreed. */
static z3d_status continue_text(z3d_trainer *trainer, const z3d_generate_request *request,
                                const z3d_prompt_style *style, const char *text, listener *listener,
                                z3d_generate_totals *totals) {
    z3d_prompt prompt;
    z3d_status status = z3d_trainer_agree(trainer, encode_prompt(style, text, &prompt));
    if (status == Z3D_OK && request) status = load(trainer, request, &prompt, 1);
    if (status == Z3D_OK) {
        if (trainer->rank == 0 && !listener->chat)
            status = listener->show(listener->context, text, strlen(text));
        status = z3d_trainer_agree(trainer, status);
    }
    if (status == Z3D_OK) status = continue_prompts(trainer, &prompt, 1, listener, totals);
    free(prompt.token);
    z3d_string_free(&listener->line);
    return status;
}

static z3d_status append(void *context, const char *text, size_t length) {
    z3d_string *out = context;
    z3d_string_append_bytes(out, text, length);
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the generated text") : Z3D_OK;
}

z3d_status z3d_trainer_check_prompt(const z3d_trainer *trainer, const char *prompt) {
    const z3d_prompt_style style = style_of(trainer);
    z3d_prompt encoded;
    z3d_status status = encode_prompt(&style, prompt, &encoded);
    free(encoded.token);
    return status;
}

z3d_status z3d_trainer_sample(z3d_trainer *trainer, const char *prompt, z3d_string *out,
                              bool *stopped) {
    listener listener = {.show = append, .context = out};
    const z3d_prompt_style style = style_of(trainer);
    z3d_generate_totals totals = {0};
    z3d_status status = continue_text(trainer, NULL, &style, prompt, &listener, &totals);
    *stopped = totals.stopped;
    return status;
}

/* ---- from a checkpoint ---- */

/* Rank 0 reads the file and sends it to all ranks: it may be a pipe, or be on one node only.
 * Collective, agreed. */
static z3d_status read_prompts(z3d_trainer *trainer, const char *path,
                               const z3d_prompt_style *style, z3d_prompts *out) {
    enum { MOST = 1 << 30 };
    const bool input = strcmp(path, "-") == 0;
    z3d_string text = {0};
    z3d_status status = Z3D_OK;
    z3d_trainer_place(trainer, "start-up: reading prompts");
    if (trainer->rank == 0)
        status = z3d_read_file(input ? "/dev/stdin" : path, MOST, &text.text, &text.length);
    status = z3d_trainer_agree(trainer, status);
    if (status == Z3D_OK) status = z3d_trainer_share(trainer, 0, &text);
    if (status != Z3D_OK) {
        z3d_string_free(&text);
        return status;
    }
    status = z3d_prompts_read(text.text, text.length, input ? "standard input" : path, style, out);
    return z3d_trainer_agree(trainer, status);
}

/* Refuses an output that exists. Rank 0, before the expensive work. */
static z3d_status check_output(const z3d_trainer *trainer, const char *path) {
    if (trainer->rank != 0 || !path || access(path, F_OK) != 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "--output %s: the file exists; remove it or give another name",
                     path);
}

/* Removes an empty output, which would stop the next start. */
static z3d_status close_output(z3d_line_file *output) {
    struct stat info;
    if (output->fd >= 0 && fstat(output->fd, &info) == 0 && info.st_size == 0)
        (void)unlink(output->path);
    return z3d_line_file_close(output);
}

/* Collective, agreed. */
static z3d_status answer_file(z3d_trainer *trainer, const z3d_generate_request *request,
                              const z3d_prompt_style *style, z3d_generate_result *result,
                              z3d_generate_totals *totals) {
    z3d_prompts prompts = {0};
    z3d_line_file output = {.fd = -1};
    const bool writes = request->output && trainer->rank == 0;
    listener listener = {.show = request->show,
                         .context = request->context,
                         .prompts = &prompts,
                         .chat = style->chat,
                         .output = writes ? &output : NULL};
    z3d_status status = read_prompts(trainer, request->prompts, style, &prompts);
    if (status == Z3D_OK) status = load(trainer, request, prompts.prompt, prompts.count);
    if (status == Z3D_OK && writes) status = z3d_line_file_create(&output, request->output);
    status = z3d_trainer_agree(trainer, status);
    result->prompts = prompts.count;
    if (status == Z3D_OK)
        status = continue_prompts(trainer, prompts.prompt, prompts.count, &listener, totals);
    const z3d_kept_error end = z3d_error_keep(status);
    z3d_status closed = close_output(&output);
    z3d_prompts_free(&prompts);
    z3d_string_free(&listener.line);
    return end.status == Z3D_OK ? z3d_trainer_agree(trainer, closed) : z3d_error_restore(&end);
}

/* Collective, agreed. */
static z3d_status answer_one(z3d_trainer *trainer, const z3d_generate_request *request,
                             const z3d_prompt_style *style, z3d_generate_totals *totals) {
    listener listener = {.show = request->show, .context = request->context, .chat = style->chat};
    const char *text = trainer->empty_prompt ? "" : trainer->config->generate_prompt;
    return continue_text(trainer, request, style, text, &listener, totals);
}

static void fill_result(const z3d_trainer *trainer, const z3d_generate_totals *totals,
                        z3d_generate_result *out) {
    out->stopped = totals->stopped;
    out->answers = totals->answers;
    out->batch = trainer->program.generate_batch;
    out->replicas = z3d_mesh_size(&trainer->mesh, Z3D_ROLE_SAMPLES);
    out->stage = trainer->program.stage;
    for (int mode = Z3D_MODE_PREFILL; mode <= Z3D_MODE_DECODE; mode++) {
        z3d_generate_rate *rate = mode == Z3D_MODE_DECODE ? &out->decode : &out->prefill;
        rate->tokens += totals->tokens[mode];
        rate->seconds += totals->seconds[mode];
    }
}

static z3d_status find_chat(z3d_tokenizer *tokenizer, const char *name, z3d_chat *out) {
    char names[Z3D_CHAT_NAMES];
    Z3D_TRY(z3d_chat_find(name, tokenizer, out));
    return out->kind ? Z3D_OK
                     : Z3D_ERROR(Z3D_ERR_USAGE,
                                 "--chat: the model's folder has no chat template; name one with "
                                 "--chat-template: %s",
                                 z3d_chat_kind_names(names, sizeof names));
}

static z3d_status generate(z3d_trainer *trainer, const z3d_generate_request *request,
                           z3d_generate_result *result) {
    z3d_generate_totals totals = {0};
    z3d_chat chat = {0};
    *result = (z3d_generate_result){.prompts = 1};
    Z3D_TRY(z3d_trainer_agree(trainer, check_output(trainer, request->output)));
    Z3D_TRY(z3d_trainer_begin_inference(trainer));
    z3d_prompt_style style = style_of(trainer);
    style.chat = request->chat ? &chat : NULL;
    style.system = request->system;
    z3d_status status =
        request->chat ? find_chat(trainer->tokenizer, request->chat_template, &chat) : Z3D_OK;
    status = z3d_trainer_agree(trainer, status);
    if (status == Z3D_OK)
        status = request->prompts ? answer_file(trainer, request, &style, result, &totals)
                                  : answer_one(trainer, request, &style, &totals);
    if (status == Z3D_OK) fill_result(trainer, &totals, result);
    z3d_chat_free(&chat);
    return status;
}

z3d_status z3d_generate_from(z3d_world *world, const z3d_generate_request *request,
                             z3d_generate_result *result) {
    z3d_trainer trainer = {.world = world, .rank = z3d_world_rank(world)};
    z3d_status status = z3d_inference_config(request->path, z3d_world_size(world), true,
                                             request->assignments, request->count, &trainer.config);
    if (status == Z3D_OK) status = check_prompt(trainer.config, request, &trainer.empty_prompt);
    status = z3d_trainer_agree(&trainer, status);
    if (status == Z3D_OK) status = generate(&trainer, request, result);
    const z3d_kept_error end = z3d_error_keep(status);
    z3d_config *config = trainer.config;
    z3d_trainer_destroy(&trainer);
    z3d_config_destroy(config);
    return z3d_error_restore(&end);
}
