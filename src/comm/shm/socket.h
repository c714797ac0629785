/* Unix sockets between the ranks of a machine: names, trust, and messages with descriptors. */
#ifndef CHOIR_SHM_SOCKET_H
#define CHOIR_SHM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Listens at the address of rank 0. Addresses are abstract: they vanish with their last socket,
 * so nothing has to be cleaned up. key: choir__job_hash of the job's name. */
int choir__socket_listen(uint64_t key);

/* Connects to rank 0. Returns -1 with ECONNREFUSED if rank 0 does not listen yet. */
int choir__socket_connect(uint64_t key, int rank, int world);

/* Accepts the next connection, which may claim any rank and world. Returns -1 if the peer is
 * not one of ours (errno 0) or no connection waits (EAGAIN). */
int choir__socket_accept(int listener, uint64_t key, int *rank, int *world);

int choir__socket_peer_pid(int fd);

/* Sends one message with descriptors. Never blocks for long: the messages of 64 ranks fit the
 * buffers. */
bool choir__socket_send(int fd, const void *data, size_t bytes, const int *fds, int fd_count);

/* Receives a message of exactly `bytes` bytes; fds are in the order in which they were sent,
 * close-on-exec. Returns false if the connection is closed or broken. */
bool choir__socket_receive(
    int fd, void *data, size_t bytes, int *fds, int fd_room, int *fd_count);

#endif
