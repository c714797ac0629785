/* Windows of images that tiles read without gathering them.
 *
 * Channels of a place lie side by side in memory, and so do places in a row of a window;
 * windows beside each other are `step` apart. A tile's rows, which are evenly apart, can be
 *
 *     windows of one row of windows; places lie along k     (y, and the input's gradient)
 *     channels of places side by side; windows lie along k  (the weights' gradient, as gw^T)
 *
 * Images whose windows pass their border, and images of 16 bits, are laid first: for each row
 * of windows the count_h rows of pixels below it, with zeros around them. These are fewer
 * elements than the windows have, in longer runs, which pays most where channels are few. */
#ifndef CHOIR_PRODUCT_BANDS_H
#define CHOIR_PRODUCT_BANDS_H

#ifdef PAIRS
#include "device/cpu/product/pairs_pack.h"
#else
#include "device/cpu/product/pack.h"
#endif
#include "device/cpu/product/windows.h"

/* LEAST_COLS: windows of a row below which most tiles would have few rows. MOST_RUNS: runs of a
 * window. MOST_PLACES: rows of gw^T; with more, gathering costs little beside the products.
 * NEAR: elements from one window to the next where windows lie along k. */
enum { LEAST_COLS = 4, MOST_RUNS = 128, MOST_PLACES = 256, NEAR = 64, MOST_PIECES = 256 };

/* The channel of place (i, j) of window c in row r of image n is at
 *
 *     start + n image + (r - from) line + c step + i down + j across + channel */
typedef struct band {
    const choir__windows *v;
    bool laid;
    bool turned; /* windows lie along k */
    int64_t image, line, step, down, across, start;
    int64_t from;   /* the first row of windows that is laid */
    int64_t beside; /* places that lie side by side */
} band;

/* Rows of a tile: the first in its strip, their number, and where A's first element is. */
typedef struct tile_rows {
    int64_t row, rows, at;
} tile_rows;

/* True if windows along one dimension stay inside the image. */
INLINE bool stays_inside(
    int64_t first, int64_t step, int64_t windows, int64_t delta, int64_t count, int64_t size)
{
    const int64_t least = first + choir__min(0, (count - 1) * delta);
    const int64_t most = first + (windows - 1) * step + choir__max(0, (count - 1) * delta);
    return least >= 0 && most < size;
}

static band band_of(const choir__windows *v, choir_dtype dtype, bool turned)
{
    band b = {.v = v, .turned = turned};
    b.laid = is_half(dtype) ||
             !stays_inside(v->first_h, v->step_h, v->rows, v->delta_h, v->count_h, v->h) ||
             !stays_inside(v->first_w, v->step_w, v->cols, v->delta_w, v->count_w, v->w);
    if (b.laid) {
        const int64_t reach = (v->count_w - 1) * v->delta_w;
        const int64_t width = (v->cols - 1) * v->step_w + choir__max(reach, -reach) + 1;
        b.down = width * v->channels;
        b.line = v->count_h * b.down;
        b.image = v->rows * b.line;
        b.step = v->step_w * v->channels;
        b.across = v->delta_w * v->channels;
        b.start = -choir__min(0, reach) * v->channels;
    } else {
        b.down = v->delta_h * v->w * v->pixel;
        b.line = v->step_h * v->w * v->pixel;
        b.image = v->h * v->w * v->pixel;
        b.step = v->step_w * v->pixel;
        b.across = v->delta_w * v->pixel;
        b.start = (v->first_h * v->w + v->first_w) * v->pixel + v->first;
    }
    b.beside = b.across == v->channels ? v->count_w : 1;
    return b;
}

/* Returns the beginning of row i of windows, counted through all images. */
INLINE int64_t line_at(const band *b, int64_t i)
{
    return i / b->v->rows * b->image + (i % b->v->rows - b->from) * b->line;
}

/* Returns the beginning of run i of a window's places, relative to the window's own place. */
INLINE int64_t run_at(const band *b, int64_t i)
{
    return b->beside > 1 ? i * b->down
                         : i / b->v->count_w * b->down + i % b->v->count_w * b->across;
}

INLINE int64_t run_length(const band *b)
{
    return b->beside * b->v->channels;
}

/* --- laying --- */

/* Cells of the rows of `windows` windows, wherever the first one is. */
INLINE int64_t band_cells(const band *b, int64_t windows)
{
    return b->laid ? ((windows - 1) / b->v->cols + 2) * b->line : 0;
}

/* to (pixels, channels) = the pixels from column w on of a row of an image, or zeros outside.
 */
