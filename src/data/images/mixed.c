/* Datasets made of others: a part of the samples of one, and several with weights.
 *
 * A mixture needs no table. Its positions are divided among the first source and the others: of
 * the first n positions, round(n * share) belong to the first source, so position i does if
 * that number grows from i to i + 1. The positions of the others are numbered from 0 and
 * divided in the same way. A source that has fewer samples than positions begins again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "data/dataset.h"

/* --- a part of the samples --- */

typedef struct subset {
    choir_dataset base;
    choir_dataset_ops ops; /* the inner dataset's, but for those defined here */
    choir_dataset *inner;
    int64_t first, step, count;
} subset;

static int64_t subset_index(const choir_dataset *self, int64_t index)
{
    const subset *d = (const subset *)self;
    return d->first + index * d->step;
}

static int64_t subset_length(const choir_dataset *self)
{
    return ((const subset *)self)->count;
}

static choir_status subset_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    return choir_dataset_get(((subset *)self)->inner, subset_index(self, index), x, y);
}

static choir_status subset_get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    return choir_dataset_get_epoch(
        ((subset *)self)->inner, epoch, subset_index(self, index), x, y);
}

static const char *subset_class_name(const choir_dataset *self, int64_t id)
{
    return choir_dataset_class_name(((const subset *)self)->inner, id);
}

static const char *subset_sample_name(const choir_dataset *self, int64_t index)
{
    return choir_dataset_sample_name(((const subset *)self)->inner, subset_index(self, index));
}

static bool subset_place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place)
{
    return choir_dataset_place(
        ((const subset *)self)->inner, subset_index(self, index), part, place);
}

static int64_t subset_class_of(choir_dataset *self, int64_t index)
{
    return choir_dataset_class_of(((subset *)self)->inner, subset_index(self, index));
}

static void subset_normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const choir_dataset *inner = ((const subset *)self)->inner;
    inner->ops->normalized(inner, mean, std);
}

static bool subset_ignores(const choir_dataset *self)
{
    return choir_dataset_ignores(((const subset *)self)->inner);
}

static const char *subset_says(const choir_dataset *self)
{
    return choir_dataset_says(((const subset *)self)->inner);
}

static void subset_free(choir_dataset *self)
{
    choir_dataset_free(((subset *)self)->inner);
    free(self);
}

choir_status choir_dataset_subset(
    choir_dataset *inner, int64_t first, int64_t step, int64_t count, choir_dataset **dataset)
{
    if (!inner || !dataset)
        return choir__missing(__func__, inner ? "dataset" : "inner dataset");
    int64_t length = choir_dataset_length(inner);
    if (first < 0 || step < 1 || count < 1 || first >= length ||
        count > (length - 1 - first) / step + 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "of %lld samples there are not %lld, every %lld from number %lld on",
            (long long)length, (long long)count, (long long)step, (long long)first);
    subset *d = choir__calloc(1, sizeof *d);
    *d = (subset){.base = *inner,
        .inner = inner,
        .first = first,
        .step = step,
        .count = count,
        .ops = {.length = subset_length,
            .get = subset_get,
            .free = subset_free,
            .get_epoch = subset_get_epoch,
            .channels_last = inner->ops->channels_last,
            .class_name = subset_class_name,
            .sample_name = subset_sample_name,
            .place = subset_place,
            .class_of = subset_class_of,
            .ignores = subset_ignores,
            .says = subset_says,
            .normalized = inner->ops->normalized ? subset_normalized : NULL}};
    d->base.ops = &d->ops;
    *dataset = &d->base;
    return CHOIR_OK;
}

/* --- several with weights --- */

typedef struct source {
    choir_dataset *data;
    double share; /* share of the positions that earlier sources leave */
    int64_t length;
} source;

typedef struct mixed {
    choir_dataset base;
    choir_dataset_ops ops;
    int64_t length;
    int count;
    bool joined; /* one behind the other, in place of by weights */
    source sources[];
} mixed;

static int64_t taken(double share, int64_t positions)
{
    return (int64_t)floor((double)positions * share + 0.5);
}

/* Returns the source of a position, and the index of the sample there. */
static choir_dataset *find(const choir_dataset *self, int64_t *index)
{
    const mixed *d = (const mixed *)self;
    int last = d->count - 1;
    for (int s = 0; s < last; s++) {
        const source *k = &d->sources[s];
        if (d->joined) {
            if (*index < k->length)
                return k->data;
            *index -= k->length;
            continue;
        }
        int64_t before = taken(k->share, *index);
        if (taken(k->share, *index + 1) > before) {
            *index = before % k->length;
            return k->data;
        }
        *index -= before;
    }
    *index %= d->sources[last].length;
    return d->sources[last].data;
}

static int64_t mixed_length(const choir_dataset *self)
{
    return ((const mixed *)self)->length;
}

static choir_status mixed_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    choir_dataset *from = find(self, &index);
    return choir_dataset_get(from, index, x, y);
}

static choir_status mixed_get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    choir_dataset *from = find(self, &index);
    return choir_dataset_get_epoch(from, epoch, index, x, y);
}

static const char *mixed_class_name(const choir_dataset *self, int64_t id)
{
    return choir_dataset_class_name(((const mixed *)self)->sources[0].data, id);
}

static const char *mixed_sample_name(const choir_dataset *self, int64_t index)
{
    const choir_dataset *from = find(self, &index);
    return choir_dataset_sample_name(from, index);
}

static bool mixed_place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place)
{
    const choir_dataset *from = find(self, &index);
    return choir_dataset_place(from, index, part, place);
}

static void mixed_normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const choir_dataset *first = ((const mixed *)self)->sources[0].data;
    first->ops->normalized(first, mean, std);
}

