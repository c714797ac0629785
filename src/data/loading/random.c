/* Random data, for benchmarks and tests: sample i is a pure function of (seed, i).
 *
 * Philox's key is the seed with a name for x or y; its counter is (i, block of four numbers).
 * Normal values come from a table, which Box and Muller's method fills (in f64, rounded once).
 * A sample copies a stretch of the table from a position that Philox gives, so that a sample
 * costs one copy and a benchmark measures training instead of drawing. The table is drawn in
 * blocks, each when it is first read, and stored in that order: all of it takes 3 ms, and a
 * block at its own place a page of memory, for which each rank's first step would wait. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/rng.h"
#include "data/dataset.h"

enum {
    TABLE = 1 << 16,   /* values */
    STRETCH = 1 << 12, /* the most from one place */
    BLOCK = 32,        /* values that are drawn together */
    BLOCKS = (TABLE + STRETCH) / BLOCK
};

typedef struct random_dataset {
    choir_dataset base;
    float *table; /* (BLOCKS, BLOCK) in the order of drawing; the first values come twice */
    /* place of a block in the table, from 1 on; 0: not drawn */
    _Atomic uint16_t places[BLOCKS];
    int drawn;
    pthread_mutex_t drawing;
    uint64_t table_key;
    int64_t length;
    int64_t x_count, y_count;
    int64_t range;  /* range of integers */
    int64_t labels; /* for y, besides tokens */
    uint64_t x_key, y_key;
} random_dataset;

static int64_t random_length(const choir_dataset *self)
{
    return ((const random_dataset *)self)->length;
}

static void random_free(choir_dataset *self)
{
    random_dataset *d = (random_dataset *)self;
    pthread_mutex_destroy(&d->drawing);
    free(d->table);
    free(d);
}

static void draw(const random_dataset *d, int64_t block, float *out)
{
    for (int64_t i = 0; i < BLOCK; i += 2) {
        uint32_t bits[4];
        choir__philox(d->table_key, 0, (uint64_t)((block * BLOCK + i) % TABLE) / 2, bits);
        double u = (bits[0] + 1.0) * 0x1p-32, one, other; /* u in (0, 1] */
        choir__normal_pair(u, 0x1p-32 * bits[1], &one, &other);
        out[i] = (float)one;
        out[i + 1] = (float)other;
    }
}

/* Returns the values of a block, which are drawn now if they have not been. */
static const float *values(random_dataset *d, int64_t block)
{
    int place = atomic_load_explicit(&d->places[block], memory_order_acquire);
    if (!place) {
        pthread_mutex_lock(&d->drawing);
        place = d->places[block];
        if (!place) {
            draw(d, block, d->table + (ptrdiff_t)BLOCK * d->drawn);
            d->places[block] = (uint16_t)(place = ++d->drawn);
        }
        pthread_mutex_unlock(&d->drawing);
    }
    return d->table + (ptrdiff_t)BLOCK * (place - 1);
}

/* Copies the values [first, first + count). */
static void copy_values(random_dataset *d, int64_t first, int64_t count, float *out)
{
    for (int64_t at = first, end = first + count, n; at < end; at += n, out += n) {
        n = choir__min(end - at, BLOCK - at % BLOCK);
        memcpy(out, values(d, at / BLOCK) + at % BLOCK, (size_t)n * sizeof *out);
    }
}

static void normal_values(
    random_dataset *d, uint64_t key, int64_t sample, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i += STRETCH) {
        uint32_t bits[4];
        choir__philox(key, (uint64_t)sample, (uint64_t)i / STRETCH, bits);
        int64_t n = choir__min(STRETCH, count - i);
        copy_values(d, bits[0] % TABLE, n, out + i);
    }
}

/* Writes values first ... first + count - 1 of the sample, in [0, range). */
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
    normal_values(d, d->x_key, index, x, d->x_count);
    if (d->base.classes)
        integer_values(d->y_key, index, d->range, 0, y, d->y_count);
    else
        normal_values(d, d->y_key, index, y, d->y_count);
    return CHOIR_OK;
}

