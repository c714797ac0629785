/* The layout of a copy of a rank's state, and the object that the files of copies share:
 *
 *   copies.c           writes this rank's copies
 *   copies_find.c      finds the copies, on all machines, that form a state
 *   copies_restore.c   reads copies
 *   copies_carry.c     a thread sends copies to the next machine
 *   copies_room.c      memory for copies; ranks agree if a rank has none
 *
 *     | head | boxes (count) | the program's own state | numbers of box 0 | of box 1 | ...
 *
 * The first boxes belong to tensors that are distributed, so that this rank has its own part.
 * The others belong to tensors that every rank has as a whole, with equal numbers: one rank per
 * machine copies them, and they are not sent to another machine. */
#ifndef CHOIR_ELASTIC_COPIES_LAYOUT_H
#define CHOIR_ELASTIC_COPIES_LAYOUT_H

#include "checkpoint/items.h"
#include "launch/keeper.h"
#include "parallel/elastic/copies.h"

enum { CHOIR__COPY_ALIGN = 64, CHOIR__COPY_SLOTS = 2 * CHOIR__KEEPER_MOST };

typedef struct choir__copy_head {
    _Atomic uint64_t complete; /* 1 while everything else is valid; first member */
    uint64_t generation,
        print; /* print: fingerprint of the training; other trainings' copies do not count */
    choir__copied numbers;
    int32_t rank, world;  /* in this generation */
    int32_t items;        /* tensors of the state */
    int32_t boxes, parts; /* boxes in this copy; the first `parts` hold this rank's own parts */
    uint64_t own_at, own_bytes;  /* the program's own state */
    uint64_t parts_bytes, bytes; /* bytes up to the end of the parts; bytes in all */
} choir__copy_head;

static inline size_t choir__copy_align(size_t bytes)
{
    return (bytes + CHOIR__COPY_ALIGN - 1) / CHOIR__COPY_ALIGN * CHOIR__COPY_ALIGN;
}

/* A box of a tensor, row-major. */
typedef struct choir__copy_box {
    int32_t item,
        box; /* number of the tensor among all ranks' items; number of this rank's box of it */
    choir__box_region region;
    uint64_t at, bytes; /* offset and size in the copy */
} choir__copy_box;

/* The places of a rank's copy of the state from which the job continues. */
typedef struct choir__copy_place {
    int slot, half;  /* on this machine; -1: this machine has none */
    int holder;      /* lowest current rank whose machine has a copy, if possible a whole one */
    bool whole;      /* the holder's copy is whole: with the tensors that every rank has */
    bool everywhere; /* every machine has a copy */
} choir__copy_place;

/* The copies that form the state from which the job continues. */
typedef struct choir__copy_set {
    int world; /* ranks of that state; 0: no state */
    int64_t steps;
    choir__copy_place *places; /* (world) */
    /* a current rank is on a machine where none of the copies was written, so it lacks the
     * tensors that every rank has */
    bool newcomers;
} choir__copy_set;

typedef struct choir__courier choir__courier;

struct choir__copies {
    choir_elastic *elastic;
    bool kept; /* true: agents keep the copies, on one machine or several; false: the supervisor
                */
    choir__keeper keeper; /* used if `kept` */
    uint64_t generation;  /* current generation */
    uint64_t print;
    const int (*fds)[2];         /* (slots) memfds of this machine's slots, two each */
    int slots, own;              /* own: this rank's slot */
    int local_rank, local_world; /* this rank among the ranks on this machine; their number */
    uint8_t next[CHOIR__COPY_SLOTS]; /* half of each slot that is written next */
    choir__copy_memory memory[2];    /* this rank's own copies, mapped */
    int64_t taken;
    bool *common; /* (items) tensors that every rank has as a whole */
    int items;
    choir__copy_set set;     /* copies found at the beginning */
    choir__courier *courier; /* NULL: a single machine */
};

/* --- copies_room.c --- */

/* Gives the memfd at least `bytes` bytes of memory, and maps it. */
choir_status choir__copy_make_room(choir__copy_memory *memory, int fd, size_t bytes);
/* Gives both files of a slot memory. */
choir_status choir__copy_make_slot(
    choir__copy_memory memory[2], const int fds[2], size_t bytes);

/* Returns the bytes of memory that the files of a slot still need to hold `bytes` each. */
size_t choir__copy_lack(const int fds[2], size_t bytes);
/* Exchanges the bytes that the ranks still need; this rank needs `lack`. If the copies of this
 * machine do not fit into its control group, *mine becomes this error, unless it is an error
 * already. Collective over env's group, whose errors it returns. */
choir_status choir__copies_fit(const choir__copies *copies, size_t lack, choir_status *mine);

/* Exchanges whether each rank can keep copies; `mine` is this rank's status. If a rank cannot,
 * *all is false, and rank 0 reports the reason of the first such rank. Collective over env's
 * group, whose errors it returns. */
choir_status choir__copies_agree(const choir_elastic *elastic, choir_status mine, bool *all);

/* --- copies_find.c --- */

/* Finds the newest state for which copies of all ranks exist. Collective if agents keep the
 * copies. Error: the group's. */
choir_status choir__copies_find(choir__copies *copies, choir__copy_set *set);
void choir__copy_set_free(choir__copy_set *set);

/* --- copies_carry.c --- */

/* Makes the group of the courier threads, if the ranks are on several machines. Collective. */
choir_status choir__courier_new(choir__copies *copies, choir__courier **courier);
/* Exchanges the sizes of the ranks' copies. Collective. Error: the group's. */
choir_status choir__courier_lengths(choir__courier *courier, size_t bytes);
/* Returns the bytes of memory that the incoming copies still need. */
size_t choir__courier_lack(const choir__courier *courier);
/* Allocates memory for the incoming copies, and starts the thread. Errors: memory, I/O. */
choir_status choir__courier_start(choir__courier *courier);
/* Begins to send this rank's new copy, and to receive the incoming copies. */
void choir__courier_send(choir__courier *courier, const char *copy, size_t bytes);
/* Returns the number of slots, after this machine's own, to which ranks send. */
int choir__courier_slots(const choir__courier *courier);
/* Waits until all ranks' copies have arrived. Error: the group's, memory. */
choir_status choir__courier_wait(choir__courier *courier);
void choir__courier_free(choir__courier *courier); /* NULL is fine */

#endif
