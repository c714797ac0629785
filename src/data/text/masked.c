/* Masked language modelling (Devlin et al., 2019) over any dataset of token ids.
 *
 * Philox draws a token's treatment from (seed, epoch, sample, position) alone. So a sample does
 * not depend on the caller or the order of calls, and has another mask in each epoch. Reads
 * without an epoch, as in validation, use epoch 0: their masks never change, so losses are
 * comparable. */
#include <stdlib.h>

#include "base/rng.h"
#include "data/dataset.h"

#define CHOSEN                                                                                 \
    0.15f /* share of all tokens; 80 % of the chosen are masked and 10 % replaced              \
           */

typedef struct masked_dataset {
    choir_dataset base;
    choir_dataset *inner;
    int64_t context, mask, vocabulary;
    uint64_t key;
} masked_dataset;

static int64_t masked_length(const choir_dataset *self)
{
    return choir_dataset_length(((const masked_dataset *)self)->inner);
}

/* Returns the replacement of a chosen token. */
static int64_t replacement(const masked_dataset *d, const uint32_t bits[4], int64_t id)
{
    float unit = choir__unit(bits[1]);
    if (unit < 0.8f)
        return d->mask;
    if (unit >= 0.9f)
        return id;
    uint64_t draw = (uint64_t)bits[2] << 32 | bits[3];
    return (int64_t)((unsigned __int128)draw * (uint64_t)d->vocabulary >> 64);
}

/* Draws the bits of the token at t. Positions use the counter's lower half, so that epoch 0 has
 * the masks of versions without epochs. */
static void draw(
    const masked_dataset *d, int64_t epoch, int64_t index, int64_t t, uint32_t bits[4])
{
    choir__philox(d->key, (uint64_t)index, (uint64_t)epoch << 32 | (uint64_t)t, bits);
}

/* Chooses the token at t. */
static void choose(
    const masked_dataset *d, const uint32_t bits[4], int64_t t, int64_t *x, int64_t *y)
{
    y[t] = x[t];
    x[t] = replacement(d, bits, x[t]);
}

static choir_status masked_get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    const masked_dataset *d = (const masked_dataset *)self;
    int64_t *targets = y, chosen = 0;
    uint32_t bits[4];
    choir_status status = choir_dataset_get_epoch(d->inner, epoch, index, x, y);
    for (int64_t t = 0; t < d->context && status == CHOIR_OK; t++) {
        targets[t] = CHOIR_IGNORED;
        draw(d, epoch, index, t, bits);
        if (choir__unit(bits[0]) >= CHOSEN)
            continue;
        choose(d, bits, t, x, y);
        chosen++;
    }
    if (status == CHOIR_OK && !chosen) { /* without a target, a micro-batch has no loss */
        draw(d, epoch, index, d->context, bits);
        int64_t t = bits[0] % d->context;
        draw(d, epoch, index, t, bits);
        choose(d, bits, t, x, y);
    }
    return status;
}

static choir_status masked_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    return masked_get_epoch(self, 0, index, x, y);
}

static void masked_free(choir_dataset *self)
{
    choir_dataset_free(((masked_dataset *)self)->inner);
    free(self);
}

static bool masked_place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place)
{
    return choir_dataset_place(((const masked_dataset *)self)->inner, index, part, place);
}

static const choir_dataset_ops masked_ops = {.length = masked_length,
    .get = masked_get,
    .free = masked_free,
    .get_epoch = masked_get_epoch,
    .place = masked_place};

choir_status choir_dataset_masked(choir_dataset *inner, int64_t mask, int64_t vocabulary,
    uint64_t seed, choir_dataset **dataset)
{
    if (!inner)
        return choir__missing(__func__, "dataset");
    if (inner->x_dtype != CHOIR_I64 || inner->y_dtype != CHOIR_I64 ||
        inner->x_shape.ndim != 1 || inner->y_shape.ndim != 1 ||
        inner->x_shape.dim[0] != inner->y_shape.dim[0] || inner->x_shape.dim[0] < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "only a dataset of i64 tokens, x and y (context), can be masked");
    if (mask < 0 || vocabulary < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "masking: expected a token of at least 0 out of 1 or more, got %lld out of %lld",
            (long long)mask, (long long)vocabulary);
    masked_dataset *d = choir__calloc(1, sizeof *d);
    d->base = *inner;
    d->base.ops = &masked_ops;
    d->base.classes = choir__max(inner->classes, mask + 1);
    d->inner = inner;
    d->context = inner->x_shape.dim[0];
    d->mask = mask;
    d->vocabulary = vocabulary;
    d->key = choir__rng_key(seed, "data.masked");
    *dataset = &d->base;
    return CHOIR_OK;
}
