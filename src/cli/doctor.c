/* zero3d doctor: checks this machine and measures its speed. */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/device/device.h"
#include "src/plan/price/measure.h"

static const char help[] =
    "usage: zero3d doctor [--measure FILE [--force]]\n"
    "\n"
    "Checks this machine: libraries, CPU and instruction set, cores, memory, shared memory.\n"
    "Measures the speed of matrix products in each precision, with the fastest method.\n"
    "A line that begins with '!' names a problem that slows down or stops a run. The last line\n"
    "says what the machine is ready for, what it is not ready for, and why.\n"
    "\n"
    "  --measure FILE   only measures kernels, copies, the links between its ranks and the disk\n"
    "                   of FILE; writes the machine's description to FILE, for\n"
    "                   `zero3d plan --hardware`. ZERO3D_MEASURE_TURNS=1 in the environment:\n"
    "                   is faster and less exact\n"
    "  --force          FILE may replace a file that doctor has not written\n"
    "\n"
    "example: zero3d-launch -n 2 zero3d doctor --measure configs/hardware/this-machine.yaml\n";

static void check_cores(z3d_string *out) {
    hwloc_topology_t topology;
    int cores = -1, threads = -1;
    if (hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0) {
            cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
            threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
        }
        hwloc_topology_destroy(topology);
    }
    z3d_string_append(out, "cores     %d (%d hardware threads), %ld usable by this process\n",
                      cores, threads, sysconf(_SC_NPROCESSORS_ONLN));
}

/* False: /dev/shm is missing or too small, so ranks of one node may be unable to share memory. */
static bool check_memory(z3d_string *out) {
    int64_t page = sysconf(_SC_PAGESIZE);
    z3d_string_append(out, "memory    %s, %s free\n",
                      z3d_bytes_text(page * sysconf(_SC_PHYS_PAGES)).text,
                      z3d_bytes_text(page * sysconf(_SC_AVPHYS_PAGES)).text);
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0) {
        z3d_string_append(out,
                          "! /dev/shm does not exist: ranks of one node cannot share memory\n");
        return false;
    }
    int64_t bytes = (int64_t)shm.f_bavail * (int64_t)shm.f_frsize;
    const bool enough = bytes >= 64 << 20;
    z3d_string_append(
        out, "%s/dev/shm  %s free%s\n", enough ? "" : "! ", z3d_bytes_text(bytes).text,
        enough ? "" : ": MPI's ranks of one node may not start (in a container: --shm-size=1g)");
    return enough;
}

/* The last line: what the machine is ready for, what it is not ready for, and why. */
static void append_verdict(bool shared, z3d_string *out) {
    const z3d_device_config config = {.backend = "cuda"};
    z3d_device *gpu = NULL;
    z3d_string missing = {0};
    const bool cuda = z3d_device_create(&config, &gpu) == Z3D_OK;
    if (!shared)
        z3d_string_append(&missing, "; several ranks over MPI: /dev/shm is too small (over TCP "
                                    "they start: ZERO3D_LAUNCH=tcp)");
    if (!cli_is_in_path("mpirun"))
        z3d_string_append(&missing, "; MPI: mpirun is not in PATH (ranks connect over TCP)");
    const char *why = z3d_error_message(); /* "training.device cuda: ...; the remedy" */
    if (!cuda) z3d_string_append(&missing, "; %.*s", (int)strcspn(why, ";"), why);
    if (!cli_is_in_path("sbatch"))
        z3d_string_append(&missing, "; zero3d submit: sbatch is not in PATH");
    z3d_string_append(out, "ready     to train on %s, with one rank or several%s%s\n",
                      cuda ? "the CPU and on GPUs" : "the CPU",
                      missing.length ? ". Not ready for " : "",
                      missing.length && !missing.failed ? missing.text + 2 : "");
    z3d_string_free(&missing);
    z3d_device_destroy(gpu);
}

static z3d_status measure(z3d_string *out) {
    static const z3d_dtype dtypes[] = {Z3D_F32, Z3D_BF16, Z3D_F16};
    z3d_device_config config = {.backend = "cpu"};
    z3d_device *device;
    Z3D_TRY(z3d_device_create(&config, &device));
    z3d_status status = Z3D_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0] && status == Z3D_OK; i++) {
        z3d_gemm_method method;
        double gflops;
        status = z3d_device_measure_gemm(device, dtypes[i], 512, 768, 768, &method, &gflops);
        if (status != Z3D_OK) break;
        z3d_string_append(out, "%-10s%.0f GFLOP/s (%s, %d threads)\n", z3d_dtype_name(dtypes[i]),
                          gflops, z3d_gemm_method_name(method), z3d_device_threads(device));
    }
    z3d_device_destroy(device);
    return status;
}

