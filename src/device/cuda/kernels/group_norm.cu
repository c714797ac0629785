/* Group norm over channels-last images. Sums down the columns of each image (kit/columns.cuh)
 * come first; one warp per group adds its columns' sums; then a pass uses the groups'
 * values.
 *
 * The sums of an image's columns are stored as (2, cols, splits), so a group's sums are one
 * run. */
#include "device/cuda/kit/columns.cuh"

/* Returns the partial sums of an image's columns from c on, of the first or the second kind. */
__device__ static inline const double *partial_of(
    const matrix &m, const double *partial, int64_t image, int64_t c)
{
    return partial + (image * 2 * m.cols + c) * m.splits;
}

template <class K, class W> struct group_args {
    K k;
    matrix m;
    const double *partial;
    W *g, *dot; /* (n, groups): averages of g and of g xhat, for the backward */
};

/* Averages, over this warp's group, the sums of columns weighted by gamma; `at` is the group's
 * place in (n, groups). Only one lane has the result: returns false on the others, and if there
 * is no group. */
template <class T, class K>
__device__ inline bool average_group(const group_args<K, wide<T>> &args, const void *gamma,
    int64_t *at, double *average_a, double *average_b)
{
    const matrix &m = args.m;
    const int64_t groups = args.k.groups, width = args.k.cols / groups;
    *at = first_thread() / WARP;
    const int64_t image = divide(*at, groups), first = (*at - image * groups) * width;
    if (image >= args.k.n)
        return false;
    const double *a = partial_of(m, args.partial, image, first), *b = a + m.cols * m.splits;
    const double count = (double)(args.k.pixels * width);
    double sum_a = 0, sum_b = 0;
    for (int64_t i = threadIdx.x % WARP; i < width * m.splits; i += WARP) {
        double g = gamma ? (double)((const wide<T> *)gamma)[first + divide(i, m.splits)] : 1;
        sum_a += g * a[i];
        sum_b += g * b[i];
    }
    *average_a = warp_sum(sum_a) / count;
    *average_b = warp_sum(sum_b) / count;
    return threadIdx.x % WARP == 0;
}

static unsigned warps(int64_t n)
{
    return (unsigned)((n * WARP + BLOCK - 1) / BLOCK);
}

/* --- forward --- */

template <class T>
__global__ void group_statistics(group_args<choir__k_group_norm, wide<T>> args)
{
    typedef wide<T> W;
    const choir__k_group_norm &k = args.k;
    int64_t at;
    double mean, squares;
    if (!average_group<T>(args, NULL, &at, &mean, &squares))
        return;
    double var = squares - mean * mean;
    W rstd = 1 / sqrt((W)(var < 0 ? 0 : var) + (W)k.eps); /* NaN stays */
    ((W *)k.mean)[at] = (W)mean;
    ((W *)k.rstd)[at] = rstd;
}

template <class T> struct group_normalise {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_group_norm k;

    struct held {
        W mean[N], scale[N], shift[N];
    };
    typedef pack<T> row;

    __device__ void begin(held &h, const place &p, bool) const
    {
        for (int e = 0; e < N; e++) {
            int64_t c = e < p.left ? p.c + e : p.c;
            int64_t at = p.image * k.groups + divide(c, k.cols / k.groups);
            h.mean[e] = ((const W *)k.mean)[at];
            h.scale[e] = ((const W *)k.rstd)[at] * (k.gamma ? ((const W *)k.gamma)[c] : W(1));
            h.shift[e] = k.beta ? ((const W *)k.beta)[c] : W(0);
        }
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        return load((const T *)k.x + i, p.left, whole);
    }
    __device__ void write(
        const held &h, const place &p, int64_t i, const row &q, bool whole) const
    {
        W y[N];
        for (int e = 0; e < N; e++)
            y[e] = (get(&q.at[e]) - h.mean[e]) * h.scale[e] + h.shift[e];
        store_wide((T *)k.y + i, y, p.left, whole);
    }
};

extern "C" void choir__cuda_group_norm(const choir__k_group_norm *k)
{
    if (k->n * k->groups == 0)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole = k->cols % pack<T>::N == 0 && aligned(k->x, k->y);
        matrix m = matrix_for_sums<T>(k->n, k->pixels, k->cols, whole);
        double *partial = sum_columns<T>(m, moments<T>{k->x});
        if (!partial)
            return;
        launch(group_statistics<T>, warps(k->n * k->groups), BLOCK, 0,
            group_args<choir__k_group_norm, wide<T>>{*k, m, partial, NULL, NULL});
        map_columns<T>(
            matrix_for_map<T>(k->n, k->pixels, k->cols, whole), group_normalise<T>{*k});
    });
}

/* --- backward --- */

/* The group of a column. */
template <class T> struct group_hat {
    enum { N = pack<T>::N };
    wide<T> mean[N], rstd[N];

    __device__ void begin(const choir__k_group_norm_backward &k, const place &p)
    {
        for (int e = 0; e < N; e++) {
            int64_t c = e < p.left ? p.c + e : p.c;
            int64_t at = p.image * k.groups + divide(c, k.cols / k.groups);
            mean[e] = ((const wide<T> *)k.mean)[at];
            rstd[e] = ((const wide<T> *)k.rstd)[at];
        }
    }
    __device__ wide<T> at(wide<T> x, int e) const
    {
        return (x - mean[e]) * rstd[e];
    }
};

