/* The layout of a copy of a rank's state, between copies.c and copies_restore.c:
 *
 *     | head | boxes (count) | the program's own state | numbers of box 0 | of box 1 | ... */
#ifndef CHOIR_ELASTIC_COPIES_LAYOUT_H
#define CHOIR_ELASTIC_COPIES_LAYOUT_H

#include "checkpoint/items.h"
#include "parallel/elastic/copies.h"

enum { CHOIR__COPY_ALIGN = 64 };

typedef struct choir__copy_head {
    _Atomic uint64_t complete; /* first: everything else is valid while this is 1 */
    uint64_t generation;
    choir__copied numbers;
    int32_t world, items,
        boxes; /* ranks of the generation; tensors of the state; in this copy */
    size_t own_bytes;
} choir__copy_head;

static inline size_t choir__copy_align(size_t bytes)
{
    return (bytes + CHOIR__COPY_ALIGN - 1) / CHOIR__COPY_ALIGN * CHOIR__COPY_ALIGN;
}

/* A box of a tensor, row-major. */
typedef struct choir__copy_box {
    int32_t item, box; /* the tensor's number among all ranks' items; this rank's box of it */
    choir__box_region region;
    size_t at; /* in the copy */
} choir__copy_box;

/* Returns where the program's own state begins. */
static inline size_t choir__copy_own(int boxes)
{
    return choir__copy_align(
        sizeof(choir__copy_head) + (size_t)boxes * sizeof(choir__copy_box));
}

/* The copies of all ranks, and which of them make up the state that the job goes on from. */
typedef struct choir__copy_set {
    int world; /* ranks of that state; 0: there is none */
    int at[CHOIR__MEMBERS_MAX];
    choir__copy_head heads[CHOIR__MEMBERS_MAX][2];
} choir__copy_set;

/* Looks at all copies. Returns false if there is no state to go on from. */
bool choir__copies_find(choir__copy_set *set);
bool choir__copies_fit(choir__copy_set *set, const choir__copy_head *head);

#endif
