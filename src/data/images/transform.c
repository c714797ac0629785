/* From an open image to a sample: choosing the view, computing weights for both axes, decoding
 * the pixels that they touch, resampling.
 *
 * Sizes, roundings and weights follow torchvision's RandomResizedCrop, RandomCrop, Resize and
 * CenterCrop with an antialiased bilinear (triangle) filter: when it shrinks, the triangle is
 * as wide as an output pixel. Values are not rounded to 8 bits in between.
 *
 * With dct_scaling, a JPEG is decoded at 1/2, 1/4 or 1/8 if the box is larger than its result
 * by that factor; the filter does the rest. */
#include "data/images/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>
#include "base/math/functions.h"
#include "base/rng.h"
#include "data/dataset.h"

enum { ATTEMPTS = 10, FLIP_DRAW = ATTEMPTS, PLACE_DRAW };

/* --- options --- */

choir_status choir__image_opts_check(const choir_image_opts *o)
{
    bool good = o->height >= 0 && o->height <= 1 << 14 && o->width >= 0 &&
                o->width <= 1 << 14 && !o->height == !o->width;
    if (!good)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected samples of 1 to 16384 pixels per side (both 0: as the first image), "
            "got %d x %d",
            o->width, o->height);
    if (!(o->scale_min > 0 && o->scale_min <= o->scale_max && o->scale_max <= 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected 0 < scale_min <= scale_max <= 1, got %g and %g; begin with "
            "choir_image_defaults() or choir_document_defaults()",
            (double)o->scale_min, (double)o->scale_max);
    if (!(o->ratio_min > 0 && o->ratio_min <= o->ratio_max && o->ratio_max < 1e6f))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected 0 < ratio_min <= ratio_max, got %g and %g", (double)o->ratio_min,
            (double)o->ratio_max);
    if (o->stretch_height < 0 || o->stretch_height > 1 << 15 || o->stretch_width < 0 ||
        o->stretch_width > 1 << 15 || !o->stretch_height != !o->stretch_width)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected images stretched to 1 to %d pixels per side (both 0: not stretched), got "
            "%d x %d",
            1 << 15, o->stretch_width, o->stretch_height);
    if (o->most < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected samples of at most 1 pixel per side or more (0: any), got %d", o->most);
    if (o->padding < 0 || o->padding > 1 << 14 || o->resize < 0 || o->resize > 1 << 15)
        return choir__error(CHOIR_ERR_ARGUMENT, "padding %d, resize %d: from 0 to %d",
            o->padding, o->resize, 1 << 14);
    if (choir__holdout_check("images", o->held_out) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if ((unsigned)o->crop > CHOIR_CROP_CENTER)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "unknown crop %d: choose one of enum choir_crop", (int)o->crop);
    for (int c = 0; c < 3; c++)
        if (!(o->std[c] > 0 && isfinite(o->std[c])))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "expected a standard deviation above 0, got %g", (double)o->std[c]);
        else if (!isfinite(o->mean[c]))
            return choir__error(
                CHOIR_ERR_ARGUMENT, "expected a finite mean, got %g", (double)o->mean[c]);
    return CHOIR_OK;
}

/* --- views --- */

static float uniform(uint32_t bits, float low, float high)
{
    return low + choir__unit(bits) * (high - low);
}

static int below(uint32_t bits, int n)
{
    return (int)((uint64_t)bits * (uint64_t)n >> 32);
}

/* An image of the sample's size is shifted; of others a box is resized. Each image decides for
 * itself: a sample does not depend on the images around it. */
static choir_crop crop_of(const choir_image_opts *o, int width, int height)
{
    return o->crop != CHOIR_CROP_AUTO                 ? o->crop
           : width == o->width && height == o->height ? CHOIR_CROP_PADDED
                                                      : CHOIR_CROP_RESIZED;
}

/* Returns the largest centered box with an allowed ratio. */
static choir__image_region middle_box(const choir_image_opts *o, int width, int height)
{
    double ratio = (double)width / height;
    choir__image_region box = {0, 0, width, height};
    if (ratio < (double)o->ratio_min)
        box.height = (int)rint(width / (double)o->ratio_min);
    else if (ratio > (double)o->ratio_max)
        box.width = (int)rint(height * (double)o->ratio_max);
    box.height = (int)choir__max(1, choir__min(box.height, height));
    box.width = (int)choir__max(1, choir__min(box.width, width));
    box.x = (width - box.width) / 2;
    box.y = (height - box.height) / 2;
    return box;
}

