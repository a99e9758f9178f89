/* Fuzzes objects of instruction data: any JSON becomes tokens, some of them trained, or is refused
 * with its place. The first byte says how conversations are written. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/data/token_writer.h"
#include "src/train/text/instruction.h"

enum { MOST = 100 };

static void check(const z3d_token_list *ids) {
    bool trained = false;
    for (size_t i = 0; i < ids->count; i++) {
        int32_t id = ids->id[i] & ~Z3D_TOKEN_UNTRAINED;
        trained |= !(ids->id[i] & Z3D_TOKEN_UNTRAINED);
        if (id < 0 || id > 256) abort();
    }
    if (!trained) abort();
}

static void read_objects(z3d_instructions *in, z3d_json_lines *lines) {
    z3d_token_list ids = {0};
    for (int i = 0; i < MOST; i++) {
        int64_t bytes;
        z3d_status status = z3d_json_lines_next_object(lines);
        if (status == Z3D_OK && !lines->object) break;
        if (status == Z3D_OK) in->format = z3d_instruction_format(lines->object);
        if (status == Z3D_OK && in->format <= Z3D_FORMAT_TEXT) continue;
        ids.count = 0;
        if (status == Z3D_OK) {
            status = z3d_instructions_encode(in, lines, &ids, &bytes);
            if (status == Z3D_OK) check(&ids);
        }
        if (status != Z3D_OK && status != Z3D_ERR_DATA) abort();
        if (status != Z3D_OK && !strstr(z3d_error_message(), "x.jsonl:")) abort();
        if (status != Z3D_OK && !lines->bad) break;
    }
    z3d_token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const kinds[] = {"plain", "qwen3", "gemma3", "mistral-v3"};
    const z3d_tokenize_options options = {0};
    z3d_instructions in = {.options = &options};
    z3d_json_lines lines = {.path = "x.jsonl"};
    if (size < 1) return 0;
    in.chat.kind = z3d_chat_kind_find(kinds[data[0] % 4]);
    in.chat.begin = -1;
    in.chat.end = 256;
    in.loss_on = (z3d_loss_on)(Z3D_LOSS_COMPLETIONS + data[0] / 4 % 3);
    char *text = malloc(size);
    if (!text || z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, NULL, NULL, &in.tokenizer) != Z3D_OK)
        abort();
    memcpy(text, data + 1, size - 1);
    z3d_json_lines_of(&lines, text, size - 1);
    read_objects(&in, &lines);
    z3d_json_lines_free(&lines);
    z3d_tokenizer_destroy(in.tokenizer);
    z3d_instructions_free(&in);
    return 0;
}
