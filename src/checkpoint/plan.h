/* Who writes what: every entry of every item once, by a rank that has it, into which file.
 *
 *     rank 0 has   a rows 0-3    b        a of 8 rows is sharded, b is on both ranks
 *     rank 1 has   a rows 4-7    b
 *     files        model-00001-of-00002.safetensors   a rows 0-3
 *                  model-00002-of-00002.safetensors   a rows 4-7, b
 *
 * Ranks tell each other which boxes they have. A part that several of them have goes to the one
 * with the least to write so far; so replicas save in parallel, too. A file has at most one
 * part of a tensor, so that names stay as they are: a rank's second box of a tensor goes to its
 * second file. Every rank makes the same plan. */
#ifndef CHOIR_PLAN_INTERNAL_H
#define CHOIR_PLAN_INTERNAL_H

#include <choir/group.h>
#include "checkpoint/items.h"

typedef struct choir__plan_part {
    int item;
    choir__box_region region;
    int64_t bytes;
    int owner, box; /* the owner's items[item].boxes[box] */
    int layer;      /* how many parts of the item the owner has before this one */
    int file;       /* in files */
} choir__plan_part;

typedef struct choir__plan_file {
    bool moments; /* of the optimizer's state, not of weights */
    int layer, owner;
    bool parted; /* it, or another file of its kind, has parts of tensors */
    char name[64];
} choir__plan_file;

typedef struct choir__save_plan {
    choir__plan_part *parts; /* by item */
    int part_count;
    choir__plan_file *files; /* weights, then moments */
    int file_count;
} choir__save_plan;

/* least: what several ranks have is dealt over as many of them, the first ones, as get that
 * many bytes each, at least one. Collective. Errors: mismatch (ranks with other items, or
 * entries that nobody has or that are in parts that overlap), those of the group. */
choir_status choir__plan_make(
    choir__save_plan *plan, const choir__items *items, choir_group *group, int64_t least);
void choir__plan_free(choir__save_plan *plan);

#endif
