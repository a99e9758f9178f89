/* The time of collectives on a described machine: how groups lie on the nodes, and the costs of
 * rings, trees and hierarchical collectives on shared links. Pure functions. */
#ifndef ZERO3D_PARALLEL_SIM_LINKS_H
#define ZERO3D_PARALLEL_SIM_LINKS_H

#include "parallel/parallel.h"
#include "src/device/sim/hardware.h"

/* The nodes of ranks: rank r is on node[r], or, if node is NULL, on node r / devices. */
typedef struct z3d_places {
    const int *node;
    int devices;
} z3d_places;

/* The hops between nodes of a ring through this rank's group, which visits one node after the
 * other: the number of nodes; 0 for one node. */
int z3d_links_hops(const z3d_mesh *mesh, z3d_axes axes, const z3d_places *places);
/* Whether two ranks are on different nodes. */
bool z3d_links_across(const z3d_places *places, int rank, int peer);
/* Each member of a ring sends `bytes`. Returns how many of them leave a node, as the mean of the
 * members. */
double z3d_links_crossing(double bytes, int hops, int members);

/* The group of a set of axes that has the slowest links. */
typedef struct z3d_links {
    int members;
    int nodes;   /* that the group spans */
    int hops;    /* z3d_links_hops */
    int sharing; /* groups of these axes that share the adapters of the fullest node */
    int local;   /* members on each node that a group spans; 0: the nodes have different numbers */
} z3d_links;

/* Rank r is on node r / devices. Errors: ERR_MEMORY. */
z3d_status z3d_links_find(const z3d_mesh *mesh, z3d_axes axes, int devices, z3d_links *out);

/* Seconds of one collective (an event Z3D_EVENT_START of a tape) without other traffic. */
double z3d_links_collective(const z3d_hardware *hardware, const z3d_links *links,
                            const z3d_event *call);
/* Seconds in which the host makes lists of the tensors of single parameters (software.list_us). It
 * waits for the device before each list, so the device stands still. */
double z3d_links_lists(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call);
/* Seconds that it takes from the device's other work: kernels that copy its data
 * (software.collective_copies), and z3d_links_core. */
double z3d_links_taken(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                       double between_nodes);
/* Seconds of the core that computes, to send so many bytes to other nodes and to receive as many
 * (node.network_core_ns_per_byte). */
double z3d_links_core(const z3d_hardware *hardware, double between_nodes);
/* Bytes that the same collective sends from one rank. *between_nodes: how many of them leave the
 * node, as the mean of the members. */
double z3d_links_bytes(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                       double *between_nodes);

typedef struct z3d_transfer_price {
    double seconds, bytes;
    bool between_nodes;
} z3d_transfer_price;

/* The price of a send, or of the receive at its other end (Z3D_EVENT_START). pipeline: the links of
 * the pipeline's groups; mesh: of the rank that has the event on its tape. Between nodes all groups
 * that leave the node send at the same time. */
z3d_transfer_price z3d_links_transfer(const z3d_hardware *hardware, const z3d_links *pipeline,
                                      const z3d_mesh *mesh, const z3d_event *call);

#endif