/* The operands that both passes load. */
template <class T> struct group_row {
    pack<T> x, gy;

    __device__ void read(
        const choir__k_group_norm_backward &k, const place &p, int64_t i, bool whole)
    {
        x = load((const T *)k.x + i, p.left, whole);
        gy = load((const T *)k.gy + i, p.left, whole);
    }
};

/* sum gy and sum gy xhat */
template <class T> struct group_gradient_sums {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_group_norm_backward k;

    typedef group_hat<T> held;
    typedef group_row<T> row;

    __device__ void begin(held &h, const place &p, bool) const
    {
        h.begin(k, p);
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        row q;
        q.read(k, p, i, whole);
        return q;
    }
    __device__ void first(held &, const row &) const
    {
    }
    __device__ void add(
        const held &h, const place &, int64_t, const row &q, bool, W *a, W *b) const
    {
        for (int e = 0; e < N; e++) {
            W g = get(&q.gy.at[e]);
            a[e] += g;
            b[e] += g * h.at(get(&q.x.at[e]), e);
        }
    }
    __device__ void total(const held &, int, int, W a, W b, double *all_a, double *all_b) const
    {
        *all_a = (double)a;
        *all_b = (double)b;
    }
};

template <class T>
__global__ void group_averages(group_args<choir__k_group_norm_backward, wide<T>> args)
{
    typedef wide<T> W;
    int64_t at;
    double g, dot;
    if (!average_group<T>(args, args.k.gamma, &at, &g, &dot))
        return;
    args.g[at] = (W)g;
    args.dot[at] = (W)dot;
}

/* ggamma and gbeta: one warp per column adds the images in order. */
template <class T>
__global__ void group_weights(group_args<choir__k_group_norm_backward, wide<T>> args)
{
    const choir__k_group_norm_backward &k = args.k;
    const int64_t c = first_thread() / WARP, lane = threadIdx.x % WARP;
    const int64_t splits = args.m.splits, terms = k.n * splits;
    double sum_a = 0, sum_b = 0;
    if (c >= k.cols)
        return;
    for (int64_t i = lane; i < terms; i += WARP) {
        int64_t image = divide(i, splits);
        const double *a = partial_of(args.m, args.partial, image, c) + (i - image * splits);
        sum_a += a[0];
        sum_b += a[k.cols * splits];
    }
    sum_a = warp_sum(sum_a);
    sum_b = warp_sum(sum_b);
    if (lane == 0 && k.gbeta)
        ((wide<T> *)k.gbeta)[c] = (wide<T>)sum_a;
    if (lane == 0 && k.ggamma)
        ((wide<T> *)k.ggamma)[c] = (wide<T>)sum_b;
}

/* gx = rstd (gy gamma - avg(gy gamma) - xhat avg(gy gamma xhat)) */
template <class T> struct group_spread {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_group_norm_backward k;
    const W *avg_g, *avg_dot;

    struct held {
        group_hat<T> hat;
        W gamma[N], g[N], dot[N];
    };
    typedef group_row<T> row;

    __device__ void begin(held &h, const place &p, bool) const
    {
        h.hat.begin(k, p);
        for (int e = 0; e < N; e++) {
            int64_t c = e < p.left ? p.c + e : p.c;
            int64_t at = p.image * k.groups + divide(c, k.cols / k.groups);
            h.gamma[e] = k.gamma ? ((const W *)k.gamma)[c] : W(1);
            h.g[e] = avg_g[at];
            h.dot[e] = avg_dot[at];
        }
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        row q;
        q.read(k, p, i, whole);
        return q;
    }
    __device__ void write(
        const held &h, const place &p, int64_t i, const row &q, bool whole) const
    {
        W gx[N];
        for (int e = 0; e < N; e++) {
            W hat = h.hat.at(get(&q.x.at[e]), e), g = product(get(&q.gy.at[e]), h.gamma[e]);
            gx[e] = (g - h.g[e] - hat * h.dot[e]) * h.hat.rstd[e];
        }
        store_wide((T *)k.gx + i, gx, p.left, whole);
    }
};

template <class T> static void backward(const choir__k_group_norm_backward *k)
{
    typedef wide<T> W;
    typedef group_args<choir__k_group_norm_backward, W> args;
    int64_t groups = k->n * k->groups;
    bool whole = k->cols % pack<T>::N == 0 && aligned(k->x, k->gy, k->gx);
    matrix m = matrix_for_sums<T>(k->n, k->pixels, k->cols, whole);
    double *partial = sum_columns<T, 2>(m, group_gradient_sums<T>{*k});
    W *avg_g = (W *)choir__cuda_scratch(1, (size_t)(2 * groups) * sizeof(W));
    W *avg_dot = avg_g + groups;
    if (!partial || !avg_g)
        return;
    if ((k->ggamma || k->gbeta) && k->cols)
        launch(group_weights<T>, warps(k->cols), BLOCK, 0, args{*k, m, partial, NULL, NULL});
    if (groups == 0)
        return;
    launch(group_averages<T>, warps(groups), BLOCK, 0, args{*k, m, partial, avg_g, avg_dot});
    map_columns<T, 2>(matrix_for_map<T>(k->n, k->pixels, k->cols, whole),
        group_spread<T>{*k, avg_g, avg_dot});
}

extern "C" void choir__cuda_group_norm_backward(const choir__k_group_norm_backward *k)
{
    choose(k->dtype, [&](auto t) { backward<decltype(t)>(k); });
}
