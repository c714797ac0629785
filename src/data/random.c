/* Random data, for benchmarks and tests: sample i is a pure function of (seed, i).
 *
 * Philox's key is the seed with a name for x or y, its counter (i, block of four numbers).
 * Normal values are Box and Muller's: two from two uniform ones, in f64 and rounded once. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "data/dataset.h"

typedef struct random_dataset {
    choir_dataset base;
    int64_t length;
    int64_t x_count, y_count;
    int64_t range; /* of integers */
    uint64_t x_key, y_key;
} random_dataset;

static int64_t random_length(const choir_dataset *self)
{
    return ((const random_dataset *)self)->length;
}

static void random_free(choir_dataset *self)
{
    free(self);
}

static void normal_values(uint64_t key, int64_t sample, float *out, int64_t count)
{
    uint32_t bits[4];
    double z[4];
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0) {
            choir__philox(key, (uint64_t)sample, (uint64_t)i / 4, bits);
            for (int pair = 0; pair < 4; pair += 2) {
                double radius = sqrt(-2 * log((bits[pair] + 1.0) * 0x1p-32)); /* of (0, 1] */
                double angle = 2 * M_PI * 0x1p-32 * bits[pair + 1];
                z[pair] = radius * cos(angle);
                z[pair + 1] = radius * sin(angle);
            }
        }
        out[i] = (float)z[i % 4];
    }
}

/* Values first ... first + count - 1 of the sample, in [0, range). */
static void integer_values(
    uint64_t key, int64_t sample, int64_t range, int64_t first, int64_t *out, int64_t count)
{
    uint32_t bits[4] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t n = first + i;
        if (i == 0 || n % 2 == 0)
            choir__philox(key, (uint64_t)sample, (uint64_t)n / 2, bits);
        uint64_t draw = (uint64_t)bits[n % 2 * 2] << 32 | bits[n % 2 * 2 + 1];
        out[i] = (int64_t)((unsigned __int128)draw * (uint64_t)range >> 64);
    }
}

static choir_status random_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    random_dataset *d = (random_dataset *)self;
    normal_values(d->x_key, index, x, d->x_count);
    if (d->base.classes)
        integer_values(d->y_key, index, d->range, 0, y, d->y_count);
    else
        normal_values(d->y_key, index, y, d->y_count);
    return CHOIR_OK;
}

static choir_status tokens_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    random_dataset *d = (random_dataset *)self;
    integer_values(d->x_key, index, d->range, 0, x, d->x_count);
    integer_values(d->x_key, index, d->range, 1, y, d->y_count); /* the same, one further on */
    return CHOIR_OK;
}

static const choir_dataset_ops random_ops = {
    .length = random_length, .get = random_get, .free = random_free};
static const choir_dataset_ops tokens_ops = {
    .length = random_length, .get = tokens_get, .free = random_free};

static choir_status make(
    choir_dataset base, int64_t length, uint64_t seed, choir_dataset **dataset)
{
    if (length < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a random dataset of %lld samples: it must have 1 or"
            " more",
            (long long)length);
    size_t x_bytes, y_bytes;
    choir_status status = choir__sample_bytes("x", base.x_dtype, base.x_shape, 1, &x_bytes);
    if (status == CHOIR_OK)
        status = choir__sample_bytes("y", base.y_dtype, base.y_shape, 1, &y_bytes);
    if (status != CHOIR_OK)
        return status;
    random_dataset *d = choir__calloc(1, sizeof *d);
    d->base = base;
    d->length = length;
    d->x_count = (int64_t)(x_bytes / choir_dtype_size(base.x_dtype));
    d->y_count = (int64_t)(y_bytes / choir_dtype_size(base.y_dtype));
    d->range = base.classes;
    d->x_key = choir__key(seed, "data.x");
    d->y_key = choir__key(seed, "data.y");
    *dataset = &d->base;
    return CHOIR_OK;
}

choir_status choir_dataset_random(int64_t length, choir_shape x, choir_shape y, int64_t classes,
    uint64_t seed, choir_dataset **dataset)
{
    if (classes < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a random dataset of %lld classes: 0 or more make"
            " sense",
            (long long)classes);
    choir_dataset base = {.ops = &random_ops,
        .x_dtype = CHOIR_F32,
        .y_dtype = classes ? CHOIR_I64 : CHOIR_F32,
        .x_shape = x,
        .y_shape = y,
        .classes = classes};
    return make(base, length, seed, dataset);
}

choir_status choir_dataset_random_tokens(
    int64_t length, int64_t context, int64_t vocabulary, uint64_t seed, choir_dataset **dataset)
{
    if (context < 1 || vocabulary < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "random tokens need a context and a vocabulary of 1 or"
            " more, not %lld and %lld",
            (long long)context, (long long)vocabulary);
    choir_dataset base = {.ops = &tokens_ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(context),
        .y_shape = choir_dims(context),
        .classes = vocabulary};
    return make(base, length, seed, dataset);
}
