/* Dynamic loss scaling: `hysteresis` overflows halve the scale, `window` steps without one double
 * it. */
#include "zero/execute/loss_scale.h"

void z3d_loss_scale_update(const z3d_loss_scaler *scaler, z3d_loss_scale *now, bool overflow) {
    if (!scaler->dynamic) return;
    if (overflow) {
        if (now->hysteresis_left <= 1) {
            now->scale = now->scale / 2 > scaler->min_scale ? now->scale / 2 : scaler->min_scale;
        } else {
            now->hysteresis_left--;
        }
        now->good_steps = 0;
        return;
    }
    if (++now->good_steps % scaler->window != 0) return;
    now->hysteresis_left = scaler->hysteresis;
    if (now->scale < 1e38f) now->scale *= 2;
}
