/* Changes of an image's colours: formulas of torchvision.transforms.v2.functional for floating
 * images. Loops run over whole planes of a channel, so that the compiler makes vectors of them;
 * values do not depend on the instruction set. */
#include <math.h>
#include <string.h>

#include "data/images/image_ops.h"
#include "device/cpu/isa/isa.h"

#define COLOURS CHOIR__PASTE(choir__colours, CHOIR_ISA)

enum { LANES = 16 }; /* sums that do not wait for each other */

static inline float clamp(float v)
{
    v = v < 0 ? 0 : v;
    return v > 1 ? 1 : v;
}

static inline int64_t plane_of(const choir__picture *p)
{
    return p->height * p->width;
}

static inline int64_t values_of(const choir__picture *p)
{
    return plane_of(p) * p->channels;
}

/* --- factors --- */

static void brightness(choir__picture *p, double amount)
{
    float by = (float)amount, *x = p->x;
    for (int64_t i = 0, n = values_of(p); i < n; i++)
        x[i] = clamp(x[i] * by);
}

static inline float grey(float r, float g, float b)
{
    return r * 0.2989f + g * 0.587f + b * 0.114f;
}

static void saturation(choir__picture *p, double amount)
{
    float by = (float)amount, rest = (float)(1 - amount);
    int64_t n = plane_of(p);
    if (p->channels == 1)
        return;
    float *restrict r = p->x, *restrict g = p->x + n, *restrict b = p->x + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        float other = grey(r[i], g[i], b[i]) * rest;
        r[i] = clamp(r[i] * by + other);
        g[i] = clamp(g[i] * by + other);
        b[i] = clamp(b[i] * by + other);
    }
}

static float mean_grey(const choir__picture *p)
{
    double sum[LANES] = {0}, all = 0;
    int64_t n = plane_of(p), i = 0;
    bool one = p->channels == 1;
    const float *r = p->x, *g = one ? r : r + n, *b = one ? r : r + 2 * n;
    for (; i + LANES <= n && !one; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)grey(r[i + k], g[i + k], b[i + k]);
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)r[i + k];
    for (; i < n; i++)
        sum[i % LANES] += (double)(one ? r[i] : grey(r[i], g[i], b[i]));
    for (int k = 0; k < LANES; k++)
        all += sum[k];
    return (float)(all / (double)n);
}

static void contrast(choir__picture *p, double amount)
{
    float by = (float)amount, other = mean_grey(p) * (float)(1 - amount), *x = p->x;
    for (int64_t i = 0, n = values_of(p); i < n; i++)
        x[i] = clamp(x[i] * by + other);
}

/* Blends the inner pixels of a plane with a smoothed image, in which a pixel counts 5/13, each
 * of its neighbours 1/13. above: the row above, before it changed. */
static void sharpen(float *x, int64_t height, int64_t width, float rest, float *restrict sum,
    float *restrict above)
{
    memcpy(above, x, (size_t)width * sizeof *above);
    for (int64_t y = 1; y + 1 < height; y++) {
        float *restrict at = x + y * width;
        const float *below = at + width;
        for (int64_t i = 0; i < width; i++) {
            sum[i] = above[i] + at[i] + below[i];
            above[i] = at[i];
        }
        for (int64_t i = 1; i + 1 < width; i++) {
            float smooth = (sum[i - 1] + sum[i] + sum[i + 1] + 4 * above[i]) * (1.0f / 13);
            at[i] = clamp(above[i] + (smooth - above[i]) * rest);
        }
    }
}

static void sharpness(choir__picture *p, double amount)
{
    if (p->height <= 2 || p->width <= 2)
        return;
    for (int c = 0; c < p->channels; c++)
        sharpen(p->x + c * plane_of(p), p->height, p->width, (float)(1 - amount), p->spare,
            p->spare + p->width);
}

/* --- levels --- */

static void posterize(choir__picture *p, double amount)
{
    float levels = ldexpf(1, (int)amount), unit = 1 / levels, *x = p->x;
    for (int64_t i = 0, n = values_of(p); i < n; i++) {
        float value = x[i] > 0 ? x[i] : 0; /* NaN becomes 0, because no integer is NaN */
        float level = (float)(int32_t)((value < 1 ? value : 1) * levels);
        x[i] = (level > levels - 1 ? levels - 1 : level) * unit;
    }
}

