/* Who sits where: ranks, coordinates along the axes, and whether tensor groups stay inside nodes.
 */
#include "parallel/interface/internal.h"

#include <limits.h>

const char *z3d_axis_name(z3d_axis axis) {
    static const char *const names[] = {
#define X(NAME, name) #name,
        Z3D_AXIS_MAP(X)
#undef X
    };
    return (unsigned)axis < Z3D_AXIS_COUNT ? names[axis] : "?";
}

z3d_status z3d_topology_make(int tensor, int data, int pipeline, int rank, z3d_topology *out) {
    if (tensor < 1 || data < 1 || pipeline < 1)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY,
                         "parallel sizes must be positive: tensor %d, data %d, pipeline %d", tensor,
                         data, pipeline);
    int64_t world;
    if (!z3d_mul_i64(tensor, data, &world) || !z3d_mul_i64(world, pipeline, &world) ||
        world > INT_MAX)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "tensor %d x data %d x pipeline %d: too many ranks",
                         tensor, data, pipeline);
    if (rank < 0 || rank >= world)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY,
                         "rank %d is outside tensor %d x data %d x pipeline %d = %d ranks", rank,
                         tensor, data, pipeline, (int)world);
    *out = (z3d_topology){
        .size = {tensor, data, pipeline, (int)world},
        .coordinate = {rank % tensor, rank / tensor % data, rank / tensor / data, rank}};
    return Z3D_OK;
}

int z3d_topology_peer(const z3d_topology *topology, z3d_axis axis, int index) {
    if (axis == Z3D_AXIS_WORLD) return index;
    int coordinate[Z3D_AXIS_COUNT];
    for (int a = 0; a < Z3D_AXIS_COUNT; a++) coordinate[a] = topology->coordinate[a];
    coordinate[axis] = index;
    return coordinate[Z3D_AXIS_TENSOR] +
           topology->size[Z3D_AXIS_TENSOR] *
               (coordinate[Z3D_AXIS_DATA] +
                topology->size[Z3D_AXIS_DATA] * coordinate[Z3D_AXIS_PIPELINE]);
}

z3d_status z3d_topology_check_node_map(const z3d_topology *topology, const int *node) {
    int tensor = topology->size[Z3D_AXIS_TENSOR];
    int world = topology->size[Z3D_AXIS_WORLD];
    for (int first = 0; first < world; first += tensor)
        for (int rank = first + 1; rank < first + tensor; rank++)
            if (node[rank] != node[first])
                return Z3D_ERROR(
                    Z3D_ERR_TOPOLOGY,
                    "tensor group of ranks %d-%d spans two nodes: rank %d is on node %d, rank %d "
                    "on node %d; make the ranks per node a multiple of tensor size %d, or set "
                    "parallel.allow_tensor_across_nodes: true",
                    first, first + tensor - 1, first, node[first], rank, node[rank], tensor);
    return Z3D_OK;
}

z3d_status z3d_topology_check_nodes(const z3d_world *world, const z3d_topology *topology) {
    if (topology->size[Z3D_AXIS_WORLD] != world->size)
        return Z3D_ERROR(Z3D_ERR_TOPOLOGY, "the topology has %d ranks, the world %d",
                         topology->size[Z3D_AXIS_WORLD], world->size);
    return z3d_topology_check_node_map(topology, world->node);
}