static choir__image_region random_box(
    const choir_image_opts *o, int width, int height, uint64_t key)
{
    double area = (double)width * height;
    float low = (float)choir__log((double)o->ratio_min);
    float high = (float)choir__log((double)o->ratio_max);
    for (uint64_t i = 0; i < ATTEMPTS; i++) {
        uint32_t r[4];
        choir__philox(key, 0, i, r);
        double target = area * (double)uniform(r[0], o->scale_min, o->scale_max);
        double ratio = (double)(float)choir__exp((double)uniform(r[1], low, high));
        double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w < 1 || w > width || h < 1 || h > height)
            continue;
        return (choir__image_region){
            below(r[2], width - (int)w + 1), below(r[3], height - (int)h + 1), (int)w, (int)h};
    }
    return middle_box(o, width, height);
}

static choir__view whole(int width, int height)
{
    return (choir__view){
        .box = {0, 0, width, height}, .full_width = width, .full_height = height};
}

choir_status choir__view_random(const choir_image_opts *o, const char *name, int width,
    int height, uint64_t key, choir__view *v)
{
    uint32_t r[4];
    const choir_crop crop = crop_of(o, width, height);
    if (crop == CHOIR_CROP_CENTER)
        *v = choir__view_center(o, width, height);
    else if (crop == CHOIR_CROP_RESIZED)
        *v = (choir__view){.box = random_box(o, width, height, key),
            .full_width = o->width,
            .full_height = o->height};
    else {
        int spare_x = width + 2 * o->padding - o->width;
        int spare_y = height + 2 * o->padding - o->height;
        if (spare_x < 0 || spare_y < 0)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: of its %d x %d pixels, padded by %d, no %d x %d can be cut; the crop "
                "CHOIR_CROP_RESIZED takes images of any size",
                name, width, height, o->padding, o->width, o->height);
        choir__philox(key, 0, PLACE_DRAW, r);
        *v = whole(width, height);
        v->left = below(r[0], spare_x + 1) - o->padding;
        v->top = below(r[1], spare_y + 1) - o->padding;
    }
    choir__philox(key, 0, FLIP_DRAW, r);
    v->flip = o->flip && r[0] >> 31;
    return CHOIR_OK;
}

/* Returns a side's length that keeps the ratio, as a whole number. */
static int in_ratio(int side, int other, int other_full)
{
    double full = (double)other_full * side / other;
    return full < 1 ? 1 : full > INT32_MAX / 4 ? INT32_MAX / 4 : (int)full;
}

choir__view choir__view_center(const choir_image_opts *o, int width, int height)
{
    choir__view v = whole(width, height);
    double zoom = crop_of(o, width, height) == CHOIR_CROP_PADDED ? 1 : 256.0 / 224;
    bool by_height = (double)o->height / height >= (double)o->width / width;
    if (o->resize)
        by_height = height <= width;
    if (o->stretch_height) {
        v.full_height = o->stretch_height;
        v.full_width = o->stretch_width;
    } else if (by_height) {
        v.full_height = o->resize ? o->resize : (int)rint(o->height * zoom);
        v.full_width = in_ratio(width, height, v.full_height);
    } else {
        v.full_width = o->resize ? o->resize : (int)rint(o->width * zoom);
        v.full_height = in_ratio(height, width, v.full_width);
    }
    v.left = (int)rint((v.full_width - o->width) / 2.0);
    v.top = (int)rint((v.full_height - o->height) / 2.0);
    return v;
}

choir__view choir__view_whole(const choir_image_opts *o, int width, int height)
{
    choir__view v = whole(width, height);
    bool by_height = (double)o->height / height <= (double)o->width / width;
    v.full_height = by_height ? o->height : in_ratio(height, width, o->width);
    v.full_width = by_height ? in_ratio(width, height, o->height) : o->width;
    v.left = -((o->width - v.full_width) / 2);
    v.top = -((o->height - v.full_height) / 2);
    return v;
}

/* --- weights --- */

