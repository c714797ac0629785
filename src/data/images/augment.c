/* A dataset of augmented images over another dataset: choir/augment.h.
 *
 *     one sample   read (epoch, index), undo the normalisation, jitter, RandAugment, normalise,
 * erase a mixture    one sample, another one, mix x and y
 *
 * Philox draws each sample's numbers in a fixed order from (seed, epoch, index). The other
 * sample of a mixture is the sample that it would be alone. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "data/dataset.h"
#include "data/images/dice.h"
#include "data/images/image_ops.h"

enum { ATTEMPTS = 10 }; /* at a rectangle that fits */

/* Pixels of two images, which are reused for one sample after another. */
typedef struct buffers {
    struct buffers *next; /* the next idle buffers */
    float pixels[];       /* two of planes, the other image of a mixture */
} buffers;

typedef struct augmented {
    choir_dataset base;
    choir_dataset_ops ops; /* the inner dataset's, but for those defined here */
    choir_dataset *inner;
    choir_augment_opts opts;
    float mean[3], std[3];
    const choir__colours *colours;
    int64_t height, width;
    int channels;
    bool mixes;
    double *sums;         /* (samples) of the partners' weights; NULL: all are equally likely */
    pthread_mutex_t lock; /* guards idle */
    buffers *idle;
} augmented;

/* --- colours --- */

static void jitter(const augmented *d, choir__dice *r, choir__picture *p)
{
    static const choir_image_op ops[4] = {
        CHOIR_IMAGE_BRIGHTNESS, CHOIR_IMAGE_CONTRAST, CHOIR_IMAGE_SATURATION, CHOIR_IMAGE_HUE};
    const choir_augment_opts *o = &d->opts;
    const double wide[4] = {
        (double)o->brightness, (double)o->contrast, (double)o->saturation, (double)o->hue};
    int order[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) {
        int64_t k = i + choir__dice_below(r, 4 - i);
        int op = order[k];
        order[k] = order[i];
        double from = op == 3 ? -wide[op] : fmax(0, 1 - wide[op]);
        double amount = choir__dice_uniform(r, from, op == 3 ? wide[op] : 1 + wide[op]);
        if (wide[op] > 0)
            choir__picture_change(p, ops[op], amount);
    }
}

static void randaugment(const augmented *d, choir__dice *r, choir__picture *p)
{
    const choir_augment_opts *o = &d->opts;
    for (int i = 0; i < o->randaugment_ops; i++) {
        choir_image_op op = (choir_image_op)choir__dice_below(r, CHOIR_IMAGE_HUE);
        double amount = choir_randaugment_amount(
            op, o->randaugment_magnitude, o->randaugment_bins, d->height, d->width);
        bool other = choir__dice_bits(r) >> 31;
        choir__picture_change(p, op, other ? choir__image_op_opposite(op, amount) : amount);
    }
}

static bool changes_colours(const choir_augment_opts *o)
{
    return o->brightness > 0 || o->contrast > 0 || o->saturation > 0 || o->hue > 0 ||
           o->randaugment_ops;
}

static void change_colours(const augmented *d, choir__dice *r, float *x, float *planes)
{
    int64_t image = d->height * d->width * d->channels;
    choir__picture p = {planes, planes + image, d->height, d->width, d->channels, d->colours};
    float mul[3], add[3];
    if (!changes_colours(&d->opts))
        return;
    d->colours->into_planes(&p, x, d->std, d->mean);
    jitter(d, r, &p);
    randaugment(d, r, &p);
    for (int c = 0; c < d->channels; c++) {
        mul[c] = 1 / d->std[c];
        add[c] = -d->mean[c] / d->std[c];
    }
    d->colours->from_planes(&p, x, mul, add);
}

/* --- rectangles --- */

/* torchvision's RandomErasing.get_params, and the erasing. */
static void erase(const augmented *d, choir__dice *r, float *x)
{
    const choir_augment_opts *o = &d->opts;
    double area = (double)(d->height * d->width);
    if (!(choir__dice_uniform(r, 0, 1) < (double)o->erase))
        return;
    for (int i = 0; i < ATTEMPTS; i++) {
        double part = area * choir__dice_uniform(r, (double)o->erase_min, (double)o->erase_max);
        double low = choir__log((double)o->ratio_min), high = choir__log((double)o->ratio_max);
        double ratio = choir__exp(choir__dice_uniform(r, low, high));
        int64_t h = (int64_t)rint(sqrt(part * ratio)), w = (int64_t)rint(sqrt(part / ratio));
        if (h >= d->height || w >= d->width)
            continue;
        int64_t top = choir__dice_below(r, d->height - h + 1),
                left = choir__dice_below(r, d->width - w + 1);
        for (int64_t y = top; y < top + h; y++) {
            float *row = x + (y * d->width + left) * d->channels;
            for (int64_t k = 0; k < w * d->channels; k++)
                row[k] = o->erase_noise ? (float)choir__dice_normal(r) : 0;
        }
        return;
    }
}

