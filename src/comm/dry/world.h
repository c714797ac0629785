/* A world of dry ranks: ranks of one process, for devices that compute nothing.
 *
 * Each rank that lives is a thread, and one of them runs at a time: they pass the turn where a
 * collective on host memory needs the others. The other ranks of the world are represented by
 * one that does the same as they would. So a world of a thousand ranks may be a few threads. */
#ifndef CHOIR_COMM_DRY_WORLD_H
#define CHOIR_COMM_DRY_WORLD_H

#include <pthread.h>

#include "comm/engine.h"

typedef struct choir__dry_world choir__dry_world;

/* One rank's run; called on a thread of its own, unless one rank alone lives. */
typedef choir_status choir__dry_rank(int rank, void *arg);

/* Runs the ranks of a world. stands_for (world): the living rank that represents each rank,
 * itself for those that live; NULL: all live. Returns the first failure, with its message. */
choir_status choir__dry_world_run(
    int world, const int *stands_for, choir__dry_rank *fn, void *arg);

/* --- for the engine --- */

/* The ranks of a group. The engines of all living ones share it. */
typedef struct choir__dry_room {
    choir__dry_world *world;
    int count, living;
    int *ranks;                /* (count) ranks of the world */
    int *speaker;              /* (count) the index in members of each one's representative */
    int *members;              /* (living) the members that live */
    const choir__call **calls; /* (count) the call of each member that has come */
    int arrived;
    uint64_t round; /* exchanges that are over */
    int users;
    struct choir__dry_room *parent, *next; /* next: in the world's list */
    int split, color;                      /* which of the parent's splits it is */
} choir__dry_room;

/* Returns the rank of the world that this thread runs, and the world; NULL: none. */
choir__dry_world *choir__dry_here(int *rank);
int choir__dry_count(const choir__dry_world *world);
/* Opens a world: this thread runs one rank, which represents all others. Its last room closes
 * it. */
choir__dry_world *choir__dry_alone(int rank, int world);

/* Takes a place in the room of these members; parent NULL: the room of all. */
choir__dry_room *choir__dry_enter(choir__dry_world *world, choir__dry_room *parent,
    const int *ranks, int count, int split, int color);
void choir__dry_leave(choir__dry_room *room);

/* Waits until all living members have come with their calls; the last one then carries them out
 * by `perform`. Error: the end of another rank, with its sentence. */
choir_status choir__dry_meet(choir__dry_room *room, int member, const choir__call *call,
    void (*perform)(const choir__dry_room *room), char sentence[512]);

#endif
