/* Cross entropy, negative log likelihood, and the count of targets.
 *
 * The loss and all other values per row are f32 if logits have 16 bits, since a sum over a
 * batch would not fit into 16 bits. So an f32 copy of the logits is never needed.
 *
 * Cross entropy reads the logits once: a block takes a row, and keeps the largest so far and
 * the sum of exponentials (kit/vector.cuh). Rows need not begin at multiples of 16 bytes; those
 * of a vocabulary of 50257 do not. Probabilities are never stored; the backward computes them
 * again from the log sum exp. A target that is no class raises a fault, and its row is
 * ignored. */
#include "device/cuda/kit/loss.cuh"
#include "device/cuda/kit/vector.cuh"

struct entropy {
    choir__k_cross_entropy k;
    void *losses, *counts; /* for row r: k.loss itself, or scratch; counts may be NULL */
    choir__cuda_fault *fault;
};

/* The sums that smoothing needs: of the classes' weights, and of weights times logits. */
template <class V> struct smooth_sums {
    V weights, logits;
};

template <class A>
__device__ inline void smooth_add(smooth_sums<typename A::V> &s, const void *weight,
    const typename A::V (&x)[A::N], int64_t c, int64_t cols)
{
#pragma unroll
    for (int j = 0; j < A::N; j++) {
        if (c + j < 0 || c + j >= cols)
            continue;
        typename A::V w = weight ? ((const typename A::V *)weight)[c + j] : 1;
        s.weights += w;
        s.logits += w * x[j];
    }
}

/* Computes a row's loss and count from its log sum exp, on one thread. */
template <class T>
__device__ inline void finish_row(
    const entropy &e, int64_t r, const T *x, wide<T> lse, smooth_sums<wide<T>> sums)
{
    typedef wide<T> V;
    const choir__k_cross_entropy &k = e.k;
    int64_t t = k.targets[r];
    bool score = k.losses == CHOIR__ROWS_SCORE, each = score || k.losses == CHOIR__ROWS_EACH;
    bool here = t >= 0 && t < k.cols && t != k.ignore_index;
    if (!here && t != k.ignore_index && !(score && t == CHOIR__ELSEWHERE))
        raise_fault(e.fault, CHOIR__BAD_TARGET, t, k.cols, r);
    V s = k.smoothing, w = here && k.weight ? ((const V *)k.weight)[t] : V(1);
    V loss = here ? w * (lse - get(x + t)) : 0;
    if (here && s != 0)
        loss = (1 - s) * loss + s * (lse * sums.weights - sums.logits) / V(k.cols);
    if (score)
        loss = here ? get(x + t) : 0;
    ((V *)k.lse)[r] = lse;
    ((V *)e.losses)[r] = loss;
    if (e.counts)
        ((V *)e.counts)[r] = here ? w : 0;
    if (each && r == 0)
        *(V *)k.count = 1;
}

template <class T> __global__ void cross_entropy(entropy e)
{
    typedef row_access<T> A;
    typedef wide<T> V;
    const choir__k_cross_entropy &k = e.k;
    int64_t r = row_here();
    if (r >= k.rows)
        return;
    const T *x = (const T *)k.logits + r * k.row;
    exp_sum<V> s = exp_sum_none<V>();
    smooth_sums<V> sums = {0, 0};
    EACH_SLOT(A, c, k.cols, 0)
    {
        V v[A::N];
        load_row<A>(v, x, c, k.cols, V(-INFINITY));
        exp_sum_add<A>(s, v);
        if (k.smoothing != 0)
            smooth_add<A>(sums, k.weight, v, c, k.cols);
    }
    s = exp_sum_row<T>(s);
    if (k.smoothing != 0) {
        sums.weights = row_sum(sums.weights);
        sums.logits = row_sum(sums.logits);
    }
    if (threadIdx.x == 0)
        finish_row<T>(e, r, x, s.top + log(s.sum), sums);
}

extern "C" void choir__cuda_cross_entropy(const choir__k_cross_entropy *k)
{
    bool each = k->losses == CHOIR__ROWS_EACH || k->losses == CHOIR__ROWS_SCORE;
    entropy e = {*k, k->loss, NULL, choir__cuda_here()->fault};
    e.k.row = choir__row_step(k->row, k->cols);
    if (!each && !(e.losses = row_scratch(k->dtype, k->rows, &e.counts)))
        return;
    if (k->losses != CHOIR__ROWS_MEAN)
        e.counts = NULL;
    dim3 threads = row_threads(k->cols);
    if (k->rows > 0)
        choose(k->dtype, [&](auto t) {
            launch(cross_entropy<decltype(t)>, row_blocks(k->rows, threads), threads, 0, e);
        });
    row_losses l = {e.losses, e.counts, k->loss, k->count, k->rows};
    if (!each)
        launch_finish(k->dtype, l);
}

/* --- its gradient --- */

struct entropy_slope {
    choir__k_cross_entropy_backward k;
    int lead;
};

/* Returns the mean of all classes' weights; every row computes it again, from the cache. */
template <class V> __device__ inline V mean_weight(const V *weight, int64_t n)
{
    V sum = 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        sum += weight[c];
    return row_sum(sum) / V(n);
}

