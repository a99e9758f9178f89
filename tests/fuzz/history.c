/* Fuzzes what a run's folder says of its past: any bytes are refused, or are facts and a page. A
 * line "====" parts metrics.jsonl from events.jsonl. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/history/history.h"

static char folder[] = "/dev/shm/zero3d-fuzz-XXXXXX";
static const char *const names[] = {"metrics.jsonl", "events.jsonl"};

static void path_of(int file, char *path, size_t size) {
    snprintf(path, size, "%s/%s", folder, names[file]);
}

static void put(int file, const uint8_t *data, size_t size) {
    char path[64];
    path_of(file, path, sizeof path);
    FILE *out = fopen(path, "w");
    if (!out || fwrite(data, 1, size, out) != size || fclose(out) != 0) abort();
}

static void remove_folder(void) {
    char path[64];
    for (int file = 0; file < 2; file++) {
        path_of(file, path, sizeof path);
        unlink(path);
    }
    rmdir(folder);
}

/* Of a page: nothing of a file is where a browser takes it for markup, and every place of an axis
 * is a number. */
static void check_page(const z3d_string *page) {
    static const char end[] = "</html>\n";
    const size_t tail = sizeof end - 1;
    if (page->length < tail || strcmp(page->text + page->length - tail, end) != 0) abort();
    static const char *const wrong[] = {"<script",     "<fuzz",     "\"left:nan",
                                        "\"left:-nan", "\"top:nan", "\"top:-nan"};
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++)
        if (strstr(page->text, wrong[w])) abort();
}

static void use(const z3d_history *history) {
    z3d_string text = {0}, page = {0};
    z3d_history_text(history, &text);
    if (text.failed || z3d_history_page(history, 1, &page) != Z3D_OK) abort();
    check_page(&page);
    z3d_string_free(&text);
    z3d_string_free(&page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    const uint8_t *middle = memmem(data, size, "====\n", 5);
    const size_t first = middle ? (size_t)(middle - data) : size;
    z3d_history history;
    if (!made && !mkdtemp(folder)) abort();
    if (!made) atexit(remove_folder);
    made = true;
    z3d_log_configure(Z3D_LOG_ERROR, 0); /* a last line that is cut is warned of */
    put(0, data, first);
    put(1, middle ? middle + 5 : data, middle ? size - first - 5 : 0);
    if (z3d_history_read(folder, &history) == Z3D_OK) use(&history);
    z3d_history_release(&history);
    return 0;
}
