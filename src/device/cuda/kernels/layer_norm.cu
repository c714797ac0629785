/* Layer norm, and root mean square norm, of rows.
 *
 * A team has a row: a warp, or a block if rows are long. Its threads keep the row in registers,
 * so memory is read once and written once, the residual's sum included. The variance is
 * computed around the mean, not as a difference of sums. Rows longer than a block holds are
 * read again for each pass, mostly from the caches.
 *
 * Forward and backward have the same structure: threads hold PACKS packs each, the team sums,
 * and the held row becomes the result. Beside rows of T, the residual, the result and its
 * gradient may be of a 16-bit type H: values are rounded or widened in registers. */
#include "device/cuda/kit/columns.cuh"

/* Elements per thread that PACKS packs hold; 0: none are held. */
enum { HELD_FEW = 8, HELD_MANY = 32 };

/* Sums over a team of TEAM threads: a warp or the block. */
template <int TEAM, class V> __device__ inline V team_sum(V v)
{
    return TEAM == WARP ? warp_sum(v) : block_sum(v);
}

template <int TEAM> __device__ inline int64_t team_row()
{
    return (int64_t)blockIdx.x * (BLOCK / TEAM) + threadIdx.x / TEAM;
}

/* Returns the column of a thread's pack number j. */
template <class T, int TEAM> __device__ inline int64_t column_of(int64_t j)
{
    return (j * TEAM + threadIdx.x % TEAM) * pack<T>::N;
}

/* Calls f(j, c) for each of this thread's packs, with its number and column. With PACKS the
 * loop is unrolled, so that j may index registers. */
template <class T, int TEAM, int PACKS, class F>
__device__ inline void each_pack(int64_t cols, F f)
{
    if (PACKS) {
#pragma unroll
        for (int j = 0; j < PACKS; j++)
            if (column_of<T, TEAM>(j) < cols)
                f(j, column_of<T, TEAM>(j));
    } else {
        for (int64_t c = column_of<T, TEAM>(0); c < cols; c += TEAM * pack<T>::N)
            f(0, c);
    }
}

/* Registers for a row's packs; a single temporary one if none are held. */
template <class T, int PACKS> struct layer_row {
    pack<T> at[PACKS ? PACKS : 1];
};

/* --- forward --- */

/* Computes the row to be normalised, x + add, and also writes it. */
template <class T, class H>
__device__ inline void add_and_keep(
    const choir__k_layer_norm &k, pack<T> &x, int64_t i, int64_t left, bool whole)
{
    pack<T> add = k.half_add ? load_beside<T>((const H *)k.add + i, left, whole)
                             : load((const T *)k.add + i, left, whole);
    for (int e = 0; e < pack<T>::N; e++)
        put(&x.at[e], get(&x.at[e]) + get(&add.at[e]));
    store((T *)k.sum + i, x, left, whole);
}

template <class T, class H, int TEAM, int PACKS>
__global__ void forward(in_packs<choir__k_layer_norm> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_layer_norm &k = args.k;
    const int64_t r = team_row<TEAM>(), first = r * k.cols, cols = k.cols;
    const bool whole = args.whole;
    if (r >= k.rows)
        return;
    layer_row<T, PACKS> x;
    W sum = 0, var = 0;
    auto fetch = [&](int j, int64_t c) {
        x.at[j] = load((const T *)k.x + first + c, cols - c, whole);
    };
    auto fuse = [&](int j, int64_t c) {
        add_and_keep<T, H>(k, x.at[j], first + c, cols - c, whole);
    };
    if (PACKS)
        each_pack<T, TEAM, PACKS>(cols, fetch); /* loads all before the first is used */
    if (PACKS && k.add)
        each_pack<T, TEAM, PACKS>(cols, fuse);
    each_pack<T, TEAM, PACKS>(cols, [&](int j, int64_t c) {
        if (!PACKS)
            fetch(j, c);
        if (!PACKS && k.add)
            fuse(j, c);
        for (int e = 0; e < N; e++)
            sum += get(&x.at[j].at[e]); /* beyond the row: 0 */
    });
    const T *again = (const T *)(k.add ? k.sum : k.x) + first; /* this thread wrote it */
    const W mean = k.mean ? team_sum<TEAM>(sum) / (W)cols : W(0);
    each_pack<T, TEAM, PACKS>(cols, [&](int j, int64_t c) {
        if (!PACKS)
            x.at[j] = load(again + c, cols - c, whole);
        for (int e = 0; e < N; e++) {
            W d = get(&x.at[j].at[e]) - mean;
            var += c + e < cols ? d * d : W(0);
        }
    });
    const W rstd = 1 / sqrt(team_sum<TEAM>(var) / (W)cols + (W)k.eps);
    if (threadIdx.x % TEAM == 0) {
        if (k.mean)
            ((W *)k.mean)[r] = mean;
        ((W *)k.rstd)[r] = rstd;
    }
    each_pack<T, TEAM, PACKS>(cols, [&](int j, int64_t c) {
        W gamma[N], beta[N], y[N];
        if (!PACKS)
            x.at[j] = load(again + c, cols - c, whole);
        load_weights<T>(gamma, k.gamma, c, cols - c, whole, W(1));
        load_weights<T>(beta, k.beta, c, cols - c, whole, W(0));
        for (int e = 0; e < N; e++)
            y[e] = (get(&x.at[j].at[e]) - mean) * rstd * gamma[e] + beta[e];
        if (k.half_y)
            store_beside<T>((H *)k.y + first + c, y, cols - c, whole);
        else
            store_wide((T *)k.y + first + c, y, cols - c, whole);
        if (k.y_half)
            store_beside<T>((H *)k.y_half + first + c, y, cols - c, whole);
    });
}

