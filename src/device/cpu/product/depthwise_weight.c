/* The weights' gradients of convolutions of one channel a group: see depthwise.h.
 *
 * Chains run over windows, CHOIR__CHAIN at a time, and are added in the fixed tree (levels.h).
 * A core has some channels. It goes through one chain's windows for a few places at a time,
 * whose sums stay in registers, and comes back for the next places while the pixels are in its
 * caches. */
#define REAL float
#include "device/cpu/context.h"
#include "device/cpu/product/depthwise.h"
#include "device/cpu/product/levels.h"
#include "device/cpu/product/product.h"

/* PLACES: at a time. VECTORS: of channels, at most. */
enum { PLACES = 4, VECTORS = 2 };

typedef struct work {
    const choir__depthwise *d;
    const char *gy;
    float *gw;
    inner in;
    int64_t windows; /* number of windows, all images together */
} work;

/* Channels of one core, as vectors, and the sums of a chain: (places, VECTORS W). */
typedef struct lot {
    const work *w;
    int64_t channel, left;
    float *sums;
} lot;

/* Windows of one row: columns [from, to). */
typedef struct piece {
    int64_t image, row, from, to;
    const char *gy; /* at column `from` */
} piece;

/* Adds a piece's terms to the sums of `places` places from (i, j) on. edge: the piece's places
 * may lie outside the image. */
INLINE void add_piece(const lot *o, const piece *p, int64_t i, int64_t j, vec sum[][VECTORS],
    const int places, const int vectors, const bool edge, const choir_dtype dtype)
{
    const choir__windows *v = &o->w->d->windows;
    const line l = line_of(v, p->image, p->row, i, o->channel);
    const int64_t size = is_half(dtype) ? 2 : 4, pixel = v->channels * size;
    const char *gy = p->gy;
    for (int64_t c = p->from; c < p->to; c++, gy += pixel)
        for (int u = 0; u < vectors; u++) {
            const vec g = channels_at(gy + u * W * size, o->left, dtype);
            for (int q = 0; q < places; q++) {
                const char *x =
                    edge ? place_of(v, &l, c, j + q) : l.at + c * l.window + (j + q) * l.place;
                const vec there = channels_at(x + u * W * size, o->left, dtype);
                sum[q][u] = v_fma(g, there, sum[q][u]);
            }
        }
}

/* The sums of one chain for `places` places from (i, j) on. */
INLINE void chain(const lot *o, int64_t begin, int64_t end, int64_t i, int64_t j,
    const int places, const int vectors, const choir_dtype dtype)
{
    const choir__windows *v = &o->w->d->windows;
    const int64_t size = is_half(dtype) ? 2 : 4;
    const inner in = o->w->in;
    vec sum[PLACES][VECTORS];
    for (int q = 0; q < places; q++)
        for (int u = 0; u < vectors; u++)
            sum[q][u] = (vec){0};
    for (int64_t at = begin, some; at < end; at += some) {
        const int64_t c = at % v->cols;
        const bool inside = c >= in.from && c < in.to;
        const int64_t until = inside ? in.to : c < in.from ? in.from : v->cols;
        some = choir__min(until - c, end - at);
        const piece p = {.image = at / v->cols / v->rows,
            .row = at / v->cols % v->rows,
            .from = c,
            .to = c + some,
            .gy = o->w->gy + (at * v->channels + o->channel) * size};
        if (inside)
            add_piece(o, &p, i, j, sum, places, vectors, false, dtype);
        else
            add_piece(o, &p, i, j, sum, places, vectors, true, dtype);
    }
    for (int q = 0; q < places; q++)
        for (int u = 0; u < vectors; u++)
            v_store(o->sums + ((i * v->count_w + j + q) * VECTORS + u) * W, sum[q][u]);
}

INLINE void chain_of_places(
    const lot *o, int64_t begin, int64_t end, const int vectors, const choir_dtype dtype)
{
    const choir__windows *v = &o->w->d->windows;
    for (int64_t i = 0; i < v->count_h; i++)
        for (int64_t j = 0, some; j < v->count_w; j += some) {
            some = choir__min(v->count_w - j, PLACES);
            switch (some) {
            case 1: chain(o, begin, end, i, j, 1, vectors, dtype); break;
            case 2: chain(o, begin, end, i, j, 2, vectors, dtype); break;
            case 3: chain(o, begin, end, i, j, 3, vectors, dtype); break;
            default: chain(o, begin, end, i, j, PLACES, vectors, dtype);
            }
        }
}

