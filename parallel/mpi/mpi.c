/* Messages over MPI. No other file includes <mpi.h>; a build without MPI has none.c instead. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/interface/internal.h"

const bool z3d_mpi_built = true;

/* MPI's handles are pointers in one library and ints in another. */
_Static_assert(sizeof(MPI_Comm) <= sizeof(void *), "a communicator fits a handle");
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits a handle");

static MPI_Comm comm_of(const z3d_channel *channel) {
    MPI_Comm comm;
    memcpy(&comm, &channel->handle, sizeof comm);
    return comm;
}

static MPI_Request request_of(const z3d_message *message) {
    MPI_Request request;
    memcpy(&request, &message->handle, sizeof request);
    return request;
}

static void keep_request(z3d_message *message, MPI_Request request) {
    memcpy(&message->handle, &request, sizeof request);
}

static z3d_status check(int code, const char *what) {
    if (code == MPI_SUCCESS) return Z3D_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return Z3D_ERROR(Z3D_ERR_COMM, "MPI error while %s: %s", what, text);
}

/* The key gives the communicator's ranks the order of the channel's members. */
static z3d_status mpi_open(z3d_channel *channel) {
    MPI_Comm comm;
    Z3D_TRY(check(MPI_Comm_split(MPI_COMM_WORLD, channel->members[0], channel->index, &comm),
                  "splitting the world communicator"));
    memcpy(&channel->handle, &comm, sizeof comm);
    return check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN),
                 "setting a communicator's error handler");
}

static void mpi_close(z3d_channel *channel) {
    MPI_Comm comm = comm_of(channel);
    MPI_Comm_free(&comm);
}

static z3d_status mpi_start(z3d_message *message) {
    const MPI_Comm comm = comm_of(message->channel);
    const int bytes = (int)message->bytes, peer = message->peer, tag = message->tag;
    MPI_Request request;
    int code = message->sends
                   ? MPI_Isend(message->data, bytes, MPI_BYTE, peer, tag, comm, &request)
                   : MPI_Irecv(message->data, bytes, MPI_BYTE, peer, tag, comm, &request);
    Z3D_TRY(check(code, message->sends ? "posting a send" : "posting a receive"));
    keep_request(message, request);
    return Z3D_OK;
}

static z3d_status mpi_test(z3d_message *message, bool *done) {
    MPI_Request request = request_of(message);
    int finished = 0;
    int code = MPI_Test(&request, &finished, MPI_STATUS_IGNORE);
    keep_request(message, request);
    *done = finished != 0;
    return check(code, "sending or receiving");
}

static void mpi_drop(z3d_message *message) {
    MPI_Request request = request_of(message);
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
}

static void mpi_abort(z3d_world *world) {
    (void)world;
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void finalize(z3d_world *world) {
    (void)world;
    MPI_Finalize();
}

#define OPERATIONS                                                                                 \
    .name = "mpi", .open = mpi_open, .close = mpi_close, .start = mpi_start, .test = mpi_test,     \
    .drop = mpi_drop, .abort = mpi_abort
static const z3d_transport callers_mpi = {OPERATIONS};
static const z3d_transport own_mpi = {OPERATIONS, .end = finalize};

z3d_status z3d_mpi_start(int *argc, char ***argv, z3d_world *world) {
    int initialized = 0, finalized = 0, provided = 0;
    MPI_Finalized(&finalized);
    if (finalized)
        return Z3D_ERROR(Z3D_ERR_COMM,
                         "MPI is already finalized in this process; create the world only once");
    MPI_Initialized(&initialized);
    if (!initialized) {
        Z3D_TRY(check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "starting MPI"));
        world->transport = &own_mpi;
        if (provided < MPI_THREAD_FUNNELED)
            return Z3D_ERROR(
                Z3D_ERR_COMM,
                "this MPI library does not support MPI_THREAD_FUNNELED (it provides level %d)",
                provided);
    } else {
        world->transport = &callers_mpi;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    return Z3D_OK;
}

/* MPI allows this call before MPI_Init. */
void z3d_mpi_version(char *text, size_t size) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    snprintf(text, size, "%s", version);
}
