/* MPI where there is none: a process alone. Starting a world of several fails, and nothing else is
 * ever called, since a world of one uses no MPI (parallel/interface/world.c). For the bare build
 * (ZERO3D_BARE), which checks a GPU with nothing but a compiler and the CUDA toolkit. */
#ifndef ZERO3D_BARE_MPI_H
#define ZERO3D_BARE_MPI_H

#include <stdio.h>
#include <stdlib.h>

typedef int MPI_Comm, MPI_Request, MPI_Datatype, MPI_Op, MPI_Info, MPI_Status, MPI_Errhandler;
enum {
    MPI_SUCCESS,
    MPI_COMM_NULL = 0,
    MPI_COMM_WORLD,
    MPI_REQUEST_NULL = 0,
    MPI_INFO_NULL = 0,
    MPI_ERRORS_RETURN = 0,
    MPI_BYTE = 1,
    MPI_INT = 4,
    MPI_MIN = 0,
    MPI_THREAD_FUNNELED = 1,
    MPI_COMM_TYPE_SHARED = 1,
    MPI_MAX_ERROR_STRING = 64
};
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

/* Every call fails, with arguments looked at by nobody. */
#define Z3D_NO_MPI(name, ...)                                                                      \
    static inline int name(__VA_ARGS__) {                                                          \
        return !MPI_SUCCESS;                                                                       \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
Z3D_NO_MPI(MPI_Initialized, int *flag)
Z3D_NO_MPI(MPI_Finalized, int *flag)
Z3D_NO_MPI(MPI_Init_thread, int *argc, char ***argv, int wanted, int *provided)
Z3D_NO_MPI(MPI_Finalize, void)
Z3D_NO_MPI(MPI_Abort, MPI_Comm comm, int code)
Z3D_NO_MPI(MPI_Comm_dup, MPI_Comm comm, MPI_Comm *out)
Z3D_NO_MPI(MPI_Comm_free, MPI_Comm *comm)
Z3D_NO_MPI(MPI_Comm_rank, MPI_Comm comm, int *rank)
Z3D_NO_MPI(MPI_Comm_size, MPI_Comm comm, int *size)
Z3D_NO_MPI(MPI_Comm_set_errhandler, MPI_Comm comm, MPI_Errhandler handler)
Z3D_NO_MPI(MPI_Comm_split, MPI_Comm comm, int colour, int key, MPI_Comm *out)
Z3D_NO_MPI(MPI_Comm_split_type, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
Z3D_NO_MPI(MPI_Barrier, MPI_Comm comm)
Z3D_NO_MPI(MPI_Bcast, void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
Z3D_NO_MPI(MPI_Ibcast, void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
           MPI_Request *request)
Z3D_NO_MPI(MPI_Allreduce, const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm)
Z3D_NO_MPI(MPI_Iallreduce, const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm, MPI_Request *request)
Z3D_NO_MPI(MPI_Allgather, const void *from, int count, MPI_Datatype type, void *to, int to_count,
           MPI_Datatype to_type, MPI_Comm comm)
Z3D_NO_MPI(MPI_Iallgather, const void *from, int count, MPI_Datatype type, void *to, int to_count,
           MPI_Datatype to_type, MPI_Comm comm, MPI_Request *request)
Z3D_NO_MPI(MPI_Isend, const void *data, int count, MPI_Datatype type, int to, int tag,
           MPI_Comm comm, MPI_Request *request)
Z3D_NO_MPI(MPI_Irecv, void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
           MPI_Request *request)
Z3D_NO_MPI(MPI_Test, MPI_Request *request, int *done, MPI_Status *status)
Z3D_NO_MPI(MPI_Testall, int count, MPI_Request *requests, int *done, MPI_Status *statuses)
Z3D_NO_MPI(MPI_Cancel, MPI_Request *request)
Z3D_NO_MPI(MPI_Request_free, MPI_Request *request)
#pragma GCC diagnostic pop
#undef Z3D_NO_MPI

static inline int MPI_Error_string(int code, char *text, int *length) {
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "this is a build without MPI (error %d)", code);
    return MPI_SUCCESS;
}

#endif
