/* Connectionist temporal classification: one block per sequence, whose threads share the states
 * of a step. Steps follow each other; a step's states are in global memory, where the block's
 * threads read their neighbours'. The terms of a class are added by one thread, in the order of
 * the target; those of the blank in the block's tree. */
#include "device/cuda/kit/kernel.cuh"

struct ctc_call {
    choir__k_ctc k;
    void *rows;     /* backward: 3 rows of width per sequence */
    int64_t *twins; /* backward: 2 per label: the next equal one or -1; if it is the first */
    choir__cuda_fault *fault;
};

struct sequence {
    const int64_t *labels;
    int64_t b, steps, states, width, blank;
};

/* Finds sequence b; returns false on all threads, with a fault raised, if it is wrong. */
__device__ inline bool find(const ctc_call &c, int64_t b, sequence *q)
{
    const choir__k_ctc &k = c.k;
    int64_t steps = k.input_lengths[b], labels = k.target_lengths[b];
    *q = {k.targets + b * k.most, b, steps, 2 * labels + 1, 2 * k.most + 1, k.blank};
    bool fine = true;
    if (steps < 0 || steps > k.steps) {
        raise_fault(c.fault, CHOIR__BAD_CTC, steps, k.steps, b, CHOIR__CTC_STEPS);
        fine = false;
    } else if (labels < 0 || labels > k.most) {
        raise_fault(c.fault, CHOIR__BAD_CTC, labels, k.most, b, CHOIR__CTC_LABELS);
        fine = false;
    }
    for (int64_t i = threadIdx.x; fine && i < labels; i += blockDim.x) {
        int64_t label = q->labels[i];
        if (label < 0 || label >= k.classes || label == k.blank) {
            raise_fault(
                c.fault, CHOIR__BAD_CTC, label, k.classes - 1, b, CHOIR__CTC_LABEL);
            fine = false;
        }
    }
    return block_max(fine ? 0.0f : 1.0f) == 0;
}

__device__ inline int64_t label_of(const sequence &q, int64_t s)
{
    return s % 2 ? q.labels[s / 2] : q.blank;
}

/* True if a path may go from state s - 2 to s. */
__device__ inline bool skips(const sequence &q, int64_t s)
{
    return s % 2 && s >= 3 && s < q.states && q.labels[s / 2] != q.labels[s / 2 - 1];
}

template <class V> __device__ inline V log_sum_exp(V a, V b, V c)
{
    V top = a > b ? a : b;
    top = top > c ? top : c;
    top = top > V(-INFINITY) ? top : V(0);
    return top + log(exp(a - top) + exp(b - top) + exp(c - top));
}

/* Returns the block's greatest value, 0 if it is -inf. What the threads have written before is
 * visible to all of them after it. */
template <class V> __device__ inline V top_of(V most)
{
    V top = block_max(most);
    return top > V(-INFINITY) ? top : V(0);
}

template <class V> __device__ inline V loss_of(const sequence &q, const V *last, double offset)
{
    if (q.steps == 0)
        return q.states == 1 ? V(0) : V(INFINITY);
    V before = q.states > 1 ? last[q.states - 2] : V(-INFINITY);
    return V(-(offset + (double)log_sum_exp(last[q.states - 1], before, V(-INFINITY))));
}

template <class V> __global__ void ctc(ctc_call c)
{
    const choir__k_ctc &k = c.k;
    sequence q;
    V *alpha = (V *)k.alpha + blockIdx.x * k.steps * (2 * k.most + 1), top = 0;
    bool fine = find(c, blockIdx.x, &q);
    for (int64_t i = threadIdx.x; i < k.steps * q.width; i += blockDim.x)
        if (!fine || i / q.width >= q.steps || i % q.width >= q.states)
            alpha[i] = V(-INFINITY);
    double offset = 0;
    for (int64_t t = 0; t < q.steps && fine; t++) {
        const V *x = (const V *)k.x + (t * k.batch + q.b) * k.classes;
        V *row = alpha + t * q.width, *before = row - q.width, most = V(-INFINITY);
        for (int64_t s = threadIdx.x; s < q.states; s += blockDim.x) {
            V v = s < 2 ? x[label_of(q, s)] : V(-INFINITY);
            if (t > 0)
                v = x[label_of(q, s)] - top +
                    log_sum_exp(before[s], s > 0 ? before[s - 1] : V(-INFINITY),
                        skips(q, s) ? before[s - 2] : V(-INFINITY));
            row[s] = v;
            most = v > most ? v : most;
        }
        offset += (double)top;
        top = top_of(most);
    }
    if (threadIdx.x == 0) {
        V loss = fine ? loss_of(q, alpha + (q.steps - 1) * q.width, offset) : V(0);
        ((V *)k.loss)[q.b] = k.zero_infinity && loss == V(INFINITY) ? V(0) : loss;
    }
}

static unsigned ctc_threads(const choir__k_ctc *k)
{
    int64_t warps = (2 * k->most + WARP) / WARP, most = BLOCK / WARP;
    return WARP * (unsigned)(warps < most ? warps : most);
}

extern "C" void choir__cuda_ctc(const choir__k_ctc *k)
{
    ctc_call c = {*k, NULL, NULL, choir__cuda_here()->fault};
    unsigned blocks = (unsigned)k->batch, threads = ctc_threads(k);
    if (blocks == 0)
        return;
    if (k->dtype == CHOIR_F64)
        launch(ctc<double>, blocks, threads, 0, c);
    else
        launch(ctc<float>, blocks, threads, 0, c);
}

