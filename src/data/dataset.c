/* Datasets: the calls through the table, and functions that the kinds share. */
#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/floats.h"
#include "base/rng.h"
#include "base/text.h"

static choir_status use_dataset(const choir_dataset *d, const char *function)
{
    if (!d)
        return choir__missing(function, "dataset");
    return d->ops && d->ops->length && d->ops->get
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "%s: expected a dataset whose table of functions has length and get",
                     function);
}

int64_t choir_dataset_length(const choir_dataset *dataset)
{
    if (use_dataset(dataset, __func__) != CHOIR_OK)
        return 0;
    return dataset->ops->length(dataset);
}

choir_status choir_dataset_get(choir_dataset *dataset, int64_t index, void *x, void *y)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_dataset(dataset, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!x || !y)
        return choir__missing(__func__, x ? "y" : "x");
    int64_t length = dataset->ops->length(dataset);
    if (index < 0 || index >= length)
        return choir__error(CHOIR_ERR_RANGE, "sample %lld of a dataset of %lld",
            (long long)index, (long long)length);
    return dataset->ops->get(dataset, index, x, y);
}

choir_status choir_dataset_get_epoch(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y)
{
    CHOIR__DEFAULT_FLOATS;
    if (!dataset || !x || !y || !dataset->ops || !dataset->ops->get_epoch || index < 0 ||
        index >= dataset->ops->length(dataset)) /* ops->get states the error */
        return choir_dataset_get(dataset, index, x, y);
    return dataset->ops->get_epoch(dataset, epoch, index, x, y);
}

/* The error names the sample, because the caller reads a batch of many. */
choir_status choir__dataset_get_named(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y)
{
    choir__set_message("");
    choir_status status = choir_dataset_get_epoch(dataset, epoch, index, x, y);
    if (status == CHOIR_OK)
        return status;
    const char *why = choir__message();
    return choir__error(status, "%s (sample %lld of the dataset)",
        *why ? why : choir_status_text(status), (long long)index);
}

const char *choir_dataset_sample_name(const choir_dataset *dataset, int64_t index)
{
    if (use_dataset(dataset, __func__) != CHOIR_OK)
        return NULL;
    return dataset->ops->sample_name ? dataset->ops->sample_name(dataset, index) : NULL;
}

bool choir_dataset_place(
    const choir_dataset *dataset, int64_t index, int64_t part, choir_sample_place *place)
{
    if (use_dataset(dataset, __func__) != CHOIR_OK || choir__lacks(place, __func__, "place"))
        return false;
    *place = (choir_sample_place){.line = -1, .document = -1};
    if (dataset->ops->place)
        return dataset->ops->place(dataset, index, part, place);
    place->file = choir_dataset_sample_name(dataset, index);
    return part == 0;
}

const char *choir_dataset_class_name(const choir_dataset *dataset, int64_t id)
{
    if (use_dataset(dataset, __func__) != CHOIR_OK)
        return NULL;
    return dataset->ops->class_name ? dataset->ops->class_name(dataset, id) : NULL;
}

const char *choir_dataset_says(const choir_dataset *d)
{
    if (use_dataset(d, __func__) != CHOIR_OK)
        return NULL;
    return d->ops->says ? d->ops->says(d) : NULL;
}

bool choir_dataset_ignores(const choir_dataset *d)
{
    if (use_dataset(d, __func__) != CHOIR_OK)
        return false;
    return d->ops->ignores && d->ops->ignores(d);
}

static int64_t values_of(choir_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i];
    return count;
}

int64_t choir_dataset_class_of(choir_dataset *d, int64_t index)
{
    int64_t class = -1;
    if (use_dataset(d, __func__) != CHOIR_OK || index < 0 || index >= d->ops->length(d))
        return -1;
    if (d->ops->class_of)
        return d->ops->class_of(d, index);
    if (d->y_dtype != CHOIR_I64 || d->y_shape.ndim || !d->classes)
        return -1;
    void *x = choir__alloc((size_t)values_of(d->x_shape) * choir_dtype_size(d->x_dtype) + 1);
    choir_status status = choir_dataset_get(d, index, x, &class);
    free(x);
    return status == CHOIR_OK ? class : -1;
}