static choir_status tokens_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    random_dataset *d = (random_dataset *)self;
    integer_values(d->x_key, index, d->range, 0, x, d->x_count);
    integer_values(d->x_key, index, d->range, 1, y, d->y_count); /* the same, shifted by one */
    return CHOIR_OK;
}

static choir_status labelled_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    random_dataset *d = (random_dataset *)self;
    integer_values(d->x_key, index, d->range, 0, x, d->x_count);
    integer_values(d->y_key, index, d->labels, 0, y, d->y_count);
    return CHOIR_OK;
}

static choir_status numbers_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    random_dataset *d = (random_dataset *)self;
    integer_values(d->x_key, index, d->range, 0, x, d->x_count);
    normal_values(d, d->y_key, index, y, d->y_count);
    for (int64_t i = 0; d->labels && i < d->y_count; i++) /* several classes */
        ((float *)y)[i] = ((float *)y)[i] > 0;
    return CHOIR_OK;
}

static const choir_dataset_ops random_ops = {
    .length = random_length, .get = random_get, .free = random_free};
static const choir_dataset_ops tokens_ops = {
    .length = random_length, .get = tokens_get, .free = random_free};
static const choir_dataset_ops labelled_ops = {
    .length = random_length, .get = labelled_get, .free = random_free};

static const choir_dataset_ops numbers_ops = {
    .length = random_length, .get = numbers_get, .free = random_free};

static choir_status make(
    choir_dataset base, int64_t length, uint64_t seed, choir_dataset **dataset)
{
    if (length < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a random dataset: expected 1 sample or more, got %lld", (long long)length);
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
    d->table_key = choir__rng_key(seed, "data.table");
    d->table = choir__alloc((TABLE + STRETCH) * sizeof *d->table);
    pthread_mutex_init(&d->drawing, NULL);
    d->x_key = choir__rng_key(seed, "data.x");
    d->y_key = choir__rng_key(seed, "data.y");
    *dataset = &d->base;
    return CHOIR_OK;
}

choir_status choir_dataset_random(int64_t length, choir_shape x, choir_shape y, int64_t classes,
    uint64_t seed, choir_dataset **dataset)
{
    if (!dataset)
        return choir__missing(__func__, "dataset");
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
    if (!dataset)
        return choir__missing(__func__, "dataset");
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

/* y: the shape of a sample's y_count classes. */
static choir_status make_labelled(int64_t length, int64_t context, int64_t vocabulary,
    int64_t classes, uint64_t seed, choir_shape y, int64_t y_count, choir_dataset **dataset)
{
    if (!dataset)
        return choir__missing(__func__, "dataset");
    if (classes < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "random tokens with labels of %lld classes: 1 or more make sense",
            (long long)classes);
    choir_status status =
        choir_dataset_random_tokens(length, context, vocabulary, seed, dataset);
    if (status != CHOIR_OK)
        return status;
    random_dataset *d = (random_dataset *)*dataset;
    d->base.ops = &labelled_ops;
    d->base.y_shape = y;
    d->base.classes = d->labels = classes;
    d->y_count = y_count;
    return CHOIR_OK;
}

choir_status choir_dataset_random_labelled(int64_t length, int64_t context, int64_t vocabulary,
    int64_t classes, uint64_t seed, choir_dataset **dataset)
{
    return make_labelled(length, context, vocabulary, classes, seed, CHOIR_SCALAR, 1, dataset);
}

choir_status choir_dataset_random_numbers(int64_t length, int64_t context, int64_t vocabulary,
    int64_t outputs, bool several, uint64_t seed, choir_dataset **dataset)
{
    choir_status status = make_labelled(
        length, context, vocabulary, outputs, seed, choir_dims(outputs), outputs, dataset);
    if (status != CHOIR_OK)
        return status;
    random_dataset *d = (random_dataset *)*dataset;
    d->base.ops = &numbers_ops;
    d->base.y_dtype = CHOIR_F32;
    d->base.classes = several ? outputs : 0;
    d->labels = several;
    return CHOIR_OK;
}

choir_status choir_dataset_random_words(int64_t length, int64_t context, int64_t vocabulary,
    int64_t classes, uint64_t seed, choir_dataset **dataset)
{
    return make_labelled(
        length, context, vocabulary, classes, seed, choir_dims(context), context, dataset);
}
