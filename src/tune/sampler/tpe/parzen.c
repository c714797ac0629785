/* Parzen estimates: widths follow from the distances to neighbours, new observations weigh the
 * most, and densities are sums over vectors of eight kernels, which have the same bits on every
 * processor. Whole numbers with wide cells have their cell's mass in place of a density. */
#include "base/math/functions.h"
#include "tune/sampler/tpe/parzen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/space/normal.h"

static const double log_root_2pi = 0.91893853320467274178;

/* A quarter of the narrowest kernel's width. The density of kernels is nearly the same all over
 * the cell of a whole number that is narrower. */
static const double narrow_cell = 1.0 / 400;

/* Eight numbers at once: vectors on any processor, with the same bits. */
typedef double eight __attribute__((vector_size(64)));
typedef int64_t eight_whole __attribute__((vector_size(64)));
typedef uint64_t eight_bits __attribute__((vector_size(64)));

/* Returns whether the least number, whose cell is the widest, has a cell that is not narrow. */
static bool has_wide_cells(const choir__parzen_kernels *k)
{
    double from, to;
    return choir__inner_cell(k->dist, k->dist->low, &from, &to) &&
           (to - from) / k->scale > narrow_cell;
}

/* --- memory --- */

/* The elements of an array of kernels; those after the prior are 0. */
static size_t padded(int64_t count)
{
    return ((size_t)count + 8) & ~(size_t)7;
}

choir__parzen *choir__parzen_new(const choir__dist *const *dist, int dims, int64_t count)
{
    size_t n = padded(count), arrays = 4 * (size_t)dims + 3;
    choir__parzen *p = choir__calloc(1, sizeof *p);
    p->dims = dims;
    p->count = count;
    p->of = choir__calloc((size_t)dims, sizeof *p->of);
    double *at = p->weight = aligned_alloc(sizeof(eight), n * arrays * sizeof *at);
    if (!at)
        abort();
    memset(at, 0, n * arrays * sizeof *at);
    p->base = at += n;
    p->scratch = at += n;
    for (int d = 0; d < dims; d++) {
        choir__parzen_kernels *k = &p->of[d];
        double high;
        k->dist = dist[d];
        choir__inner_range(dist[d], &k->low, &high);
        k->scale = high > k->low ? high - k->low : 1;
        k->cells = has_wide_cells(k);
        k->mu = at += n;
        k->sigma = at += n;
        k->over = at += n;
        k->norm = at += n;
    }
    return p;
}

void choir__parzen_free(choir__parzen *p)
{
    if (!p)
        return;
    free(p->rows);
    free(p->weight);
    free(p->of);
    free(p);
}

/* --- coordinates --- */

double choir__to_unit(const choir__parzen_kernels *k, double value)
{
    if (k->dist->kind == CHOIR__CHOICE)
        return value;
    return (choir__to_inner(k->dist, value) - k->low) / k->scale;
}

double choir__from_unit(const choir__parzen_kernels *k, double unit)
{
    if (k->dist->kind == CHOIR__CHOICE)
        return unit;
    return choir__from_inner(k->dist, k->low + k->scale * unit);
}

/* The unit cell of the whole number at x; false if the values are continuous. */
static bool cell(const choir__parzen_kernels *k, double x, double *from, double *to)
{
    if (!choir__inner_cell(k->dist, choir__from_unit(k, x), from, to))
        return false;
    *from = (*from - k->low) / k->scale;
    *to = (*to - k->low) / k->scale;
    return true;
}

/* --- fitting --- */

/* The newest 25 observations weigh 1 each; those before, the less the older they are. */
static void weigh(choir__parzen *p)
{
    int64_t n = p->count, ramp = n < 25 ? 0 : n - 25;
    double sum = 1;
    for (int64_t i = 0; i < n; i++) {
        double rise = ramp > 1 ? (double)i / (double)(ramp - 1) : 0;
        p->weight[i] = i < ramp ? 1.0 / (double)n + (1 - 1.0 / (double)n) * rise : 1;
        sum += p->weight[i];
    }
    p->weight[n] = 1;
    for (int64_t i = 0; i <= n; i++)
        p->weight[i] /= sum;
}

/* The distance to the farther neighbour, the range's ends included; the outermost of several
 * observations look inwards alone. */
