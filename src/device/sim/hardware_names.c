/* The descriptions of machines that are part of the program, by name. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "src/device/sim/hardware.h"

/* configs/hardware, which the build writes into the program. */
static const struct machine {
    const char *name, *text;
} machines[] = {
#include "src/device/sim/hardware_texts.h"
};
enum { MACHINES = sizeof machines / sizeof *machines };

bool z3d_is_description(const char *given) {
    static const char end[] = ".yaml";
    const size_t length = strlen(given), most = sizeof end - 1;
    return strchr(given, '/') || (length > most && !strcmp(given + length - most, end));
}

static z3d_status read_machine(const struct machine *m, z3d_hardware *out) {
    return z3d_hardware_read_text(m->text, strlen(m->text), m->name, out);
}

/* The machine with exactly the name `before` + `name`; NULL: none. */
static const struct machine *named(const char *before, const char *name) {
    const size_t length = strlen(before);
    for (int i = 0; i < MACHINES; i++)
        if (strncmp(machines[i].name, before, length) == 0 &&
            strcmp(machines[i].name + length, name) == 0)
            return &machines[i];
    return NULL;
}

/* The only machine whose name contains `part`; NULL: no machine, or several. */
static const struct machine *only_with(const char *part) {
    const struct machine *found = NULL;
    for (int i = 0; i < MACHINES; i++) {
        if (!strstr(machines[i].name, part)) continue;
        if (found) return NULL;
        found = &machines[i];
    }
    return found;
}

/* small: the name in small letters. */
static z3d_status refuse(const char *name, const char *small) {
    z3d_string list = {0};
    bool some = false;
    for (int i = 0; i < MACHINES; i++) some = some || strstr(machines[i].name, small);
    for (int i = 0; i < MACHINES; i++)
        if (!some || strstr(machines[i].name, small))
            z3d_string_append(&list, "%s%s", list.length ? ", " : "", machines[i].name);
    z3d_status status =
        some
            ? Z3D_ERROR(Z3D_ERR_USAGE, "several machines have '%.80s' in their name: %s; write one",
                        name, list.text ? list.text : "")
            : Z3D_ERROR(Z3D_ERR_USAGE,
                        "there is no machine '%.80s'; known are %s; a file of your own has a slash "
                        "in its name, or ends in .yaml",
                        name, list.text ? list.text : "");
    z3d_string_free(&list);
    return status;
}

z3d_status z3d_machine_read(const char *name, z3d_hardware *out) {
    char small[64] = ""; /* names here have no large letters */
    for (size_t i = 0; name[i] && i + 1 < sizeof small; i++) {
        small[i] = (char)tolower((unsigned char)name[i]);
        small[i + 1] = '\0';
    }
    const struct machine *m = named("", small);
    struct stat what;
    if (!m && name[0] && stat(name, &what) == 0 && !S_ISDIR(what.st_mode)) {
        z3d_string file = {0};
        z3d_string_append(&file, "./%s", name);
        z3d_status status = file.failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for a path")
                                        : z3d_hardware_read(file.text, out);
        z3d_string_free(&file);
        return status;
    }
    if (!m) m = named("dgx-", small);
    if (!m && name[0]) m = only_with(small);
    return m ? read_machine(m, out) : refuse(name, small);
}

z3d_status z3d_machines_list(z3d_string *out) {
    z3d_string_append(out, "%-16s %-44s %12s %8s %9s\n", "--hardware", "a node", "GiB", "links",
                      "network");
    for (int i = 0; i < MACHINES; i++) {
        z3d_hardware h;
        Z3D_TRY(read_machine(&machines[i], &h));
        z3d_string_append(out, "%-16s %-44s %4.0f x %5.4g %8.4g %9.4g\n", machines[i].name, h.name,
                          h.devices, h.memory_gib, h.link_bandwidth, h.network_bandwidth);
    }
    z3d_string_append(out,
                      "\nGiB: devices x memory of each. links: GB/s of a device to the others of "
                      "its node, network: of a node.\nA file of your own (FILE.yaml) describes "
                      "another machine: copy one of configs/hardware.\n");
    return Z3D_OK;
}