INLINE void lay_pixels(cell *to, const choir__windows *v, int64_t row, int64_t w,
    int64_t pixels, choir_dtype dtype)
{
    const int64_t from = choir__min(choir__max(0, -w), pixels);
    const int64_t end = choir__max(choir__min(pixels, v->w - w), from);
    const int64_t at = (row * v->w + w) * v->pixel + v->first, size = (int64_t)v->size;
    const char *images = v->images;
    memset(to, 0, (size_t)(from * v->channels) * sizeof *to);
    if (v->channels == v->pixel)
        lay_elements(to + from * v->channels, images + (at + from * v->pixel) * size,
            (end - from) * v->channels, dtype);
    else
        for (int64_t i = from; i < end; i++)
            lay_elements(
                to + i * v->channels, images + (at + i * v->pixel) * size, v->channels, dtype);
    memset(to + end * v->channels, 0, (size_t)((pixels - end) * v->channels) * sizeof *to);
}

/* Lays what windows [first, first + count) reach, unless tiles read the images themselves. */
static void lay_band(cell *to, band *b, int64_t first, int64_t count, choir_dtype dtype)
{
    const choir__windows *v = b->v;
    const int64_t reach = (v->count_w - 1) * v->delta_w, end = first + count;
    if (!b->laid)
        return;
    b->from = first / v->cols;
    for (int64_t i = first, line = b->from, next; i < end; i = next, line++) {
        const int64_t c = i - line * v->cols, n = line / v->rows, r = line % v->rows;
        next = choir__min(end, (line + 1) * v->cols);
        const int64_t pixels = (next - i - 1) * v->step_w + choir__max(reach, -reach) + 1;
        const int64_t w = v->first_w + c * v->step_w + choir__min(0, reach);
        for (int64_t p = 0; p < v->count_h; p++) {
            const int64_t h = v->first_h + r * v->step_h + p * v->delta_h;
            cell *y = to + (line - b->from) * b->line + p * b->down + c * b->step;
            if (h < 0 || h >= v->h)
                memset(y, 0, (size_t)(pixels * v->channels) * sizeof *y);
            else
                lay_pixels(y, v, n * v->h + h, w, pixels, dtype);
        }
    }
}

/* --- reading --- */

/* Returns the beginning of run i of A's rows. */
INLINE int64_t rows_at(const band *b, int64_t i)
{
    return b->turned ? run_at(b, i) : line_at(b, i);
}

/* Lists the tiles of rows [first, first + count), and returns their number. Tiles of a run have
 * about as many rows each, at most `tall`. */
static int band_tiles(
    tile_rows *list, const band *b, int64_t first, int64_t count, int64_t tall)
{
    const int64_t run = b->turned ? run_length(b) : b->v->cols, tiles = (run + tall - 1) / tall;
    const int64_t each = (run + tiles - 1) / tiles, step = b->turned ? 1 : b->step;
    int64_t i = first / run, x = first % run, at = rows_at(b, i);
    int n = 0;
    for (int64_t row = 0, some; row < count; row += some, x += some) {
        if (x == run)
            x = 0, at = rows_at(b, ++i);
        some = choir__min(choir__min(each - x % each, run - x), count - row);
        list[n++] = (tile_rows){row, some, b->start + at + x * step};
    }
    return n;
}

/* Lists the pieces of terms [k, k + some), and returns their number. */
static int band_pieces(span *list, const band *b, int64_t k, int64_t some)
{
    const int64_t run = b->turned ? b->v->cols : run_length(b), step = b->turned ? b->step : 1;
    int n = 0;
    for (int64_t i = k / run, x = k % run, part; some > 0; some -= part, i++, x = 0) {
        part = choir__min(run - x, some);
        const int64_t at = b->turned ? line_at(b, i) : run_at(b, i);
        list[n++] = (span){at + x * step, 0, part};
    }
    return n;
}

/* The pieces of a section's chains. */
typedef struct band_terms {
    span pieces[MOST_PIECES];
    int begin[MOST_CHAINS + 1];
} band_terms;

static void list_terms(band_terms *to, const band *b, const section *s)
{
    int n = 0;
    for (int i = 0; i < s->count; i++) {
        const chain *c = &s->chains[i];
        to->begin[i] = n;
        for (int j = c->span; j < c->span + c->spans; j++)
            n += band_pieces(to->pieces + n, b, s->spans[j].k, s->spans[j].some);
    }
    to->begin[s->count] = n;
}

/* --- the choice --- */

/* True if tiles take windows as rows: the terms of one are packed as a whole. */
INLINE bool rows_are_windows(const choir__windows *v, const terms *t)
{
    return READS_BANDS && v->cols >= LEAST_COLS && v->count_h * v->count_w <= MOST_RUNS &&
           !t->several && !t->gathers;
}

/* True if a product whose B is windows is computed as C^T, of few rows. Each panel of columns
 * reads the band once, and windows far apart would share few lines of a cache. */
INLINE bool turns_windows(const choir__windows *v, const choir__k_matmul *k)
{
    return READS_BANDS && v->cols >= LEAST_COLS && k->n <= MOST_PLACES &&
           band_of(v, k->dtype, true).step <= NEAR && choir__cut_outer(k->cut) == 1 &&
           !terms_of(k).gathers;
}

#endif