static void solarize(choir__picture *p, double amount)
{
    float from = (float)amount, *x = p->x;
    for (int64_t i = 0, n = values_of(p); i < n; i++)
        x[i] = x[i] >= from ? 1 - x[i] : x[i];
}

/* Finds the least and the greatest of n values. */
static void range_of(const float *x, int64_t n, float *low, float *high)
{
    float least[W], most[W];
    int64_t i = 0;
    vec a = v_set(x[0]), b = a;
    for (; i + W <= n; i += W) {
        vec v = v_load(x + i);
        a = v_min(v, a);
        b = v_max(v, b);
    }
    v_store(least, a);
    v_store(most, b);
    *low = least[0];
    *high = most[0];
    for (int k = 1; k < W; k++) {
        *low = least[k] < *low ? least[k] : *low;
        *high = most[k] > *high ? most[k] : *high;
    }
    for (; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

static void stretch(float *x, int64_t n)
{
    float low, high;
    range_of(x, n, &low, &high);
    if (high == low)
        return;
    float scale = 1 / (high - low);
    for (int64_t i = 0; i < n; i++)
        x[i] = clamp((x[i] - low) * scale);
}

static void autocontrast(choir__picture *p, double amount)
{
    (void)amount;
    for (int c = 0; c < p->channels; c++)
        stretch(p->x + c * plane_of(p), plane_of(p));
}

/* Fills in the value of each level: the pixels below it, as a share of the pixels below the
 * highest level. */
static void equalized(const int32_t *count, int64_t pixels, float *value)
{
    int top = 255;
    while (top > 0 && !count[top])
        top--;
    int64_t step = (pixels - count[top]) / 255, below = 0;
    for (int i = 0; i < 256; i++) {
        int64_t level = step ? choir__min(255, (below + step / 2) / step) : i;
        value[i] = (float)(i || !step ? level : 0) / 255;
        below += count[i];
    }
}

/* Values beyond [0, 1], and NaN, have the nearest level, and 0. */
static inline int32_t level_of(float x)
{
    x = x > 0 ? x : 0;
    return (int32_t)((x < 1 ? x : 1) * 255.999f);
}

static void equalize(choir__picture *p, double amount)
{
    int64_t n = plane_of(p);
    (void)amount;
    for (int c = 0; c < p->channels; c++) {
        int32_t count[4][256] = {{0}}, *levels = (int32_t *)p->spare;
        float value[256], *x = p->x + c * n;
        for (int64_t i = 0; i < n; i++)
            levels[i] = level_of(x[i]);
        for (int64_t i = 0; i < n; i++)
            count[i % 4][levels[i]]++; /* equal levels that follow one another do not wait */
        for (int i = 0; i < 256; i++)
            count[0][i] += count[1][i] + count[2][i] + count[3][i];
        equalized(count[0], n, value);
        for (int64_t i = 0; i < n; i++)
            x[i] = value[levels[i]];
    }
}

/* --- hue --- */

/* Returns channel n of the colour with hue h (in sixths of a turn), saturation times value, and
 * value: 5 is red, 3 green, 1 blue. */
static inline float channel_of(float n, float h, float chroma, float v)
{
    float k = n + h;
    k = k >= 6 ? k - 6 : k;
    float f = k < 4 - k ? k : 4 - k;
    return v - chroma * clamp(f);
}

static void hue(choir__picture *p, double amount)
{
    float by = (float)(6 * amount);
    int64_t n = plane_of(p);
    if (p->channels == 1)
        return;
    float *restrict red = p->x, *restrict green = p->x + n, *restrict blue = p->x + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        float r = red[i], g = green[i], b = blue[i];
        float high = r > g ? r : g, low = r < g ? r : g;
        high = high > b ? high : b;
        low = low < b ? low : b;
        float wide = high - low, unit = 1 / (wide > 0 ? wide : 1);
        float of_red = (g - b) * unit, of_green = 2 + (b - r) * unit;
        float of_blue = 4 + (r - g) * unit;
        float h = high == g ? of_green : of_blue;
        h = (high == r ? of_red : h) + by;
        h = h < 0 ? h + 6 : h;
        h = h >= 6 ? h - 6 : h;
        red[i] = channel_of(5, h, wide, high);
        green[i] = channel_of(3, h, wide, high);
        blue[i] = channel_of(1, h, wide, high);
    }
}

/* --- planes --- */

/* Writes the planes of x (H, W, C), undoing a normalisation; rounded values may lie beyond [0,
 * 1]. */
static void into_planes(
    choir__picture *p, const float *x, const float mul[3], const float add[3])
{
    int64_t n = plane_of(p);
    if (p->channels == 1) {
        for (int64_t i = 0; i < n; i++)
            p->x[i] = clamp(x[i] * mul[0] + add[0]);
        return;
    }
    float *restrict r = p->x, *restrict g = p->x + n, *restrict b = p->x + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        r[i] = clamp(x[3 * i] * mul[0] + add[0]);
        g[i] = clamp(x[3 * i + 1] * mul[1] + add[1]);
        b[i] = clamp(x[3 * i + 2] * mul[2] + add[2]);
    }
}