static void neighbours(choir__parzen_kernels *k, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = k->mu[k->sorted[i]];
        double left = x - (i > 0 ? k->mu[k->sorted[i - 1]] : 0);
        double right = (i < n - 1 ? k->mu[k->sorted[i + 1]] : 1) - x;
        if (n > 1 && i == 0)
            left = right;
        if (n > 1 && i == n - 1)
            right = left;
        k->sigma[k->sorted[i]] = left > right ? left : right;
    }
}

/* The logarithm of what kernel i is divided by: its mass in the range and, unless cells' masses
 * are summed, the normal density's factor. */
static double log_norm(const choir__parzen_kernels *k, int64_t i)
{
    double mu = k->mu[i], sigma = k->sigma[i];
    double mass = choir__normal_log_mass(-mu / sigma, (1 - mu) / sigma);
    return k->cells ? mass : mass + choir__log(sigma) + log_root_2pi;
}

static void fit_numbers(choir__parzen_kernels *k, int64_t n, int dims, choir__width_rule rule,
    choir__kernel_mass *const *mass)
{
    double least = 1 / fmin(100, 2 + (double)n);
    if (rule == CHOIR__WIDTH_NEIGHBOURS)
        neighbours(k, n);
    for (int64_t i = 0; i < n; i++) {
        if (rule == CHOIR__WIDTH_SCOTT)
            k->sigma[i] = 0.2 * choir__pow((double)n, -1.0 / (dims + 4));
        k->sigma[i] = fmin(1, fmax(least, k->sigma[i]));
    }
    k->mu[n] = 0.5;
    k->sigma[n] = 1;
    for (int64_t i = 0; i <= n; i++) {
        choir__kernel_mass *known = mass && i < n ? mass[i] : NULL;
        k->over[i] = 1 / k->sigma[i];
        k->norm[i] = known && known->sigma == k->sigma[i] ? known->log : log_norm(k, i);
        if (known)
            *known = (choir__kernel_mass){k->sigma[i], k->norm[i]};
    }
}

/* A choice's kernel: its own place and, for each place, a share of the prior. */
static double choice_share(const choir__parzen *p)
{
    return p->count ? 1.0 / (double)(p->count + 1) : 1;
}

static double log_miss(const choir__parzen *p, const choir__parzen_kernels *k)
{
    double share = choice_share(p);
    return choir__log(share) - choir__log(1 + share * k->dist->choice_count);
}

static double log_hit(const choir__parzen *p, const choir__parzen_kernels *k)
{
    double share = choice_share(p);
    return choir__log(1 + share) - choir__log(1 + share * k->dist->choice_count);
}

static void fit_choices(const choir__parzen *p, choir__parzen_kernels *k)
{
    double miss = log_miss(p, k);
    for (int64_t i = 0; i < p->count; i++)
        k->norm[i] = -miss;
    k->mu[p->count] = -1; /* the prior is no place */
    k->norm[p->count] = choir__log(k->dist->choice_count);
}

void choir__parzen_fit(
    choir__parzen *p, choir__width_rule rule, choir__kernel_mass *const *const *mass)
{
    weigh(p);
    memset(p->base, 0, (size_t)(p->count + 1) * sizeof *p->base);
    for (size_t i = (size_t)p->count + 1; i < padded(p->count); i++)
        p->base[i] = -1e300; /* no kernel: exp gives 0 */
    for (int d = 0; d < p->dims; d++) {
        choir__parzen_kernels *k = &p->of[d];
        if (k->dist->kind == CHOIR__CHOICE)
            fit_choices(p, k);
        else
            fit_numbers(k, p->count, p->dims, rule, mass ? mass[d] : NULL);
        for (int64_t i = 0; i <= p->count; i++)
            p->base[i] -= k->norm[i];
    }
}

/* --- drawing --- */

static int64_t draw_kernel(const choir__parzen *p, choir__draws *draws)
{
    double u = choir__draw(draws), sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (u < (sum += p->weight[i]))
            return i;
    return p->count;
}

static double draw_choice(
    const choir__parzen *p, const choir__parzen_kernels *k, int64_t kernel, choir__draws *draws)
{
    int count = k->dist->choice_count;
    double share = choice_share(p), u = choir__draw(draws);
    if (kernel < p->count) {
        u *= 1 + share * count;
        if (u >= share * count)
            return k->mu[kernel];
        u /= share * count;
    }
    return fmin(floor(u * count), count - 1);
}

