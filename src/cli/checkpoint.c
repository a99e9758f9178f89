/* zero3d checkpoint list | show | verify | diff | export | import */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "src/cli/cli.h"
#include "src/model/model.h"
#include "src/train/tokenizer.h"

static const char help[] =
    "usage: zero3d checkpoint list DIR\n"
    "       zero3d checkpoint show CHECKPOINT\n"
    "       zero3d checkpoint verify CHECKPOINT [--base PATH]\n"
    "       zero3d checkpoint diff A B [--base PATH]\n"
    "       zero3d checkpoint export CHECKPOINT TO [--format FORMAT] [--dtype TYPE]\n"
    "                         [--max-shard-size SIZE] [--vocab PATH] [--merges FILE]\n"
    "                         [--allow-nonfinite] [--force] [--ema] [--merged] [--base PATH]\n"
    "       zero3d checkpoint import FROM DIR [--vocab PATH] [--merges FILE]\n"
    "                         [--vocab-size N] [--allow-nonfinite]\n"
    "\n"
    "  list     lists the checkpoints in a folder (for a run: RUN/checkpoints), oldest first\n"
    "  show     prints a checkpoint's step, topology, tensors and the run's configuration\n"
    "  verify   reads every byte of a checkpoint and compares it with the saved digests\n"
    "  diff     compares all tensors of two checkpoints; they may have different topologies\n"
    "  export   writes the model for other programs: TO is a folder in Hugging Face's format\n"
    "           (of a run's adapters: in PEFT's format), or for a GPT-2 a file of llm.c\n"
    "  import   makes a checkpoint in the new folder DIR from a model of Hugging Face (FROM is\n"
    "           its folder: GPT-2, Llama, Mistral, Qwen2, Qwen3, SmolLM) or llm.c's GPT-2 (FROM\n"
    "           is its file), and DIR/config.yaml, a run that begins with its weights\n"
    "\n"
    "  --format FORMAT   huggingface (default) or llm.c\n"
    "  --dtype TYPE      fp32, bf16, for huggingface fp16 (default: the imported type, or fp32)\n"
    "  --max-shard-size SIZE  huggingface: bytes of tensors in a shard, at most (default 5GB)\n"
    "  --vocab PATH      the tokenizer: vocab.json, tokenizer.json, or a folder with them.\n"
    "                    Default for import: the files in FROM; for export: the run's tokenizer;\n"
    "                    --vocab none imports or exports without a tokenizer\n"
    "  --merges FILE     merges.txt, if it is not beside vocab.json\n"
    "  --vocab-size N    import: model.vocab_size of config.yaml, if the tokenizer has more\n"
    "                    tokens than the model; a run starts the new rows at the model's mean\n"
    "  --ema             exports the average of the parameters that optimizer.ema_decay keeps\n"
    "  --merged          a run with adapters: the whole model, with the adapters in its weights\n"
    "  --base PATH       the present path of the checkpoint with the frozen parameters\n"
    "  --allow-nonfinite  values may be infinite or NaN, or become so in the output's type\n"
    "  --force           llm.c: TO may replace a file that is not one of llm.c\n"
    "\n"
    "CHECKPOINT is one checkpoint's folder, or a folder of checkpoints: then the latest is used.\n"
    "verify, export and import report progress every 5 seconds (ZERO3D_PROGRESS_SECONDS: other\n"
    "than 5). Exit code: 0, or 1 if a checkpoint is damaged or incomplete, or if two differ.\n"
    "\n"
    "example: zero3d checkpoint verify runs/demo/checkpoints\n";

typedef struct request {
    char **arguments;
    int format, dtype; /* z3d_interop_format, z3d_dtype; -1: not given */
    const char *vocab, *merges, *max_shard, *base;
    int64_t vocab_size; /* 0: not given */
    z3d_string *text;   /* to print */
    z3d_progress progress;
    bool allow_nonfinite, force, ema, merged;
    bool bad; /* damage or a difference was found */
} request;

