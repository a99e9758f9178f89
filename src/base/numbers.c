/* Reads numbers: the whole text must be one number, or the error says what would be right. strtol
 * and atof would read 5e8 as 5, 010 as 8 and -1 as 2^64-1. */
#include "src/base/strings.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 256 };

/* A decimal number cut into its parts: sign, the digits without the point, and the power of ten of
 * the last of them. */
typedef struct decimal {
    bool negative;
    char digits[NUMBER_BYTES];
    int count;        /* of digits */
    int64_t exponent; /* value = digits x 10^exponent */
    const char *rest; /* what follows the number */
} decimal;

static z3d_status refuse(const char *text, const char *why) {
    return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.80s%s' %s", text, strlen(text) > 80 ? "..." : "", why);
}

static const char *cut_digits(const char *at, decimal *out) {
    for (; isdigit((unsigned char)*at); at++) {
        if (out->count < NUMBER_BYTES - 1) out->digits[out->count++] = *at;
    }
    out->digits[out->count] = '\0';
    return at;
}

/* Reads [eE][+-]?digits; a part that is no exponent is not read. The exponent saturates at 10^9,
 * which is too large for any number. */
static const char *cut_exponent(const char *at, decimal *out) {
    const char *digit = at + 1;
    if (*at != 'e' && *at != 'E') return at;
    bool negative = *digit == '-';
    if (*digit == '+' || *digit == '-') digit++;
    if (!isdigit((unsigned char)*digit)) return at;
    int64_t exponent = 0;
    for (; isdigit((unsigned char)*digit); digit++) {
        if (exponent < 1000000000) exponent = exponent * 10 + (*digit - '0');
    }
    out->exponent += negative ? -exponent : exponent;
    return digit;
}

static z3d_status refuse_leading_zero(const char *text, const char *digits, bool negative) {
    while (digits[0] == '0' && isdigit((unsigned char)digits[1])) digits++;
    return Z3D_ERROR(Z3D_ERR_CONFIG, "'%.80s' has a leading zero; write %s%.80s", text,
                     negative ? "-" : "", digits);
}

/* Cuts the longest number off the front of `text`. */
static z3d_status cut_decimal(const char *text, decimal *out) {
    *out = (decimal){0};
    const char *at = text;
    if (strlen(text) >= NUMBER_BYTES) return refuse(text, "is too long for a number");
    if (*at == '-' || *at == '+') out->negative = *at++ == '-';
    const char *whole = at;
    if (isdigit((unsigned char)*at)) at = cut_digits(at, out);
    if (whole[0] == '0' && isdigit((unsigned char)whole[1])) {
        return refuse_leading_zero(text, whole, out->negative);
    }
    if (*at == '.' && (out->count > 0 || isdigit((unsigned char)at[1]))) {
        int before = out->count;
        at++;
        if (isdigit((unsigned char)*at)) at = cut_digits(at, out);
        out->exponent = before - out->count;
    }
    if (out->count == 0) return refuse(text, "is not a number");
    out->rest = cut_exponent(at, out);
    if (*out->rest == '_') return refuse(text, "has an underscore; write the digits without it");
    return Z3D_OK;
}

/* digits x 10^exponent x unit as a whole number; not_whole: the error's words if it is none. Zeros
 * at the end of the digits are first moved to the exponent, so that 50e-1 is the integer 5. */