static z3d_status write_description(const char *path, int ranks, const z3d_hardware *hardware) {
    char comment[256];
    z3d_string text = {0};
    snprintf(comment, sizeof comment, "%son %d ranks of this machine, all at once.\n",
             z3d_output_machine.begins, ranks);
    z3d_hardware_write(hardware, comment, &text);
    return cli_save(Z3D_OK, path, &text);
}

/* Checks, before anything is measured, that the result can be written; an existing file stays until
 * then. Rank 0 checks. */
static z3d_status check_place(const z3d_world *world, const char *path, bool force) {
    if (z3d_world_rank(world) > 0) return Z3D_OK;
    Z3D_TRY(cli_check_outputs(&(cli_output){path, &z3d_output_machine}, 1, NULL, 0, force));
    FILE *file = fopen(path, "a");
    if (!file) return Z3D_ERROR(Z3D_ERR_IO, "cannot write %.200s: %s", path, strerror(errno));
    fclose(file);
    return Z3D_OK;
}

/* Measures the disk of the folder of `path`. If that fails, the machine is described without a
 * disk. */
static z3d_status measure_disk(z3d_world *world, const char *path, z3d_hardware *hardware,
                               z3d_string *out) {
    z3d_string folder = {0};
    const char *slash = strrchr(path, '/');
    z3d_string_append(&folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    if (folder.failed)
        return Z3D_ERROR(Z3D_ERR_MEMORY, "not enough memory for the name of a folder");
    z3d_status status = z3d_measure_disk(world, folder.text, hardware);
    if (status != Z3D_OK && z3d_world_rank(world) == 0)
        z3d_string_append(out, "! disk not measured: %s\n", z3d_error_message());
    z3d_string_free(&folder);
    return Z3D_OK;
}

/* Collective over the world. */
static z3d_status describe_machine(const char *path, bool force, z3d_string *out) {
    z3d_world *world;
    z3d_hardware hardware;
    Z3D_TRY(z3d_world_create(NULL, NULL, &world));
    int ranks = z3d_world_local_size(world);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = cores > ranks ? (int)(cores / ranks) : 1;
    double memory = (double)sysconf(_SC_PAGESIZE) * (double)sysconf(_SC_PHYS_PAGES);
    z3d_status status = z3d_world_agree(world, check_place(world, path, force));
    if (status == Z3D_OK) status = z3d_measure_machine(world, threads, memory, &hardware);
    if (status == Z3D_OK) status = measure_disk(world, path, &hardware, out);
    if (status == Z3D_OK && z3d_world_rank(world) == 0)
        status = write_description(path, ranks, &hardware);
    status = z3d_world_agree(world, status);
    if (status != Z3D_OK) z3d_world_abort(world, status, z3d_error_message());
    if (z3d_world_rank(world) == 0)
        z3d_string_append(out, "%s describes %d ranks of %d threads\n", path, ranks, threads);
    z3d_world_destroy(world);
    return Z3D_OK;
}

static int run(int argc, char **argv) {
    const char *path = NULL;
    bool force = false;
    const cli_option options[] = {
        {"measure", .value = &path}, {"force", .flag = &force}, {.name = NULL}};
    int count;
    z3d_string text = {0};
    z3d_status status = cli_parse(argc, argv, options, &count);
    if (status == Z3D_OK && count > 0)
        status = Z3D_ERROR(Z3D_ERR_USAGE, "doctor takes no arguments");
    bool ranks = status == Z3D_OK && path;
    if (ranks) status = describe_machine(path, force, &text);
    if (status == Z3D_OK && !path) status = cli_version(&text);
    if (status == Z3D_OK && !path) {
        check_cores(&text);
        const bool shared = check_memory(&text);
        status = measure(&text);
        if (status == Z3D_OK) append_verdict(shared, &text);
    }
    int code = ranks ? cli_finish_rank(NULL, status, "doctor") : cli_finish(status, "doctor");
    if (status == Z3D_OK) code = cli_print(&text);
    z3d_string_free(&text);
    return code;
}

const cli_command cli_doctor = {
    "doctor", "check this machine and measure its speed", help, NULL, run, true, NULL, false};