/* --- backward --- */

/* gx = rstd (g - mean g - xhat mean(g xhat)), g = gy gamma; without a mean, mean g is 0. */
template <class T, class H, int TEAM, int PACKS>
__global__ void backward(in_packs<choir__k_layer_norm_backward> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_layer_norm_backward &k = args.k;
    const int64_t r = team_row<TEAM>(), first = r * k.cols, cols = k.cols;
    const bool whole = args.whole;
    if (r >= k.rows)
        return;
    const W mean = k.mean ? ((const W *)k.mean)[r] : W(0), rstd = ((const W *)k.rstd)[r];
    layer_row<T, PACKS> x, gy;
    W sum = 0, dot = 0;
    auto fetch = [&](int j, int64_t c) {
        x.at[j] = load((const T *)k.x + first + c, cols - c, whole);
        gy.at[j] = k.half_gy
                       ? load_beside<T>((const H *)k.gy + first + c, cols - c, whole)
                       : load((const T *)k.gy + first + c, cols - c, whole);
    };
    auto gamma_at = [&](W *gamma, int64_t c) {
        load_weights<T>(gamma, k.gamma, c, cols - c, whole, W(1));
    };
    if (PACKS)
        each_pack<T, TEAM, PACKS>(cols, fetch); /* loads all before the first is used */
    each_pack<T, TEAM, PACKS>(cols, [&](int j, int64_t c) {
        W gamma[N];
        if (!PACKS)
            fetch(j, c);
        gamma_at(gamma, c);
        for (int e = 0; e < N; e++) {
            W g = product(get(&gy.at[j].at[e]), gamma[e]); /* beyond the row: 0 */
            sum += g;
            dot += g * ((get(&x.at[j].at[e]) - mean) * rstd);
        }
    });
    const W g_mean = k.mean ? team_sum<TEAM>(sum) / (W)cols : W(0);
    const W g_dot = team_sum<TEAM>(dot) / (W)cols;
    each_pack<T, TEAM, PACKS>(cols, [&](int j, int64_t c) {
        W gamma[N], add[N], gx[N];
        if (!PACKS)
            fetch(j, c);
        gamma_at(gamma, c);
        const T *more = k.gx_add ? (const T *)k.gx_add + first + c : NULL;
        load_wide(add, more, cols - c, whole, W(0));
        for (int e = 0; e < N; e++) {
            W hat = (get(&x.at[j].at[e]) - mean) * rstd;
            W g = product(get(&gy.at[j].at[e]), gamma[e]);
            gx[e] = (g - g_mean - hat * g_dot) * rstd + add[e];
        }
        store_wide((T *)k.gx + first + c, gx, cols - c, whole);
        if (k.gx_half)
            store_beside<T>((H *)k.gx_half + first + c, gx, cols - c, whole);
    });
}

/* --- choice of the team --- */

/* Calls f with the number N as a constant. */
template <int N> struct constant {
    enum { value = N };
};

/* Calls f(team, packs) with the smallest team, and the fewest registers, that hold a row. */
template <class T, class F> void choose_team(int64_t cols, F f)
{
    const int64_t packs = packs_of<T>(cols);
    constant<HELD_FEW / pack<T>::N> few;
    constant<HELD_MANY / pack<T>::N> many;
    if (packs <= WARP * few.value)
        f(constant<WARP>(), few);
    else if (packs <= WARP * many.value)
        f(constant<WARP>(), many);
    else if (packs <= BLOCK * few.value)
        f(constant<BLOCK>(), few);
    else if (packs <= BLOCK * many.value)
        f(constant<BLOCK>(), many);
    else
        f(constant<BLOCK>(), constant<0>());
}

