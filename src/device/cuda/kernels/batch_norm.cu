/* Batch norm: a channel's statistics are taken over its column, over all images and pixels.
 *
 * Memory is the limit: forward and backward each read their operands twice, once for sums down
 * the columns, once for the result (kit/columns.cuh). The second pass and later calls read mean
 * and rstd as they were stored, so that `again` gives the same bits. */
#include "device/cuda/kit/columns.cuh"

/* A column's factors: the result is (x - mean) scale + shift, by the same operations wherever
 * it is computed. */
template <class T> struct batch_channel {
    enum { N = pack<T>::N };
    wide<T> mean[N], scale[N], shift[N];

    __device__ void begin(const place &p, const void *means, const void *rstd,
        const void *gamma, const void *beta)
    {
        typedef wide<T> W;
        W gammas[N];
        load_weights<T>(mean, means, p.c, p.left, false, W(0));
        load_weights<T>(scale, rstd, p.c, p.left, false, W(0));
        load_weights<T>(gammas, gamma, p.c, p.left, false, W(1));
        load_weights<T>(shift, beta, p.c, p.left, false, W(0));
        for (int e = 0; e < N; e++)
            scale[e] *= gammas[e];
    }
    __device__ wide<T> normal(wide<T> x, int e) const
    {
        return fma(x - mean[e], scale[e], shift[e]);
    }
};

/* --- forward --- */

/* The sums from which a column's statistics are computed. */
template <class T> struct batch_statistics {
    typedef wide<T> W;
    choir__k_batch_norm k;

    __device__ void move_average(void *running, int64_t c, W value) const
    {
        W *at = (W *)running + c;
        *at = *at * (1 - (W)k.momentum) + value * (W)k.momentum;
    }
    __device__ void finish(int64_t, int64_t c, double a, double b) const
    {
        double rows = (double)k.rows;
        W mean, var;
        if (k.part == CHOIR__NORM_SUMS) {
            k.sums[c] = a;
            k.sums[k.cols + c] = b;
            if (c == 0)
                k.sums[2 * k.cols] = rows;
            return;
        }
        if (k.part == CHOIR__NORM_REST)
            a = k.sums[c], b = k.sums[k.cols + c], rows = k.sums[2 * k.cols];
        if (k.train) {
            double average = a / rows, spread = b / rows - average * average;
            mean = (W)average;
            var = (W)(spread < 0 ? 0 : spread); /* NaN stays */
        } else {
            mean = ((const W *)k.running_mean)[c];
            var = ((const W *)k.running_var)[c];
        }
        if (k.train && k.update) {
            move_average(k.running_mean, c, mean);
            move_average(k.running_var, c, var * (W)(rows / (rows > 2 ? rows - 1 : 1)));
            if (c == 0 && k.batches)
                ++*k.batches;
        }
        ((W *)k.mean)[c] = mean;
        ((W *)k.rstd)[c] = 1 / sqrt(var + (W)k.eps);
    }
};

/* Finishes columns for which nothing is summed. */
template <class Fin> __global__ void each_column(finish_args<Fin> k)
{
    if (first_thread() < k.m.cols)
        k.fin.finish(0, first_thread(), 0, 0);
}

template <class Fin> static void finish_only(const matrix &m, const Fin &fin)
{
    if (m.cols > 0)
        launch(each_column<Fin>, (unsigned)((m.cols + BLOCK - 1) / BLOCK), BLOCK, 0,
            finish_args<Fin>{m, fin, NULL});
}

