/* Blank data: samples of the same sizes, all zeros. Rehearsals read them in place of data whose
 * values decide no size, so that they decode no image and draw no random number. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/rehearsal/rehearsal.h"

typedef struct blank {
    choir_dataset base;
    choir_dataset_ops ops;
    const choir_dataset *of;
    size_t x_bytes, y_bytes; /* bytes per sample */
} blank;

static int64_t length(const choir_dataset *self)
{
    return choir_dataset_length(((const blank *)self)->of);
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const blank *b = (const blank *)self;
    (void)index;
    memset(x, 0, b->x_bytes);
    memset(y, 0, b->y_bytes);
    return CHOIR_OK;
}

static size_t bytes_of(choir_shape shape, choir_dtype dtype)
{
    size_t bytes = choir_dtype_size(dtype);
    for (int d = 0; d < shape.ndim; d++)
        bytes *= (size_t)shape.dim[d];
    return bytes;
}

static void release(choir_dataset *self)
{
    free(self);
}

choir_dataset *choir__rehearsal_blank(const choir_dataset *of)
{
    blank *b = choir__calloc(1, sizeof *b);
    b->base = *of;
    b->base.ops = &b->ops;
    b->of = of;
    b->ops = (choir_dataset_ops){
        .length = length, .get = get, .free = release, .channels_last = of->ops->channels_last};
    b->x_bytes = bytes_of(of->x_shape, of->x_dtype);
    b->y_bytes = bytes_of(of->y_shape, of->y_dtype);
    return &b->base;
}
