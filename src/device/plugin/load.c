/* Finds and loads the CUDA plugin. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/device/plugin/plugin.h"

/* The folders to search, separated by colons. */
static z3d_status search_path(z3d_string *out) {
    const char *given = getenv("ZERO3D_PLUGIN_PATH");
    if (given && *given) {
        z3d_string_append(out, "%s", given);
    } else {
        char program[4096] = "";
        ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
        if (length < 0 || !strchr(program, '/')) strcpy(program, "./program");
        const char *folder = dirname(program);
        z3d_string_append(out, "%s:%s/../" Z3D_PLUGIN_FOLDER, folder, folder);
    }
    return out->failed ? Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the plugin's name") : Z3D_OK;
}

/* The first folder that has the file. */
static z3d_status find(const char *folders, z3d_string *path) {
    for (const char *at = folders; *at;) {
        int length = (int)strcspn(at, ":");
        z3d_string_free(path);
        z3d_string_append(path, "%.*s/" Z3D_PLUGIN_FILE, length, at);
        if (path->failed) return Z3D_ERROR(Z3D_ERR_MEMORY, "no memory for the plugin's name");
        if (length > 0 && access(path->text, F_OK) == 0) return Z3D_OK;
        at += length + (at[length] == ':');
    }
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "training.device cuda: no " Z3D_PLUGIN_FILE " in %s; build zero3d where the "
                     "CUDA toolkit is (make build CUDA=1, or cmake -DZERO3D_CUDA=ON), or name its "
                     "folder in ZERO3D_PLUGIN_PATH; to run on CPUs write training.device: cpu",
                     folders);
}

static z3d_status check(const char *path, const z3d_plugin *plugin) {
    if (!plugin || strncmp(plugin->magic, Z3D_PLUGIN_MAGIC, sizeof plugin->magic) != 0)
        return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s is not a zero3d plugin", path);
    if (plugin->interface == Z3D_PLUGIN_INTERFACE && plugin->bytes == Z3D_PLUGIN_BYTES)
        return Z3D_OK;
    return Z3D_ERROR(Z3D_ERR_UNSUPPORTED,
                     "%s was built from another version: its interface is %u.%u, this program's "
                     "%u.%u; build both from the same source",
                     path, plugin->interface, plugin->bytes, (unsigned)Z3D_PLUGIN_INTERFACE,
                     Z3D_PLUGIN_BYTES);
}

static z3d_status open_library(const char *path, const z3d_plugin **out) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return Z3D_ERROR(Z3D_ERR_UNSUPPORTED, "%s cannot be loaded: %s", path, dlerror());
    z3d_plugin_tables_function *tables = NULL;
    void *symbol = dlsym(library, Z3D_PLUGIN_SYMBOL);
    memcpy(&tables, &symbol, sizeof tables);
    const z3d_plugin *plugin = tables ? tables() : NULL;
    z3d_status status = check(path, plugin);
    if (status == Z3D_OK)
        *out = plugin;
    else
        dlclose(library);
    return status;
}

z3d_status z3d_plugin_load(const z3d_plugin **out) {
    z3d_string folders = {0}, path = {0};
    *out = NULL;
    z3d_status status = search_path(&folders);
    if (status == Z3D_OK) status = find(folders.text, &path);
    if (status == Z3D_OK) status = open_library(path.text, out);
    z3d_string_free(&folders);
    z3d_string_free(&path);
    return status;
}