template <class T> struct batch_normalise {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_batch_norm k;

    typedef batch_channel<T> held;
    struct row {
        pack<T> x, more;
    };

    __device__ void begin(held &h, const place &p, bool) const
    {
        h.begin(p, k.mean, k.rstd, k.gamma, k.beta);
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        row q;
        q.x = load((const T *)k.x + i, p.left, whole);
        if (k.residual)
            q.more = load((const T *)k.residual + i, p.left, whole);
        return q;
    }
    __device__ void write(
        const held &h, const place &p, int64_t i, const row &q, bool whole) const
    {
        W y[N];
        for (int e = 0; e < N; e++) {
            y[e] = h.normal(get(&q.x.at[e]), e);
            if (k.residual)
                y[e] += get(&q.more.at[e]);
            y[e] = k.relu && y[e] < 0 ? W(0) : y[e]; /* NaN stays */
        }
        store_wide((T *)k.y + i, y, p.left, whole);
    }
};

extern "C" void choir__cuda_batch_norm(const choir__k_batch_norm *k)
{
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole = k->cols % pack<T>::N == 0 && aligned(k->x, k->residual, k->y);
        matrix m = matrix_for_sums<T>(1, k->rows, k->cols, whole);
        batch_statistics<T> fin = {*k};
        if (k->part != CHOIR__NORM_REST && k->train && !k->again) {
            double *partial = sum_columns<T>(m, moments<T>{k->x});
            if (!partial)
                return;
            finish_columns(m, partial, fin);
        } else if (!k->again) {
            finish_only(m, fin);
        }
        if (k->part != CHOIR__NORM_SUMS)
            map_columns<T>(
                matrix_for_map<T>(1, k->rows, k->cols, whole), batch_normalise<T>{*k});
    });
}

/* --- backward --- */

/* The part of gy that passes ReLU: all, or where y > 0, with y given or computed again. */
template <class T> struct batch_passing {
    enum { N = pack<T>::N };
    pack<T> x, gy, y;

    __device__ void read(const choir__k_batch_norm_backward &k, const void *from, bool gate,
        const place &p, int64_t i, bool whole)
    {
        x = load((const T *)k.x + i, p.left, whole);
        gy = load((const T *)from + i, p.left, whole);
        if (gate && k.y)
            y = load((const T *)k.y + i, p.left, whole);
    }
    __device__ wide<T> at(const choir__k_batch_norm_backward &k, bool gate,
        const batch_channel<T> &h, int e) const
    {
        wide<T> g = get(&gy.at[e]);
        if (!gate)
            return g;
        if (k.y)
            return get(&y.at[e]) > 0 ? g : wide<T>(0);
        return rounded<T>(h.normal(get(&x.at[e]), e)) > 0 ? g : wide<T>(0);
    }
};

/* sum g and sum g (x - mean); the gradient after ReLU is stored in gresidual. */
template <class T> struct batch_gradient_sums {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_batch_norm_backward k;

    typedef batch_channel<T> held;
    typedef batch_passing<T> row;

    __device__ void begin(held &h, const place &p, bool) const
    {
        h.begin(p, k.mean, k.rstd, k.gamma, k.beta);
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        row q;
        q.read(k, k.gy, k.relu, p, i, whole);
        return q;
    }
    __device__ void first(held &, const row &) const
    {
    }
    __device__ void add(
        const held &h, const place &p, int64_t i, const row &q, bool whole, W *a, W *b) const
    {
        W g[N];
        for (int e = 0; e < N; e++) {
            g[e] = q.at(k, k.relu, h, e);
            a[e] += g[e];
            b[e] += g[e] * (get(&q.x.at[e]) - h.mean[e]);
        }
        if (k.gresidual)
            store_wide((T *)k.gresidual + i, g, p.left, whole);
    }
    __device__ void total(const held &, int, int, W a, W b, double *all_a, double *all_b) const
    {
        *all_a = (double)a;
        *all_b = (double)b;
    }
};

/* The weights' gradients, and the factors from which the second pass computes gx. With xhat =
 * (x - mean) rstd, train: gx = rstd gamma (g - mean g - xhat mean(g xhat)) becomes (scale g -
 * a) - slope (x - mean); eval: gx = scale g. */