choir_status choir_dataset_class_weights(choir_dataset *d, double *weights)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_dataset(d, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!weights)
        return choir__missing(__func__, "weights");
    int64_t length = choir_dataset_length(d), *count = choir__calloc((size_t)d->classes + 1, 8);
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < length && status == CHOIR_OK; i++) {
        int64_t class = choir_dataset_class_of(d, i);
        if (class < 0 || class >= d->classes)
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "balancing: expected samples with a class each, and sample %lld has none",
                (long long)i);
        else
            count[class]++;
        weights[i] = (double)class;
    }
    for (int64_t i = 0; i < length && status == CHOIR_OK; i++)
        weights[i] = 1 / (double)count[(int64_t)weights[i]];
    free(count);
    return status;
}

void choir_dataset_free(choir_dataset *dataset)
{
    if (dataset && dataset->ops && dataset->ops->free)
        dataset->ops->free(dataset);
}

choir_status choir__sample_bytes(
    const char *what, choir_dtype dtype, choir_shape shape, int64_t count, size_t *bytes)
{
    if ((unsigned)dtype >= CHOIR_DTYPE_COUNT)
        return choir__error(
            CHOIR_ERR_DTYPE, "a sample's %s: unknown dtype %d", what, (int)dtype);
    if (shape.ndim < 0 || shape.ndim >= CHOIR_MAX_DIMS)
        return choir__error(CHOIR_ERR_SHAPE,
            "a sample's %s of %d dimensions: with the batch's own there may be at most %d",
            what, shape.ndim, CHOIR_MAX_DIMS);
    int64_t total = (int64_t)choir_dtype_size(dtype);
    bool fits = !__builtin_mul_overflow(total, count, &total);
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = shape.dim[i] >= 0 && !__builtin_mul_overflow(total, shape.dim[i], &total);
    if (!fits || total > INT64_MAX / 16)
        return choir__error(CHOIR_ERR_SHAPE,
            "no batch of %lld can have samples whose %s is that large"
            " (or has a negative size)",
            (long long)count, what);
    *bytes = (size_t)total;
    return CHOIR_OK;
}

static choir_status too_large(const char *path, size_t limit)
{
    return choir__error(
        CHOIR_ERR_FORMAT, "%s has more than the %zu bytes that it may have", path, limit);
}

/* Reads to the end of fd into *data, which has room for `room` bytes. The buffer grows if that
 * is not enough (a pipe, or a file that is being written). */
