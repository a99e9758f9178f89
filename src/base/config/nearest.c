/* Guesses what a misspelt key or option means. */
#include "src/base/config/table.h"

#include <ctype.h>
#include <string.h>

enum { WORD = 64, FAR_AWAY = 1000 };

/* Names by which users of other frameworks know our keys: a whole path, or ".leaf" in any section
 * and in none. */
static const struct {
    const char *name, *path;
} renamed[] = {
    {".global_batch_size", "train_batch_size"},
    {".batch_size", "train_batch_size"},
    {".micro_batch_size", "train_micro_batch_size_per_gpu"},
    {".accumulation_steps", "gradient_accumulation_steps"},
    {".tensor_parallel_size", "parallel.tensor_model_parallel_size"},
    {".pipeline_parallel_size", "parallel.pipeline_model_parallel_size"},
    {".clip_grad", "gradient_clipping"},
    {".grad_clip", "gradient_clipping"},
    {".max_grad_norm", "gradient_clipping"},
    {".learning_rate", "optimizer.params.lr"},
    {".warmup_max_lr", "optimizer.params.lr"},
    {".cos_min_ratio", "scheduler.params.min_lr"},
    {".adam_eps", "optimizer.params.eps"},
    {".beta1", "optimizer.params.betas"},
    {".beta2", "optimizer.params.betas"},
    {".lr_decay_style", "scheduler.type"},
    {".warmup_steps", "scheduler.params.warmup_num_steps"},
    {".lr_warmup_iters", "scheduler.params.warmup_num_steps"},
    {".lr_decay_iters", "scheduler.params.total_num_steps"},
    {".train_iters", "training.steps"},
    {".max_steps", "training.steps"},
    {".n_layer", "model.num_layers"},
    {".n_embd", "model.hidden_size"},
    {".n_head", "model.num_attention_heads"},
    {".num_heads", "model.num_attention_heads"},
    {".block_size", "model.seq_length"},
    {".n_positions", "model.seq_length"},
    {".max_position_embeddings", "model.seq_length"},
    {".init_std", "model.init_method_std"},
    {".recompute_granularity", "activation_checkpointing.granularity"},
    {".output_dir", "run.dir"},
    {".train_micro_batch_size", "train_micro_batch_size_per_gpu"},
    {".per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"model.vocab", "model.vocab_size"},
    {".d_model", "model.hidden_size"},
    {"model.dim", "model.hidden_size"},
    {"model.layers", "model.num_layers"},
    {"model.heads", "model.num_attention_heads"},
    {".n_ctx", "model.seq_length"},
    {".context_length", "model.seq_length"},
    {"model.dropout", "model.hidden_dropout"},
    {".save_interval", "checkpoint.interval"},
    {".save_steps", "checkpoint.interval"},
    {"save", "checkpoint.dir"},
    {"checkpoint.save", "checkpoint.dir"},
    {"load", "checkpoint.resume"},
    {"checkpoint.load", "checkpoint.resume"},
    {"seed", "training.seed"},
    {"run.name", "run.dir"},
    {"zero", "zero_optimization"},
    {"tp", "parallel.tensor_model_parallel_size"},
    {"parallel.tp", "parallel.tensor_model_parallel_size"},
    {"pp", "parallel.pipeline_model_parallel_size"},
    {"parallel.pp", "parallel.pipeline_model_parallel_size"},
    {"lr", "optimizer.params.lr"},
    {"training.lr", "optimizer.params.lr"},
};

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edit distance with swaps of neighbours (optimal string alignment), case and -/_ aside. */
static int distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m >= WORD || n >= WORD) return FAR_AWAY;
    int rows[3][WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            x = x == '-' ? '_' : x;
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[n];
}

static const char *leaf_of(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool same_parent(const char *a, const char *b) {
    size_t m = (size_t)(leaf_of(a) - a), n = (size_t)(leaf_of(b) - b);
    return m == n && strncmp(a, b, m) == 0;
}

/* How far `candidate` is from what was written: the last words are compared, and another section
 * costs one more, so that a misspelling beside wins over one far away. */
static int score(const char *path, const char *candidate) {
    const char *leaf = leaf_of(path);
    int d = distance(leaf, leaf_of(candidate));
    int allowed = 1 + (int)strlen(leaf) / 4;
    if (d > allowed || (d > 0 && (size_t)d >= strlen(leaf))) return FAR_AWAY;
    return 2 * d + !same_parent(path, candidate);
}

typedef struct nearest {
    const char *path;
    char *found;
    size_t size;
    int best;
} nearest;

/* Compares with a key and with each section that it lies in. */
static void take_nearer(nearest *search, const char *key) {
    char candidate[2 * WORD];
    for (size_t length = strlen(key); length > 0; length--) {
        if ((key[length] != '\0' && key[length] != '.') || length >= sizeof candidate) continue;
        memcpy(candidate, key, length);
        candidate[length] = '\0';
        int s = score(search->path, candidate);
        if (s < search->best && length < search->size) {
            search->best = s;
            memcpy(search->found, candidate, length + 1);
        }
    }
}

static const char *known_elsewhere(const char *path) {
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        bool leaf = renamed[i].name[0] == '.';
        const char *name = renamed[i].name + leaf;
        if (distance(leaf ? leaf_of(path) : path, name) == 0) return renamed[i].path;
    }
    return NULL;
}

const char *config_nearest(const char *path, char *buf, size_t size) {
    nearest search = {path, buf, size, FAR_AWAY};
    const char *known = known_elsewhere(path);
    if (known) return known;
    for (int i = 0; i < CONFIG_KEY_COUNT; i++) take_nearer(&search, config_table[i].path);
    for (int i = 0; i < config_accepted_count; i++) take_nearer(&search, config_accepted[i].path);
    for (int i = 0; i < CONFIG_LATER_COUNT; i++) take_nearer(&search, config_later[i].path);
    return search.best < FAR_AWAY ? buf : NULL;
}

bool config_option(const char *options, int index, char *buf, size_t size) {
    const char *at = options;
    for (; index > 0; index--) {
        at = strchr(at, '|');
        if (!at) return false;
        at++;
    }
    size_t length = strcspn(at, "|");
    if (length >= size) length = size - 1;
    memcpy(buf, at, length);
    buf[length] = '\0';
    return true;
}

const char *z3d_config_key_named(const char *name) {
    const char *known = known_elsewhere(name);
    for (int i = 0; i < CONFIG_KEY_COUNT && !known; i++) {
        if (distance(leaf_of(config_table[i].path), name) == 0) known = config_table[i].path;
    }
    return known && config_find(known) >= 0 ? known : NULL;
}

const char *config_nearest_option(const char *options, const char *text, char *buf, size_t size) {
    char option[WORD];
    int best = 1 + (int)strlen(text) / 3;
    const char *nearest = NULL;
    for (int i = 0; config_option(options, i, option, sizeof option); i++) {
        int d = distance(text, option);
        if (strlen(text) > 2 && strcasestr(option, text)) d = 1; /* "cosine" */
        if (d <= best && (size_t)d < strlen(option)) {
            best = d - 1;
            config_option(options, i, buf, size);
            nearest = buf;
        }
    }
    return nearest;
}
