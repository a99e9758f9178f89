/* TensorBoard event files.
 *
 *   record  uint64 length, uint32 masked crc of it, the bytes, uint32 masked crc of them
 *   Event   double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5
 *   Summary repeated Value value = 1;  Value: string tag = 1; float simple_value = 2 */
#include "src/train/report/tensorboard.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Computed bit by bit, which is fast enough for events of two hundred bytes. */
uint32_t z3d_crc32c(const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
}

uint32_t z3d_crc32c_masked(const void *bytes, size_t count) {
    uint32_t crc = z3d_crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_fixed(z3d_string *out, uint64_t value, int bytes) {
    char little[8];
    for (int i = 0; i < bytes; i++) little[i] = (char)(value >> (8 * i));
    z3d_string_append_bytes(out, little, (size_t)bytes);
}

static void put_varint(z3d_string *out, uint64_t value) {
    while (value >= 0x80) {
        put_fixed(out, (value & 0x7f) | 0x80, 1);
        value >>= 7;
    }
    put_fixed(out, value, 1);
}

static void put_key(z3d_string *out, int field, int wire) {
    put_varint(out, (uint64_t)(field << 3 | wire));
}

static void put_bytes(z3d_string *out, int field, const char *bytes, size_t count) {
    put_key(out, field, WIRE_BYTES);
    put_varint(out, count);
    z3d_string_append_bytes(out, bytes, count);
}

/* The event's time, in seconds since 1970. */
static void put_time(z3d_string *out, double time) {
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    put_key(out, 1, WIRE_FIXED64);
    put_fixed(out, bits, 8);
}

/* Writes board->event as a record. */
static z3d_status write_record(z3d_tensorboard *board) {
    const z3d_string *event = &board->event;
    z3d_string *record = &board->record;
    z3d_string_clear(record);
    if (event->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a TensorBoard event");
    put_fixed(record, event->length, 8);
    put_fixed(record, record->failed ? 0 : z3d_crc32c_masked(record->text, 8), 4);
    z3d_string_append_bytes(record, event->text, event->length);
    put_fixed(record, z3d_crc32c_masked(event->text, event->length), 4);
    if (record->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a TensorBoard event");
    return z3d_line_file_write(&board->file, record->text, record->length);
}

z3d_status z3d_tensorboard_open(z3d_tensorboard *board, const char *folder, double wall_time) {
    z3d_string text = {0};
    *board = (z3d_tensorboard){.file = {.fd = -1}};
    long long second = (long long)wall_time;
    do { /* a run that resumes within the same second has already such a file */
        z3d_string_clear(&text);
        z3d_string_append(&text, "%s/events.out.tfevents.%lld.zero3d", folder, second++);
    } while (!text.failed && access(text.text, F_OK) == 0);
    z3d_status status = text.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for a file's name")
                                    : z3d_line_file_open(&board->file, text.text);
    z3d_string_free(&text);
    if (status != Z3D_OK) return status;
    put_time(&board->event, wall_time);
    put_bytes(&board->event, 3, "brain.Event:2", 13);
    return write_record(board);
}

z3d_status z3d_tensorboard_write(z3d_tensorboard *board, double wall_time, int64_t step,
                                 const z3d_scalar *scalars, int count) {
    z3d_string *event = &board->event, *summary = &board->summary, *value = &board->value;
    z3d_string_clear(event);
    z3d_string_clear(summary);
    for (int i = 0; i < count; i++) {
        if (!isfinite(scalars[i].value)) continue;
        z3d_string_clear(value);
        put_bytes(value, 1, scalars[i].tag, strlen(scalars[i].tag));
        const float number = (float)scalars[i].value;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        put_key(value, 2, WIRE_FIXED32);
        put_fixed(value, bits, 4);
        put_bytes(summary, 1, value->failed ? "" : value->text, value->length);
        summary->failed |= value->failed;
    }
    put_time(event, wall_time);
    put_key(event, 2, WIRE_VARINT);
    put_varint(event, (uint64_t)step);
    if (summary->length) put_bytes(event, 5, summary->text, summary->length);
    event->failed |= summary->failed;
    return write_record(board);
}

z3d_status z3d_tensorboard_close(z3d_tensorboard *board) {
    z3d_string *strings[] = {&board->value, &board->summary, &board->event, &board->record};
    for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) z3d_string_free(strings[k]);
    return z3d_line_file_close(&board->file);
}
