/* The storage of libraft: a raft_io whose log is in memory alone.
 *
 * Raft asks for a disk so that a server that comes back remembers its votes. Here no server
 * comes back: an agent that was started again is a new server, with a new random id, and the
 * old one is removed. So nothing is written, and nothing can be forgotten. */
#ifndef CHOIR_LAUNCH_RAFT_MEMORY_H
#define CHOIR_LAUNCH_RAFT_MEMORY_H

#include <raft.h>

typedef struct choir__raft_memory {
    struct raft_io io;
    /* Sends a message; false: it is lost. Set by the owner. */
    bool (*send)(void *arg, const struct raft_message *message);
    void *arg;
    /* the rest is the object's own */
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    raft_io_close_cb closed;
    struct choir__raft_done *first, *last; /* calls that are still to be answered */
    struct raft_buffer founding;           /* the encoded configuration of a new cluster */
    struct raft_snapshot snapshot;         /* index 0: none */
    struct raft_buffer snapshot_data;
} choir__raft_memory;

void choir__raft_memory_init(choir__raft_memory *m);
void choir__raft_memory_free(choir__raft_memory *m);
/* Answers the calls that libraft has made: their callbacks must not run inside the calls.
 * Returns false if no call was waiting. */
bool choir__raft_memory_answer(choir__raft_memory *m);

#endif