static void from_planes(
    const choir__picture *p, float *x, const float mul[3], const float add[3])
{
    int64_t n = plane_of(p);
    if (p->channels == 1) {
        for (int64_t i = 0; i < n; i++)
            x[i] = p->x[i] * mul[0] + add[0];
        return;
    }
    const float *r = p->x, *g = p->x + n, *b = p->x + 2 * n;
    for (int64_t i = 0; i < n; i++) {
        x[3 * i] = r[i] * mul[0] + add[0];
        x[3 * i + 1] = g[i] * mul[1] + add[1];
        x[3 * i + 2] = b[i] * mul[2] + add[2];
    }
}

/* --- moves --- */

/* Places are scaled to [-1, 1] and back, as by grid_sample, so that they are rounded alike. */
static void warp(choir__picture *p, const double m[6])
{
    enum { STRIP = 64 }; /* places that are computed together */
    float w = (float)p->width, h = (float)p->height, unit_x = 0.5f * w, unit_y = 0.5f * h;
    float a = (float)m[0] / unit_x, b = (float)m[1] / unit_x, c = (float)m[2] / unit_x;
    float d = (float)m[3] / unit_y, e = (float)m[4] / unit_y, f = (float)m[5] / unit_y;
    int32_t width = (int32_t)p->width;
    int64_t n = plane_of(p);
    float *to = p->spare, *x = p->x;
    for (int64_t row = 0; row < p->height; row++) {
        float y = (float)row + 0.5f - unit_y, from_x = y * b + c, from_y = y * e + f;
        for (int64_t first = 0; first < p->width; first += STRIP) {
            int count = (int)choir__min(STRIP, p->width - first);
            int32_t at[STRIP];
            float in[STRIP]; /* 1: the place is in the image */
            for (int i = 0; i < STRIP; i++) {
                float at_x = (float)((int32_t)first + i) + 0.5f - unit_x;
                float px = rintf(((at_x * a + from_x + 1) * w - 1) / 2);
                float py = rintf(((at_x * d + from_y + 1) * h - 1) / 2);
                bool inside = (px >= 0) & (px < w) & (py >= 0) & (py < h);
                in[i] = inside ? 1 : 0;
                at[i] = inside ? (int32_t)py * width + (int32_t)px : 0;
            }
            for (int k = 0; k < p->channels; k++)
                for (int i = 0; i < count; i++)
                    to[k * n + i] = x[k * n + at[i]] * in[i];
            to += count;
        }
    }
    p->x = p->spare;
    p->spare = x;
}

const choir__colours COLOURS = {.into_planes = into_planes,
    .from_planes = from_planes,
    .warp = warp,
    .change = {[CHOIR_IMAGE_BRIGHTNESS] = brightness,
        [CHOIR_IMAGE_SATURATION] = saturation,
        [CHOIR_IMAGE_CONTRAST] = contrast,
        [CHOIR_IMAGE_SHARPNESS] = sharpness,
        [CHOIR_IMAGE_POSTERIZE] = posterize,
        [CHOIR_IMAGE_SOLARIZE] = solarize,
        [CHOIR_IMAGE_AUTOCONTRAST] = autocontrast,
        [CHOIR_IMAGE_EQUALIZE] = equalize,
        [CHOIR_IMAGE_HUE] = hue}};
