/* zero3d evaluate */
#include <string.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/train/train.h"

static const char help[] =
    "usage: zero3d evaluate CHECKPOINT DATA [--json] [--json-key KEY] [--ema] [key=value ...]\n"
    "       zero3d-launch -n RANKS zero3d evaluate CHECKPOINT DATA ...\n"
    "\n"
    "Prints how well a checkpoint's model predicts DATA, on any number of ranks: loss,\n"
    "perplexity, bits per byte of text, and number of predicted tokens. CHECKPOINT is the folder\n"
    "of a checkpoint, or of checkpoints: then the latest is used.\n"
    "\n"
    "DATA is a token file, like those of data.train; texts in JSON (.jsonl, .ndjson, .json, or a\n"
    "file that begins like JSON); or another file, which is one text. In JSON each line, or each\n"
    "element of the array, is a document and is tokenized as in `zero3d data tokenize`. Text may\n"
    "be packed (.gz, .zst) and needs the run's tokenizer. Each token is predicted from the tokens\n"
    "before it in its window of model.seq_length. In a token file with conversations or prompts\n"
    "only trained tokens count; with data.samples=documents they are packed as in training.\n"
    "\n"
    "  --json           one JSON object, with all digits\n"
    "  --json-key KEY   in JSON, the key of the text in each object (default: text)\n"
    "  --ema            use the average of the parameters that optimizer.ema_decay keeps\n"
    "  key=value        other keys of the configuration: data.vocab=PATH,\n"
    "                   train_micro_batch_size_per_gpu=8, parallel.tensor_model_parallel_size=2\n"
    "\n"
    "The result has equal bits on any number of ranks, in every ZeRO stage and with every number\n"
    "of pipeline stages, at equal train_micro_batch_size_per_gpu (default 1) and\n"
    "parallel.tensor_model_parallel_size (default 1; another size changes the order of sums).\n"
    "\n"
    "example: zero3d evaluate runs/demo/checkpoints held-out.txt\n";

static void append_json(z3d_string *text, const z3d_evaluate_request *request,
                        const z3d_evaluate_result *r) {
    z3d_string_append(text, "{");
    z3d_string_append_member_text(text, "checkpoint", request->path);
    z3d_string_append(text, ", \"step\": %lld", (long long)r->step);
    z3d_string_append_member_text(text, "data", request->data);
    z3d_string_append_member(text, "loss", r->loss);
    z3d_string_append_member(text, "perplexity", r->perplexity);
    z3d_string_append_member(text, "bits_per_byte", r->bits_per_byte);
    z3d_string_append(text, ", \"tokens\": %lld, \"bytes\": ", (long long)r->tokens);
    if (r->bytes < 0)
        z3d_string_append(text, "null");
    else
        z3d_string_append(text, "%lld", (long long)r->bytes);
    z3d_string_append(text, ", \"window\": %lld}\n", (long long)r->window);
}

static void append_lines(z3d_string *text, const z3d_evaluate_result *r) {
    z3d_string_append(text, "checkpoint     step %lld\nloss           %.6f\nperplexity     %.6g\n",
                      (long long)r->step, r->loss, r->perplexity);
    if (r->bytes < 0)
        z3d_string_append(text, "bits per byte  n/a: %s\n", r->why.text);
    else
        z3d_string_append(text, "bits per byte  %.6f\n", r->bits_per_byte);
    z3d_string_append(text, "tokens         %lld", (long long)r->tokens);
    if (r->bytes >= 0) z3d_string_append(text, ", %lld bytes", (long long)r->bytes);
    z3d_string_append(text, ", in %lld window%s of %lld\n", (long long)r->windows,
                      r->windows == 1 ? "" : "s", (long long)r->window);
}

static z3d_status read_arguments(int argc, char **argv, z3d_evaluate_request *request, bool *json) {
    const cli_option options[] = {{"json", .flag = json},
                                  {"json-key", .value = &request->json_key},
                                  {"ema", .flag = &request->ema},
                                  {.name = NULL}};
    int count;
    request->json_key = "text";
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    if (count < 1) return Z3D_ERROR(Z3D_ERR_USAGE, "no checkpoint: give its folder");
    if (count < 2 || (strchr(argv[2], '=') && access(argv[2], F_OK) != 0))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "no data: give a token file or a text after the checkpoint");
    request->path = argv[1];
    request->data = argv[2];
    request->assignments = argv + 3;
    request->count = count - 2;
    return Z3D_OK;
}

static int run(int argc, char **argv) {
    z3d_world *world = NULL;
    z3d_string text = {0};
    z3d_evaluate_request request = {0};
    z3d_evaluate_result result = {0};
    bool json = false;
    z3d_status status = z3d_world_create_or_alone(NULL, NULL, &world);
    if (status != Z3D_OK) return cli_finish_rank(NULL, status, NULL);
    z3d_log_configure(Z3D_LOG_WARN, z3d_world_rank(world));
    status = read_arguments(argc, argv, &request, &json);
    if (status == Z3D_OK) status = z3d_evaluate(world, &request, &result);
    int code = cli_finish_rank(world, status, "evaluate");
    if (status == Z3D_OK && z3d_world_rank(world) == 0) {
        if (json)
            append_json(&text, &request, &result);
        else
            append_lines(&text, &result);
        code = cli_print(&text);
    }
    z3d_string_free(&text);
    z3d_string_free(&result.why);
    z3d_world_destroy(world);
    return code;
}

const cli_command cli_evaluate = {
    "evaluate", "measure a checkpoint's loss on data", help, NULL, run, true, NULL, false};
