/* Lines of metrics.jsonl, traffic as JSON, and files of lines. */
#include "src/train/report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* purpose: for the error. */
static z3d_status open_lines(z3d_line_file *file, const char *path, int flags,
                             const char *purpose) {
    *file = (z3d_line_file){.fd = -1};
    file->path = strdup(path);
    if (!file->path) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name %s", path);
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "opening", path);
    file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
    z3d_pending_io_end(&io);
    if (file->fd < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot %s: %s", path, purpose, strerror(errno));
    return Z3D_OK;
}

z3d_status z3d_line_file_open(z3d_line_file *file, const char *path) {
    return open_lines(file, path, O_CREAT | O_TRUNC, "open it for writing");
}

z3d_status z3d_line_file_create(z3d_line_file *file, const char *path) {
    return open_lines(file, path, O_CREAT | O_EXCL, "open it for writing");
}

/* Appends the lines from the first one on that is not of a step up to `step`. */
static void read_beyond(FILE *in, int64_t step, z3d_string *beyond) {
    char *line = NULL;
    size_t capacity = 0;
    bool within = true;
    for (ssize_t length; (length = getline(&line, &capacity, in)) > 0;) {
        long long of;
        within = within && line[length - 1] == '\n' && sscanf(line, "{\"step\":%lld,", &of) == 1 &&
                 of <= step;
        if (!within) z3d_string_append_bytes(beyond, line, (size_t)length);
    }
    free(line);
}

z3d_status z3d_line_file_continue(z3d_line_file *file, const char *path, int64_t step,
                                  z3d_string *beyond) {
    z3d_pending_io io;
    *file = (z3d_line_file){.fd = -1};
    z3d_pending_io_begin(&io, "reading", path);
    FILE *in = fopen(path, "re");
    const int error = in ? 0 : errno;
    if (in) {
        read_beyond(in, step, beyond);
        fclose(in);
    }
    z3d_pending_io_end(&io);
    if (error == ENOENT) return z3d_line_file_open(file, path);
    if (!in) return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot read it: %s", path, strerror(error));
    if (beyond->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the lines of %s", path);
    return open_lines(file, path, 0, "append to it");
}

z3d_status z3d_line_file_cut(z3d_line_file *file, int64_t bytes) {
    struct stat info;
    if (bytes == 0) return Z3D_OK;
    if (fstat(file->fd, &info) == 0 && ftruncate(file->fd, info.st_size - (off_t)bytes) == 0)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_IO, "%s: cannot shorten it: %s", file->path, strerror(errno));
}

z3d_status z3d_line_file_sync(z3d_line_file *file) {
    if (file->fd < 0) return Z3D_OK;
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "fsync of", file->path);
    /* Pipes and devices cannot be synced. */
    bool failed = fsync(file->fd) != 0 && errno != EINVAL && errno != EROFS;
    z3d_pending_io_end(&io);
    return failed ? Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write: %s", file->path, strerror(errno))
                  : Z3D_OK;
}

z3d_status z3d_line_file_write(z3d_line_file *file, const void *bytes, size_t count) {
    const char *at = bytes;
    bool failed = false;
    z3d_pending_io io;
    z3d_pending_io_begin(&io, "writing", file->path);
    while (count > 0 && !failed) {
        ssize_t written = write(file->fd, at, count);
        if (written < 0 && errno == EINTR) continue;
        failed = written <= 0;
        at += failed ? 0 : written;
        count -= failed ? 0 : (size_t)written;
    }
    z3d_pending_io_end(&io);
    return failed ? Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write: %s", file->path, strerror(errno))
                  : Z3D_OK;
}

z3d_status z3d_line_file_close(z3d_line_file *file) {
    z3d_status status = Z3D_OK;
    /* Network file systems may report a full disk only at close. */
    if (file->path && file->fd >= 0 && close(file->fd) != 0)
        status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot write: %s", file->path, strerror(errno));
    free(file->path);
    *file = (z3d_line_file){.fd = -1};
    return status;
}