template <class T> struct batch_gradients {
    typedef wide<T> W;
    choir__k_batch_norm_backward k;
    W *share; /* (2, cols): a, slope */

    __device__ void finish(int64_t, int64_t c, double a, double b) const
    {
        double rows = (double)k.rows, rstd = (double)((const W *)k.rstd)[c];
        W scale = ((const W *)k.rstd)[c]; /* rounded as in the second pass */
        if (k.part != CHOIR__NORM_REST && k.ggamma)
            ((W *)k.ggamma)[c] = (W)(b * rstd);
        if (k.part != CHOIR__NORM_REST && k.gbeta)
            ((W *)k.gbeta)[c] = (W)a;
        if (k.part == CHOIR__NORM_SUMS) {
            k.sums[c] = a;
            k.sums[k.cols + c] = b;
            if (c == 0)
                k.sums[2 * k.cols] = rows;
            return;
        }
        if (k.part == CHOIR__NORM_REST)
            a = k.sums[c], b = k.sums[k.cols + c], rows = k.sums[2 * k.cols];
        if (k.gamma)
            scale *= ((const W *)k.gamma)[c];
        share[c] = (W)((double)scale * a / rows);
        share[k.cols + c] = (W)((double)scale * (b * rstd) * rstd / rows);
    }
};

template <class T> struct batch_spread {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_batch_norm_backward k;
    const void *from; /* gy, or its part after ReLU */
    int64_t gate;
    const W *share;

    struct held {
        batch_channel<T> at;
        W a[N], slope[N];
    };
    typedef batch_passing<T> row;

    __device__ void begin(held &h, const place &p, bool) const
    {
        h.at.begin(p, k.mean, k.rstd, k.gamma, k.beta);
        for (int e = 0; e < N; e++) {
            h.a[e] = k.train && e < p.left ? share[p.c + e] : W(0);
            h.slope[e] = k.train && e < p.left ? share[k.cols + p.c + e] : W(0);
        }
    }
    __device__ row read(const place &p, int64_t, int64_t i, bool whole) const
    {
        row q;
        q.read(k, from, gate, p, i, whole);
        return q;
    }
    __device__ void write(
        const held &h, const place &p, int64_t i, const row &q, bool whole) const
    {
        W gx[N];
        for (int e = 0; e < N; e++) {
            W g = product(q.at(k, gate, h.at, e), h.at.scale[e]);
            W d = get(&q.x.at[e]) - h.at.mean[e];
            /* g - a is exactly 0 where it must be */
            gx[e] = k.train ? g - h.a[e] - d * h.slope[e] : g;
        }
        store_wide((T *)k.gx + i, gx, p.left, whole);
    }
};

template <class T> static void backward(const choir__k_batch_norm_backward *k)
{
    bool whole = k->cols % pack<T>::N == 0 && aligned(k->x, k->y, k->gy, k->gx, k->gresidual);
    matrix m = matrix_for_sums<T>(1, k->rows, k->cols, whole);
    wide<T> *share = (wide<T> *)choir__cuda_scratch(1, (size_t)(2 * k->cols) * sizeof(wide<T>));
    batch_gradients<T> fin = {*k, share};
    bool keep = k->gresidual;
    if (!share)
        return;
    if (k->part == CHOIR__NORM_REST) {
        finish_only(m, fin);
    } else if (k->train || k->ggamma || k->gbeta || keep || k->part == CHOIR__NORM_SUMS) {
        double *partial = sum_columns<T, 2>(m, batch_gradient_sums<T>{*k});
        if (!partial)
            return;
        finish_columns(m, partial, fin);
    }
    if (k->part != CHOIR__NORM_SUMS)
        map_columns<T, 2>(matrix_for_map<T>(1, k->rows, k->cols, whole),
            batch_spread<T>{*k, keep ? k->gresidual : k->gy, k->relu && !keep, share});
}

extern "C" void choir__cuda_batch_norm_backward(const choir__k_batch_norm_backward *k)
{
    choose(k->dtype, [&](auto t) { backward<decltype(t)>(k); });
}