/* One axis of a view, in pixels of the shrunk image. */
typedef struct side {
    double start, length; /* start and length of the box */
    int low, high;        /* pixels that exist: [low, high) */
    int full, first;      /* full: size when resized; first: where the window begins */
    int count;            /* weights in the window */
    bool flip;
} side;

static side side_of(
    int box, int length, int shrink, int limit, int full, int first, int count, bool flip)
{
    int shrunk = (limit + shrink - 1) / shrink;
    return (side){.start = (double)box / shrink,
        .length = (double)length / shrink,
        .low = box / shrink,
        .high = (int)choir__min((box + length + shrink - 1) / shrink, shrunk),
        .full = full,
        .first = first,
        .count = count,
        .flip = flip};
}

/* Computes the triangle around output o: its first pixel, and weights that add up to 1. Returns
 * their number. */
static int triangle(const side *s, int o, int *first, float *weight)
{
    double scale = s->length / s->full, wide = scale < 1 ? 1 : scale, sum = 0;
    double center = s->start + (o + 0.5) * scale;
    int from = (int)choir__max((int64_t)(center - wide + 0.5), s->low), used = 0;
    int to = (int)choir__min((int64_t)(center + wide + 0.5), s->high);
    for (int i = from; i < to; i++) {
        double w = 1 - fabs((i - center + 0.5) / wide);
        weight[i - from] = w > 0 ? (float)w : 0;
        sum += (double)weight[i - from];
        used = w > 0 ? i - from + 1 : used;
    }
    *first = from;
    for (int i = 0; i < used; i++)
        weight[i] = (float)((double)weight[i] / sum);
    return used;
}

/* Packs rows of `room` weights to rows of `taps`, so that no row reaches beyond the image. */
static void pack(choir__axis *a, int room, const side *s)
{
    for (int e = 0; e < a->count; e++) {
        float *to = a->weight + (int64_t)e * a->taps;
        int back = (int)choir__max(0, a->first[e] + a->taps - s->high);
        memmove(
            to + back, a->weight + (int64_t)e * room, (size_t)(a->taps - back) * sizeof *to);
        memset(to, 0, (size_t)back * sizeof *to);
        a->first[e] -= back;
    }
}

/* Computes the weights of all outputs of a window; outputs beyond the box have weights of 0. */
static bool make_axis(choir__axis *a, size_t *had, const side *s)
{
    double wide = choir__max(1, (int64_t)ceil(s->length / s->full));
    int room = (int)choir__min((int64_t)(2 * wide) + 1, s->high - s->low);
    size_t need = (size_t)s->count * (size_t)(room + 1);
    if (need > *had) { /* the weights, then their first pixels */
        free(a->weight);
        a->weight = malloc(need * sizeof *a->weight);
        *had = a->weight ? need : 0;
    }
    if (!a->weight)
        return false;
    a->first = (int *)(a->weight + (size_t)s->count * (size_t)room);
    a->count = s->count;
    a->taps = 1;
    memset(a->weight, 0, (size_t)s->count * (size_t)room * sizeof *a->weight);
    for (int e = 0; e < s->count; e++) {
        int o = s->first + (s->flip ? s->count - 1 - e : e);
        a->first[e] = s->low;
        if (o < 0 || o >= s->full)
            continue;
        int used = triangle(s, o, &a->first[e], a->weight + (int64_t)e * room);
        a->taps = (int)choir__max(a->taps, used);
    }
    pack(a, room, s);
    return true;
}

/* --- rendering --- */

/* Returns 1, 2, 4 or 8: the largest factor that keeps the shrunk box at least as large as its
 * result. */
static int choose_shrink(const choir__view *v, const choir_image_opts *o, int most)
{
    int shrink = 1;
    while (o->dct_scaling && 2 * shrink <= most && v->box.width >= 2 * shrink * v->full_width &&
           v->box.height >= 2 * shrink * v->full_height)
        shrink *= 2;
    return shrink;
}

/* Computes the range of pixels that an axis touches. */
static void extent(const choir__axis *a, int *low, int *length)
{
    int from = INT32_MAX, to = 0;
    for (int e = 0; e < a->count; e++) {
        from = (int)choir__min(from, a->first[e]);
        to = (int)choir__max(to, a->first[e] + a->taps);
    }
    *low = from;
    *length = to - from;
}