z3d_status z3d_write_whole_file(const char *path, const char *text, size_t length) {
    z3d_string temporary = {0};
    z3d_line_file file = {.fd = -1};
    z3d_string_append(&temporary, "%s.part", path);
    z3d_status status = temporary.failed
                            ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the name %s", path)
                            : z3d_line_file_open(&file, temporary.text);
    if (status == Z3D_OK) {
        status = z3d_line_file_write(&file, text, length);
        z3d_status closed = z3d_line_file_close(&file);
        if (status == Z3D_OK) status = closed;
        if (status == Z3D_OK && rename(temporary.text, path) != 0)
            status = Z3D_ERROR(Z3D_ERR_IO, "%s: cannot rename the finished file to this name: %s",
                               path, strerror(errno));
        if (status != Z3D_OK) unlink(temporary.text);
    }
    z3d_line_file_close(&file);
    z3d_string_free(&temporary);
    return status;
}

void z3d_metrics_number(const char *name, double value, z3d_string *out) {
    z3d_string_append(out, ",\"%s\":", name);
    z3d_string_append_number(out, value);
}

/* A float has up to 9 digits. */
static void append_digits(z3d_string *out, const char *name, int digits, double value) {
    if (isfinite(value))
        z3d_string_append(out, ",\"%s\":%.*g", name, digits, value);
    else
        z3d_string_append(out, ",\"%s\":null", name);
}

/* Appends a measurement; more digits would be noise. */
static void append_measured(z3d_string *out, const char *name, double value) {
    append_digits(out, name, 6, value);
}

/* Seconds since 1970, to the millisecond. */
static void append_time(z3d_string *out, double time) {
    z3d_string_append(out, ",\"time\":%.3f", time);
}

/* NULL is left out. */
static void append_text(z3d_string *out, const char *name, const char *text) {
    if (!text) return;
    z3d_string_append(out, ",\"%s\":", name);
    z3d_string_append_json(out, text);
}

/* Leaves out kinds without traffic. */
static void append_sent(z3d_string *out, const z3d_step_record *record) {
    const char *before = ",\"comms\":{";
    for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
        const z3d_sent *sent = &record->sent[kind];
        if (!record->logged[kind] || sent->bytes == 0) continue;
        z3d_string_append(out, "%s\"%s\":{\"inside_node\":%.0f,\"between_nodes\":%.0f}", before,
                          z3d_collective_name((z3d_collective_kind)kind),
                          (double)sent->bytes - sent->between_nodes, sent->between_nodes);
        before = ",";
    }
    if (*before == ',' && before[1] == '\0') z3d_string_append(out, "}");
}

void z3d_metrics_step_line(const z3d_step_record *record, z3d_string *out) {
    double rate = record->seconds > 0 ? (double)record->tokens / record->seconds : NAN;
    z3d_string_append(out, "{\"step\":%lld", (long long)record->result.step);
    z3d_metrics_number("loss", record->result.loss, out);
    append_digits(out, "lr", 9, (double)record->lr);
    z3d_metrics_number("grad_norm", record->result.grad_norm, out);
    z3d_string_append(out, ",\"tokens\":%lld,\"total_tokens\":%lld", (long long)record->tokens,
                      (long long)(record->result.step * record->tokens));
    if (record->result.targets < record->tokens)
        z3d_string_append(out, ",\"trained_tokens\":%lld", (long long)record->result.targets);
    append_measured(out, "seconds", record->seconds);
    append_time(out, record->time);
    append_measured(out, "tokens_per_second", rate);
    append_measured(out, "model_tflops", record->model_tflops);
    append_measured(out, "mfu", record->mfu);
    append_measured(out, "hfu", record->hfu);
    append_measured(out, "exposed_comm_seconds", record->result.exposed_seconds);
    append_measured(out, "exposed_transfer_seconds", record->result.exposed_transfer_seconds);
    if (record->offloaded) {
        append_measured(out, "exposed_disk_seconds", record->result.exposed_disk_seconds);
        append_measured(out, "host_step_seconds", record->result.host_step_seconds);
    }
    z3d_string_append(out, ",\"comm_bytes\":%lld", (long long)record->comm_bytes);
    append_sent(out, record);
    append_digits(out, "loss_scale", 9, (double)record->result.loss_scale);
    z3d_string_append(out, ",\"skipped\":%s", record->result.skipped ? "true" : "false");
    append_text(out, "overflow_group", record->overflow_group);
    z3d_string_append(out, ",\"memory\":{");
    for (int category = 0; category < Z3D_CATEGORY_COUNT; category++)
        z3d_string_append(out, "%s\"%s\":%lld", category ? "," : "",
                          z3d_category_name((z3d_category)category),
                          (long long)record->memory[category]);
    if (record->host_memory > 0)
        z3d_string_append(out, ",\"host\":%lld", (long long)record->host_memory);
    if (record->outside_memory >= 0)
        z3d_string_append(out, ",\"outside\":%lld", (long long)record->outside_memory);
    z3d_string_append(out, "}}\n");
}

