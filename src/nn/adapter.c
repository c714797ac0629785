/* The forward of a linear layer's adapter (choir/lora.h).
 *
 *     x --> W ----------------> + --> y
 *     x --> A --> scale --> B --^
 *
 * A (r, in) and B (out, r) are entries of the layer's own module, so that its path is theirs.
 * The narrow product is scaled, r numbers per token. Where tensor parallelism has cut W by
 * columns, B is cut likewise; where by rows, A. */
#include "nn/linear.h"
#include "tensor/handle.h"
#include "tensor/strategy.h"

/* x may be this rank's columns alone, which belong to its part of A. */
static choir_tensor *dropped(const choir__linear *l, choir_tensor *x)
{
    const choir__adapter *d = &l->adapter;
    const choir__partition *part = d->a->split;
    bool cut = part && !part->whole && choir__cols(x) != part->size;
    return l->base.training && d->dropout > 0
               ? choir__dropout_of(x, d->dropout, d->dropout_name, cut ? part : NULL)
               : x;
}

choir_tensor *choir__adapted(const choir__linear *l, choir_tensor *x, choir_tensor *y)
{
    const choir__adapter *d = &l->adapter;
    choir_tensor *in = dropped(l, x), *narrow = choir_linear(in, d->a, NULL);
    if (in != x)
        choir__done_with(in);
    choir_tensor *scaled = d->scale == 1 ? narrow : choir_scale(narrow, (double)d->scale);
    if (scaled != narrow)
        choir__done_with(narrow);
    choir_tensor *more = choir_linear(scaled, d->b, NULL), *sum = choir_add(y, more);
    choir__done_with(more);
    choir__done_with(y);
    return sum;
}
