/* Reference kernels for pooling to a given size: output i of n takes the inputs from floor(i in
 * / n) to ceil((i + 1) in / n). The backward visits the windows that contain an input. */
#include "device/cpu/reference/reference.h"

/* Output place i takes input places [*first, *end). */
static void window(int64_t i, int64_t in, int64_t out, int64_t *first, int64_t *end)
{
    *first = i * in / out;
    *end = ((i + 1) * in + out - 1) / out;
}

/* Returns one output's sum over its window, its first maximum, and the place of that. */
static double walk(const choir__k_adaptive_pool *k, int64_t n, int64_t oh, int64_t ow,
    int64_t c, int64_t *where)
{
    int64_t h0, h1, w0, w1;
    double sum = 0, best = 0;
    window(oh, k->s.h, k->s.oh, &h0, &h1);
    window(ow, k->s.w, k->s.ow, &w0, &w1);
    *where = -1;
    for (int64_t h = h0; h < h1; h++)
        for (int64_t w = w0; w < w1; w++) {
            double x = get(k->x, ((n * k->s.h + h) * k->s.w + w) * k->s.c + c, k->dtype);
            sum += x;
            if (*where < 0 || CHOIR__SURPASSES(x, best))
                best = x, *where = h * k->s.w + w;
        }
    return k->max ? best : sum / (double)((h1 - h0) * (w1 - w0));
}

void choir__reference_adaptive_pool(const choir__k_adaptive_pool *k)
{
    int64_t i = 0, where;
    for (int64_t n = 0; n < k->s.n; n++)
        for (int64_t oh = 0; oh < k->s.oh; oh++)
            for (int64_t ow = 0; ow < k->s.ow; ow++)
                for (int64_t c = 0; c < k->s.c; c++, i++) {
                    put(k->y, i, k->dtype, walk(k, n, oh, ow, c, &where));
                    if (k->max && k->index)
                        ((int32_t *)k->index)[i] = (int32_t)where;
                }
}

/* Returns gx[n, h, w, c]: from every window that contains (h, w), or whose maximum it was. */
static double gather(
    const choir__k_adaptive_pool_backward *k, int64_t n, int64_t h, int64_t w, int64_t c)
{
    int64_t h0, h1, w0, w1;
    double sum = 0;
    for (int64_t oh = 0; oh < k->s.oh; oh++)
        for (int64_t ow = 0; ow < k->s.ow; ow++) {
            window(oh, k->s.h, k->s.oh, &h0, &h1);
            window(ow, k->s.w, k->s.ow, &w0, &w1);
            int64_t i = ((n * k->s.oh + oh) * k->s.ow + ow) * k->s.c + c;
            if (h < h0 || h >= h1 || w < w0 || w >= w1)
                continue;
            if (!k->max)
                sum += get(k->gy, i, k->dtype) / (double)((h1 - h0) * (w1 - w0));
            else if (((const int32_t *)k->index)[i] == h * k->s.w + w)
                sum += get(k->gy, i, k->dtype);
        }
    return sum;
}

void choir__reference_adaptive_pool_backward(const choir__k_adaptive_pool_backward *k)
{
    int64_t i = 0;
    for (int64_t n = 0; n < k->s.n; n++)
        for (int64_t h = 0; h < k->s.h; h++)
            for (int64_t w = 0; w < k->s.w; w++)
                for (int64_t c = 0; c < k->s.c; c++, i++)
                    put(k->gx, i, k->dtype, gather(k, n, h, w, c));
}
