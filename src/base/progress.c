/* Lines of progress. */
#include "src/base/progress.h"

#include "src/base/log.h"
#include "src/base/strings.h"

void z3d_progress_begin(z3d_progress *progress, int64_t total) {
    if (!progress) return;
    progress->total = total;
    progress->done = 0;
    progress->begin = progress->said = z3d_now();
}

void z3d_progress_add(z3d_progress *progress, int64_t bytes) {
    char done[32], total[32], left[32];
    if (!progress || bytes <= 0) return;
    progress->done += bytes;
    double now = z3d_now(), share = (double)progress->done / (double)progress->total;
    if (now - progress->said < progress->every || share >= 1) return;
    progress->said = now;
    z3d_log(Z3D_LOG_INFO, "%s: %s of %s (%.0f %%), %s left", progress->what,
            z3d_format_bytes(progress->done, done, sizeof done),
            z3d_format_bytes(progress->total, total, sizeof total), 100 * share,
            z3d_format_seconds((now - progress->begin) * (1 / share - 1), left, sizeof left));
}
