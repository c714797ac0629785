/* The layout of a copy of a rank's state, and the object that the files of copies share:
 *
 *   copies.c           this rank's copies are written
 *   copies_find.c      the copies of all ranks, on all machines: which make up a state
 *   copies_restore.c   they are read
 *   copies_carry.c     a thread sends them to the next machine
 *   copies_room.c      memory for them, or the ranks' agreement that there is none
 *
 *     | head | boxes (count) | the program's own state | numbers of box 0 | of box 1 | ...
 *
 * The first boxes are of tensors of which this rank has a part of its own. The others are of
 * tensors that every rank has as a whole, with the same numbers: on each machine one rank
 * copies them, and they are not sent to another. */
#ifndef CHOIR_ELASTIC_COPIES_LAYOUT_H
#define CHOIR_ELASTIC_COPIES_LAYOUT_H

#include "checkpoint/items.h"
#include "launch/keeper.h"
#include "parallel/elastic/copies.h"

enum { CHOIR__COPY_ALIGN = 64, CHOIR__COPY_SLOTS = 2 * CHOIR__KEEPER_MOST };

typedef struct choir__copy_head {
    _Atomic uint64_t complete;  /* first: everything else is valid while this is 1 */
    uint64_t generation, print; /* print: of the training; copies of another one do not count */
    choir__copied numbers;
    int32_t rank, world;  /* in the generation */
    int32_t items;        /* tensors of the state */
    int32_t boxes, parts; /* in this copy; the first `parts` are of this rank's own parts */
    uint64_t own_at, own_bytes;  /* the program's own state */
    uint64_t parts_bytes, bytes; /* up to the end of the parts; in all */
} choir__copy_head;

static inline size_t choir__copy_align(size_t bytes)
{
    return (bytes + CHOIR__COPY_ALIGN - 1) / CHOIR__COPY_ALIGN * CHOIR__COPY_ALIGN;
}

/* A box of a tensor, row-major. */
typedef struct choir__copy_box {
    int32_t item, box; /* the tensor's number among all ranks' items; this rank's box of it */
    choir__box_region region;
    uint64_t at, bytes; /* in the copy */
} choir__copy_box;

/* Where a rank's copy of the state is that the job goes on from. */
typedef struct choir__copy_place {
    int slot, half; /* on this machine; -1: it has none */
    int holder; /* the lowest rank of now on whose machine one is, if possible a whole one */
    bool whole; /* the holder's: with the tensors that every rank has */
    bool everywhere; /* every machine has one */
} choir__copy_place;

/* The copies that make up that state. */
typedef struct choir__copy_set {
    int world; /* ranks of that state; 0: there is none */
    int64_t steps;
    choir__copy_place *places; /* (world) */
    /* there is a rank now on whose machine none of them was written: it lacks the tensors
     * that every rank has */
    bool newcomers;
} choir__copy_set;

typedef struct choir__courier choir__courier;

struct choir__copies {
    choir_elastic *elastic;
    bool kept;            /* by agents, on one machine or several; else by the supervisor */
    choir__keeper keeper; /* if kept */
    uint64_t generation;  /* of now */
    uint64_t print;
    const int (*fds)[2];             /* (slots) of this machine */
    int slots, own;                  /* own: this rank's */
    int local_rank, local_world;     /* of the ranks on this machine */
    uint8_t next[CHOIR__COPY_SLOTS]; /* which half of a slot is written next */
    choir__copy_memory memory[2];    /* this rank's own copies, mapped */
    int64_t taken;
    bool *common; /* (items) tensors that every rank has as a whole */
    int items;
    choir__copy_set set;     /* as it was found at the beginning */
    choir__courier *courier; /* NULL: there is no other machine */
};

/* --- copies_room.c --- */

/* Gives the memfd at least `bytes` bytes of memory, and maps it. */
choir_status choir__copy_make_room(choir__copy_memory *memory, int fd, size_t bytes);
/* Gives both files of a slot memory. */
choir_status choir__copy_make_slot(
    choir__copy_memory memory[2], const int fds[2], size_t bytes);

/* Returns how much more memory the files of a slot need for `bytes` each. */
size_t choir__copy_lack(const int fds[2], size_t bytes);
/* Exchanges how much more the ranks need: lack, for this one. If the copies of this machine do
 * not fit into its control group, *mine becomes that error, unless it is one. Collective over
 * env's group, whose errors it returns. */
choir_status choir__copies_fit(const choir__copies *copies, size_t lack, choir_status *mine);

/* Exchanges whether this rank can keep copies: mine. If some cannot, *all is false, and rank 0
 * says why the first of these cannot. Collective over env's group, whose errors it returns. */
choir_status choir__copies_agree(const choir_elastic *elastic, choir_status mine, bool *all);

/* --- copies_find.c --- */

/* Finds the newest state of which there are copies of all ranks. Collective if they are kept by
 * agents. Error: the group's. */
choir_status choir__copies_find(choir__copies *copies, choir__copy_set *set);
void choir__copy_set_free(choir__copy_set *set);

/* --- copies_carry.c --- */

/* Makes the group of the threads, if the ranks are on several machines. Collective. */
choir_status choir__courier_new(choir__copies *copies, choir__courier **courier);
/* Exchanges how long the ranks' copies are. Collective. Error: the group's. */
choir_status choir__courier_lengths(choir__courier *courier, size_t bytes);
/* Returns how much more memory the copies that come need. */
size_t choir__courier_lack(const choir__courier *courier);
/* Takes memory for the copies that come, and starts the thread. Errors: memory, I/O. */
choir_status choir__courier_start(choir__courier *courier);
/* Begins to send this rank's new copy, and to receive those that come here. */
void choir__courier_send(choir__courier *courier, const char *copy, size_t bytes);
/* Returns the number of slots, after this machine's own, to which ranks send. */
int choir__courier_slots(const choir__courier *courier);
/* Waits until all ranks' copies have arrived. Error: the group's, memory. */
choir_status choir__courier_wait(choir__courier *courier);
void choir__courier_free(choir__courier *courier); /* NULL is fine */

#endif
