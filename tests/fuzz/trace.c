/* Fuzzes the reader of timelines: any bytes are refused, or have a step whose shares and picture
 * are made, and a merged timeline that is JSON. A line "====" parts rank 0's file from rank 1's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/train/trace/trace.h"

static char folder[] = "/dev/shm/zero3d-fuzz-XXXXXX";

static void write_rank(int rank, const uint8_t *data, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "%s/trace-rank%d.json", folder, rank);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
}

static void remove_folder(void) {
    char path[64];
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/trace-rank%d.json", folder, rank);
        unlink(path);
    }
    rmdir(folder);
}

static void use(const z3d_trace_run *run) {
    z3d_string text = {0}, picture = {0}, merged = {0};
    z3d_json *json = NULL;
    if (z3d_trace_step_report(run, &text, &picture) == Z3D_OK &&
        (strstr(strchr(text.text, '\n'), "nan") || strncmp(picture.text, "<svg ", 5) != 0))
        abort();
    if (z3d_trace_merge(run, &merged) != Z3D_OK) abort();
    if (z3d_json_parse(merged.text, merged.length, "merged", &json) != Z3D_OK &&
        !strstr(z3d_error_message(), "64 levels")) /* an event had 64, the list is one more */
        abort();
    z3d_json_free(json);
    z3d_string_free(&text);
    z3d_string_free(&picture);
    z3d_string_free(&merged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    const uint8_t *middle = memmem(data, size, "====\n", 5);
    size_t first = middle ? (size_t)(middle - data) : size;
    z3d_trace_run run;
    if (!made && !mkdtemp(folder)) abort();
    if (!made) atexit(remove_folder);
    made = true;
    write_rank(0, data, first);
    write_rank(1, middle ? middle + 5 : data, middle ? size - first - 5 : 0);
    if (z3d_trace_run_read(folder, 0, &run) == Z3D_OK) use(&run);
    z3d_trace_run_release(&run);
    return 0;
}