static unsigned teams(int64_t rows, int team)
{
    return (unsigned)((rows * team + BLOCK - 1) / BLOCK);
}

extern "C" void choir__cuda_layer_norm(const choir__k_layer_norm *k)
{
    if (k->rows == 0)
        return;
    const bool mixed = k->half_add || k->half_y || k->y_half;
    choose_beside(k->dtype, k->half, mixed, [&](auto t, auto h) {
        typedef decltype(t) T;
        typedef decltype(h) H;
        bool whole = k->cols % pack<T>::N == 0 &&
                     aligned(k->x, k->add, k->gamma, k->beta, k->y, k->sum, k->y_half);
        choose_team<T>(k->cols, [&](auto team, auto packs) {
            enum { TEAM = decltype(team)::value, PACKS = decltype(packs)::value };
            launch(forward<T, H, TEAM, PACKS>, teams(k->rows, TEAM), BLOCK, 0,
                in_packs<choir__k_layer_norm>{*k, whole});
        });
    });
}

extern "C" void choir__cuda_layer_norm_backward(const choir__k_layer_norm_backward *k)
{
    if (k->rows == 0)
        return;
    choose_beside(k->dtype, k->half, k->half_gy || k->gx_half, [&](auto t, auto h) {
        typedef decltype(t) T;
        typedef decltype(h) H;
        bool whole = k->cols % pack<T>::N == 0 &&
                     aligned(k->x, k->gamma, k->gy, k->gx_add, k->gx, k->gx_half);
        choose_team<T>(k->cols, [&](auto team, auto packs) {
            enum { TEAM = decltype(team)::value, PACKS = decltype(packs)::value };
            launch(backward<T, H, TEAM, PACKS>, teams(k->rows, TEAM), BLOCK, 0,
                in_packs<choir__k_layer_norm_backward>{*k, whole});
        });
    });
}

/* --- the weights' gradients --- */

/* Sums down the columns of gy and of gy xhat. */
template <class T, class H> struct layer_weight_sums {
    typedef wide<T> W;
    enum { N = pack<T>::N };
    choir__k_layer_norm_weights k;

    struct held {
    };
    struct row {
        pack<T> x, gy;
        W mean, rstd;
    };

    __device__ void begin(held &, const place &, bool) const
    {
    }
    __device__ row read(const place &p, int64_t r, int64_t i, bool whole) const
    {
        row q;
        q.gy = k.half_gy ? load_beside<T>((const H *)k.gy + i, p.left, whole)
                         : load((const T *)k.gy + i, p.left, whole);
        if (!k.ggamma)
            return q;
        q.x = load((const T *)k.x + i, p.left, whole);
        q.mean = k.mean ? ((const W *)k.mean)[r] : W(0);
        q.rstd = ((const W *)k.rstd)[r];
        return q;
    }
    __device__ void first(held &, const row &) const
    {
    }
    __device__ void add(
        const held &, const place &, int64_t, const row &q, bool, W *a, W *b) const
    {
        for (int e = 0; e < N; e++) {
            W g = get(&q.gy.at[e]);
            a[e] += g;
            if (k.ggamma)
                b[e] += g * ((get(&q.x.at[e]) - q.mean) * q.rstd);
        }
    }
    __device__ void total(const held &, int, int, W a, W b, double *all_a, double *all_b) const
    {
        *all_a = (double)a;
        *all_b = (double)b;
    }
};

template <class T> struct layer_weights {
    choir__k_layer_norm_weights k;
    __device__ void finish(int64_t, int64_t c, double a, double b) const
    {
        if (k.gbeta)
            ((wide<T> *)k.gbeta)[c] = (wide<T>)a;
        if (k.ggamma)
            ((wide<T> *)k.ggamma)[c] = (wide<T>)b;
    }
};

extern "C" void choir__cuda_layer_norm_weights(const choir__k_layer_norm_weights *k)
{
    choose_beside(k->dtype, k->half, k->half_gy, [&](auto t, auto h) {
        typedef decltype(t) T;
        typedef decltype(h) H;
        bool whole = k->cols % pack<T>::N == 0 && aligned(k->x, k->gy);
        matrix m = matrix_for_sums<T>(1, k->rows, k->cols, whole);
        double *partial = sum_columns<T>(m, layer_weight_sums<T, H>{*k});
        if (partial)
            finish_columns(m, partial, layer_weights<T>{*k});
    });
}
