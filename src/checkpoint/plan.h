/* The plan of a save: every entry of every item is written once, by a rank that holds it, to a
 * file that the plan names.
 *
 *     rank 0 has   a rows 0-3    b        a of 8 rows is sharded, b is on both ranks
 *     rank 1 has   a rows 4-7    b
 *     files        model-00001-of-00002.safetensors   a rows 0-3
 *                  model-00002-of-00002.safetensors   a rows 4-7, b
 *
 * Ranks exchange lists of the boxes that they hold. A part that several ranks hold goes to the
 * rank with the least to write so far, so replicas save in parallel too. A file has at most one
 * part of each tensor, so that tensors keep their names: a rank's second box of a tensor goes
 * to its second file. Every rank computes the same plan. */
#ifndef CHOIR_PLAN_INTERNAL_H
#define CHOIR_PLAN_INTERNAL_H

#include <choir/group.h>
#include "checkpoint/items.h"

typedef struct choir__plan_part {
    int item;
    choir__box_region region;
    int64_t bytes;
    int owner, box; /* the owner's items[item].boxes[box] */
    int layer;      /* number of earlier parts of this item with the same owner */
    int file;       /* index in files */
} choir__plan_part;

typedef struct choir__plan_file {
    bool moments; /* optimizer's state, not weights */
    int layer, owner;
    bool parted; /* this file, or another of its kind, holds parts of tensors */
    char name[64];
} choir__plan_file;

typedef struct choir__save_plan {
    choir__plan_part *parts; /* sorted by item */
    int part_count;
    choir__plan_file *files; /* weights, then moments */
    int file_count;
} choir__save_plan;

/* least: tensors that several ranks hold are distributed over the first ranks, over as many (at
 * least one) as each receive this many bytes. Collective. Errors: mismatch (ranks with
 * different items; entries that no rank holds, or that are in overlapping parts), the group's.
 */
choir_status choir__plan_make(
    choir__save_plan *plan, const choir__items *items, choir_group *group, int64_t least);
void choir__plan_free(choir__save_plan *plan);

#endif
