/* Which agents vote: 1 of one or two, 3 of three or four, 5 of more, so that a majority of the
 * agents outlives the loss of any one of three. The others follow, and take the place of a
 * voter that is lost. With two agents, the agent with the vote continues alone: the other would
 * have to ask it. */
#ifndef CHOIR_LAUNCH_RAFT_VOTERS_H
#define CHOIR_LAUNCH_RAFT_VOTERS_H

#include <raft.h>

/* An agent in Raft's configuration. */
typedef struct choir__voters_seat {
    raft_id id;
    int role; /* RAFT_VOTER, ... */
    bool alive, leads;
} choir__voters_seat;

typedef enum choir__voters_move_kind {
    CHOIR__STAY,
    CHOIR__ASSIGN,
    CHOIR__REMOVE
} choir__voters_move_kind;

typedef struct choir__voters_move {
    choir__voters_move_kind kind;
    raft_id id;
    int role; /* role for CHOIR__ASSIGN */
} choir__voters_move;

/* Returns the next change of the configuration, which its leader makes. retires: the leader
 * leaves, and another is to take over. */
choir__voters_move choir__voters_next(const choir__voters_seat *seats, int count, bool retires);

#endif