/* Returns whether all sources are images that were normalised alike. */
static bool are_normalized_alike(choir_dataset *const *sources, int count)
{
    float first[6], other[6];
    for (int s = 0; s < count; s++) {
        if (!sources[s]->ops->normalized)
            return false;
        sources[s]->ops->normalized(sources[s], s ? other : first, (s ? other : first) + 3);
        if (s && memcmp(first, other, sizeof first) != 0)
            return false;
    }
    return true;
}

static int64_t mixed_class_of(choir_dataset *self, int64_t index)
{
    choir_dataset *from = find(self, &index);
    return choir_dataset_class_of(from, index);
}

static bool mixed_ignores(const choir_dataset *self)
{
    const mixed *d = (const mixed *)self;
    bool ignores = false;
    for (int s = 0; s < d->count; s++)
        ignores |= choir_dataset_ignores(d->sources[s].data);
    return ignores;
}

/* The first source that says something speaks for all. */
static const char *mixed_says(const choir_dataset *self)
{
    const mixed *d = (const mixed *)self;
    const char *sentence = NULL;
    for (int s = 0; s < d->count && !sentence; s++)
        sentence = choir_dataset_says(d->sources[s].data);
    return sentence;
}

static void mixed_free(choir_dataset *self)
{
    mixed *d = (mixed *)self;
    for (int s = 0; s < d->count; s++)
        choir_dataset_free(d->sources[s].data);
    free(d);
}

static bool same_shape(choir_shape a, choir_shape b)
{
    return a.ndim == b.ndim && !memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof *a.dim);
}

/* Returns whether two sources number the same classes in the same way, if they name them. */
static bool same_classes(const choir_dataset *a, const choir_dataset *b)
{
    if (!choir_dataset_class_name(a, 0) || !choir_dataset_class_name(b, 0))
        return true;
    bool same = a->classes == b->classes;
    for (int64_t i = 0; i < a->classes && same; i++) {
        const char *one = choir_dataset_class_name(a, i), *two = choir_dataset_class_name(b, i);
        same = one && two && !strcmp(one, two);
    }
    return same;
}

static choir_status check(choir_dataset *const *data, const double *weights, int count)
{
    if (count < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "a mixture of %d datasets", count);
    for (int s = 0; s < count; s++) {
        const choir_dataset *a = data[0], *b = data[s];
        if (!b || choir_dataset_length(b) < 1)
            return choir__error(CHOIR_ERR_ARGUMENT, "source %d has no samples", s);
        if (weights && !(weights[s] > 0 && isfinite(weights[s])))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "source %d: expected a weight above 0, got %g", s, weights[s]);
        if (a->x_dtype != b->x_dtype || a->y_dtype != b->y_dtype ||
            !same_shape(a->x_shape, b->x_shape) || !same_shape(a->y_shape, b->y_shape) ||
            a->ops->channels_last != b->ops->channels_last)
            return choir__error(
                CHOIR_ERR_SHAPE, "source %d has other samples than source 0", s);
        if (!same_classes(a, b))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "source %d: expected the classes of source 0, each with the same number: %lld, "
                "from '%s' on; got %lld, from '%s' on",
                s, (long long)a->classes, choir_dataset_class_name(a, 0), (long long)b->classes,
                choir_dataset_class_name(b, 0));
    }
    return CHOIR_OK;
}

/* Sets the shares, and the length after which each source has been read once. */
static choir_status divide(mixed *d, const double *weights)
{
    double rest = 0, longest = 0;
    for (int s = 0; s < d->count; s++)
        rest += weights[s];
    for (int s = 0; s < d->count; s++)
        longest = fmax(longest, (double)d->sources[s].length * rest / weights[s]);
    for (int s = 0; s < d->count; s++) {
        d->sources[s].share = fmin(1, weights[s] / rest);
        rest -= weights[s];
    }
    if (longest > 0x1p50)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a mixture of %g samples: expected weights that differ less", longest);
    d->length = (int64_t)ceil(longest);
    return CHOIR_OK;
}

choir_status choir_dataset_mixed(
    choir_dataset *const *sources, const double *weights, int count, choir_dataset **dataset)
{
    CHOIR__DEFAULT_FLOATS;
    if (!sources || !dataset)
        return choir__missing(__func__, sources ? "dataset" : "sources");
    choir_status status = check(sources, weights, count);
    if (status != CHOIR_OK)
        return status;
    mixed *d = choir__calloc(1, sizeof *d + (size_t)count * sizeof *d->sources);
    d->base = *sources[0];
    d->count = count;
    d->joined = !weights;
    for (int s = 0; s < count; s++) {
        d->sources[s] =
            (source){.data = sources[s], .length = choir_dataset_length(sources[s])};
        d->length += d->sources[s].length;
        d->base.classes = choir__max(d->base.classes, sources[s]->classes);
        d->base.held_out |= sources[s]->held_out;
        d->base.numbered |= sources[s]->numbered;
    }
    if (weights)
        status = divide(d, weights);
    if (status != CHOIR_OK) {
        free(d);
        return status;
    }
    d->ops = (choir_dataset_ops){.length = mixed_length,
        .get = mixed_get,
        .free = mixed_free,
        .get_epoch = mixed_get_epoch,
        .channels_last = sources[0]->ops->channels_last,
        .class_name = mixed_class_name,
        .place = mixed_place,
        .sample_name = mixed_sample_name,
        .normalized = are_normalized_alike(sources, count) ? mixed_normalized : NULL,
        .class_of = mixed_class_of,
        .ignores = mixed_ignores,
        .says = mixed_says};
    d->base.ops = &d->ops;
    *dataset = &d->base;
    return CHOIR_OK;
}
