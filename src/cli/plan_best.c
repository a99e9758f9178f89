/* zero3d plan --fit and --recommend */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/cli/plan.h"

/* A number without a unit is refused: nobody means 24 bytes. "24G" is 24 GiB, as people say of
 * devices. */
static z3d_status read_size(const char *wanted, int64_t *bytes) {
    const size_t length = strlen(wanted);
    const char last = length > 0 ? wanted[length - 1] : '\0';
    char text[32] = "";
    if (length + 3 <= sizeof text && !isdigit((unsigned char)last))
        snprintf(text, sizeof text, "%s%s", wanted, last && strchr("KMGTP", last) ? "iB" : "");
    if (text[0] && z3d_parse_bytes(text, bytes) == Z3D_OK && *bytes > 0) return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE,
                     "--fit %s: expected a size with its unit, such as 24GiB or 24G, or device",
                     wanted);
}

static z3d_status fit_capacity(const char *wanted, bool known, z3d_hardware *hardware) {
    int64_t bytes;
    if (strcmp(wanted, "device") == 0 && known) return Z3D_OK;
    if (strcmp(wanted, "device") == 0)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--fit device needs --hardware NAME");
    Z3D_TRY(read_size(wanted, &bytes));
    hardware->memory_gib = (double)bytes / 1073741824.0;
    return Z3D_OK;
}

static z3d_status write_best(const z3d_config *config, const char *how, double seconds,
                             const z3d_hardware *hardware, const cli_plan_asked *asked,
                             z3d_string *said) {
    /* The keys that the search decides are written also if they have their defaults. */
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
    if (!asked->write) return Z3D_OK;
    z3d_string_append(&text, "%s%s --write`: %.4g s a step, predicted on %s.\n",
                      z3d_output_config.begins, how, seconds, hardware->name);
    z3d_config_write_changed(config, decided, &text);
    z3d_status status = cli_save(Z3D_OK, asked->write, &text);
    if (!asked->json) z3d_string_append(said, "written: %s\n", asked->write);
    return status;
}

z3d_status cli_plan_best(z3d_config **config, const cli_plan_asked *asked, z3d_string *text) {
    z3d_hardware hardware;
    z3d_recommendation found;
    bool known;
    char how[80] = "--recommend";
    Z3D_TRY(cli_plan_hardware(*config, asked, &known, &hardware));
    if (!known && (asked->recommend || asked->train_tokens > 0))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--%s needs --hardware NAME",
                         asked->recommend ? "recommend" : "tokens");
    int ranks = (int)asked->ranks;
    if (known && asked->days == 0) ranks = z3d_default_ranks(*config, ranks, &hardware);
    if (!known) Z3D_TRY(z3d_nominal_machine(*config, ranks, &hardware));
    if (asked->fit) {
        Z3D_TRY(fit_capacity(asked->fit, known, &hardware));
        snprintf(how, sizeof how, "--fit %s", asked->fit);
    }
    const z3d_goal goal = {asked->train_tokens, asked->days};
    if (goal.days > 0)
        Z3D_TRY(z3d_recommend_nodes(config, &hardware, asked->fit != NULL, &goal, &found));
    else
        Z3D_TRY(z3d_recommend(*config, ranks, &hardware, asked->fit != NULL, &goal, &found));
    if (asked->json)
        z3d_recommend_json(&found, text);
    else
        z3d_recommend_print(&found, asked->verbose, text);
    return write_best(*config, how, found.row[0].seconds, &hardware, asked, text);
}
