/* Convolutions of one channel a group, and their input's gradients: see depthwise.h.
 *
 * A tile is a few windows beside each other, of one vector of channels. Its sums stay in
 * registers for all places, and a weight's vector is loaded once for them. */
#include "device/cpu/context.h"
#include "device/cpu/product/depthwise.h"

/* WIDE: windows of a tile; sums that wait for one another keep a core busy. TOGETHER: channels
 * that a tile's windows go through before the next tile; a row's pixels stay in the first
 * cache. */
enum { WIDE = 8, TOGETHER = 128 };

/* A tile's first window, and its channels. */
typedef struct spot {
    int64_t image, row, column, channel, left;
} spot;

/* Adds the bias, rounds once, and writes the sums. */
INLINE void end_tile(const choir__depthwise *d, const spot *s, const vec *sum, const int n,
    const choir_dtype dtype)
{
    const int64_t size = is_half(dtype) ? 2 : 4;
    char *y = (char *)d->y + s->image * d->image + s->row * d->row + s->column * d->pixel +
              s->channel * size;
    const vec bias = d->bias ? v_get(d->bias + s->channel, s->left) : (vec){0};
    for (int p = 0; p < n; p++, y += d->pixel) {
        const vec x = d->bias ? sum[p] + bias : sum[p];
        uint16_t few[W];
        if (dtype == CHOIR_F32) {
            v_put((float *)y, x, s->left);
        } else {
            round_vector(few, x, dtype == CHOIR_BF16);
            memcpy(y, few, (size_t)choir__min(s->left, W) * sizeof *few);
        }
    }
}

/* Computes n windows. Their places lie inside the image's rows, unless n is 1. */
INLINE void tile(const choir__depthwise *d, const spot *s, const int n, const choir_dtype dtype)
{
    const choir__windows *v = &d->windows;
    const float *w = d->w + s->channel;
    vec sum[WIDE];
    for (int p = 0; p < n; p++)
        sum[p] = (vec){0};
    for (int64_t i = 0; i < v->count_h; i++) {
        const line l = line_of(v, s->image, s->row, i, s->channel);
        for (int64_t j = 0; j < v->count_w; j++, w += v->channels) {
            const char *x = n > 1 ? l.at + s->column * l.window + j * l.place
                                  : place_of(v, &l, s->column, j);
            const vec factor = v_get(w, s->left);
            for (int p = 0; p < n; p++)
                sum[p] = v_fma(channels_at(x + p * l.window, s->left, dtype), factor, sum[p]);
        }
    }
    end_tile(d, s, sum, n, dtype);
}

/* n windows from `column` on, in channels [from, to). */
INLINE void tiles(const choir__depthwise *d, spot s, int64_t from, int64_t to, const int n,
    const choir_dtype dtype)
{
    const int64_t channels = d->windows.channels;
    for (; from < to; from += W) {
        s.channel = choir__max(choir__min(from, channels - W), 0);
        s.left = channels - s.channel;
        if (s.left >= W)
            tile(d, &(spot){s.image, s.row, s.column, s.channel, W}, n, dtype);
        else
            tile(d, &s, n, dtype);
    }
}

/* Columns [from, to) of a row, by tiles of n windows. The last two tiles may overlap. */
INLINE void run_of_tiles(const choir__depthwise *d, spot s, int64_t from, int64_t to,
    int64_t channel, int64_t end, const int n, const choir_dtype dtype)
{
    for (; from < to; from += n) {
        s.column = choir__min(from, to - n);
        tiles(d, s, channel, end, n, dtype);
    }
}

INLINE void row_as(
    const choir__depthwise *d, int64_t image, int64_t row, inner in, const choir_dtype dtype)
{
    const int64_t channels = d->windows.channels, cols = d->windows.cols;
    const spot s = {.image = image, .row = row};
    for (int64_t c = 0, end; c < channels; c = end) {
        end = choir__min(c + TOGETHER, channels);
        run_of_tiles(d, s, 0, in.from, c, end, 1, dtype);
        if (in.to - in.from >= WIDE)
            run_of_tiles(d, s, in.from, in.to, c, end, WIDE, dtype);
        else if (in.to - in.from >= WIDE / 2)
            run_of_tiles(d, s, in.from, in.to, c, end, WIDE / 2, dtype);
        else
            run_of_tiles(d, s, in.from, in.to, c, end, 1, dtype);
        run_of_tiles(d, s, in.to, cols, c, end, 1, dtype);
    }
}

/* Rows of windows [first, first + count), of all images. */
static void rows_of_windows(const void *arg, int64_t first, int64_t count)
{
    const choir__depthwise *d = arg;
    const inner in = inner_columns(&d->windows);
    for (int64_t i = first; i < first + count; i++) {
        const int64_t image = i / d->windows.rows, row = i % d->windows.rows;
        switch (d->dtype) {
        case CHOIR_BF16: row_as(d, image, row, in, CHOIR_BF16); break;
        case CHOIR_F16: row_as(d, image, row, in, CHOIR_F16); break;
        default: row_as(d, image, row, in, CHOIR_F32);
        }
    }
}

void KERNEL(depthwise)(const choir__depthwise *d)
{
    const choir__windows *v = &d->windows;
    const int64_t each = v->cols * v->channels * (v->count_h * v->count_w + 1);
    choir__cpu_parallel(d->images * v->rows, DEPTHWISE_LEAST / each + 1, rows_of_windows, d);
}
