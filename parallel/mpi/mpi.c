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

int64_t z3d_mpi_buffer_bytes(int size, bool node, bool reads) {
    int64_t bytes = node ? z3d_node_buffer_bytes() : (int64_t)size * Z3D_SMALL_BYTES;
    return bytes + (reads ? 0 : (int64_t)Z3D_RING_WINDOW * Z3D_RING_SEGMENT);
}

/* What messages need: less, or nothing, where shared memory does the work. */
static z3d_status make_buffers(z3d_mpi_group *mpi, size_t size, int64_t *bytes) {
    bool reads = mpi->node && z3d_node_takes_all(mpi->node);
    *bytes = z3d_mpi_buffer_bytes((int)size, mpi->node, reads);
    if (!mpi->node) {
        Z3D_TRY(z3d_new(2 * size, sizeof(MPI_Request), "requests", &mpi->small_request));
        Z3D_TRY(z3d_new(size, Z3D_SMALL_BYTES, "small communication buffers", &mpi->small));
        for (size_t i = 0; i < 2 * size; i++) mpi->small_request[i] = MPI_REQUEST_NULL;
    }
    if (!reads)
        Z3D_TRY(z3d_new(Z3D_RING_WINDOW, Z3D_RING_SEGMENT, "communication slots", &mpi->slots));
    return Z3D_OK;
}

z3d_status z3d_mpi_group_create(z3d_group *group, MPI_Comm comm, z3d_sharing sharing) {
    z3d_mpi_group *mpi = NULL;
    size_t size = (size_t)group->size;
    z3d_status status = z3d_new(1, sizeof *mpi, "a process group", &mpi);
    Z3D_TRY_GOTO(status, z3d_world_agree(group->world, status), failed);
    group->state = mpi;
    mpi->comm = comm;
    Z3D_TRY(z3d_mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "a communicator"));
    if (sharing != Z3D_SHARE_NOTHING)
        Z3D_TRY(z3d_node_create(comm, sharing == Z3D_SHARE_EVERYTHING, &mpi->node));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "send counts", &mpi->sent_to));
    Z3D_TRY(z3d_new(size, sizeof(int64_t), "receive counts", &mpi->received_from));
    return make_buffers(mpi, size, &group->buffer_bytes);
failed:
    MPI_Comm_free(&comm);
    free(mpi);
    return status;
}

static void drop_request(MPI_Request *request) {
    if (*request == MPI_REQUEST_NULL) return;
    MPI_Cancel(request);
    MPI_Request_free(request);
}

/* After an error operations may still be pending: nothing may write into freed memory. */
static void drop_requests(z3d_mpi_group *mpi, int size) {
    z3d_ring *ring = &mpi->ring;
    if (mpi->active && mpi->way == Z3D_WAY_RING) {
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
    z3d_node_destroy(mpi->node);
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
    z3d_operation *head = mpi->head;
    mpi->tag = (int)(mpi->sequence++ % TAGS) * 2;
    mpi->active = true;
    if (mpi->node) {
        bool taken = z3d_node_takes(mpi->node, &head->call);
        mpi->way = taken ? Z3D_WAY_NODE : Z3D_WAY_RING;
        if (taken)
            z3d_node_begin(mpi->node, &head->call, (uint64_t)mpi->sequence);
        else
            z3d_node_skip(mpi->node, (uint64_t)mpi->sequence);
    } else {
        mpi->way = is_small(&head->call) ? Z3D_WAY_EXCHANGE : Z3D_WAY_RING;
    }
    if (mpi->way == Z3D_WAY_EXCHANGE) return z3d_exchange_begin(group, head);
    return mpi->way == Z3D_WAY_RING ? z3d_ring_begin(group, head) : Z3D_OK;
}

static z3d_status progress_head(z3d_group *group, bool *moved) {
    z3d_mpi_group *mpi = group->state;
    if (mpi->way == Z3D_WAY_EXCHANGE) return z3d_exchange_progress(group, mpi->head, moved);
    if (mpi->way == Z3D_WAY_RING) return z3d_ring_progress(group, mpi->head, moved);
    bool done;
    Z3D_TRY(z3d_node_progress(mpi->node, &mpi->head->call, moved, &done));
    if (done) mpi->active = false;
    return Z3D_OK;
}

static z3d_status progress_collectives(z3d_group *group, bool *moved) {
    z3d_mpi_group *mpi = group->state;
    while (mpi->head) {
        if (!mpi->active) Z3D_TRY(begin_head(group));
        Z3D_TRY(progress_head(group, moved));
        if (mpi->active) return Z3D_OK;
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
    if (operation->call.count == 0 && kind != Z3D_COLLECTIVE_BARRIER) {
        /* Nothing for everybody: nobody sends it. */
        z3d_operation_finish(group, operation, Z3D_OK);
        return Z3D_OK;
    }
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
