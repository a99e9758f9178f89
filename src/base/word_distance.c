/* The distance between a misspelt word and another word. */
#include <ctype.h>
#include <string.h>

#include "src/base/strings.h"

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

int z3d_word_distance(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    if (m >= Z3D_WORD || n >= Z3D_WORD) return Z3D_FAR_AWAY;
    int rows[3][Z3D_WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n; j++) last[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            x = x == '-' ? '_' : x;
            now[j] = min3(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
        int *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[n];
}