static choir_status make_axes(
    choir__image_work *w, const choir_image_opts *o, const choir__view *v, int shrink)
{
    const choir__decoder *d = &w->decoder;
    side x = side_of(
        v->box.x, v->box.width, shrink, d->width, v->full_width, v->left, o->width, v->flip);
    side y = side_of(
        v->box.y, v->box.height, shrink, d->height, v->full_height, v->top, o->height, false);
    if (!make_axis(&w->x, &w->x_room, &x) || !make_axis(&w->y, &w->y_room, &y))
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for the weights of a resize", d->name);
    return CHOIR_OK;
}

static choir_status row_room(choir__image_work *w, int pixels)
{
    size_t need = 3 * (size_t)pixels + CHOIR__ROW_SLACK;
    if (need <= w->row_room)
        return CHOIR_OK;
    free(w->row);
    w->row = calloc(need, sizeof *w->row);
    w->row_room = w->row ? need : 0;
    return w->row ? CHOIR_OK
                  : choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for a row of pixels",
                        w->decoder.name);
}

static void move_axis(choir__axis *a, int by)
{
    for (int e = 0; e < a->count; e++)
        a->first[e] -= by;
}

choir_status choir__image_render(choir__image_work *w, const choir_image_opts *o,
    choir__resample_fn *resample, const choir__view *view, float *out)
{
    choir__image_region need;
    choir__pixels p;
    int shrink = choose_shrink(view, o, w->decoder.format->shrinks);
    choir_status status = make_axes(w, o, view, shrink);
    if (status != CHOIR_OK)
        return status;
    extent(&w->x, &need.x, &need.width);
    extent(&w->y, &need.y, &need.height);
    status = choir__decoder_read(&w->decoder, need, shrink, &p);
    if (status == CHOIR_OK)
        status = row_room(w, need.width);
    if (status != CHOIR_OK)
        return status;
    move_axis(&w->x, need.x);
    move_axis(&w->y, p.y);
    choir__resample r = {.in = p.rgb + 3 * (need.x - p.x),
        .stride = p.stride,
        .width = need.width,
        .y = w->y,
        .x = w->x,
        .row = w->row,
        .out = out};
    for (int c = 0; c < 3; c++) { /* (v/255 - mean) / std */
        r.mul[c] = 1 / (255 * o->std[c]);
        r.add[c] = -o->mean[c] / o->std[c];
    }
    resample(&r);
    return CHOIR_OK;
}

void choir__image_work_free(choir__image_work *w)
{
    choir__decoder_free(&w->decoder);
    free(w->y.weight);
    free(w->x.weight);
    free(w->row);
    *w = (choir__image_work){0};
}

choir__resample_fn choir__resample_baseline, choir__resample_avx2, choir__resample_avx512;

choir__resample_fn *choir__resample_find(void)
{
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
    if (!strcmp(choir_cpu_isa(), "avx512"))
        return choir__resample_avx512;
#endif
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
    if (!strcmp(choir_cpu_isa(), "avx2"))
        return choir__resample_avx2;
#endif
#ifndef CHOIR_WITHOUT_BASELINE
    return choir__resample_baseline;
#else
    return NULL; /* a processor that lacks the only instruction set has been refused */
#endif
}

/* --- buffers for several threads --- */

void choir__image_works_init(choir__image_works *works)
{
    pthread_mutex_init(&works->lock, NULL);
    works->idle = NULL;
}

void choir__image_works_free(choir__image_works *works)
{
    for (choir__image_work *w = works->idle, *next; w; w = next) {
        next = w->next;
        choir__image_work_free(w);
        free(w);
    }
    pthread_mutex_destroy(&works->lock);
}

choir__image_work *choir__image_work_take(choir__image_works *works)
{
    pthread_mutex_lock(&works->lock);
    choir__image_work *w = works->idle;
    if (w)
        works->idle = w->next;
    pthread_mutex_unlock(&works->lock);
    return w ? w : choir__calloc(1, sizeof *w);
}

void choir__image_work_put(choir__image_works *works, choir__image_work *w)
{
    pthread_mutex_lock(&works->lock);
    w->next = works->idle;
    works->idle = w;
    pthread_mutex_unlock(&works->lock);
}
