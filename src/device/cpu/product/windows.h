/* Windows of images: the operand of a convolution's product, gathered piece by piece.
 *
 * A window is a row of columns (count_h, count_w, channels): for place (i, j) the channels of
 * the image's pixel
 *
 *     h = first_h + step_h r + delta_h i,      w = first_w + step_w c + delta_w j
 *
 * or zeros outside the image. r and c count the windows of an image, (rows, cols) of them, and
 * image n follows image n - 1. */
#ifndef CHOIR_PRODUCT_WINDOWS_H
#define CHOIR_PRODUCT_WINDOWS_H

#include "device/cpu/product/matrix.h"

typedef struct choir__windows {
    const void *images;      /* (n, h, w, pixel) */
    int64_t h, w, pixel;     /* pixel: elements of one */
    int64_t first, channels; /* the elements of a pixel that windows have */
    int64_t rows, cols;      /* windows of an image */
    int64_t first_h, first_w, step_h, step_w, delta_h, delta_w;
    int64_t count_h, count_w;
    size_t size; /* bytes of an element */
} choir__windows;

/* Part of a row of places: columns [from, to) of (count_w, channels). */
typedef struct stretch {
    char *y;             /* receives the columns */
    int64_t image, h, w; /* place 0's pixel; h may lie outside the image */
    int64_t from, to;
} stretch;

/* Places whose channels lie side by side in a row of the image are one run. */
INLINE void gather_run(const choir__windows *v, const stretch *s)
{
    const int64_t begin = -s->w * v->pixel, end = (v->w - s->w) * v->pixel;
    const int64_t a = choir__min(choir__max(s->from, begin), s->to);
    const int64_t b = choir__max(choir__min(s->to, end), a);
    const int64_t at = ((s->image * v->h + s->h) * v->w + s->w) * v->pixel;
    memset(s->y, 0, (size_t)(a - s->from) * v->size);
    memcpy(s->y + (size_t)(a - s->from) * v->size,
        (const char *)v->images + (at + a) * (int64_t)v->size, (size_t)(b - a) * v->size);
    memset(s->y + (size_t)(b - s->from) * v->size, 0, (size_t)(s->to - b) * v->size);
}

INLINE void gather_places(const choir__windows *v, const stretch *s)
{
    char *y = s->y;
    for (int64_t at = s->from, some; at < s->to; at += some, y += some * (int64_t)v->size) {
        const int64_t j = at / v->channels, c = at % v->channels, w = s->w + j * v->delta_w;
        some = choir__min(v->channels - c, s->to - at);
        if (w < 0 || w >= v->w)
            memset(y, 0, (size_t)some * v->size);
        else
            memcpy(y,
                (const char *)v->images +
                    ((((s->image * v->h + s->h) * v->w + w) * v->pixel + v->first + c) *
                        (int64_t)v->size),
                (size_t)some * v->size);
    }
}

/* Columns [from, from + count) of a window. */
INLINE void gather_window(
    char *y, const choir__windows *v, stretch place, int64_t from, int64_t count)
{
    const int64_t row = v->count_w * v->channels;
    const bool run = v->delta_w == 1 && v->channels == v->pixel;
    const int64_t h = place.h;
    for (int64_t at = from; at < from + count; at += place.to - place.from) {
        const int64_t i = at / row;
        place.from = at % row;
        place.to = choir__min(row, place.from + from + count - at);
        place.y = y + (at - from) * (int64_t)v->size;
        place.h = h + i * v->delta_h;
        if (place.h < 0 || place.h >= v->h)
            memset(place.y, 0, (size_t)(place.to - place.from) * v->size);
        else if (run)
            gather_run(v, &place);
        else
            gather_places(v, &place);
    }
}

/* to (windows, apart) = columns [from, from + count) of windows [first, first + windows), and
 * zeros up to column `deep` of them. */
INLINE void gather_windows(void *to, int64_t apart, const choir__windows *v, int64_t first,
    int64_t windows, int64_t from, int64_t count, int64_t deep)
{
    char *y = to;
    int64_t c = first % v->cols, r = first / v->cols % v->rows, n = first / v->cols / v->rows;
    for (int64_t i = 0; i < windows; i++, y += apart * (int64_t)v->size) {
        const stretch place = {
            .image = n, .h = v->first_h + v->step_h * r, .w = v->first_w + v->step_w * c};
        gather_window(y, v, place, from, count);
        memset(y + count * (int64_t)v->size, 0, (size_t)(deep - count) * v->size);
        if (++c == v->cols) {
            c = 0;
            if (++r == v->rows)
                r = 0, n++;
        }
    }
}

#endif