static z3d_status decimal_to_int(const char *text, const decimal *number, int64_t unit,
                                 const char *not_whole, int64_t *out) {
    static const char too_large[] = "is beyond 64-bit integers";
    int count = number->count;
    int64_t exponent = number->exponent;
    while (count > 0 && number->digits[count - 1] == '0') {
        count--;
        exponent++;
    }
    *out = 0;
    if (count == 0) return Z3D_OK;
    __extension__ typedef unsigned __int128 wide;
    wide value = 0, limit = (wide)INT64_MAX + (number->negative ? 1 : 0);
    for (int i = 0; i < count; i++) {
        value = value * 10 + (wide)(number->digits[i] - '0');
        if (value > (wide)1 << 64) return refuse(text, exponent < 0 ? not_whole : too_large);
    }
    value *= (wide)unit; /* below 2^65 x 2^50 */
    for (; exponent < 0; exponent++) {
        if (value % 10 != 0) return refuse(text, not_whole);
        value /= 10;
    }
    for (; exponent > 0 && value <= limit; exponent--) value *= 10;
    if (value > limit) return refuse(text, too_large);
    *out = number->negative ? (int64_t) - (uint64_t)value : (int64_t)value;
    return Z3D_OK;
}

z3d_status z3d_parse_int(const char *text, int64_t *out) {
    decimal number;
    Z3D_TRY(cut_decimal(text, &number));
    if (*number.rest) return refuse(text, "is not an integer");
    return decimal_to_int(text, &number, 1, "is not an integer: it has a fraction", out);
}

/* strtod with a decimal point in every locale. */
static double c_strtod(const char *text, bool *ok) {
    locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    *ok = locale != (locale_t)0;
    if (!*ok) return 0;
    double value = strtod_l(text, NULL, locale);
    freelocale(locale);
    return value;
}

z3d_status z3d_parse_float(const char *text, double *out) {
    decimal number;
    Z3D_TRY(cut_decimal(text, &number));
    if (*number.rest) return refuse(text, "is not a number");
    char plain[NUMBER_BYTES + 32];
    bool ok;
    snprintf(plain, sizeof plain, "%s%se%lld", number.negative ? "-" : "", number.digits,
             (long long)number.exponent);
    double value = c_strtod(plain, &ok);
    if (!ok) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory to read the number '%.80s'", text);
    if (!isfinite(value)) return refuse(text, "is too large for a double");
    bool zero = number.digits[strspn(number.digits, "0")] == '\0';
    if (value == 0 && !zero) return refuse(text, "is too small for a double");
    *out = value;
    return Z3D_OK;
}

z3d_status z3d_parse_count(const char *text, double *out) {
    static const char units[] = "KMBT";
    char number[NUMBER_BYTES];
    const size_t length = strlen(text);
    const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
    if (length >= sizeof number) return refuse(text, "is too long for a number");
    if (!unit) return z3d_parse_float(text, out);
    memcpy(number, text, length);
    size_t end = length - 1;
    if (end > 0 && number[end - 1] == ' ') end--;
    number[end] = '\0';
    Z3D_TRY(z3d_parse_float(number, out));
    for (const char *u = units; u <= unit; u++) *out *= 1000;
    return isfinite(*out) ? Z3D_OK : refuse(text, "is too large for a double");
}

z3d_status z3d_parse_bytes(const char *text, int64_t *out) {
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1000},
                 {"kB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"PB", 1000000000000000},
                 {"KiB", (int64_t)1 << 10},
                 {"MiB", (int64_t)1 << 20},
                 {"GiB", (int64_t)1 << 30},
                 {"TiB", (int64_t)1 << 40},
                 {"PiB", (int64_t)1 << 50}};
    decimal number;
    Z3D_TRY(cut_decimal(text, &number));
    const char *unit = number.rest;
    if (*unit == ' ') unit++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].name) != 0) continue;
        if (number.negative) return refuse(text, "is negative; sizes are 0 or more");
        return decimal_to_int(text, &number, units[i].bytes, "is not a whole number of bytes", out);
    }
    return refuse(text, "has an unknown unit; write 3e9, 16GiB, 512 MiB or 80GB");
}

bool z3d_mul_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

bool z3d_add_i64(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

int64_t z3d_round_up(int64_t value, int64_t multiple) {
    int64_t rest = value % multiple;
    if (rest == 0) return value;
    int64_t rounded;
    return z3d_add_i64(value, multiple - rest, &rounded) ? rounded : -1;
}
