/* Numbers for people and for files. */
#include "src/base/strings.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of decimals for about three significant digits: 1.50, 12.3, 123. */
static int decimals_of(double value) {
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

const char *z3d_format_bytes(int64_t bytes, char *buf, size_t size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = fabs((double)bytes);
    const char *sign = bytes < 0 ? "-" : "";
    int unit = 0;
    for (; value >= 1023.5 && unit < 6; unit++) value /= 1024;
    if (unit == 0) {
        snprintf(buf, size, "%s%.0f B", sign, value);
    } else {
        snprintf(buf, size, "%s%.*f %s", sign, decimals_of(value), value, units[unit]);
    }
    return buf;
}

const char *z3d_format_count(double count, char *buf, size_t size) {
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double value = fabs(count);
    int unit = 0;
    if (!isfinite(count)) {
        snprintf(buf, size, "?");
        return buf;
    }
    for (; value >= 999.5 && unit < 4; unit++) value /= 1000;
    bool whole = unit == 0 && value == floor(value);
    snprintf(buf, size, "%s%.*f%s", count < 0 ? "-" : "", whole ? 0 : decimals_of(value), value,
             units[unit]);
    return buf;
}

const char *z3d_format_seconds(double seconds, char *buf, size_t size) {
    double s = fabs(seconds);
    const char *sign = seconds < 0 ? "-" : "";
    if (!(s < 1e15)) {
        snprintf(buf, size, "?");
    } else if (s < 999.5e-6) {
        snprintf(buf, size, "%s%.*f us", sign, s == 0 ? 0 : decimals_of(s * 1e6), s * 1e6);
    } else if (s < 0.9995) {
        snprintf(buf, size, "%s%.*f ms", sign, decimals_of(s * 1e3), s * 1e3);
    } else if (s < 59.95) {
        snprintf(buf, size, "%s%.*f s", sign, decimals_of(s), s);
    } else if (s < 3599.5) {
        long long whole = llround(s);
        snprintf(buf, size, "%s%lld min %02lld s", sign, whole / 60, whole % 60);
    } else if (s < 86370) {
        long long minutes = llround(s / 60);
        snprintf(buf, size, "%s%lld h %02lld min", sign, minutes / 60, minutes % 60);
    } else {
        long long hours = llround(s / 3600);
        snprintf(buf, size, "%s%lld d %02lld h", sign, hours / 24, hours % 24);
    }
    return buf;
}

z3d_number_text z3d_bytes_text(int64_t bytes) {
    z3d_number_text out;
    z3d_format_bytes(bytes, out.text, sizeof out.text);
    return out;
}

z3d_number_text z3d_count_text(double count) {
    z3d_number_text out;
    z3d_format_count(count, out.text, sizeof out.text);
    return out;
}

z3d_number_text z3d_seconds_text(double seconds) {
    z3d_number_text out;
    z3d_format_seconds(seconds, out.text, sizeof out.text);
    return out;
}

const char *z3d_plural(int64_t count) {
    return count == 1 ? "" : "s";
}

/* The fewest digits that read back to the same double. Both conversions use the C locale, because
 * the program's locale may write a comma for the point. */
const char *z3d_format_number(double value, char *buf, size_t size) {
    locale_t c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, value);
        if (strtod(buf, NULL) == value) break;
    }
    if (c_locale) {
        uselocale(before);
        freelocale(c_locale);
    }
    return buf;
}
