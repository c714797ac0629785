/* The ledger's entries as Raft's state machine: entry n+1 is written only once, and by the same
 * text only once more, so that a command whose answer was lost may be repeated. */
#ifndef CHOIR_LAUNCH_RAFT_ENTRIES_H
#define CHOIR_LAUNCH_RAFT_ENTRIES_H

#include <raft.h>

#include "base/base.h"

enum { CHOIR__ENTRIES_KEPT = 64 };

typedef struct choir__entries {
    struct raft_fsm fsm;
    int64_t head;                    /* the newest entry; 0: none */
    char *kept[CHOIR__ENTRIES_KEPT]; /* entry n at n % CHOIR__ENTRIES_KEPT */
    void (*changed)(void *arg);      /* called after each entry */
    void *arg;
} choir__entries;

void choir__entries_init(choir__entries *e);
void choir__entries_free(choir__entries *e);
/* Returns an entry's text, or NULL: not there yet, or no longer. */
const char *choir__entries_at(const choir__entries *e, int64_t n);
/* Returns the command that writes entry n, in libraft's memory. */
struct raft_buffer choir__entries_command(int64_t n, const char *text, size_t bytes);

/* The result of a command whose entry is there with its text; libraft passes it on. */
#define CHOIR__ENTRY_MINE ((void *)1)

#endif
