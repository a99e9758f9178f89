/* Who sits where: ranks along named axes, the members of groups, and whether tensor groups stay
 * inside nodes. No other file computes with ranks. */
#include "parallel/interface/internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define X(NAME, name) #name,
    Z3D_AXIS_MAP(X)
#undef X
};

static bool has(z3d_axes axes, int axis) {
    return axes >> axis & 1;
}

z3d_axes_text z3d_axes_name(z3d_axes axes) {
    z3d_axes_text out = {""};
    if (axes == Z3D_AXES_WORLD || axes == Z3D_AXES_NONE || axes >= Z3D_AXES_COUNT) {
        const char *name = axes == Z3D_AXES_WORLD ? "world" : axes == Z3D_AXES_NONE ? "none" : "?";
        snprintf(out.text, sizeof out.text, "%s", name);
        return out;
    }
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        if (!has(axes, axis)) continue;
        if (*out.text) strcat(out.text, "+");
        strcat(out.text, names[axis]);
    }
    return out;
}

bool z3d_axes_have_group(z3d_axes axes) {
    bool one = axes != 0 && (axes & (axes - 1)) == 0;
    return axes == Z3D_AXES_WORLD || (one && axes < Z3D_AXES_COUNT);
}

z3d_status z3d_mesh_make(int tensor, int data, int pipeline, int rank, z3d_mesh *out) {
    *out = (z3d_mesh){.rank = rank};
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) out->size[axis] = 1;
    out->size[Z3D_AXIS_TENSOR] = tensor;
    out->size[Z3D_AXIS_DATA] = data;
    out->size[Z3D_AXIS_PIPELINE] = pipeline;
    return z3d_mesh_check(out);
}

z3d_sizes_text z3d_sizes_name(int tensor, int pipeline, int data) {
    z3d_sizes_text out;
    char stages[32] = "";
    if (pipeline != 1) snprintf(stages, sizeof stages, " x pipeline %d", pipeline);
    snprintf(out.text, sizeof out.text, "tensor %d%s x data %d", tensor, stages, data);
    return out;
}

z3d_status z3d_mesh_check(const z3d_mesh *mesh) {
    char text[Z3D_AXIS_COUNT * 32] = "";
    int64_t world = 1;
    bool positive = true, fits = true;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %d", used ? " x " : "", names[axis],
                 mesh->size[axis]);
        positive = positive && mesh->size[axis] > 0;
        fits = fits && z3d_mul_i64(world, mesh->size[axis], &world) && world <= INT_MAX;
    }
    if (!positive) return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "parallel sizes must be positive: %s", text);
    if (!fits) return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "%s: too many ranks", text);
    if (mesh->rank < 0 || mesh->rank >= world)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "rank %d is outside %s = %d ranks", mesh->rank, text,
                         (int)world);
    return Z3D_OK;
}

int z3d_mesh_size(const z3d_mesh *mesh, z3d_axes axes) {
    int size = 1;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++)
        if (has(axes, axis)) size *= mesh->size[axis];
    return size;
}

int z3d_mesh_index(const z3d_mesh *mesh, z3d_axes axes, int rank) {
    int index = 0, size = 1;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        if (has(axes, axis)) {
            index += rank % mesh->size[axis] * size;
            size *= mesh->size[axis];
        }
        rank /= mesh->size[axis];
    }
    return index;
}

int z3d_mesh_member(const z3d_mesh *mesh, z3d_axes axes, int rank, int index) {
    int member = 0, stride = 1;
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        int size = mesh->size[axis];
        member += (has(axes, axis) ? index : rank / stride) % size * stride;
        if (has(axes, axis)) index /= size;
        stride *= size;
    }
    return member;
}

z3d_status z3d_mesh_check_node_map(const z3d_mesh *mesh, const int *node) {
    int tensor = z3d_mesh_size(mesh, Z3D_AXES_TENSOR);
    int world = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    for (int rank = 0; rank < world; rank++) {
        int first = z3d_mesh_member(mesh, Z3D_AXES_TENSOR, rank, 0);
        if (node[rank] == node[first]) continue;
        return Z3D_ERROR(
            Z3D_ERR_TOPOLOGY,
            "tensor group of ranks %d-%d spans two nodes: rank %d is on node %d, rank %d "
            "on node %d; make the ranks per node a multiple of tensor size %d, or set "
            "parallel.allow_tensor_across_nodes: true",
            first, z3d_mesh_member(mesh, Z3D_AXES_TENSOR, rank, tensor - 1), first, node[first],
            rank, node[rank], tensor);
    }
    return Z3D_OK;
}

z3d_status z3d_mesh_check_nodes(const z3d_world *world, const z3d_mesh *mesh) {
    int size = z3d_mesh_size(mesh, Z3D_AXES_WORLD);
    if (size != world->size)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "the mesh has %d ranks, the world %d", size,
                         world->size);
    return z3d_mesh_check_node_map(mesh, world->node);
}
