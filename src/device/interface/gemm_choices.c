/* Times the algorithms of products; writes and reads the choices. */
#include "src/device/gemm_choices.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/device/interface/epilogue.h"

void z3d_gemm_choices_free(z3d_gemm_choices *choices) {
    free(choices->item);
    *choices = (z3d_gemm_choices){.count = 0};
}

static z3d_timed_gemm *find(const z3d_gemm_choices *choices, const z3d_gemm_choice *like) {
    for (int i = 0; i < choices->count; i++)
        if (memcmp(choices->item[i].choice.number, like->number, sizeof like->number) == 0)
            return &choices->item[i];
    return NULL;
}

static z3d_status add(z3d_gemm_choices *choices, const z3d_timed_gemm *item) {
    enum { MOST = 4096 }; /* far more than any model has; each is compared with all */
    if (choices->count == MOST)
        return Z3D_ERROR(Z3D_ERR_CONFIG, "more than %d choices of products", MOST);
    Z3D_TRY(z3d_grow(choices->count, &choices->capacity, sizeof *choices->item,
                     "choices of products", &choices->item));
    choices->item[choices->count++] = *item;
    return Z3D_OK;
}

/* ---- timing ---- */

/* The shortest time of a few runs; the first run only warms up. */
static z3d_status time_product(z3d_device *device, const z3d_gemm *gemm, double *seconds) {
    enum { RUNS = 6 };
    const z3d_kernel kernel = {.kind = Z3D_KERNEL_gemm, .as.gemm = *gemm};
    *seconds = INFINITY;
    for (int run = 0; run < RUNS; run++) {
        double taken;
        Z3D_TRY(z3d_device_time(device, &kernel, &taken));
        if (run > 0) *seconds = fmin(*seconds, taken);
    }
    return Z3D_OK;
}

static z3d_status choose_fastest(z3d_device *device, const z3d_gemm *gemm, z3d_timed_gemm *item) {
    z3d_gemm_choice *choice = &item->choice;
    const int most = choice->algorithms + !z3d_gemm_is_plain(gemm);
    int best = -1;
    for (int tried = 0; tried < most; tried = choice->chosen + 1) {
        double seconds;
        choice->chosen = tried;
        Z3D_TRY(z3d_device_choose_gemm(device, choice));
        z3d_status status = time_product(device, gemm, &seconds);
        if (status == Z3D_ERR_UNSUPPORTED && best >= 0) break; /* the others refuse, too */
        Z3D_TRY(status);
        Z3D_TRY(z3d_device_gemm_choice(device, gemm, choice)); /* the one that has run */
        if (best < 0) item->seconds[0] = seconds;
        if (best >= 0 && seconds >= item->seconds[1]) continue;
        best = choice->chosen;
        item->seconds[1] = seconds;
    }
    choice->chosen = best;
    return z3d_device_choose_gemm(device, choice);
}

z3d_status z3d_gemm_choices_time(z3d_gemm_choices *choices, z3d_device *device,
                                 const z3d_gemm *gemm, double seconds[2]) {
    z3d_kernel part[Z3D_GEMM_PARTS];
    z3d_timed_gemm item = {.seconds = {0}};
    seconds[0] = seconds[1] = 0;
    if (!z3d_gemm_is_plain(gemm)) { /* separate kernels are timed with the best product alone */
        z3d_gemm_parts(gemm, part);
        Z3D_TRY(z3d_gemm_choices_time(choices, device, &part[0].as.gemm, seconds));
    }
    Z3D_TRY(z3d_device_gemm_choice(device, gemm, &item.choice));
    if (item.choice.algorithms == 0) return Z3D_OK;
    const z3d_timed_gemm *known = find(choices, &item.choice);
    if (!known) {
        Z3D_TRY(choose_fastest(device, gemm, &item));
        Z3D_TRY(add(choices, &item));
        known = &item;
    }
    memcpy(seconds, known->seconds, sizeof known->seconds);
    return Z3D_OK;
}

/* ---- text ---- */

static z3d_status write_machine(z3d_device *device, z3d_string *out) {
    char machine[160];
    Z3D_TRY(z3d_device_gemm_machine(device, machine, sizeof machine));
    z3d_string_append(out, "%s\n", machine);
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for choices of products") : Z3D_OK;
}

z3d_status z3d_gemm_choices_write(const z3d_gemm_choices *choices, z3d_device *device,
                                  z3d_string *out) {
    Z3D_TRY(write_machine(device, out));
    for (int i = 0; i < choices->count; i++) {
        const z3d_gemm_choice *choice = &choices->item[i].choice;
        for (int k = 0; k < Z3D_GEMM_NUMBERS; k++)
            z3d_string_append(out, "%lld ", (long long)choice->number[k]);
        z3d_string_append(out, "%d\n", choice->chosen);
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for choices of products") : Z3D_OK;
}

/* Reads a number from 0 to `most` and the character after it, which must be `after`. */
static bool read_number(const char **at, char after, int64_t most, int64_t *out) {
    char *end;
    if (!isdigit((unsigned char)**at)) return false;
    *out = strtoll(*at, &end, 10);
    *at = end + (*end == after);
    return *end == after && *out <= most;
}

static z3d_status read_line(const char **at, z3d_gemm_choice *out) {
    enum { MOST = 1000 };
    const char *line = *at;
    char shown[Z3D_SHOWN + 1];
    int64_t chosen = 0;
    bool whole = true;
    for (int i = 0; i < Z3D_GEMM_NUMBERS && whole; i++)
        whole = read_number(at, ' ', INT64_MAX, &out->number[i]);
    whole = whole && read_number(at, '\n', MOST, &chosen);
    out->chosen = (int)chosen;
    if (whole) return Z3D_OK;
    const size_t length = strlen(z3d_shown(line, shown)), end = strcspn(line, "\n");
    return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.*s' is not a choice: %d numbers",
                     (int)(end < length ? end : length), shown, Z3D_GEMM_NUMBERS + 1);
}

static z3d_status read_lines(z3d_gemm_choices *choices, z3d_device *device, const char *at) {
    while (*at) {
        z3d_timed_gemm item = {.seconds = {0}};
        Z3D_TRY(read_line(&at, &item.choice));
        Z3D_TRY(z3d_device_choose_gemm(device, &item.choice));
        z3d_timed_gemm *known = find(choices, &item.choice);
        if (known)
            known->choice.chosen = item.choice.chosen;
        else
            Z3D_TRY(add(choices, &item));
    }
    return Z3D_OK;
}

z3d_status z3d_gemm_choices_read(z3d_gemm_choices *choices, z3d_device *device, const char *text) {
    z3d_string here = {0};
    char shown[Z3D_SHOWN + 1];
    z3d_status status = write_machine(device, &here);
    if (status == Z3D_OK && strncmp(text, here.text, here.length) == 0)
        status = read_lines(choices, device, text + here.length);
    else if (status == Z3D_OK)
        status = Z3D_ERROR(
            Z3D_ERR_UNSUPPORTED, "the choices are for '%.*s', and this machine has '%.*s'",
            (int)strcspn(text, "\n"), z3d_shown(text, shown), (int)here.length - 1, here.text);
    z3d_string_free(&here);
    return status;
}
