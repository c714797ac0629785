/* Chooses the next change of the voters from the roles of all servers. Only one server
 * changes at a time, as libraft demands. A voter that is lost is removed before anything
 * else: until then it counts against the majority. */
#include "launch/raft/voters.h"

static int votes_for(int agents)
{
    return agents >= 5 ? 5 : agents >= 3 ? 3 : 1;
}

choir__voters_move choir__voters_next(const choir__voters_seat *seats, int count, bool retires)
{
    int there = 0, voters = 0;
    const choir__voters_seat *candidate = NULL, *surplus = NULL, *leader = NULL;
    for (int i = 0; i < count; i++) {
        const choir__voters_seat *s = &seats[i];
        if (!s->alive && !s->leads)
            return (choir__voters_move){.kind = CHOIR__REMOVE, .id = s->id};
        if (s->leads)
            leader = s;
        if (s->leads && retires)
            continue;
        there++;
        voters += s->role == RAFT_VOTER;
        if (s->role == RAFT_VOTER && !s->leads)
            surplus = s;
        if (s->role == RAFT_STANDBY && !candidate)
            candidate = s;
    }
    for (int i = 0; i < count; i++)
        if (seats[i].role == RAFT_SPARE)
            return (choir__voters_move){CHOIR__ASSIGN, seats[i].id, RAFT_STANDBY};
    if (voters < votes_for(there) && candidate)
        return (choir__voters_move){CHOIR__ASSIGN, candidate->id, RAFT_VOTER};
    if (voters > votes_for(there) && surplus)
        return (choir__voters_move){CHOIR__ASSIGN, surplus->id, RAFT_STANDBY};
    if (retires && leader && there)
        return (choir__voters_move){.kind = CHOIR__REMOVE, .id = leader->id};
    return (choir__voters_move){.kind = CHOIR__STAY};
}
