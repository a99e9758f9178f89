/* The backend of groups over MPI: a queue of collectives, one under way at a time, beside the sends
 * and receives. */
#include <stdlib.h>
#include <string.h>

#include "parallel/mpi/ring.h"

z3d_status z3d_mpi_check(int code, const char *what) {
    if (code == MPI_SUCCESS) return Z3D_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return Z3D_ERROR(Z3D_ERR_COMM, "%s: MPI says: %s", what, text);
}

z3d_status z3d_mpi_group_create(z3d_group *group, MPI_Comm comm) {
    z3d_mpi_group *mpi = NULL;
    z3d_status status = z3d_new(1, sizeof *mpi, "a process group", &mpi);
    if (status != Z3D_OK) {
        MPI_Comm_free(&comm);
        group->ops = &z3d_self_ops;
        return status;
    }
    group->state = mpi;
    mpi->comm = comm;
    size_t size = (size_t)group->size;
    Z3D_TRY(z3d_mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "a communicator"));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "send counts", &mpi->sent_to));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "receive counts", &mpi->received_from));
    Z3D_TRY(z3d_new(2 * size, sizeof(MPI_Request), "requests", &mpi->small_request));
    Z3D_TRY(z3d_new(size, Z3D_SMALL_BYTES, "small communication buffers", &mpi->small));
    Z3D_TRY(z3d_new(Z3D_RING_WINDOW, Z3D_RING_SEGMENT, "communication slots", &mpi->slots));
    for (size_t i = 0; i < 2 * size; i++) mpi->small_request[i] = MPI_REQUEST_NULL;
    group->buffer_bytes =
        (int64_t)size * Z3D_SMALL_BYTES + (int64_t)Z3D_RING_WINDOW * Z3D_RING_SEGMENT;
    return Z3D_OK;
}

static void drop_request(MPI_Request *request) {
    if (*request == MPI_REQUEST_NULL) return;
    MPI_Cancel(request);
    MPI_Request_free(request);
}

/* After an error operations may still be pending: nothing may write into freed memory. */
static void drop_requests(z3d_mpi_group *mpi, int size) {
    z3d_ring *ring = &mpi->ring;
    if (ring->active && !ring->small) {
        for (int64_t q = ring->received; q < ring->posted; q++)
            drop_request(&ring->recv_request[q % Z3D_RING_WINDOW]);
        for (int64_t q = ring->sent; q < ring->sending; q++)
            drop_request(&ring->send_request[q % Z3D_RING_WINDOW]);
    }
    for (int i = 0; mpi->small_request && i < 2 * size; i++) drop_request(&mpi->small_request[i]);
    for (z3d_operation *p2p = mpi->p2p; p2p; p2p = p2p->queued) drop_request(&p2p->request);
}

static void mpi_destroy(z3d_group *group) {
    z3d_mpi_group *mpi = group->state;
    if (!mpi) return;
    drop_requests(mpi, group->size);
    MPI_Comm_free(&mpi->comm);
    free(mpi->slots);
    free(mpi->small);
    free(mpi->small_request);
    free(mpi->received_from);
    free(mpi->sent_to);
    free(mpi);
}

static bool is_small(const z3d_collective *call) {
    return call->kind == Z3D_COLLECTIVE_BARRIER ||
           (call->kind == Z3D_COLLECTIVE_ALL_REDUCE &&
            call->count * (int64_t)z3d_dtype_size(call->dtype) <= Z3D_SMALL_BYTES);
}

static z3d_status begin_head(z3d_group *group) {
    enum { TAGS = 1 << 19 };
    z3d_mpi_group *mpi = group->state;
    mpi->ring.tag = (int)(mpi->sequence++ % TAGS) * 2;
    return is_small(&mpi->head->call) ? z3d_exchange_begin(group, mpi->head)
                                      : z3d_ring_begin(group, mpi->head);
}

static z3d_status progress_collectives(z3d_group *group, bool *moved) {
    z3d_mpi_group *mpi = group->state;
    while (mpi->head) {
        if (!mpi->ring.active) Z3D_TRY(begin_head(group));
        Z3D_TRY(mpi->ring.small ? z3d_exchange_progress(group, mpi->head, moved)
                                : z3d_ring_progress(group, mpi->head, moved));
        if (mpi->ring.active) return Z3D_OK;
        z3d_operation *done = mpi->head;
        mpi->head = done->queued;
        if (!mpi->head) mpi->tail = NULL;
        *moved = true;
        z3d_operation_finish(group, done, Z3D_OK);
    }
    return Z3D_OK;
}

static z3d_status mpi_progress(z3d_group *group, bool *moved) {
    Z3D_TRY(z3d_p2p_progress(group, moved));
    return progress_collectives(group, moved);
}

static z3d_status mpi_start(z3d_group *group, z3d_operation *operation) {
    z3d_mpi_group *mpi = group->state;
    z3d_collective_kind kind = operation->call.kind;
    if (kind == Z3D_COLLECTIVE_SEND || kind == Z3D_COLLECTIVE_RECV)
        return z3d_p2p_start(group, operation);
    if (mpi->tail)
        mpi->tail->queued = operation;
    else
        mpi->head = operation;
    mpi->tail = operation;
    /* The first messages leave at once: the next poll may be far away. */
    z3d_world_progress(group->world);
    return Z3D_OK;
}

const z3d_group_ops z3d_mpi_ops = {
    .name = "mpi", .start = mpi_start, .progress = mpi_progress, .destroy = mpi_destroy};
