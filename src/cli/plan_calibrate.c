/* zero3d plan --calibrate: fits software to measured steps, from files or runs. */
#include <stdio.h>

#include "src/base/sort.h"
#include "src/cli/plan.h"
#include "src/plan/calibrate/calibrate.h"
#include "src/train/history/history.h"

/* The median of a run's steps, without the first one. */
static z3d_status median_step(const char *run, double *out) {
    z3d_history history = {0};
    z3d_status status = z3d_history_read(run, &history);
    const int64_t count = history.steps.count - 1;
    double *seconds = history.steps.column[Z3D_COLUMN_SECONDS];
    if (status == Z3D_OK && count < 1)
        status = Z3D_ERROR(Z3D_ERR_DATA, "%s: a run of one step is too short", run);
    if (status == Z3D_OK) {
        z3d_sort_numbers(seconds + 1, (size_t)count);
        *out = seconds[1 + count / 2];
    }
    z3d_history_release(&history);
    return status;
}

/* Adds a run: the configuration, the ranks and the steps in its folder. */
static z3d_status add_run(const char *run, const z3d_hardware *hardware, z3d_measured_steps *to) {
    z3d_config *config;
    z3d_string path = {0};
    double seconds;
    bool chosen;
    Z3D_TRY(median_step(run, &seconds));
    Z3D_TRY(z3d_config_create(&config));
    z3d_string_append(&path, "%s/config.yaml", run);
    z3d_status status = path.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a name")
                                    : z3d_config_read_file(config, path.text);
    if (status == Z3D_OK) status = z3d_choose_device(config, hardware, &chosen);
    if (status == Z3D_OK) status = z3d_measured_steps_add(config, hardware, 0, seconds, to);
    z3d_config_destroy(config);
    z3d_string_free(&path);
    return status == Z3D_OK ? status : z3d_error_context(status, "%s", run);
}

static z3d_status read_steps(const z3d_config *config, const cli_plan_asked *asked,
                             const z3d_hardware *hardware, z3d_measured_steps *out) {
    z3d_log_configure(Z3D_LOG_WARN, 0); /* no notes on each step's configuration */
    for (int i = 0; i < asked->steps.count; i++) {
        const char *path = asked->steps.value[i];
        Z3D_TRY(z3d_is_folder(path) ? add_run(path, hardware, out)
                                    : z3d_measured_steps_read(config, hardware, path, out));
    }
    return Z3D_OK;
}

z3d_status cli_plan_calibrate(const z3d_config *config, const cli_plan_asked *asked,
                              z3d_string *text) {
    z3d_hardware hardware;
    z3d_measured_steps steps = {0};
    z3d_calibration found;
    z3d_string file = {0};
    const char *start = asked->software;
    Z3D_TRY(start ? z3d_hardware_read_with(asked->hardware, start, &hardware)
                  : z3d_hardware_read(asked->hardware, &hardware));
    z3d_status status = read_steps(config, asked, &hardware, &steps);
    if (status == Z3D_OK && !start) status = z3d_nearest_software(&steps, &hardware, &start);
    if (status == Z3D_OK) status = z3d_calibrate(&steps, &hardware, &found);
    z3d_measured_steps_free(&steps);
    Z3D_TRY(status);
    z3d_string_append(&file, "%splan --calibrate` on %d steps of %s.\n", z3d_output_software.begins,
                      found.steps, hardware.name);
    snprintf(hardware.software, sizeof hardware.software, "%.40s, from steps", start);
    z3d_software_write(&hardware, "", &file);
    status = cli_save(Z3D_OK, asked->write, &file);
    z3d_string_append(text, "starts with %s%s\n", start,
                      asked->software ? "" : ", which is nearest to these steps");
    z3d_calibration_print(&found, text);
    z3d_string_append(text, "written: %s, for --software\n", asked->write);
    return status;
}
