/* The parts of a sample in a slot of memory: first the sizes of each part, i64, then the
 * values, each part padded to the sizes that its bucket's batches have, and 16 bytes aligned.
 */
#ifndef CHOIR_PARTS_LAYOUT_H
#define CHOIR_PARTS_LAYOUT_H

#include <choir/parts.h>

/* The shapes of the parts in a bucket's batches, and where they are. */
typedef struct choir__parts_layout {
    choir_shape shape[CHOIR_MAX_PARTS];
    size_t offset[CHOIR_MAX_PARTS]; /* bytes from the slot's start */
    size_t bytes;                   /* bytes of a slot */
} choir__parts_layout;

/* Returns the offset of a part's sizes in a slot. */
static inline size_t choir__parts_sizes_at(int part)
{
    return (size_t)part * CHOIR_MAX_DIMS * sizeof(int64_t);
}

/* Checks what a dataset declares. Errors: argument, shape, dtype. */
choir_status choir__parts_check(const choir_parts_dataset *d);

/* Stores the shapes of a sample's parts. Errors: shape, naming the sample and the part. */
choir_status choir__parts_sizes(choir_parts_dataset *d, int64_t index, choir_shape *shape);

/* Returns the greatest of the sizes that differ, and in *part whose it is. */
int64_t choir__parts_length(const choir_parts_dataset *d, const choir_shape *shape, int *part);

/* Enlarges the shapes of a bucket, so that it also holds this sample. */
void choir__parts_widen(
    const choir_parts_dataset *d, choir__parts_layout *l, const choir_shape *shape);
/* Places the parts. Errors: memory (a slot beyond 2^40 bytes). */
choir_status choir__parts_place(const choir_parts_dataset *d, choir__parts_layout *l);

/* Reads a sample into a slot and pads it. Errors: errors of get, with the sample's number. */
choir_status choir__parts_read(choir_parts_dataset *d, const choir__parts_layout *l,
    int64_t epoch, int64_t index, char *slot);

#endif
