/* The time of collectives on a described machine: how groups lie on the nodes, and the costs of
 * rings, trees and hierarchical collectives over shared links. */
#ifndef ZERO3D_PARALLEL_SIM_LINKS_H
#define ZERO3D_PARALLEL_SIM_LINKS_H

#include "parallel/parallel.h"
#include "src/device/sim/hardware.h"

/* Who sits where: rank r on node[r], or, without that, on node r / devices. */
typedef struct z3d_places {
    const int *node;
    int devices;
} z3d_places;

/* Hops between nodes of a ring over this rank's group, that visits node after node: 0, or one a
 * node. */
int z3d_links_hops(const z3d_mesh *mesh, z3d_axes axes, const z3d_places *places);
bool z3d_links_across(const z3d_places *places, int rank, int peer);
/* Of the bytes that each member of a ring sends, those that leave a node, on average over them. */
double z3d_links_crossing(double bytes, int hops, int members);

/* The slowest group along one axis. */
typedef struct z3d_links {
    int members;
    int nodes;   /* that it spans */
    int hops;    /* z3d_links_hops */
    int sharing; /* groups of the axis that leave the fullest of its nodes, and share its adapters
                  */
    int local;   /* members on each node that a group spans; 0: not as many on all of them */
} z3d_links;

/* From the full map of who sits where: rank r on node r / devices. Errors: ERR_MEMORY;
 * ERR_USAGE if the data axis is cut. */
z3d_status z3d_links_find(const z3d_mesh *mesh, z3d_axes axes, int devices, z3d_links *out);

/* Seconds of one collective event of a tape (Z3D_EVENT_START) alone on its links. */
double z3d_links_collective(const z3d_hardware *hardware, const z3d_links *links,
                            const z3d_event *call);
/* Seconds of the kernels that copy its data (software.collective_copies). */
double z3d_links_copies(const z3d_hardware *hardware, const z3d_links *links,
                        const z3d_event *call);
/* Bytes that it sends from this rank, and how many of them leave the node, on average over a ring's
 * members. */
double z3d_links_bytes(const z3d_hardware *hardware, const z3d_links *links, const z3d_event *call,
                       double *between_nodes);

/* A send, or the receive at its other end (Z3D_EVENT_START). */
typedef struct z3d_transfer_price {
    double seconds, bytes; /* alone on its link */
    bool between_nodes;
} z3d_transfer_price;

/* pipeline: the links of the pipeline's groups; mesh: of the rank that has the event on its tape.
 * Between nodes all groups that leave the node send at once. */
z3d_transfer_price z3d_links_transfer(const z3d_hardware *hardware, const z3d_links *pipeline,
                                      const z3d_mesh *mesh, const z3d_event *call);

#endif
