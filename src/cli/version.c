/* zero3d --version */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <dnnl.h>
#include <hdf5.h>
#include <hwloc.h>
#include <pcre2.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>
#include <zstd.h>

#include "src/cli/cli.h"
#include "src/device/device.h"

z3d_status cli_version(z3d_string *out) {
    z3d_device_config config = {.backend = "cpu"};
    z3d_device *device;
    Z3D_TRY(z3d_device_create(&config, &device));
    const dnnl_version_t *dnnl = dnnl_version();
    char pcre2[64] = "", mpi[128];
    unsigned hwloc = hwloc_get_api_version(), xxhash = XXH_versionNumber();
    unsigned hdf5[3] = {0};
    H5get_libversion(&hdf5[0], &hdf5[1], &hdf5[2]);
    z3d_string_append(out, "zero3d %s\n", ZERO3D_VERSION);
    z3d_string_append(out, "compiler  %s\n",
#if defined(__clang__)
                      "clang " __clang_version__
#else
                      "gcc " __VERSION__
#endif
    );
    z3d_string_append(out, "oneDNN    %d.%d.%d\n", dnnl->major, dnnl->minor, dnnl->patch);
    z3d_mpi_version(mpi, sizeof mpi);
    z3d_string_append(out, "MPI       %s\n", mpi);
    z3d_string_append(out, "libyaml   %s\n", yaml_get_version_string());
    z3d_string_append(out, "hwloc     %u.%u.%u\n", hwloc >> 16, hwloc >> 8 & 255, hwloc & 255);
    z3d_string_append(out, "HDF5      %u.%u.%u\n", hdf5[0], hdf5[1], hdf5[2]);
    z3d_string_append(out, "xxHash    %u.%u.%u\n", xxhash / 10000, xxhash / 100 % 100,
                      xxhash % 100);
    z3d_string_append(out, "utf8proc  %s\n", utf8proc_version());
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    z3d_string_append(out, "PCRE2     %s\n", pcre2);
    z3d_string_append(out, "zlib      %s\n", zlibVersion());
    z3d_string_append(out, "zstd      %s\n", ZSTD_versionString());
    z3d_string_append(out, "device    %s\n", z3d_device_description(device));
    z3d_device_destroy(device);
    return Z3D_OK;
}