static choir_status read_all(
    int fd, const char *path, size_t limit, size_t room, char **data, size_t *bytes)
{
    size_t used = 0;
    for (;;) {
        if (limit && used > limit)
            return too_large(path, limit);
        if (used + 1 >= room) {
            char *more = realloc(*data, room *= 2);
            if (!more)
                return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory to read it", path);
            *data = more;
        }
        ssize_t n = read(fd, *data + used, room - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            break;
        used += (size_t)n;
    }
    (*data)[used] = '\0';
    *bytes = used;
    return CHOIR_OK;
}

choir_status choir__read_file(const char *path, size_t limit, char **data, size_t *bytes)
{
    char *text = NULL;
    struct stat info = {0};
    int fd;
    choir_status status =
        choir__file_open(path, O_RDONLY, limit ? CHOIR__FILE_REGULAR : CHOIR__FILE_TEXT, &fd);
    if (status == CHOIR_OK && fstat(fd, &info) != 0)
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    size_t size = info.st_size > 0 ? (size_t)info.st_size : 0;
    if (status == CHOIR_OK && limit && size > limit)
        status = too_large(path, limit);
    if (status == CHOIR_OK && !(text = malloc(size + 4096)))
        status =
            choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for its %zu bytes", path, size);
    if (status == CHOIR_OK)
        status = read_all(fd, path, limit, size + 4096, &text, bytes);
    if (fd >= 0)
        close(fd);
    if (status == CHOIR_OK)
        *data = text;
    else
        free(text);
    return status;
}

/* --- names of classes, for models that keep their data's --- */

void choir_class_names_free(choir_class_names *names)
{
    if (!names)
        return;
    for (int64_t i = 0; i < names->count; i++)
        free(names->name[i]);
    free(names->name);
    *names = (choir_class_names){0};
}

void choir_dataset_class_names(
    const choir_dataset *dataset, int64_t count, choir_class_names *names)
{
    if (choir__lacks(dataset, __func__, "dataset") || choir__lacks(names, __func__, "names"))
        return;
    *names = (choir_class_names){0};
    if (!choir_dataset_class_name(dataset, 0))
        return;
    names->name = choir__calloc((size_t)count + 1, sizeof *names->name);
    for (; names->count < count; names->count++) {
        const char *name = choir_dataset_class_name(dataset, names->count);
        names->name[names->count] =
            name ? choir__strdup(name) : choir__format("LABEL_%lld", (long long)names->count);
    }
}

char *choir__class_names_list(const choir_class_names *names)
{
    enum { SHOWN = 20 };
    choir__text_buffer list = {0};
    choir__text_buffer_put(&list, "");
    for (int64_t i = 0; i < names->count && i < SHOWN; i++)
        choir__text_format(
            &list, "%s%.60s", i ? ", " : "", i + 1 == SHOWN ? "..." : names->name[i]);
    return list.bytes;
}

/* Samples for validation. Parts are whole millionths, so that 0.29 of 100 samples are 29. */

enum { ONE = 1000000, A_TENTH = ONE / 10 };

static int64_t millionths(double part)
{
    return part > 0 ? choir__max(llround(part * ONE), 1) : A_TENTH;
}

/* Returns count * share / ONE, rounded down. */
static int64_t share_of(int64_t count, int64_t share)
{
    return count / ONE * share + count % ONE * share / ONE;
}

choir_status choir__holdout_check(const char *name, double part)
{
    if (part >= 0 && part <= 1)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected a part for validation from 0 (a tenth) to 1 (all), got %g", name, part);
}

/* Returns the first sample of a group: the smallest number whose share_of is the group. */
static int64_t first_of(int64_t group, int64_t share)
{
    return group / share * ONE + (group % share * ONE + share - 1) / share;
}

/* Returns the sample of a group that is held. */
static int64_t held_of(int64_t group, int64_t share)
{
    const int64_t first = first_of(group, share), count = first_of(group + 1, share) - first;
    const int64_t least = !group && count > 1; /* a single sample is trained on */
    const uint64_t place = choir__mix(0, (uint64_t)group) % (uint64_t)(count - least);
    return first + least + (int64_t)place;
}

bool choir__is_held(double part, int64_t sample)
{
    const int64_t share = millionths(part);
    return sample == held_of(share_of(sample, share), share);
}

bool choir__is_held_of_class(double part, int64_t sample, int64_t count)
{
    return choir__is_held(part, sample) ||
           (sample == 1 && count > 1 && held_of(0, millionths(part)) >= count);
}

/* --- classes that are mixed --- */

bool choir__holdout_classes_note(
    choir__holdout_classes *h, int64_t class, bool held, bool training, int64_t kept)
{
    if (class >= h->count) {
        h->of = choir__realloc(h->of, (size_t)(2 * class + 16) * sizeof *h->of);
        while (h->count < 2 * class + 16)
            h->of[h->count++] = (choir__holdout_class){.second = -1};
    }
    choir__holdout_class *c = &h->of[class];
    const bool second = ++c->samples == 2 && !held && !c->held;
    const bool keep = held != training || second;
    c->held += held;
    if (second)
        c->second = kept;
    return keep;
}

bool *choir__holdout_classes_end(choir__holdout_classes *h, bool training, int64_t kept)
{
    bool *dropped = choir__calloc((size_t)kept + 1, sizeof *dropped);
    for (int64_t i = 0; i < h->count; i++)
        if (h->of[i].second >= 0)
            dropped[h->of[i].second] = training == !h->of[i].held;
    free(h->of);
    *h = (choir__holdout_classes){0};
    return dropped;
}

int64_t choir__training_part(double part, int64_t count)
{
    return share_of(count, ONE - millionths(part));
}