static z3d_status open_path(const char *path, z3d_checkpoint **out) {
    char *folder;
    *out = NULL;
    Z3D_TRY(z3d_checkpoint_resolve(path, &folder));
    z3d_status status = z3d_checkpoint_open(folder, out);
    free(folder);
    return status;
}

static z3d_status check_base(const request *r, const z3d_checkpoint *a, const z3d_checkpoint *b) {
    if (!r->base || z3d_checkpoint_get_info(a)->base.folder ||
        z3d_checkpoint_get_info(b)->base.folder)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_USAGE, "--base has no effect: %s leaves out no parameters",
                     z3d_checkpoint_folder(a));
}

/* ---- list ---- */

static z3d_sizes_text sizes_of(const z3d_checkpoint_info *info) {
    return z3d_sizes_name(info->tensor_size, info->pipeline_size, info->data_size);
}

/* Appends a line about a checkpoint; returns whether it can be used. */
static bool list_line(const char *dir, int64_t step, z3d_string *text) {
    char *folder = NULL;
    z3d_checkpoint *c = NULL;
    bool good = z3d_checkpoint_path(dir, step, &folder) == Z3D_OK &&
                z3d_checkpoint_open(folder, &c) == Z3D_OK &&
                z3d_checkpoint_open_base(c, NULL) == Z3D_OK;
    if (good) {
        const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
        z3d_string_append(text, "%10lld  %s, ZeRO stage %d, %s  %s\n", (long long)step,
                          sizes_of(info).text, info->zero_stage, z3d_dtype_name(info->dtype),
                          folder);
    } else {
        z3d_string_append(text, "%10lld  cannot be used: %s\n", (long long)step,
                          z3d_error_message());
    }
    z3d_checkpoint_close(c);
    free(folder);
    return good;
}

static z3d_status list(request *r) {
    int64_t *steps;
    int found;
    Z3D_TRY(z3d_checkpoint_list(r->arguments[0], &steps, &found));
    if (found == 0) {
        free(steps);
        return z3d_checkpoint_none(r->arguments[0]);
    }
    for (int i = 0; i < found; i++)
        if (!list_line(r->arguments[0], steps[i], r->text)) r->bad = true;
    free(steps);
    return Z3D_OK;
}

/* ---- show ---- */

