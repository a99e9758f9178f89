/* The table of collectives: X(NAME, name). */
#ifndef ZERO3D_BASE_COLLECTIVES_H
#define ZERO3D_BASE_COLLECTIVES_H

#define Z3D_COLLECTIVE_MAP(X)                                                                      \
    X(ALL_REDUCE, all_reduce)                                                                      \
    X(REDUCE_SCATTER, reduce_scatter)                                                              \
    X(ALL_GATHER, all_gather)                                                                      \
    X(BROADCAST, broadcast)                                                                        \
    X(SEND, send)                                                                                  \
    X(RECV, recv)                                                                                  \
    X(BARRIER, barrier)

#endif
