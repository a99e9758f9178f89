/* The mesh: the places of ranks along named axes, the members of groups, and the check that tensor
 * groups stay inside nodes. No other file computes with ranks. */
#include "parallel/interface/internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Sets with names. A set of several axes stands before its parts. */
static const struct {
    z3d_axes axes;
    const char *name;
} named[] = {
    {Z3D_AXES_TENSOR, "tensor"},         {Z3D_AXES_DATA, "data"},
    {Z3D_AXES_DATA_INNER, "data_inner"}, {Z3D_AXES_DATA_OUTER, "data_outer"},
    {Z3D_AXES_PIPELINE, "pipeline"},
};

/* The axes that are the digits of an index in a group, fastest first. */
static const int digits[Z3D_AXIS_COUNT] = {Z3D_AXIS_TENSOR, Z3D_AXIS_DATA_OUTER,
                                           Z3D_AXIS_DATA_INNER, Z3D_AXIS_PIPELINE};

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
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if ((axes & named[i].axes) != named[i].axes) continue;
        if (*out.text) strcat(out.text, "+");
        strcat(out.text, named[i].name);
        axes &= (z3d_axes)~named[i].axes;
    }
    return out;
}

bool z3d_axes_have_group(const z3d_mesh *mesh, z3d_axes axes) {
    static const z3d_axes always[] = {
#define X(NAME, of_role) of_role,
        Z3D_ROLE_MAP(X)
#undef X
            Z3D_AXES_WORLD};
    const bool part = axes == Z3D_ROLE_BLOCKS || axes == Z3D_ROLE_NODES;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (axes == always[i]) return !part || z3d_mesh_size(mesh, Z3D_ROLE_NODES) > 1;
    return false;
}

z3d_status z3d_mesh_make(int tensor, int data, int pipeline, int rank, z3d_mesh *out) {
    *out = (z3d_mesh){.rank = rank};
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) out->size[axis] = 1;
    out->size[Z3D_AXIS_TENSOR] = tensor;
    out->size[Z3D_AXIS_DATA_INNER] = data;
    out->size[Z3D_AXIS_PIPELINE] = pipeline;
    return z3d_mesh_check(out);
}

int z3d_mesh_axes(const z3d_mesh *mesh, z3d_axes axes[Z3D_AXIS_COUNT]) {
    const bool cut = mesh->size[Z3D_AXIS_DATA_OUTER] != 1;
    int count = 0;
    axes[count++] = Z3D_AXES_TENSOR;
    axes[count++] = cut ? Z3D_AXES_DATA_INNER : Z3D_AXES_DATA;
    if (cut) axes[count++] = Z3D_AXES_DATA_OUTER;
    axes[count++] = Z3D_AXES_PIPELINE;
    return count;
}

z3d_sizes_text z3d_sizes_name(int tensor, int pipeline, int data) {
    z3d_sizes_text out;
    char stages[32] = "";
    if (pipeline != 1) snprintf(stages, sizeof stages, " x pipeline %d", pipeline);
    snprintf(out.text, sizeof out.text, "tensor %d%s x data %d", tensor, stages, data);
    return out;
}

z3d_sizes_text z3d_mesh_name(const z3d_mesh *mesh) {
    return z3d_sizes_name(z3d_mesh_size(mesh, Z3D_AXES_TENSOR),
                          z3d_mesh_size(mesh, Z3D_AXES_PIPELINE),
                          z3d_mesh_size(mesh, Z3D_AXES_DATA));
}

z3d_status z3d_mesh_check(const z3d_mesh *mesh) {
    char text[Z3D_AXIS_COUNT * 32] = "";
    z3d_axes axes[Z3D_AXIS_COUNT];
    const int count = z3d_mesh_axes(mesh, axes);
    int64_t world = 1;
    bool positive = true, fits = true;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %d", used ? " x " : "",
                 z3d_axes_name(axes[i]).text, z3d_mesh_size(mesh, axes[i]));
    }
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
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

/* The place of a rank along each axis. */
static void place_of(const z3d_mesh *mesh, int rank, int place[Z3D_AXIS_COUNT]) {
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        place[axis] = rank % mesh->size[axis];
        rank /= mesh->size[axis];
    }
}

int z3d_mesh_index(const z3d_mesh *mesh, z3d_axes axes, int rank) {
    int place[Z3D_AXIS_COUNT], index = 0, size = 1;
    place_of(mesh, rank, place);
    for (int d = 0; d < Z3D_AXIS_COUNT; d++) {
        if (!has(axes, digits[d])) continue;
        index += place[digits[d]] * size;
        size *= mesh->size[digits[d]];
    }
    return index;
}

/* The member whose places along the axes are the digits of `index`; `order` says which axis is
 * which digit. */
static int member_at(const z3d_mesh *mesh, z3d_axes axes, int rank, int index,
                     const int order[Z3D_AXIS_COUNT]) {
    int place[Z3D_AXIS_COUNT], member = 0, stride = 1;
    place_of(mesh, rank, place);
    for (int d = 0; d < Z3D_AXIS_COUNT; d++) {
        if (!has(axes, order[d])) continue;
        place[order[d]] = index % mesh->size[order[d]];
        index /= mesh->size[order[d]];
    }
    for (int axis = 0; axis < Z3D_AXIS_COUNT; axis++) {
        member += place[axis] * stride;
        stride *= mesh->size[axis];
    }
    return member;
}

int z3d_mesh_member(const z3d_mesh *mesh, z3d_axes axes, int rank, int index) {
    return member_at(mesh, axes, rank, index, digits);
}

int z3d_mesh_ascending(const z3d_mesh *mesh, z3d_axes axes, int rank, int i) {
    static const int order[Z3D_AXIS_COUNT] = {0, 1, 2, 3};
    return member_at(mesh, axes, rank, i, order);
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