static double draw_number(const choir__parzen_kernels *k, int64_t kernel, choir__draws *draws)
{
    double mu = k->mu[kernel], s = k->sigma[kernel];
    double a = choir__normal_cdf(-mu / s), b = choir__normal_cdf((1 - mu) / s);
    double u = fmin(fmax(a + (b - a) * choir__draw(draws), 1e-300), 1 - 1e-16);
    double x = fmin(fmax(mu + s * choir__normal_quantile(u), 0), 1);
    if (k->dist->kind != CHOIR__INTEGER)
        return x;
    return choir__to_unit(k, choir__from_unit(k, x));
}

void choir__parzen_draw(const choir__parzen *p, choir__draws *draws, double *x)
{
    int64_t kernel = draw_kernel(p, draws);
    for (int d = 0; d < p->dims; d++)
        x[d] = p->of[d].dist->kind == CHOIR__CHOICE ? draw_choice(p, &p->of[d], kernel, draws)
                                                    : draw_number(&p->of[d], kernel, draws);
}

/* --- the density --- */

/* Adds the logarithms of the kernels' masses in a cell to q. Kernels that are equal follow each
 * other in the order by coordinate. */
static void add_cells(
    const choir__parzen_kernels *k, int64_t n, double from, double to, double *restrict q)
{
    double mu = -1, sigma = 0, log_mass = 0;
    for (int64_t i = 0; i <= n; i++) {
        int64_t at = i < n ? k->sorted[i] : n;
        if (k->mu[at] != mu || k->sigma[at] != sigma) {
            mu = k->mu[at], sigma = k->sigma[at];
            log_mass = choir__normal_log_mass((from - mu) / sigma, (to - mu) / sigma);
        }
        q[at] += log_mass;
    }
}

/* Adds each kernel's logarithm at x to q. */
static void add_numbers(const choir__parzen_kernels *k, int64_t n, double x, double *restrict q)
{
    double from, to;
    if (k->cells && cell(k, x, &from, &to)) {
        add_cells(k, n, from, to, q);
        return;
    }
    const eight *mu = (const eight *)k->mu, *over = (const eight *)k->over;
    eight *out = (eight *)q;
    for (size_t i = 0; i < padded(n) / 8; i++) {
        eight z = (x - mu[i]) * over[i];
        out[i] -= 0.5 * z * z;
    }
}

static void add_choices(
    const choir__parzen *p, const choir__parzen_kernels *k, double x, double *restrict q)
{
    double gain = log_hit(p, k) - log_miss(p, k);
    for (int64_t i = 0; i < p->count; i++)
        q[i] += k->mu[i] == x ? gain : 0;
}

/* exp(in - most), which is at most 1: 2^n times a polynomial, with a relative error below
 * 1e-13. */
static inline void exp_below(const eight *in, double most, eight *out)
{
    eight x = *in - most;
    const double magic = 0x1.8p52;
    eight_whole small = x < -700;
    eight scaled = x * 1.4426950408889634074;
    eight shifted = scaled + magic;
    eight r = (scaled - (shifted - magic)) * 0.69314718055994530942;
    eight y = r * (1.0 / 3628800) + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
    y = y * r + 1.0 / 720;
    y = y * r + 1.0 / 120;
    y = y * r + 1.0 / 24;
    y = y * r + 1.0 / 6;
    y = y * r + 0.5;
    y = y * r + 1;
    y = y * r + 1;
    eight_bits bits = (eight_bits)y + ((eight_bits)shifted << 52);
    *out = (eight)(bits & ~(eight_bits)small);
}

double choir__parzen_log(const choir__parzen *p, const double *x)
{
    double *q = p->scratch;
    size_t n = (size_t)p->count + 1, vectors = padded(p->count) / 8;
    memcpy(q, p->base, 8 * vectors * sizeof *q);
    for (int d = 0; d < p->dims; d++) {
        if (p->of[d].dist->kind == CHOIR__CHOICE)
            add_choices(p, &p->of[d], x[d], q);
        else
            add_numbers(&p->of[d], p->count, x[d], q);
    }
    double most = q[0], total = 0;
    for (size_t i = 1; i < n; i++)
        most = q[i] > most ? q[i] : most;
    const eight *exponent = (const eight *)q, *weight = (const eight *)p->weight;
    eight sum = {0}, density;
    for (size_t i = 0; i < vectors; i++) {
        exp_below(&exponent[i], most, &density);
        sum += density * weight[i];
    }
    for (int i = 0; i < 8; i++)
        total += sum[i];
    return most + choir__log(total);
}
