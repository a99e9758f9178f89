/* Private to parallel/: TCP sockets that never block and never raise SIGPIPE, for the side channel
 * and for messages over TCP. */
#ifndef ZERO3D_PARALLEL_SOCKETS_H
#define ZERO3D_PARALLEL_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>

enum { Z3D_ADDRESS_BYTES = 48 }; /* of a numeric address as text */

/* A listening socket on every address, or on the loopback one; -1 and errno. port 0: any. */
int z3d_socket_listen(bool loopback, int port);
/* The port of a bound socket, 0 on an error. */
int z3d_socket_port(int fd);
/* The numeric address of a connected socket's end; false: unknown. */
bool z3d_socket_address(int fd, bool other_end, char *text, size_t size);
bool z3d_socket_is_loopback(const char *address);
/* A connection, -1 if there is none at the time `until`. The address is numeric. */
int z3d_socket_connect(const char *address, int port, double until);
/* A socket that begins to connect, writable when that is over; -1 and errno. */
int z3d_socket_begin(const char *address, int port);
/* How connecting ended: 0, or its errno, where it is to be closed. Nobody but the socket itself at
 * the other end is ECONNREFUSED, too. */
int z3d_socket_outcome(int fd);
/* How many files this process may open, for messages about EMFILE; -1: unlimited or unknown. */
long long z3d_socket_file_limit(void);
/* No delay; a machine that loses its power sends no farewell: ask now and then. */
void z3d_socket_options(int fd);
bool z3d_socket_wait(int fd, short events, double until);
/* All of it until then, or false. */
bool z3d_socket_write(int fd, const void *data, size_t bytes, double until);
bool z3d_socket_read(int fd, void *data, size_t bytes, double until);

#endif
