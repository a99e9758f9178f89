/* Fuzzer of the configuration reader (and of the number readers it stands on). Whatever the bytes,
 * there is an answer of one line for each error; what is accepted and resolved is written so that
 * it reads back to the same text and is accepted again. The first byte chooses: '=' an override,
 * '#' or anything else a file. Also linked by tests/base/base_config_corpus.cc, which replays the
 * corpus without clang. */
#include "src/base/config.h"
#include "src/base/base.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise ends the process: that is how the fuzzer sees it. */
static void require(bool condition) {
    if (!condition) abort();
}

/* A refusal is ERR_CONFIG with lines of text. */
static void require_message(z3d_status status) {
    const char *message = z3d_error_message();
    require(status == Z3D_ERR_CONFIG);
    require(message[0] != '\0' && strlen(message) < 8192);
    for (; *message; message++)
        require(*message == '\n' || ((unsigned char)*message >= 0x20 && *message != 0x7f));
}

static z3d_config *create(void) {
    z3d_config *config;
    require(z3d_config_create(&config) == Z3D_OK);
    return config;
}

/* What was accepted for some world is written, read, accepted again and written the same. */
static void round_trip(z3d_config *config) {
    z3d_string first = {0}, second = {0};
    z3d_config *again = create();
    int data = 0, data_again = 0;
    z3d_status checked = z3d_config_check(config, NULL);
    if (checked != Z3D_OK) require_message(checked);
    z3d_status resolved = z3d_config_resolve(config, NULL, 4, &data);
    if (resolved != Z3D_OK) require_message(resolved);
    z3d_config_write(config, &first);
    require(!first.failed);
    require(z3d_config_read_text(again, first.text, first.length, "again") == Z3D_OK);
    if (checked == Z3D_OK && resolved == Z3D_OK) {
        require(z3d_config_check(again, NULL) == Z3D_OK);
        require(z3d_config_resolve(again, NULL, 4, &data_again) == Z3D_OK && data == data_again);
    }
    z3d_config_write(again, &second);
    require(!second.failed && strcmp(first.text, second.text) == 0);
    z3d_string_free(&first);
    z3d_string_free(&second);
    z3d_config_destroy(again);
}

/* Numbers: the three readers agree where they overlap, and a written number reads back. */
static void read_numbers(const char *text) {
    int64_t integer, bytes;
    double number, again;
    char buf[64];
    bool is_integer = z3d_parse_int(text, &integer) == Z3D_OK;
    bool is_number = z3d_parse_float(text, &number) == Z3D_OK;
    bool is_bytes = z3d_parse_bytes(text, &bytes) == Z3D_OK;
    require(!is_integer || (is_number && number == (double)integer));
    require(!(is_integer && is_bytes) || integer == bytes);
    if (!is_number) return;
    z3d_format_number(number, buf, sizeof buf);
    require(z3d_parse_float(buf, &again) == Z3D_OK && again == number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    z3d_config *config = create();
    char *text = malloc(size + 1);
    require(text != NULL);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    z3d_log_configure(Z3D_LOG_ERROR, 0);

    bool is_override = size > 0 && text[0] == '=';
    z3d_status status = is_override ? z3d_config_override(config, text + 1)
                                    : z3d_config_read_text(config, text, size, "fuzz.yaml");
    if (status != Z3D_OK) {
        require_message(status);
    } else {
        round_trip(config);
    }
    read_numbers(text);

    z3d_string json = {0};
    z3d_string_append_json(&json, text);
    require(!json.failed && json.length >= 2);
    z3d_string_free(&json);
    free(text);
    z3d_config_destroy(config);
    return 0;
}
