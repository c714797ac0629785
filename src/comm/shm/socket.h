/* Unix sockets between the ranks of a machine: names, trust, messages with descriptors. */
#ifndef CHOIR_SHM_SOCKET_H
#define CHOIR_SHM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Addresses are abstract: they are gone with the last socket, so nothing is ever left behind.
 * key is choir__job_hash of the job's name. */
int choir__socket_listen(uint64_t key);

/* Connects to rank 0. -1 with ECONNREFUSED: it is not there yet. */
int choir__socket_connect(uint64_t key, int rank, int world);

/* The next rank that called, which may claim anything: -1 if it is not one of ours (errno 0) or
 * there is none (EAGAIN). */
int choir__socket_accept(int listener, uint64_t key, int *rank, int *world);

int choir__socket_peer_pid(int fd);

/* One message with descriptors. Never blocks for long: 64 ranks' messages fit the buffers. */
bool choir__socket_send(int fd, const void *data, size_t bytes, const int *fds, int fd_count);

/* Of exactly so many bytes; fds as they came, close-on-exec. False: gone or broken. */
bool choir__socket_receive(
    int fd, void *data, size_t bytes, int *fds, int fd_room, int *fd_count);

#endif
