/* The parts of HDF5 that zero3d uses: files in memory, datasets, attributes. HDF5's own "core"
 * driver would allocate memory for the tensors, which are not in the file yet; our driver keeps
 * these holes sparse, in a memory file of the system. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/shard.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

z3d_status z3d_hdf5_failed(const char *what) {
    return Z3D_ERROR(Z3D_ERR_INTERNAL, "HDF5 failed to %s", what);
}

/* ---- a driver for a file descriptor; the file's name is the descriptor's number ---- */

typedef struct memory_file {
    H5FD_t face; /* must be first: HDF5 sees only this part */
    int fd;
    haddr_t end_allocated, end_written;
} memory_file;

static H5FD_t *file_open(const char *name, unsigned flags, hid_t list, haddr_t limit) {
    (void)flags, (void)list, (void)limit;
    memory_file *file = calloc(1, sizeof *file);
    if (file) file->fd = atoi(name);
    return (H5FD_t *)file;
}

/* The descriptor stays open; the file gets its whole length. */
static herr_t file_close(H5FD_t *face) {
    memory_file *file = (memory_file *)face;
    int failed = ftruncate(file->fd, (off_t)file->end_allocated);
    free(file);
    return failed ? -1 : 0;
}

static herr_t file_query(const H5FD_t *face, unsigned long *flags) {
    (void)face;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
}

static haddr_t file_get_eoa(const H5FD_t *face, H5FD_mem_t type) {
    (void)type;
    return ((const memory_file *)face)->end_allocated;
}

static herr_t file_set_eoa(H5FD_t *face, H5FD_mem_t type, haddr_t address) {
    (void)type;
    ((memory_file *)face)->end_allocated = address;
    return 0;
}

static haddr_t file_get_eof(const H5FD_t *face, H5FD_mem_t type) {
    (void)type;
    return ((const memory_file *)face)->end_written;
}

static herr_t file_read(H5FD_t *face, H5FD_mem_t type, hid_t list, haddr_t address, size_t size,
                        void *bytes) {
    (void)type, (void)list;
    /* Bytes that were allocated but not written are read as zeros. */
    memset(bytes, 0, size);
    return pread(((memory_file *)face)->fd, bytes, size, (off_t)address) < 0 ? -1 : 0;
}

static herr_t file_write(H5FD_t *face, H5FD_mem_t type, hid_t list, haddr_t address, size_t size,
                         const void *bytes) {
    (void)type, (void)list;
    memory_file *file = (memory_file *)face;
    if (pwrite(file->fd, bytes, size, (off_t)address) != (ssize_t)size) return -1;
    if (address + size > file->end_written) file->end_written = address + size;
    return 0;
}

static const H5FD_class_t driver = {
#ifdef H5FD_CLASS_VERSION
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)(H5_VFD_RESERVED + 1),
#endif
    .name = "zero3d_memory",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_STRONG,
    .open = file_open,
    .close = file_close,
    .query = file_query,
    .get_eoa = file_get_eoa,
    .set_eoa = file_set_eoa,
    .get_eof = file_get_eof,
    .read = file_read,
    .write = file_write,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

static hid_t create_file(int fd) {
    char name[16];
    hid_t file = -1, id = H5FDregister(&driver);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
    snprintf(name, sizeof name, "%d", fd);
    /* Every object begins at a multiple of 64, so that the elements of tensors are aligned. */
    if (id >= 0 && access >= 0 && creation >= 0 && H5Pset_driver(access, id, NULL) >= 0 &&
        H5Pset_alignment(access, 1, 64) >= 0 && H5Pset_obj_track_times(creation, false) >= 0)
        file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    if (access >= 0) H5Pclose(access);
    if (creation >= 0) H5Pclose(creation);
    if (id >= 0) H5FDunregister(id);
    return file;
}

/* ---- files, datasets, attributes ---- */

z3d_status z3d_hdf5_create(int *fd, hid_t *file) {
    *file = -1;
    *fd = memfd_create("zero3d-hdf5", MFD_CLOEXEC);
    if (*fd < 0)
        return Z3D_ERROR(Z3D_ERR_IO, "cannot create a file in memory: %s", strerror(errno));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* HDF5 prints nothing: we report failures */
    *file = create_file(*fd);
    if (*file >= 0) return Z3D_OK;
    close(*fd);
    *fd = -1;
    return z3d_hdf5_failed("create a file in memory");
}

z3d_status z3d_hdf5_path(const z3d_tensor *tensor, int kind, int tile, char *out, size_t size) {
    char number[16] = "";
    if (tile > 0) snprintf(number, sizeof number, ".%d", tile);
    int length = snprintf(out, size, "/%s/%s/%s%s", z3d_tensor_kind_name(kind), tensor->group,
                          tensor->name, number);
    if (length < 0 || (size_t)length >= size)
        return Z3D_ERROR(Z3D_ERR_INTERNAL, "tensor %s/%s: its name is too long", tensor->group,
                         tensor->name);
    return Z3D_OK;
}

z3d_status z3d_hdf5_dataset(hid_t file, const z3d_tensor *tensor, int kind, int tile, hid_t space,
                            hid_t list, hid_t *out) {
    char path[160];
    *out = -1;
    Z3D_TRY(z3d_hdf5_path(tensor, kind, tile, path, sizeof path));
    hid_t link = H5Pcreate(H5P_LINK_CREATE);
    if (link >= 0 && H5Pset_create_intermediate_group(link, 1) >= 0)
        *out = H5Dcreate2(file, path, H5T_IEEE_F32LE, space, link, list, H5P_DEFAULT);
    if (link >= 0) H5Pclose(link);
    return *out >= 0 ? Z3D_OK : z3d_hdf5_failed(path);
}

z3d_status z3d_hdf5_attribute(hid_t object, const char *name, const int64_t *values, int count) {
    hsize_t size = (hsize_t)count;
    hid_t space = H5Screate_simple(1, &size, NULL);
    hid_t attribute = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    bool good = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT64, values) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    return good ? Z3D_OK : z3d_hdf5_failed("write an attribute");
}

z3d_status z3d_hdf5_text_attribute(hid_t object, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), attribute = -1;
    bool good = type >= 0 && space >= 0 && H5Tset_size(type, strlen(text) + 1) >= 0;
    if (good) attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    good = attribute >= 0 && H5Awrite(attribute, type, text) >= 0;
    if (attribute >= 0) H5Aclose(attribute);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return good ? Z3D_OK : z3d_hdf5_failed("write an attribute");
}
