/* Private to parallel/: TCP sockets that never raise SIGPIPE, for the side channel and for messages
 * over TCP. `until` is a time of z3d_now: functions with `until` may wait until then; the others do
 * not block. */
#ifndef ZERO3D_PARALLEL_SOCKETS_H
#define ZERO3D_PARALLEL_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>

enum { Z3D_ADDRESS_BYTES = 48 }; /* of a numeric address as text */

/* A listening socket on every address, or on 127.0.0.1 only; -1 and errno. port 0: any port. */
int z3d_socket_listen(bool loopback, int port);
/* The port of a bound socket, 0 on an error. */
int z3d_socket_port(int fd);
/* The numeric address of a connected socket's own or other end; false: unknown. */
bool z3d_socket_address(int fd, bool other_end, char *text, size_t size);
bool z3d_socket_is_loopback(const char *address);
/* Connects to a numeric address. Returns the socket, or -1 and errno. */
int z3d_socket_connect(const char *address, int port, double until);
/* Begins to connect to a numeric address. Returns the socket, which becomes writable when
 * connecting has ended, or -1 and errno. */
int z3d_socket_begin(const char *address, int port);
/* The result of z3d_socket_begin: 0, or an errno, and the caller closes the socket. A socket that
 * has connected to itself gives ECONNREFUSED. */
int z3d_socket_outcome(int fd);
/* How many files this process may open, for messages about EMFILE; -1: unlimited or unknown. */
long long z3d_socket_file_limit(void);
/* Switches off delays (Nagle), and switches on probes every few seconds: a machine that loses its
 * power closes no connection. */
void z3d_socket_options(int fd);
/* Write or read all `bytes`. False: an error, the connection's end, or not all until then. */
bool z3d_socket_write(int fd, const void *data, size_t bytes, double until);
bool z3d_socket_read(int fd, void *data, size_t bytes, double until);

#endif
