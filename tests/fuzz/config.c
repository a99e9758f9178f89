/* Fuzzes the configuration reader: any bytes are read, checked and resolved without a crash, and
 * what is accepted is written as YAML that reads back to the same text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/config.h"

static void write_and_read_back(const z3d_config *config) {
    z3d_string first = {0}, second = {0};
    z3d_config *again;
    z3d_config_write(config, &first);
    if (first.failed || z3d_config_create(&again) != Z3D_OK) abort();
    if (z3d_config_read_text(again, first.text, first.length, "written") != Z3D_OK) abort();
    z3d_config_write(again, &second);
    if (second.length != first.length || memcmp(first.text, second.text, first.length) != 0)
        abort();
    z3d_config_destroy(again);
    z3d_string_free(&first);
    z3d_string_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    z3d_config *config;
    int data_parallel;
    if (z3d_config_create(&config) != Z3D_OK) abort();
    z3d_status status = z3d_config_read_text(config, (const char *)data, size, "fuzz");
    if (status == Z3D_OK) status = z3d_config_check(config);
    if (status == Z3D_OK) {
        write_and_read_back(config);
        if (z3d_config_resolve(config, 8, &data_parallel) == Z3D_OK) write_and_read_back(config);
    } else if (z3d_error_message()[0] == '\0' || strchr(z3d_error_message(), '\n')) {
        abort(); /* one line, always */
    }
    z3d_config_destroy(config);

    char *assignment = malloc(size + 1);
    if (!assignment || z3d_config_create(&config) != Z3D_OK) abort();
    memcpy(assignment, data, size);
    assignment[size] = '\0';
    (void)z3d_config_override(config, assignment);
    z3d_config_destroy(config);
    free(assignment);
    return 0;
}
