/* The holders of a device's memory, as people read them: parts of equal layers are one, as in
 * "activations of blocks.*.attn". */
#ifndef CHOIR_CLI_PLAN_HOLDERS_H
#define CHOIR_CLI_PLAN_HOLDERS_H

#include "job/rehearsal/rehearsal.h"

typedef struct choir__plan_holder {
    const char *kind; /* a part's */
    char name[128];   /* a module's path with '*' for numbers */
    double bytes;
} choir__plan_holder;

/* Returns the holders (count) of the parts, the largest first; the caller frees the array. */
choir__plan_holder *choir__plan_holders(
    const choir__rehearsed_part *parts, int part_count, int *count);

#endif