template <class A> __global__ void cross_entropy_backward(entropy_slope e)
{
    typedef typename A::T T;
    typedef typename A::V V;
    const choir__k_cross_entropy_backward &k = e.k;
    int64_t r = row_here(), lead = row_lead<A>(e.lead, r, k.row);
    if (r >= k.rows)
        return;
    const T *x = (const T *)k.logits + r * k.row;
    const V *w = (const V *)k.weight;
    int64_t t = k.targets[r];
    bool here = t >= 0 && t < k.cols, counts = here || t == CHOIR__ELSEWHERE;
    bool each = k.losses == CHOIR__ROWS_EACH;
    V count = *(const V *)k.count, lse = ((const V *)k.lse)[r], s = k.smoothing;
    counts = counts && count != 0 && t != k.ignore_index;
    V g = counts ? ((const V *)k.gloss)[each ? r : 0] / count : 0;
    V mean = w && s != 0 ? mean_weight(w, k.cols) : 1;
    V target = (1 - s) * (w && here ? w[t] : V(1)), all = target + s * mean;
    V uniform = s / V(k.cols);
    EACH_SLOT(A, c, k.cols, lead)
    {
        V v[A::N];
        load<A>(v, x, c, k.cols);
#pragma unroll
        for (int j = 0; j < A::N; j++) {
            V own = w && s != 0 && c + j >= 0 && c + j < k.cols ? w[c + j] : V(1);
            V wanted = uniform * own;
            wanted = c + j == t ? wanted + target : wanted;
            v[j] = counts ? g * (all * exp_for<T>(v[j] - lse) - wanted) : V(0);
        }
        store<A>((T *)k.glogits + r * k.row, c, k.cols, v);
    }
}

extern "C" void choir__cuda_cross_entropy_backward(const choir__k_cross_entropy_backward *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->logits, k->glogits);
    entropy_slope e = {*k, lead > 0 ? lead : 0};
    e.k.row = choir__row_step(k->row, k->cols);
    dim3 threads = row_threads(k->cols);
    if (k->rows > 0)
        choose_access(k->dtype, lead, [&](auto a) {
            launch(cross_entropy_backward<decltype(a)>, row_blocks(k->rows, threads), threads,
                0, e);
        });
}

/* --- negative log likelihood --- */

struct likelihood {
    choir__k_nll k;
    choir__cuda_fault *fault;
};

/* One block, as in finish_losses. */
template <class T> __global__ void __launch_bounds__(FINISH_THREADS) nll(likelihood l)
{
    typedef wide<T> V;
    const choir__k_nll &k = l.k;
    double total = 0, counted = 0;
    for (int64_t r = threadIdx.x; r < k.rows; r += blockDim.x) {
        int64_t t = k.targets[r];
        if (t == k.ignore_index)
            continue;
        if (t < 0 || t >= k.cols) {
            raise_fault(l.fault, CHOIR__BAD_NLL_TARGET, t, k.cols, r);
            continue;
        }
        total -= get((const T *)k.x + r * k.cols + t);
        counted += 1;
    }
    total = block_sum(total);
    counted = block_sum(counted);
    if (threadIdx.x != 0)
        return;
    put((T *)k.loss, V(counted != 0 ? total / counted : 0));
    put((T *)k.count, V(counted));
}

extern "C" void choir__cuda_nll(const choir__k_nll *k)
{
    likelihood l = {*k, choir__cuda_here()->fault};
    unsigned threads = finish_threads(k->rows);
    choose(k->dtype, [&](auto t) { launch(nll<decltype(t)>, 1, threads, 0, l); });
}

/* gx is 0 except at the rows' targets. */
template <class T> __global__ void nll_backward(choir__k_nll_backward k)
{
    typedef wide<T> V;
    V count = get((const T *)k.count);
    for (int64_t r = first_thread(); r < k.rows; r += all_threads()) {
        int64_t t = k.targets[r];
        if (t >= 0 && t < k.cols && t != k.ignore_index && count > 0)
            put((T *)k.gx + r * k.cols + t, -get((const T *)k.gloss) / count);
    }
}

extern "C" void choir__cuda_nll_backward(const choir__k_nll_backward *k)
{
    size_t bytes = (size_t)(k->rows * k->cols) * choir_dtype_size(k->dtype);
    if (bytes == 0 ||
        !choir__cuda_ok(cudaMemsetAsync(k->gx, 0, bytes, choir__cuda_here()->stream),
            "nll_backward's cudaMemsetAsync"))
        return;
    choose(k->dtype,
        [&](auto t) { launch(nll_backward<decltype(t)>, grid_for(k->rows), BLOCK, 0, *k); });
}

/* --- what a mean divides by --- */

/* One block, as in finish_losses. */
template <class T>
__global__ void __launch_bounds__(FINISH_THREADS) count_targets(choir__k_count_targets k)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) {
        int64_t t = k.targets[i];
        bool known = !k.weight || (t >= 0 && t < k.cols);
        if (t != k.ignore_index && known)
            sum += k.weight ? double(((const wide<T> *)k.weight)[t]) : 1;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *k.y = sum;
}

extern "C" void choir__cuda_count_targets(const choir__k_count_targets *k)
{
    unsigned threads = finish_threads(k->n);
    choose(k->dtype, [&](auto t) { launch(count_targets<decltype(t)>, 1, threads, 0, *k); });
}

static __global__ void loss_divisor(choir__k_loss_divisor k)
{
    double sum = 0;
    if (threadIdx.x != 0)
        return;
    for (int64_t i = 0; i < k.n; i++)
        sum += k.counts[i];
    *k.sum = sum;
    *k.y = sum != 0 ? float(sum / double(k.n)) : 1.0f;
}

extern "C" void choir__cuda_loss_divisor(const choir__k_loss_divisor *k)
{
    launch(loss_divisor, 1, WARP, 0, *k);
}