INLINE void chain_of_vectors(const lot *o, int64_t begin, int64_t end, const choir_dtype dtype)
{
    if (o->left >= VECTORS * W)
        chain_of_places(&(lot){o->w, o->channel, W, o->sums}, begin, end, VECTORS, dtype);
    else if (o->left >= W)
        chain_of_places(&(lot){o->w, o->channel, W, o->sums}, begin, end, 1, dtype);
    else
        chain_of_places(o, begin, end, 1, dtype);
}

static void chain_of_lot(const lot *o, int64_t begin, int64_t end)
{
    switch (o->w->d->dtype) {
    case CHOIR_BF16: chain_of_vectors(o, begin, end, CHOIR_BF16); break;
    case CHOIR_F16: chain_of_vectors(o, begin, end, CHOIR_F16); break;
    default: chain_of_vectors(o, begin, end, CHOIR_F32);
    }
}

/* Writes a lot's sums, of all chains. */
static void end_lot(const lot *o)
{
    const choir__windows *v = &o->w->d->windows;
    const int64_t places = v->count_h * v->count_w;
    const int64_t channels = choir__min(o->left, o->left >= VECTORS * W ? VECTORS * W : W);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t q = 0; q < places; q++)
            o->w->gw[(o->channel + c) * places + q] = o->sums[q * VECTORS * W + c];
}

/* The gradients of a lot. waiting: room for levels of its sums, `each` elements apart. */
static void run_lot(const lot *o, float *waiting, int64_t each)
{
    const int64_t windows = o->w->windows, chains = (windows - 1) / CHOIR__CHAIN + 1;
    for (int64_t t = 0; t < chains; t++) {
        const bool last = t == chains - 1;
        chain_of_lot(o, t * CHOIR__CHAIN, choir__min((t + 1) * CHOIR__CHAIN, windows));
        for (uint64_t left = levels_before(t, last); left; left &= left - 1) {
            const float *level = waiting + __builtin_ctzll(left) * each;
            for (int64_t e = 0; e < each; e++)
                o->sums[e] = level[e] + o->sums[e];
        }
        if (!last)
            memcpy(waiting + level_after(t) * each, o->sums, (size_t)each * sizeof *waiting);
    }
    end_lot(o);
}

/* Lots [first, first + count). A lot whose second vector is not whole is computed as two
 * vectors that overlap. */
static void run_lots(const void *arg, int64_t first, int64_t count)
{
    const work *w = arg;
    const choir__windows *v = &w->d->windows;
    const int64_t each = v->count_h * v->count_w * VECTORS * W;
    const int some = levels_of((w->windows - 1) / CHOIR__CHAIN + 1);
    float *room = choir__cpu_panel(
        choir__cpu_context_current(), (size_t)((some + 1) * each) * sizeof *room);
    memset(room, 0, (size_t)each * sizeof *room);
    for (int64_t i = first; i < first + count; i++) {
        lot o = {w, i * VECTORS * W, 0, room};
        o.left = v->channels - o.channel;
        run_lot(&o, room + each, each);
        if (o.left > W && o.left < VECTORS * W) { /* the second vector is not whole */
            o.channel = v->channels - W;
            o.left = W;
            run_lot(&o, room + each, each);
        }
    }
}

void KERNEL(depthwise_weight)(const choir__depthwise *d, const void *gy, float *gw)
{
    const choir__windows *v = &d->windows;
    const work w = {d, gy, gw, inner_columns(v), d->images * v->rows * v->cols};
    const int64_t places = v->count_h * v->count_w;
    if (w.windows == 0) {
        memset(gw, 0, (size_t)(v->channels * places) * sizeof *gw);
        return;
    }
    const int64_t lots = (v->channels - 1) / (VECTORS * W) + 1;
    choir__cpu_parallel(
        lots, DEPTHWISE_LEAST / (w.windows * places * VECTORS * W) + 1, run_lots, &w);
}
