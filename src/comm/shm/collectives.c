/* The collectives of one machine, and the choice of the way that a call takes.
 *
 * There are three ways. *In one step*: each rank stages its data, publishes, waits for the
 * others, and reads its input from their staging areas; small calls are done in that single
 * step. *Staged*: the same, chunk after chunk, for private memory of any size. *Direct*: the
 * data are in memory that all ranks map (choir__shared), and are read and written in place,
 * once. Ranks publish the location of their data in the first step. A rank whose own data force
 * the staged way stages its first chunk before that step.
 *
 * moves.c copies, reductions.c adds. All ways add in the same tree over rank numbers, so the
 * bits do not depend on the way. */
#include "comm/shm/shm.h"

choir_status choir__shm_run(choir__engine *engine, const choir__call *call)
{
    choir__shm *shm = (choir__shm *)engine;
    switch ((choir__algorithm)call->stamp.algorithm) {
    case CHOIR__AUTO:
    case CHOIR__DIRECT:
    case CHOIR__NATIVE: break;
    default: return choir__shm_by_messages(engine, call);
    }
    shm->stepped++;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER:
    case CHOIR__SCATTER:
    case CHOIR__ALL_TO_ALL: return choir__shm_move(shm, call);
    case CHOIR__REDUCE:
    case CHOIR__ALL_REDUCE:
    case CHOIR__REDUCE_SCATTER: return choir__shm_reduction(shm, call);
    case CHOIR__TREE_REDUCE: return choir__shm_tree_reduce(shm, call);
    case CHOIR__TREE_SCATTER: return choir__shm_tree_scatter(shm, call);
    case CHOIR__GATHER_ROWS: return choir__shm_gather_rows(shm, call);
    default: return choir__shm_enter(shm, &call->stamp); /* barrier */
    }
}