static void show_tensors(const z3d_checkpoint *c, z3d_string *text) {
    int64_t parameters = 0, trained = 0;
    const unsigned states = z3d_checkpoint_kinds(c) & ~Z3D_KIND(PARAMETER);
    char more[64] = "";
    for (int i = 0; i < z3d_checkpoint_num_tensors(c); i++) {
        const z3d_tensor *t = z3d_checkpoint_tensor(c, i);
        z3d_part whole;
        z3d_checkpoint_whole(c, i, &whole);
        parameters += whole.count;
        if (z3d_tensor_kinds(t, states)) trained += whole.count;
        z3d_string_append(text, "  %s/%s [", t->group, t->name);
        for (int d = 0; d < t->dims; d++)
            z3d_string_append(text, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
        z3d_string_append(text, "]\n");
    }
    if (states && trained < parameters)
        snprintf(more, sizeof more, ", %s of them trained", z3d_count_text((double)trained).text);
    z3d_string_append(text, "parameters: %s%s, %s", z3d_count_text((double)parameters).text, more,
                      states ? "each with " : "without optimizer states");
    z3d_append_kinds(text, states, " and ");
    z3d_string_append(text, ", fp32\n");
}

static z3d_status show(request *r) {
    z3d_checkpoint *c;
    Z3D_TRY(open_path(r->arguments[0], &c));
    const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
    z3d_string_append(r->text,
                      "step: %lld (%lld optimizer steps, %lld samples)\n"
                      "saved by: %s (%s), %s, ZeRO stage %d, %s\n",
                      (long long)info->engine.step, (long long)info->engine.optimizer_step,
                      (long long)info->samples, info->program, info->libraries, sizes_of(info).text,
                      info->zero_stage, z3d_dtype_name(info->dtype));
    if (info->base.folder)
        z3d_string_append(r->text, "base: %s, digest %s; it has the frozen parameters\n",
                          info->base.folder, info->base.digest);
    if (info->dtype == Z3D_F16)
        z3d_string_append(r->text, "loss scale: %g\n", (double)info->engine.loss_scale);
    z3d_string_append(r->text, "tensors:\n");
    show_tensors(c, r->text);
    z3d_string_append(r->text, "configuration:\n");
    for (const char *line = info->config; *line;) {
        int length = (int)strcspn(line, "\n");
        z3d_string_append(r->text, "  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
    z3d_checkpoint_close(c);
    return Z3D_OK;
}

/* ---- verify ---- */

static z3d_status verify(request *r) {
    z3d_checkpoint *c;
    int64_t bytes = 0;
    Z3D_TRY(open_path(r->arguments[0], &c));
    z3d_checkpoint_watch(c, &r->progress);
    z3d_status status = check_base(r, c, c);
    if (status == Z3D_OK) status = z3d_checkpoint_open_base(c, r->base);
    if (status == Z3D_OK) status = z3d_checkpoint_check(c, Z3D_VERIFY_FULL, 0, 0, 1, &bytes);
    const z3d_checkpoint_info *info = z3d_checkpoint_get_info(c);
    if (status == Z3D_OK)
        z3d_string_append(r->text, "step %lld: intact, %s verified%s%s\n",
                          (long long)info->engine.step, z3d_bytes_text(bytes).text,
                          info->base.folder ? ", with its base " : "",
                          info->base.folder ? info->base.folder : "");
    z3d_checkpoint_close(c);
    return status;
}

/* ---- diff ---- */

enum { CHUNK = 1 << 18 };

typedef struct difference {
    int64_t elements;
    double largest;
} difference;

/* Compares bits: two NaNs with the same bits are equal, 0 and -0 are not. */
static void compare_chunk(const float *a, const float *b, int64_t count, difference *d) {
    for (int64_t k = 0; k < count; k++) {
        uint32_t bits_a, bits_b;
        memcpy(&bits_a, &a[k], sizeof bits_a);
        memcpy(&bits_b, &b[k], sizeof bits_b);
        if (bits_a == bits_b) continue;
        double distance = fabs((double)a[k] - (double)b[k]);
        d->elements++;
        if (!(distance <= d->largest)) d->largest = distance;
    }
}

static z3d_status compare_state(z3d_checkpoint *a, z3d_checkpoint *b, int kind, int i, int j,
                                float *chunk, difference *d) {
    z3d_part whole;
    z3d_checkpoint_whole(a, i, &whole);
    for (int64_t at = 0; at < whole.count; at += CHUNK) {
        int64_t count = whole.count - at < CHUNK ? whole.count - at : CHUNK;
        Z3D_TRY(z3d_checkpoint_read(a, (z3d_tensor_kind)kind, i, &whole, at, count, chunk));
        Z3D_TRY(z3d_checkpoint_read(b, (z3d_tensor_kind)kind, j, &whole, at, count, chunk + CHUNK));
        compare_chunk(chunk, chunk + CHUNK, count, d);
    }
    return Z3D_OK;
}

static bool same_shape(const z3d_tensor *a, const z3d_tensor *b) {
    return a->dims == b->dims && a->outer == b->outer && a->global == b->global &&
           memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) == 0;
}

typedef struct findings {
    int compared, differing; /* parameters in both */
    int only[2];             /* tensors that only the first has; that only the second has */
    int states[2];           /* optimizer tensors, in the same way */
    unsigned kinds[2];       /* their kinds */
} findings;

static z3d_status compare_states(z3d_checkpoint *a, z3d_checkpoint *b, int i, int j, float *chunk,
                                 z3d_string *text, findings *f) {
    const z3d_tensor *t = z3d_checkpoint_tensor(a, i);
    const unsigned of_a = z3d_tensor_kinds(t, z3d_checkpoint_kinds(a));
    const unsigned of_b = z3d_tensor_kinds(z3d_checkpoint_tensor(b, j), z3d_checkpoint_kinds(b));
    for (int kind = 0; kind < Z3D_STATE_KINDS; kind++) {
        difference d = {0};
        bool in_a = of_a >> kind & 1, in_b = of_b >> kind & 1;
        if (in_a != in_b) f->states[in_b]++, f->kinds[in_b] |= 1U << kind;
        if (!in_a || !in_b) continue;
        Z3D_TRY(compare_state(a, b, kind, i, j, chunk, &d));
        f->compared += kind == 0;
        if (d.elements == 0) continue;
        z3d_string_append(text, "%s of %s/%s: %lld elements differ, by %g at most\n",
                          z3d_tensor_kind_name(kind), t->group, t->name, (long long)d.elements,
                          d.largest);
        f->differing += kind == 0;
    }
    return Z3D_OK;
}

static z3d_status compare_tensors(z3d_checkpoint *a, z3d_checkpoint *b, float *chunk,
                                  z3d_string *text, bool *bad) {
    findings f = {0};
    int matched = 0;
    for (int i = 0; i < z3d_checkpoint_num_tensors(a); i++) {
        const z3d_tensor *t = z3d_checkpoint_tensor(a, i);
        int j = z3d_checkpoint_find(b, t->group, t->name);
        matched += j >= 0;
        f.only[0] += j < 0;
        if (j >= 0 && same_shape(t, z3d_checkpoint_tensor(b, j)))
            Z3D_TRY(compare_states(a, b, i, j, chunk, text, &f));
        else
            z3d_string_append(text, "%s/%s: %s\n", t->group, t->name,
                              j < 0 ? "only in the first" : "different shapes");
    }
    f.only[1] = z3d_checkpoint_num_tensors(b) - matched;
    *bad = text->length > 0;
    for (int side = 0; side < 2; side++) {
        const char *where = side ? "second" : "first";
        if (f.only[side] && side)
            z3d_string_append(text, "%d tensors only in the second\n", f.only[side]);
        if (f.states[side]) {
            z3d_string_append(text, "%d optimizer tensors (", f.states[side]);
            z3d_append_kinds(text, f.kinds[side], " and ");
            z3d_string_append(text, ") only in the %s\n", where);
        }
        *bad = *bad || f.only[side] || f.states[side];
    }
    bool same = f.compared == z3d_checkpoint_num_tensors(a) && f.only[1] == 0 && f.differing == 0;
    if (*bad && same) z3d_string_append(text, "all %d parameters are equal\n", f.compared);
    return Z3D_OK;
}

static z3d_status diff(request *r) {
    z3d_checkpoint *a = NULL, *b = NULL;
    float *chunk = NULL;
    z3d_status status = open_path(r->arguments[0], &a);
    if (status == Z3D_OK) status = open_path(r->arguments[1], &b);
    if (status == Z3D_OK) status = check_base(r, a, b);
    if (status == Z3D_OK) status = z3d_checkpoint_open_base(a, r->base);
    if (status == Z3D_OK) status = z3d_checkpoint_open_base(b, r->base);
    if (status == Z3D_OK) status = z3d_new(2 * CHUNK, sizeof *chunk, "a buffer", &chunk);
    if (status == Z3D_OK) status = compare_tensors(a, b, chunk, r->text, &r->bad);
    if (status == Z3D_OK && !r->bad)
        z3d_string_append(r->text,
                          "equal: all tensors of step %lld and step %lld are bitwise identical\n",
                          (long long)z3d_checkpoint_get_info(a)->engine.step,
                          (long long)z3d_checkpoint_get_info(b)->engine.step);
    free(chunk);
    z3d_checkpoint_close(a);
    z3d_checkpoint_close(b);
    return status;
}

/* ---- export and import ---- */

static void report_export(int64_t step, const z3d_export *what, z3d_string *text) {
    bool folder = what->format == Z3D_INTEROP_HUGGINGFACE;
    z3d_string_append(text, "step %lld: written to %s", (long long)step, what->to);
    if (what->adapter) {
        z3d_string_append(text, "/adapter_model.safetensors and adapter_config.json, %s%s\n",
                          z3d_dtype_name(what->dtype),
                          what->tokenizer ? ", with the tokenizer" : "");
        return;
    }
    if (what->shards == 1) z3d_string_append(text, "/model.safetensors and config.json");
    if (what->shards > 1)
        z3d_string_append(text, "/model-00001-of-%05d.safetensors ... and config.json",
                          what->shards);
    z3d_string_append(text, ", %s%s\n", z3d_dtype_name(what->dtype),
                      what->tokenizer ? ", with the tokenizer"
                      : folder        ? ", without a tokenizer (to add one: --vocab PATH)"
                                      : "");
}

/* A chat template may end answers with a token that transformers does not stop at. */
static void report_end(const z3d_export *what, z3d_string *text) {
    z3d_tokenizer *t = NULL;
    bool stops = false;
    if (!what->tokenizer ||
        z3d_tokenizer_create(Z3D_TOKENIZER_HUGGINGFACE, what->to, NULL, &t) != Z3D_OK)
        return;
    const int32_t end = z3d_tokenizer_answer_end(t);
    for (size_t i = 0; i < t->ends.count; i++) stops |= t->ends.id[i] == end;
    if (end >= 0 && !stops) {
        z3d_string_append(text, "note: the chat template ends an answer with ");
        z3d_tokenizer_name_token(t, end, text);
        z3d_string_append(text, ": add its id, %d, to eos_token_id of %s/generation_config.json\n",
                          (int)end, what->to);
    }
    z3d_tokenizer_destroy(t);
}

static z3d_status export(request *r) {
    z3d_checkpoint *c;
    const bool folder = r->format != Z3D_INTEROP_LLMC;
    z3d_export what = {.format = folder ? Z3D_INTEROP_HUGGINGFACE : Z3D_INTEROP_LLMC,
                       .own_dtype = r->dtype < 0,
                       .dtype = r->dtype < 0 ? Z3D_F32 : (z3d_dtype)r->dtype,
                       .allow_nonfinite = r->allow_nonfinite,
                       .force = r->force,
                       .ema = r->ema,
                       .merged = r->merged,
                       .to = r->arguments[1],
                       .vocab = r->vocab,
                       .merges = r->merges,
                       .base = r->base};
    if (r->max_shard &&
        (z3d_parse_bytes(r->max_shard, &what.max_shard) != Z3D_OK || what.max_shard <= 0))
        return Z3D_ERROR(Z3D_ERR_USAGE, "--max-shard-size %s: expected a size, as 5GB or 512MiB",
                         r->max_shard);
    if (r->max_shard && !folder)
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "--max-shard-size has no effect with --format llm.c; leave it out");
    if (r->vocab && !folder)
        return Z3D_ERROR(Z3D_ERR_USAGE, "--vocab has no effect with --format llm.c; leave it out");
    Z3D_TRY(open_path(r->arguments[0], &c));
    z3d_checkpoint_watch(c, &r->progress);
    z3d_status status = check_base(r, c, c);
    if (status == Z3D_OK) status = z3d_checkpoint_export(c, &what);
    if (status == Z3D_OK) report_export(z3d_checkpoint_get_info(c)->engine.step, &what, r->text);
    if (status == Z3D_OK) report_end(&what, r->text);
    z3d_checkpoint_close(c);
    return status;
}

/* Appends the model_type of Hugging Face's config.json: "qwen3". */
static z3d_status append_family(const z3d_config *config, z3d_string *out) {
    static const char key[] = "\"model_type\": \"";
    const z3d_model_type *type;
    z3d_string json = {0};
    Z3D_TRY(z3d_model_type_of(config, &type));
    z3d_status status = type->interop->append_config(config, &json);
    const char *name = status == Z3D_OK && json.text ? strstr(json.text, key) : NULL;
    if (name) name += sizeof key - 1;
    z3d_string_append(out, "%.*s", name ? (int)strcspn(name, "\"") : 0, name ? name : "");
    z3d_string_free(&json);
    return status;
}

static z3d_status append_tokenizer(const z3d_config *config, const char *dir, z3d_string *out,
                                   bool *chats) {
    char *path;
    z3d_tokenizer *tokenizer = NULL;
    z3d_status status = Z3D_OK;
    Z3D_TRY(z3d_join_path(dir, "tokenizer", &path));
    const bool there = access(path, F_OK) == 0;
    if (there)
        status = z3d_tokenizer_create((z3d_tokenizer_kind)config->data_tokenizer, path, NULL,
                                      &tokenizer);
    if (tokenizer)
        z3d_string_append(out, "%s of %d ids", tokenizer->name, (int)tokenizer->vocab_size);
    else
        z3d_string_append(out, there ? "cannot be used: %s" : "none (--vocab PATH gives one)",
                          z3d_error_message());
    *chats = tokenizer && z3d_tokenizer_answer_end(tokenizer) >= 0;
    z3d_tokenizer_destroy(tokenizer);
    free(path);
    return status == Z3D_ERR_MEMORY ? status : Z3D_OK;
}

static z3d_status describe_import(const char *folder, const char *dir, z3d_string *text) {
    z3d_checkpoint *c;
    z3d_config *config = NULL;
    z3d_model_sizes sizes;
    bool chats = false;
    Z3D_TRY(z3d_checkpoint_open(folder, &c));
    const char *saved = z3d_checkpoint_get_info(c)->config;
    z3d_status status = z3d_config_create(&config);
    if (status == Z3D_OK)
        status = z3d_config_read_text(config, saved, strlen(saved), "the model's configuration");
    if (status == Z3D_OK) status = append_family(config, text);
    if (status == Z3D_OK) status = z3d_model_sizes_of(config, &sizes);
    if (status == Z3D_OK) {
        z3d_string_append(text, ": %s parameters, tokenizer ",
                          z3d_count_text((double)sizes.parameters).text);
        status = append_tokenizer(config, dir, text, &chats);
        z3d_string_append(text, "; next: zero3d generate %s%s --prompt TEXT\n", dir,
                          chats ? " --chat" : "");
    }
    z3d_config_destroy(config);
    z3d_checkpoint_close(c);
    return status;
}

static z3d_status import(request *r) {
    char *folder;
    z3d_import what = {.from = r->arguments[0],
                       .to = r->arguments[1],
                       .program = "zero3d " ZERO3D_VERSION,
                       .progress = &r->progress,
                       .vocab = r->vocab,
                       .merges = r->merges,
                       .vocab_size = r->vocab_size,
                       .allow_nonfinite = r->allow_nonfinite,
                       .check_tokenizer = z3d_tokenizer_check};
    z3d_status status = z3d_checkpoint_import(&what, &folder);
    if (status == Z3D_OK) z3d_string_append(r->text, "written to %s\n", folder);
    if (status == Z3D_OK) status = describe_import(folder, what.to, r->text);
    free(folder);
    return status;
}

static const struct {
    const char *name;
    int arguments;
    z3d_status (*run)(request *r);
} tools[] = {{"list", 1, list}, {"show", 1, show},     {"verify", 1, verify},
             {"diff", 2, diff}, {"export", 2, export}, {"import", 2, import}};

static z3d_status read_progress(const char *tool, z3d_progress *out) {
    const char *every = getenv("ZERO3D_PROGRESS_SECONDS");
    *out = (z3d_progress){.what = tool, .every = 5};
    if (every && *every && (z3d_parse_float(every, &out->every) != Z3D_OK || out->every < 0))
        return Z3D_ERROR(Z3D_ERR_USAGE,
                         "ZERO3D_PROGRESS_SECONDS='%.40s': expected a number of seconds", every);
    return Z3D_OK;
}

static z3d_status check_options(const request *r, const char *tool) {
    const bool llmc = r->format == Z3D_INTEROP_LLMC;
    const struct {
        const char *option;
        bool given;
        const char *tools, *where; /* the commands that have it, also for the message */
    } options[] = {{"base", r->base != NULL, "verify diff export", "verify, diff and export"},
                   {"format", r->format >= 0, "export", "export"},
                   {"dtype", r->dtype >= 0, "export", "export"},
                   {"ema", r->ema, "export", "export"},
                   {"merged", r->merged, "export", "export"},
                   {"max-shard-size", r->max_shard != NULL, "export", "export"},
                   {"vocab", r->vocab != NULL, "import export", "import and export"},
                   {"merges", r->merges != NULL, "import export", "import and export"},
                   {"allow-nonfinite", r->allow_nonfinite, "import export", "import and export"},
                   {"vocab-size", r->vocab_size > 0, "import", "import"},
                   {"force", r->force, llmc ? "export" : "", "export --format llm.c"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !z3d_has_word(options[i].tools, tool))
            return Z3D_ERROR(Z3D_ERR_USAGE, "--%s is for checkpoint %s", options[i].option,
                             options[i].where);
    if (r->merges && !r->vocab) return Z3D_ERROR(Z3D_ERR_USAGE, "--merges needs --vocab");
    return Z3D_OK;
}

static z3d_status run_tool(int argc, char **argv, request *r) {
    static const char *const formats[] = {
        [Z3D_INTEROP_HUGGINGFACE] = "huggingface", [Z3D_INTEROP_LLMC] = "llm.c", NULL};
    static const char *const types[] = {
        [Z3D_F32] = "fp32", [Z3D_BF16] = "bf16", [Z3D_F16] = "fp16", NULL};
    const cli_option options[] = {{"format", .choice = &r->format, .names = formats},
                                  {"dtype", .choice = &r->dtype, .names = types},
                                  {"vocab", .value = &r->vocab},
                                  {"merges", .value = &r->merges},
                                  {"max-shard-size", .value = &r->max_shard},
                                  {"vocab-size", .number = &r->vocab_size, .least = 1},
                                  {"allow-nonfinite", .flag = &r->allow_nonfinite},
                                  {"force", .flag = &r->force},
                                  {"ema", .flag = &r->ema},
                                  {"merged", .flag = &r->merged},
                                  {"base", .value = &r->base},
                                  {.name = NULL}};
    int count;
    Z3D_TRY(cli_parse(argc, argv, options, &count));
    for (size_t i = 0; count > 0 && i < sizeof tools / sizeof *tools; i++) {
        if (strcmp(tools[i].name, argv[1]) != 0) continue;
        if (count - 1 != tools[i].arguments)
            return Z3D_ERROR(Z3D_ERR_USAGE, "checkpoint %s takes %s", argv[1],
                             tools[i].arguments == 1 ? "one folder" : "two paths");
        Z3D_TRY(check_options(r, tools[i].name));
        r->arguments = argv + 2;
        Z3D_TRY(read_progress(tools[i].name, &r->progress));
        return tools[i].run(r);
    }
    return Z3D_ERROR(Z3D_ERR_USAGE, "expected a command after 'checkpoint': list, show, verify, "
                                    "diff, export or import");
}

static z3d_status answer(int argc, char **argv, cli_answer *out) {
    request r = {.text = &out->text, .format = -1, .dtype = -1};
    const z3d_status status = run_tool(argc, argv, &r);
    if (r.bad) out->code = CLI_FAILED;
    return status;
}

const cli_command cli_checkpoint = {
    "checkpoint", "list, verify, compare and convert checkpoints", help, answer, NULL,
    false,        "list show verify diff export import",           false};