/* Pastes CutMix's box of `other` into x; returns the share of x that is left. */
static double cut(const augmented *d, choir__dice *r, double lam, float *x, const float *other)
{
    int64_t at_x = choir__dice_below(r, d->width), at_y = choir__dice_below(r, d->height);
    double half = 0.5 * sqrt(1 - lam);
    int64_t w = (int64_t)(half * (double)d->width), h = (int64_t)(half * (double)d->height);
    int64_t left = choir__max(0, at_x - w), right = choir__min(d->width, at_x + w);
    int64_t top = choir__max(0, at_y - h), bottom = choir__min(d->height, at_y + h);
    for (int64_t y = top; y < bottom; y++) {
        int64_t from = (y * d->width + left) * d->channels;
        memcpy(x + from, other + from, (size_t)((right - left) * d->channels) * sizeof *x);
    }
    double area = (double)((right - left) * (bottom - top));
    return 1 - area / (double)(d->height * d->width);
}

/* --- one sample --- */

static buffers *take(augmented *d)
{
    pthread_mutex_lock(&d->lock);
    buffers *b = d->idle;
    if (b)
        d->idle = b->next;
    pthread_mutex_unlock(&d->lock);
    size_t image = (size_t)(d->height * d->width * d->channels);
    return b ? b : choir__alloc(sizeof *b + 3 * image * sizeof *b->pixels);
}

static void put(augmented *d, buffers *b)
{
    pthread_mutex_lock(&d->lock);
    b->next = d->idle;
    d->idle = b;
    pthread_mutex_unlock(&d->lock);
}

/* Reads a sample and changes it alone. */
static choir_status read_one(
    augmented *d, int64_t epoch, int64_t index, float *planes, float *x, void *y)
{
    choir_status status = choir_dataset_get_epoch(d->inner, epoch, index, x, y);
    if (status != CHOIR_OK)
        return status;
    choir__dice r = choir__dice_of(d->opts.seed, "augment", epoch, index);
    change_colours(d, &r, x, planes);
    if (d->opts.erase > 0)
        erase(d, &r, x);
    return CHOIR_OK;
}

/* Mixes the sample with another one. y (classes) */
static choir_status mix(
    augmented *d, int64_t epoch, int64_t index, int64_t label, buffers *b, float *x, float *y)
{
    const choir_augment_opts *o = &d->opts;
    int64_t image = d->height * d->width * d->channels, second = label;
    float *other = b->pixels + 2 * image;
    choir__dice r = choir__dice_of(d->opts.seed, "augment.mix", epoch, index);
    bool cuts = o->cutmix > 0 && (!(o->mixup > 0) || choir__dice_bits(&r) >> 31);
    double lam = 1;
    choir_status status = CHOIR_OK;
    if (choir__dice_uniform(&r, 0, 1) < (double)o->mix) {
        const int64_t samples = choir_dataset_length(d->inner);
        int64_t partner = d->sums ? choir__dice_weighted(&r, d->sums, samples)
                                  : choir__dice_below(&r, samples);
        lam = choir__dice_beta(&r, cuts ? (double)o->cutmix : (double)o->mixup);
        status = read_one(d, epoch, partner, b->pixels, other, &second);
        if (status == CHOIR_OK && cuts)
            lam = cut(d, &r, lam, x, other);
        else if (status == CHOIR_OK)
            for (int64_t i = 0; i < image; i++)
                x[i] = x[i] * (float)lam + other[i] * (float)(1 - lam);
    }
    memset(y, 0, (size_t)d->base.classes * sizeof *y);
    y[label] = (float)lam;
    y[second] += (float)(1 - lam);
    return status;
}

static choir_status get_epoch(
    choir_dataset *self, int64_t epoch, int64_t index, void *x, void *y)
{
    augmented *d = (augmented *)self;
    buffers *b = take(d);
    int64_t label;
    choir_status status = read_one(d, epoch, index, b->pixels, x, d->mixes ? &label : y);
    if (status == CHOIR_OK && d->mixes)
        status = mix(d, epoch, index, label, b, x, y);
    put(d, b);
    return status;
}

static choir_status get(choir_dataset *self, int64_t index, void *x, void *y)
{
    return get_epoch(self, 0, index, x, y);
}

/* --- the dataset --- */

static int64_t length(const choir_dataset *self)
{
    return choir_dataset_length(((const augmented *)self)->inner);
}

static void free_augmented(choir_dataset *self)
{
    augmented *d = (augmented *)self;
    choir_dataset_free(d->inner);
    for (buffers *b = d->idle, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pthread_mutex_destroy(&d->lock);
    free(d->sums);
    free(d);
}

static const char *class_name(const choir_dataset *self, int64_t id)
{
    return choir_dataset_class_name(((const augmented *)self)->inner, id);
}

static const char *sample_name(const choir_dataset *self, int64_t index)
{
    return choir_dataset_sample_name(((const augmented *)self)->inner, index);
}

static bool place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *of)
{
    return choir_dataset_place(((const augmented *)self)->inner, index, part, of);
}

static int64_t class_of(choir_dataset *self, int64_t index)
{
    return choir_dataset_class_of(((augmented *)self)->inner, index);
}