/* --- backward --- */

/* Links equal labels, so that one thread can add the terms of a class. */
__device__ inline void link_twins(const sequence &q, int64_t *twins)
{
    int64_t n = q.states / 2;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        int64_t next = i + 1, before = i - 1;
        while (next < n && q.labels[next] != q.labels[i])
            next++;
        while (before >= 0 && q.labels[before] != q.labels[i])
            before--;
        twins[2 * i] = next < n ? next : -1;
        twins[2 * i + 1] = before < 0;
    }
}

/* Computes all states' ends of step t (up to a factor) into now, and with the step's own
 * log-probabilities into then; p: with alpha. after: the last call's then. */
template <class V> struct step_rows {
    V *after, *then, *p;
    V top; /* largest of after */
};

template <class V>
__device__ inline V end_of(const sequence &q, const step_rows<V> &r, int64_t t, int64_t s)
{
    if (t == q.steps - 1)
        return s >= q.states - 2 ? V(0) : V(-INFINITY);
    return log_sum_exp(r.after[s], s + 1 < q.states ? r.after[s + 1] : V(-INFINITY),
               skips(q, s + 2) ? r.after[s + 2] : V(-INFINITY)) -
           r.top;
}

/* Adds up the terms of each class in step t: the exponentials p, divided by their sum. */
template <class V>
__device__ inline void give(
    const ctc_call &c, const sequence &q, int64_t t, V *p, V top, const int64_t *twins)
{
    double sum = 0, blanks = 0;
    V *g = (V *)c.k.gx + (t * c.k.batch + q.b) * c.k.classes;
    for (int64_t s = threadIdx.x; s < q.states; s += blockDim.x) {
        p[s] = exp(p[s] - top);
        sum += (double)p[s];
        blanks += s % 2 ? 0 : (double)p[s];
    }
    sum = block_sum(sum);
    blanks = block_sum(blanks);
    double factor = -(double)((const V *)c.k.gloss)[q.b] / sum;
    for (int64_t i = threadIdx.x; i < q.states / 2; i += blockDim.x) {
        double own = 0;
        if (!twins[2 * i + 1])
            continue;
        for (int64_t j = i; j >= 0; j = twins[2 * j])
            own += (double)p[2 * j + 1];
        g[q.labels[i]] = V(factor * own);
    }
    if (threadIdx.x == 0)
        g[q.blank] = V(factor * blanks);
    __syncthreads(); /* p has been read */
}

/* Gradients of a sequence that no path reads. */
template <class V> __device__ inline void give_none(const choir__k_ctc &k, const sequence &q)
{
    for (int64_t i = threadIdx.x; i < q.steps * k.classes && !k.zero_infinity; i += blockDim.x)
        ((V *)k.gx)[(i / k.classes * k.batch + q.b) * k.classes + i % k.classes] = V(NAN);
}

template <class V> __global__ void ctc_backward(ctc_call c)
{
    const choir__k_ctc &k = c.k;
    sequence q;
    if (!find(c, blockIdx.x, &q) || q.steps == 0)
        return;
    const V *alpha = (const V *)k.alpha + q.b * k.steps * q.width;
    const V *end = alpha + (q.steps - 1) * q.width + q.states;
    if (end[-1] == V(-INFINITY) && (q.states == 1 || end[-2] == V(-INFINITY))) {
        give_none<V>(k, q);
        return;
    }
    V *rows = (V *)c.rows + 3 * q.b * q.width;
    step_rows<V> r = {rows, rows + q.width, rows + 2 * q.width, V(0)};
    int64_t *twins = c.twins + 2 * q.b * k.most;
    link_twins(q, twins);
    for (int64_t t = q.steps - 1; t >= 0; t--) {
        const V *x = (const V *)k.x + (t * k.batch + q.b) * k.classes;
        V most = V(-INFINITY), most_then = V(-INFINITY);
        for (int64_t s = threadIdx.x; s < q.states; s += blockDim.x) {
            V from = end_of(q, r, t, s), then = from + x[label_of(q, s)];
            V both = alpha[t * q.width + s] + from;
            r.p[s] = both;
            r.then[s] = then;
            most = both > most ? both : most;
            most_then = then > most_then ? then : most_then;
        }
        V top = top_of(most);
        r.top = top_of(most_then);
        give(c, q, t, r.p, top, twins);
        V *after = r.after;
        r.after = r.then;
        r.then = after;
    }
}

extern "C" void choir__cuda_ctc_backward(const choir__k_ctc *k)
{
    size_t size = choir_dtype_size(k->dtype), width = (size_t)(2 * k->most + 1);
    size_t bytes = (size_t)(k->steps * k->batch * k->classes) * size;
    if (bytes == 0 ||
        !choir__cuda_ok(cudaMemsetAsync(k->gx, 0, bytes, choir__cuda_here()->stream),
            "ctc_backward's cudaMemsetAsync"))
        return;
    void *rows = choir__cuda_scratch(0, 3 * (size_t)k->batch * width * size);
    void *twins = choir__cuda_scratch(1, 2 * (size_t)k->batch * width * sizeof(int64_t));
    ctc_call c = {*k, rows, (int64_t *)twins, choir__cuda_here()->fault};
    unsigned blocks = (unsigned)k->batch, threads = ctc_threads(k);
    if (!rows || !twins)
        return;
    if (k->dtype == CHOIR_F64)
        launch(ctc_backward<double>, blocks, threads, 0, c);
    else
        launch(ctc_backward<float>, blocks, threads, 0, c);
}