void z3d_metrics_validation_line(int64_t step, double time, double loss, const double *of_file,
                                 int files, int64_t targets, double seconds, z3d_string *out) {
    z3d_string_append(out, "{\"step\":%lld", (long long)step);
    z3d_metrics_number("validation_loss", loss, out);
    for (int i = 0; i < files && files > 1; i++) {
        z3d_string_append(out, i == 0 ? ",\"validation_losses\":[" : ",");
        z3d_string_append_number(out, of_file[i]);
    }
    if (files > 1) z3d_string_append(out, "]");
    z3d_string_append(out, ",\"validation_targets\":%lld", (long long)targets);
    append_measured(out, "seconds", seconds);
    append_time(out, time);
    z3d_string_append(out, "}\n");
}

void z3d_metrics_event_line(const z3d_event_record *event, z3d_string *out) {
    z3d_string_append(out, "{\"step\":%lld,\"event\":\"%s\"", (long long)event->step, event->event);
    append_time(out, event->time);
    if (isfinite(event->seconds)) append_measured(out, "seconds", event->seconds);
    append_text(out, "detail", event->detail);
    append_text(out, "device", event->device);
    append_text(out, "type", event->type);
    if (isfinite(event->peak_tflops)) append_measured(out, "peak_tflops", event->peak_tflops);
    z3d_string_append(out, "}\n");
}

static void append_traffic(const z3d_traffic *traffic, z3d_string *out) {
    z3d_string_append(out,
                      "{\"calls\":%lld,\"bytes\":%lld,\"volume_elements\":%lld,"
                      "\"scalar_calls\":%lld,\"scalar_bytes\":%lld,\"bytes_between_nodes\":%.0f",
                      (long long)traffic->calls, (long long)traffic->bytes,
                      (long long)traffic->volume_elements, (long long)traffic->scalar_calls,
                      (long long)traffic->scalar_bytes, traffic->bytes_between_nodes);
    append_measured(out, "seconds", traffic->seconds);
    append_measured(out, "exposed_seconds", traffic->exposed_seconds);
    z3d_string_append(out, "}");
}

void z3d_metrics_traffic(z3d_group *const group[Z3D_AXES_COUNT], int64_t steps, z3d_string *out) {
    z3d_string_append(out, "{\"steps\":%lld,\"groups\":{", (long long)steps);
    const char *comma = "";
    for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
        if (!group[axes]) continue;
        z3d_string_append(out, "%s\"%s\":{\"size\":%d", comma, z3d_axes_name((z3d_axes)axes).text,
                          z3d_group_size(group[axes]));
        comma = ",";
        for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
            const z3d_traffic *traffic = z3d_group_traffic(group[axes], (z3d_collective_kind)kind);
            if (traffic->calls == 0 && traffic->scalar_calls == 0) continue;
            z3d_string_append(out, ",\"%s\":", z3d_collective_name((z3d_collective_kind)kind));
            append_traffic(traffic, out);
        }
        z3d_string_append(out, "}");
    }
    z3d_string_append(out, "}}");
}

void z3d_metrics_sent(z3d_group *const group[Z3D_AXES_COUNT], z3d_sent sent[Z3D_COLLECTIVE_COUNT]) {
    for (int kind = 0; kind < Z3D_COLLECTIVE_COUNT; kind++) {
        sent[kind] = (z3d_sent){0, 0};
        for (int axes = 0; axes < Z3D_AXES_COUNT; axes++) {
            const z3d_traffic *traffic = z3d_group_traffic(group[axes], (z3d_collective_kind)kind);
            sent[kind].bytes += traffic->bytes + traffic->scalar_bytes;
            sent[kind].between_nodes += traffic->bytes_between_nodes;
        }
    }
}
