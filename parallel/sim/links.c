/* Collectives on described links. A ring moves the bytes that NCCL's and our own rings move. Its
 * time is these bytes divided by the bandwidth of the narrowest link on the ring, plus one latency
 * for each step along the ring; small sums use a tree, with fewer steps. A hierarchical collective
 * (software.hierarchical) has levels: each level moves its own bytes over its own links, one level
 * after the other; between nodes switches may add (software.in_network_reduction). */
#include "parallel/sim/links.h"

#include <math.h>
#include <stdlib.h>

static int node_of(const z3d_places *places, int rank) {
    return places->node ? places->node[rank] : rank / places->devices;
}

static int node_of_member(const z3d_mesh *at, z3d_axes axes, int index, const z3d_places *places) {
    return node_of(places, z3d_mesh_ascending(at, axes, at->rank, index));
}

/* Whether no member before `index` is on its node. Ranks that fill node after node ascend. */
static bool is_first_on_node(const z3d_mesh *at, z3d_axes axes, int index,
                             const z3d_places *places) {
    const int node = node_of_member(at, axes, index, places), least = places->node ? 0 : index - 1;
    for (int i = index - 1; i >= 0 && i >= least; i--)
        if (node_of_member(at, axes, i, places) == node) return false;
    return true;
}

/* Nodes that this rank's group spans. */
static int nodes_of(const z3d_mesh *at, z3d_axes axes, const z3d_places *places) {
    int nodes = 0;
    for (int i = 0; i < z3d_mesh_size(at, axes); i++)
        nodes += is_first_on_node(at, axes, i, places);
    return nodes;
}

int z3d_links_hops(const z3d_mesh *mesh, z3d_axes axes, const z3d_places *places) {
    const int nodes = nodes_of(mesh, axes, places);
    return nodes > 1 ? nodes : 0;
}

bool z3d_links_across(const z3d_places *places, int rank, int peer) {
    return node_of(places, rank) != node_of(places, peer);
}

double z3d_links_crossing(double bytes, int hops, int members) {
    return bytes * hops / members;
}

/* Adds one to `crossing` of every node that this rank's group touches. */
static void mark(const z3d_mesh *at, z3d_axes axes, const z3d_places *places, int *crossing) {
    int last = -1;
    for (int i = 0; i < z3d_mesh_size(at, axes); i++) {
        int node = node_of_member(at, axes, i, places);
        if (node != last) crossing[node]++;
        last = node;
    }
}

/* Members on each of the `nodes` nodes of this rank's group; 0: the nodes have different numbers.
 */
static int members_on_each(const z3d_mesh *at, z3d_axes axes, const z3d_places *places, int nodes) {
    int local = z3d_mesh_size(at, axes) / nodes;
    if (z3d_mesh_size(at, axes) % nodes != 0) return 0;
    for (int i = 1; i < z3d_mesh_size(at, axes); i++)
        if (i % local != 0 &&
            node_of_member(at, axes, i, places) != node_of_member(at, axes, i - 1, places))
            return 0;
    return local;
}

static void each_group(const z3d_mesh *mesh, z3d_axes axes, const z3d_places *places, int *crossing,
                       z3d_links *out) {
    z3d_mesh at = *mesh;
    bool first = true;
    for (at.rank = 0; at.rank < z3d_mesh_size(mesh, Z3D_AXES_WORLD); at.rank++) {
        if (z3d_mesh_index(mesh, axes, at.rank) != 0) continue;
        int nodes = nodes_of(&at, axes, places);
        if (nodes > out->nodes) out->nodes = nodes;
        if (nodes < 2) continue;
        mark(&at, axes, places, crossing);
        int local = members_on_each(&at, axes, places, nodes);
        out->local = first || out->local == local ? local : 0;
        first = false;
    }
}

z3d_status z3d_links_find(const z3d_mesh *mesh, z3d_axes axes, int devices, z3d_links *out) {
    int world = z3d_mesh_size(mesh, Z3D_AXES_WORLD), nodes = (world + devices - 1) / devices;
    int *crossing;
    Z3D_TRY(z3d_new((size_t)nodes, sizeof *crossing, "a map of nodes", &crossing));
    *out = (z3d_links){.members = z3d_mesh_size(mesh, axes), .nodes = 1, .sharing = 1};
    out->local = out->members;
    each_group(mesh, axes, &(z3d_places){.devices = devices}, crossing, out);
    for (int n = 0; n < nodes; n++)
        if (crossing[n] > out->sharing) out->sharing = crossing[n];
    if (out->nodes > 1) out->hops = out->nodes;
    free(crossing);
    return Z3D_OK;
}

/* Whether elements travel in another type: such a sum uses no ring (parallel.h). */
static bool is_encoded(const z3d_event *call) {
    return call->form != Z3D_F32;
}

/* Bytes of the whole vector or matrix of a call, in the type in which its elements travel. */
static double total_bytes(const z3d_links *links, const z3d_event *call) {
    bool rows = call->of == Z3D_COLLECTIVE_REDUCE_SCATTER || call->of == Z3D_COLLECTIVE_ALL_GATHER;
    z3d_dtype dtype = is_encoded(call) ? (z3d_dtype)call->form : call->dtype;
    return (double)z3d_bytes_of(dtype, call->count) * (rows ? links->members : 1);
}