static void normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const augmented *d = (const augmented *)self;
    memcpy(mean, d->mean, sizeof d->mean);
    memcpy(std, d->std, sizeof d->std);
}

static bool in(float value, float low, float high)
{
    return value >= low && value <= high;
}

static choir_status check_opts(const choir_augment_opts *o)
{
    bool colours = in(o->brightness, 0, 100) && in(o->contrast, 0, 100) &&
                   in(o->saturation, 0, 100) && in(o->hue, 0, 0.5f);
    bool random = o->randaugment_ops >= 0 && o->randaugment_ops <= 100 &&
                  o->randaugment_bins >= 2 && o->randaugment_magnitude >= 0 &&
                  o->randaugment_magnitude < o->randaugment_bins;
    bool erasing = in(o->erase, 0, 1) && in(o->erase_min, 0, o->erase_max) &&
                   in(o->erase_max, 1e-6f, 1) && in(o->ratio_min, 1e-6f, o->ratio_max) &&
                   in(o->ratio_max, 1e-6f, 1e6f);
    bool mixing = in(o->mixup, 0, 1e3f) && in(o->cutmix, 0, 1e3f) && in(o->mix, 0, 1);
    const char *wrong =
        !colours   ? "colour jitter: expected widths of 0 to 100, of the hue 0 to 0.5"
        : !random  ? "RandAugment: expected a magnitude below the number of bins"
        : !erasing ? "random erasing: expected a probability, and ranges of shares"
                     " of the area and of ratios"
        : !mixing  ? "mixup and CutMix: expected alphas of 0 to 1000, and a "
                     "probability"
                   : NULL;
    return wrong ? choir__error(
                       CHOIR_ERR_ARGUMENT, "%s; begin with choir_augment_defaults()", wrong)
                 : CHOIR_OK;
}

static bool has_images(const choir_dataset *d)
{
    const choir_shape *s = &d->x_shape;
    return d->ops->normalized && d->x_dtype == CHOIR_F32 && s->ndim == 3 &&
           (s->dim[0] == 1 || (s->dim[0] == 3 && d->ops->channels_last)) && s->dim[1] > 0 &&
           s->dim[2] > 0 && s->dim[1] <= 1 << 15 && s->dim[2] <= 1 << 15;
}

static choir_status check_inner(const choir_dataset *d, bool mixes)
{
    if (!has_images(d))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "only images can be augmented, x (3, H, W) f32, stored channels-last, or (1, H, W), "
            "whose dataset says how they were normalised");
    if (mixes && (d->y_dtype != CHOIR_I64 || d->y_shape.ndim || d->classes < 1))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "mixup and CutMix: expected images with a class each");
    return CHOIR_OK;
}

/* Makes the partners' weights: all classes are equally likely. */
static choir_status weigh(augmented *d)
{
    const int64_t samples = choir_dataset_length(d->inner);
    d->sums = choir__calloc((size_t)samples + 1, sizeof *d->sums);
    choir_status status = choir_dataset_class_weights(d->inner, d->sums);
    for (int64_t i = 1; i < samples && status == CHOIR_OK; i++)
        d->sums[i] += d->sums[i - 1];
    return status;
}

choir_augment_opts choir_augment_defaults(void)
{
    return (choir_augment_opts){.randaugment_magnitude = 9,
        .randaugment_bins = 31,
        .erase_min = 0.02f,
        .erase_max = 0.33f,
        .ratio_min = 0.3f,
        .ratio_max = 3.3f,
        .mix = 1};
}

choir_status choir_dataset_augmented(
    choir_dataset *inner, choir_augment_opts opts, choir_dataset **dataset)
{
    if (!inner || !dataset)
        return choir__missing(__func__, inner ? "dataset" : "inner dataset");
    bool mixes = opts.mixup > 0 || opts.cutmix > 0;
    choir_status status = check_opts(&opts);
    if (status == CHOIR_OK)
        status = check_inner(inner, mixes);
    if (status != CHOIR_OK)
        return status;
    augmented *d = choir__calloc(1, sizeof *d);
    *d = (augmented){.base = *inner,
        .inner = inner,
        .opts = opts,
        .mixes = mixes,
        .colours = choir__colours_find(),
        .height = inner->x_shape.dim[1],
        .width = inner->x_shape.dim[2],
        .channels = (int)inner->x_shape.dim[0],
        .ops = {.length = length,
            .get = get,
            .free = free_augmented,
            .get_epoch = get_epoch,
            .channels_last = inner->ops->channels_last,
            .class_name = class_name,
            .sample_name = sample_name,
            .place = place,
            .normalized = normalized,
            .class_of = class_of}};
    d->base.ops = &d->ops;
    inner->ops->normalized(inner, d->mean, d->std);
    if (mixes) {
        d->base.y_dtype = CHOIR_F32;
        d->base.y_shape = choir_dims(inner->classes);
    }
    pthread_mutex_init(&d->lock, NULL);
    status = mixes && opts.balance ? weigh(d) : CHOIR_OK;
    if (status == CHOIR_OK) {
        *dataset = &d->base;
    } else {
        pthread_mutex_destroy(&d->lock);
        free(d->sums);
        free(d);
    }
    return status;
}
