/* Dynamic loss scaling: `hysteresis` overflows halve the scale, `window` steps without one double
 * it. */
#include "zero/execute/engine.h"

void z3d_loss_scale_update(const z3d_loss_scaler *scaler, z3d_engine_state *now, bool overflow) {
    if (!scaler->dynamic) return;
    if (overflow) {
        if (now->hysteresis_left <= 1) {
            const float half = now->loss_scale / 2;
            now->loss_scale = half > scaler->min_scale ? half : scaler->min_scale;
        } else {
            now->hysteresis_left--;
        }
        now->good_steps = 0;
        return;
    }
    if (++now->good_steps % scaler->window != 0) return;
    now->hysteresis_left = scaler->hysteresis;
    if (now->loss_scale < 1e38f) now->loss_scale *= 2;
}