/* Bytes that a member of a ring sends, divided by total_bytes: an all_reduce passes the data twice.
 */
static double passes(const z3d_links *links, const z3d_event *call) {
    double share = (double)(links->members - 1) / links->members;
    switch (call->of) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        return 2 * share;
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
    case Z3D_COLLECTIVE_ALL_GATHER:
        return share;
    case Z3D_COLLECTIVE_BARRIER:
        return 0;
    default:
        return 1;
    }
}

/* Small sums use a tree, whatever the other collectives use. */
static bool takes_tree(const z3d_hardware *hardware, const z3d_links *links,
                       const z3d_event *call) {
    return call->of == Z3D_COLLECTIVE_ALL_REDUCE && !is_encoded(call) &&
           total_bytes(links, call) <= hardware->tree_kib * 1024;
}

/* Equal numbers of members on all nodes: each member has a partner on every other node. */
static bool even_nodes(const z3d_links *links) {
    return links->nodes > 1 && links->local > 0;
}

/* Whether switches add. They help an all_reduce only: in a reduce-scatter or a gather each node
 * sends as much with such switches as without. */
static bool in_network(const z3d_hardware *hardware, const z3d_links *links,
                       const z3d_event *call) {
    return hardware->in_network > 0 && even_nodes(links) && call->of == Z3D_COLLECTIVE_ALL_REDUCE &&
           !is_encoded(call);
}

static bool in_levels(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call) {
    if (in_network(hardware, links, call)) return true;
    return hardware->hierarchical > 0 && even_nodes(links) &&
           (call->of == Z3D_COLLECTIVE_ALL_REDUCE || call->of == Z3D_COLLECTIVE_REDUCE_SCATTER ||
            call->of == Z3D_COLLECTIVE_ALL_GATHER) &&
           !is_encoded(call) && !takes_tree(hardware, links, call);
}

/* Members on each node; the mean where the nodes have different numbers. */
static double members_of_node(const z3d_links *links) {
    return links->local > 0 ? links->local : (double)links->members / links->nodes;
}

/* The share of a member's sent bytes that leaves its node. In levels a member sends 1/local of the
 * data between nodes, except the 1/nodes of it that is this node's own; the rest travels inside the
 * node. */
static double share_between(const z3d_hardware *hardware, const z3d_links *links,
                            const z3d_event *call) {
    if (links->nodes < 2) return 0;
    if (is_encoded(call)) return (links->members - members_of_node(links)) / (links->members - 1);
    return in_levels(hardware, links, call) ? (double)(links->nodes - 1) / (links->members - 1)
                                            : z3d_links_crossing(1, links->hops, links->members);
}

/* If switches add, a member sends its part once: the sum returns in the link's other direction. */
double z3d_links_bytes(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                       double *between_nodes) {
    double bytes = links->members > 1 ? passes(links, call) * total_bytes(links, call) : 0;
    if (in_network(hardware, links, call)) {
        const double part = total_bytes(links, call) / links->local;
        const double inside = 2 * (links->local - 1) * part;
        *between_nodes = part;
        return inside + part;
    }
    *between_nodes = bytes * share_between(hardware, links, call);
    return bytes;
}

static double tree_depth(int members) {
    return members > 1 ? ceil(log2((double)members)) : 0;
}

/* Latency of one pass, in seconds: around the ring, or up a tree whose upper levels are the nodes.
 */
static double latency(const z3d_hardware *hardware, const z3d_links *links, bool tree) {
    double inside = hardware->link_latency_us * 1e-6, across = hardware->network_latency_us * 1e-6;
    int per_node = (links->members + links->nodes - 1) / links->nodes;
    if (tree) return tree_depth(per_node) * inside + tree_depth(links->nodes) * across;
    return (links->members - links->nodes) * inside + (links->nodes - 1) * across;
}

/* In how many collectives parameters are gathered or gradients summed. */
static double pieces(const z3d_hardware *hardware, const z3d_event *call) {
    if (call->axes != Z3D_ROLE_ROWS) return 1;
    if (call->of == Z3D_COLLECTIVE_ALL_GATHER) return hardware->gather_pieces;
    return call->of == Z3D_COLLECTIVE_REDUCE_SCATTER ? hardware->reduce_pieces : 1;
}

/* How often a collective pays the latency: in both passes of an all_reduce, and in each piece of a
 * gather of parameters or a sum of gradients. */
static double calls(const z3d_hardware *hardware, const z3d_event *call) {
    return call->of == Z3D_COLLECTIVE_ALL_REDUCE ? 2 : pieces(hardware, call);
}

double z3d_links_lists(const z3d_hardware *hardware, const z3d_links *links,
                       const z3d_event *call) {
    const double count = pieces(hardware, call);
    return count > 1 && links->members > 1 ? count * links->members * hardware->list_us * 1e-6 : 0;
}

