/* zero3d doctor: is this machine fit to train, and how fast is it. */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/cli/cli.h"
#include "src/cli/version.h"
#include "src/device/device.h"

static const char help[] =
    "usage: zero3d doctor\n"
    "\n"
    "Looks at this machine: libraries, CPU and instruction set, cores, memory, shared memory, and "
    "the\n"
    "measured speed of matrix products in each precision with the method that a run would choose.\n"
    "A line that begins with '!' names something that will slow down or stop a run.\n";

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

static void check_memory(z3d_string *out) {
    char total[32], available[32];
    int64_t page = sysconf(_SC_PAGESIZE);
    z3d_string_append(
        out, "memory    %s, %s free\n",
        z3d_format_bytes(page * sysconf(_SC_PHYS_PAGES), total, sizeof total),
        z3d_format_bytes(page * sysconf(_SC_AVPHYS_PAGES), available, sizeof available));
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0) {
        z3d_string_append(out, "! /dev/shm is not there: ranks of one node cannot share memory\n");
        return;
    }
    int64_t bytes = (int64_t)shm.f_bavail * (int64_t)shm.f_frsize;
    z3d_string_append(
        out, "%s/dev/shm  %s free%s\n", bytes < 64 << 20 ? "! " : "",
        z3d_format_bytes(bytes, total, sizeof total),
        bytes < 64 << 20 ? ": MPI's ranks of one node may not start (in a container: --shm-size=1g)"
                         : "");
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

static int run(int argc, char **argv) {
    const cli_option options[] = {{NULL, NULL, NULL}};
    int count;
    z3d_string text = {0};
    z3d_status status = cli_parse(argc, argv, options, &count);
    if (status == Z3D_OK && count > 0)
        status = Z3D_ERROR(Z3D_ERR_USAGE, "doctor takes no arguments");
    if (status == Z3D_OK) status = cli_version(&text);
    if (status == Z3D_OK) {
        check_cores(&text);
        check_memory(&text);
        status = measure(&text);
    }
    int code = status == Z3D_OK ? cli_print(&text) : cli_finish(status, "doctor");
    z3d_string_free(&text);
    return code;
}

const cli_command cli_doctor = {"doctor", "is this machine fit, and how fast is it", help, run};
