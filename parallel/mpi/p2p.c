/* Sends and receives between two members. They do not queue behind the group's collectives nor
 * behind each other: a pipeline stage that starts a send and then a receive must not wait for the
 * send before its receive is seen. Each has its own tag, from a count that both sides keep. */
#include "parallel/mpi/ring.h"

enum { PIECE = 64 * 1024 * 1024 }; /* MPI counts are ints */

static bool is_send(const z3d_operation *operation) {
    return operation->call.kind == Z3D_COLLECTIVE_SEND;
}

static int64_t bytes_of(const z3d_operation *operation) {
    return operation->call.count * (int64_t)z3d_dtype_size(operation->call.dtype);
}

static z3d_status post_piece(const z3d_mpi_group *mpi, z3d_operation *operation) {
    int64_t left = bytes_of(operation) - operation->moved;
    int bytes = (int)(left < PIECE ? left : PIECE);
    char *at = (char *)operation->call.buffer + operation->moved;
    int peer = operation->call.peer;
    if (is_send(operation))
        return z3d_mpi_check(
            MPI_Isend(at, bytes, MPI_BYTE, peer, operation->tag, mpi->comm, &operation->request),
            "posting a send");
    return z3d_mpi_check(
        MPI_Irecv(at, bytes, MPI_BYTE, peer, operation->tag, mpi->comm, &operation->request),
        "posting a receive");
}

z3d_status z3d_p2p_start(z3d_group *group, z3d_operation *operation) {
    enum { TAGS = 1 << 19 };
    z3d_mpi_group *mpi = group->state;
    int64_t *count = is_send(operation) ? mpi->sent_to : mpi->received_from;
    /* Odd tags: those of the collectives are even. */
    operation->tag = (int)(count[operation->call.peer]++ % TAGS) * 2 + 1;
    Z3D_TRY(post_piece(mpi, operation));
    operation->queued = mpi->p2p;
    mpi->p2p = operation;
    return Z3D_OK;
}

static z3d_status progress_one(const z3d_mpi_group *mpi, z3d_operation *operation, bool *finished,
                               bool *moved) {
    int done = 0;
    *finished = false;
    Z3D_TRY(z3d_mpi_check(MPI_Test(&operation->request, &done, MPI_STATUS_IGNORE),
                          is_send(operation) ? "sending" : "receiving"));
    if (!done) return Z3D_OK;
    *moved = true;
    int64_t left = bytes_of(operation) - operation->moved;
    operation->moved += left < PIECE ? left : PIECE;
    *finished = operation->moved == bytes_of(operation);
    return *finished ? Z3D_OK : post_piece(mpi, operation);
}

z3d_status z3d_p2p_progress(z3d_group *group, bool *moved) {
    z3d_mpi_group *mpi = group->state;
    z3d_operation **link = &mpi->p2p;
    while (*link) {
        bool finished;
        Z3D_TRY(progress_one(mpi, *link, &finished, moved));
        if (finished) {
            z3d_operation *operation = *link;
            *link = operation->queued;
            z3d_operation_finish(group, operation, Z3D_OK);
        } else {
            link = &(*link)->queued;
        }
    }
    return Z3D_OK;
}
