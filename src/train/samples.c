/* Samples of a run: continues its prompts, at its end and during the run. */
#include <string.h>

#include "src/train/trainer.h"

/* 1 if generate.prompt is set: then it is the first prompt. */
static int has_first(const z3d_config *config) {
    return config->generate_prompt && *config->generate_prompt;
}

static int count_of(const z3d_config *config) {
    return has_first(config) + config->generate_prompts.count;
}

static const char *prompt_of(const z3d_config *config, int index) {
    return index < has_first(config) ? config->generate_prompt
                                     : config->generate_prompts.path[index - has_first(config)];
}

z3d_status z3d_trainer_check_prompts(const z3d_trainer *trainer) {
    const z3d_config *config = trainer->config;
    for (int i = 0; i < count_of(config); i++) {
        const char *key = i < has_first(config) ? "generate.prompt" : "generate.prompts";
        z3d_status status = z3d_trainer_check_prompt(trainer, prompt_of(config, i));
        if (status != Z3D_OK) return z3d_error_context(status, "%s", key);
    }
    return Z3D_OK;
}

/* Rank 0: {"step", "prompt", "text"}. */
static void write_sample(z3d_trainer *trainer, int64_t step, const char *prompt,
                         const z3d_string *text) {
    z3d_string *line = &trainer->line;
    if (trainer->samples.fd < 0 || trainer->complete || !text->text) return;
    z3d_string_append(line, "{\"step\":%lld,\"prompt\":", (long long)step);
    z3d_string_append_json(line, prompt);
    z3d_string_append(line, ",\"text\":");
    z3d_string_append_json(line, text->text + strlen(prompt));
    z3d_string_append(line, "}\n");
    z3d_trainer_write_line(trainer, &trainer->samples);
}

static z3d_status sample(z3d_trainer *trainer, int64_t step, bool last, const char *prompt,
                         bool *stopped) {
    const z3d_config *config = trainer->config;
    z3d_string text = {0};
    char when[48] = "";
    z3d_status status = z3d_trainer_sample(trainer, prompt, &text, stopped);
    if (!last) snprintf(when, sizeof when, " of step %lld", (long long)step);
    if (status == Z3D_OK && trainer->rank == 0) {
        z3d_console_say(&trainer->console,
                        "\nsample%s (%lld tokens%s, temperature %g, top-k %lld):\n%s", when,
                        (long long)config->generate_tokens,
                        *stopped ? ", stopped early by a signal" : "", config->generate_temperature,
                        (long long)config->generate_top_k, text.text ? text.text : "");
        if (!*stopped) write_sample(trainer, step, prompt, &text);
    }
    if (status == Z3D_ERR_NUMERIC) { /* on all ranks; the training's own checks decide whether the
                                        run fails */
        if (trainer->rank == 0)
            z3d_log(Z3D_LOG_WARN, "step %lld: no sample: %s", (long long)step, z3d_error_message());
        status = Z3D_OK;
    }
    z3d_string_free(&text);
    return status;
}

z3d_status z3d_trainer_sample_all(z3d_trainer *trainer, int64_t step, bool last, bool *stopped) {
    for (int i = 0; i < count_of(trainer->config) && !*stopped; i++)
        Z3D_TRY(sample(trainer, step, last, prompt_of(trainer->config, i), stopped));
    if (!last && trainer->rank == 0) z3d_console_say(&trainer->console, "%s", "");
    return Z3D_OK;
}