static double copies(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call) {
    const bool parts =
        call->of == Z3D_COLLECTIVE_ALL_GATHER || call->of == Z3D_COLLECTIVE_REDUCE_SCATTER;
    if (!parts || hardware->collective_copies == 0) return 0;
    const double bytes = 2 * hardware->collective_copies * total_bytes(links, call);
    return bytes / (hardware->memory_bandwidth * 1e9 * hardware->memory_efficiency);
}

double z3d_links_core(const z3d_hardware *hardware, double between_nodes) {
    return between_nodes * hardware->network_core_ns * 1e-9;
}

double z3d_links_taken(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                       double between_nodes) {
    if (links->members < 2) return 0;
    return copies(hardware, links, call) + z3d_links_core(hardware, between_nodes);
}

/* Seconds in levels: first the members of each node, then the members with the same place in their
 * nodes, then again the members of each node; a reduce_scatter lacks the last level, an all_gather
 * the first. width: a link's bytes a second; share: bytes a second of the node's adapters for this
 * group, whose members on a node send at the same time. */
static double levels(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                     double width, double share) {
    double between, bytes = z3d_links_bytes(hardware, links, call, &between);
    double own = share / links->local < width ? share / links->local : width;
    double across = in_network(hardware, links, call) ? 1 : links->nodes - 1;
    double steps =
        (links->local - 1) * hardware->link_latency_us + across * hardware->network_latency_us;
    double ways = call->of == Z3D_COLLECTIVE_ALL_REDUCE ? 2 : 1;
    return (bytes - between) / width + between / own + ways * steps * 1e-6;
}

/* Seconds of a sum in which each member sends to each other, one after the other: inside the node,
 * then over the node's adapter, which its members share. */
static double everybody(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                        double width, double share) {
    double between, bytes = z3d_links_bytes(hardware, links, call, &between);
    double local = members_of_node(links);
    double own = share / local < width ? share / local : width;
    double steps = (local - 1) * hardware->link_latency_us +
                   (links->members - local) * hardware->network_latency_us;
    return (bytes - between) / width + between / own + calls(hardware, call) * steps * 1e-6;
}

/* Seconds inside a node, from this machine's measurements; negative: not measured. */
static double measured(const z3d_hardware *hardware, const z3d_links *links,
                       const z3d_event *call) {
    /* Inside a node members read each other's elements in fp32. */
    z3d_event whole = *call;
    whole.form = Z3D_F32;
    double bytes = passes(links, call) * total_bytes(links, &whole);
    z3d_sample sample = {.dtype = call->dtype, .size = {bytes, 1, 1}};
    switch (call->of) {
    case Z3D_COLLECTIVE_ALL_REDUCE:
        sample.of = Z3D_MEASURED_all_reduce;
        break;
    case Z3D_COLLECTIVE_REDUCE_SCATTER:
        sample.of = Z3D_MEASURED_reduce_scatter;
        break;
    case Z3D_COLLECTIVE_ALL_GATHER:
        sample.of = Z3D_MEASURED_all_gather;
        sample.dtype = Z3D_F32; /* only copies */
        break;
    default:
        return -1;
    }
    return bytes < 1 ? -1 : z3d_measured_seconds(&hardware->measured, &sample);
}

double z3d_links_collective(const z3d_hardware *hardware, const z3d_links *links,
                            const z3d_event *call) {
    if (links->members < 2) return 0;
    double here = links->nodes > 1 ? -1 : measured(hardware, links, call);
    if (here >= 0) return here;
    double width = hardware->link_bandwidth * 1e9 * hardware->link_efficiency;
    double share =
        hardware->network_bandwidth * 1e9 * hardware->network_efficiency / links->sharing;
    if (in_levels(hardware, links, call)) return levels(hardware, links, call, width, share);
    if (is_encoded(call) && links->nodes > 1) return everybody(hardware, links, call, width, share);
    if (links->nodes > 1 && share < width) width = share;
    double bytes = passes(links, call) * total_bytes(links, call);
    bool tree = takes_tree(hardware, links, call);
    return bytes / width + calls(hardware, call) * latency(hardware, links, tree);
}

z3d_transfer_price z3d_links_transfer(const z3d_hardware *hardware, const z3d_links *pipeline,
                                      const z3d_mesh *mesh, const z3d_event *call) {
    int devices = (int)hardware->devices;
    int peer = z3d_mesh_member(mesh, (z3d_axes)call->axes, mesh->rank, call->peer);
    bool across = z3d_links_across(&(z3d_places){.devices = devices}, mesh->rank, peer);
    double width = hardware->link_bandwidth * 1e9 * hardware->link_efficiency;
    double share =
        hardware->network_bandwidth * 1e9 * hardware->network_efficiency / pipeline->sharing;
    if (across && share < width) width = share;
    double latency = across ? hardware->network_latency_us : hardware->link_latency_us;
    double bytes = (double)z3d_bytes_of(call->dtype, call->count);
    return (z3d_transfer_price){
        .seconds = bytes / width + latency * 1e-6, .bytes = bytes, .between_nodes = across};
}
