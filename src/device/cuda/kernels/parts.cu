/* Scores whose classes are distributed over ranks: converts targets of the whole to a part's,
 * and combines statistics of the parts. One thread per row; parts are added in order. */
#include "device/cuda/kit/loss.cuh"
#include "device/cuda/kit/vector.cuh"

struct targets {
    choir__k_part_targets k;
    choir__cuda_fault *fault;
};

static __global__ void part_targets(targets f)
{
    const choir__k_part_targets &k = f.k;
    for (int64_t i = first_thread(); i < k.n; i += all_threads()) {
        int64_t id = k.x[i], own = id - k.first;
        bool ignored = k.ignores && id == k.ignored;
        if (!ignored && (id < 0 || id >= k.whole))
            raise_fault(f.fault, CHOIR__BAD_TARGET, id, k.whole, i);
        k.y[i] = ignored ? -1 : own >= 0 && own < k.count ? own : CHOIR__ELSEWHERE;
    }
}

extern "C" void choir__cuda_part_targets(const choir__k_part_targets *k)
{
    targets f = {*k, choir__cuda_here()->fault};
    if (k->n > 0)
        launch(part_targets, grid_for(k->n), BLOCK, 0, f);
}

struct parts_of_rows {
    choir__k_part_losses k;
    void *losses, *counts; /* per row: k.loss, or scratch; counts may be NULL */
};

template <class T> __global__ void part_losses(parts_of_rows f)
{
    typedef wide<T> V;
    const choir__k_part_losses &k = f.k;
    bool each = k.losses == CHOIR__ROWS_EACH;
    for (int64_t r = first_thread(); r < k.rows; r += all_threads()) {
        const V *lse = (const V *)k.stats + r, *score = lse + k.rows;
        V top = -INFINITY, sum = 0, own = 0;
        for (int64_t p = 0; p < k.parts; p++) {
            V x = lse[2 * p * k.rows];
            top = x > top ? x : top;
            own += score[2 * p * k.rows];
        }
        for (int64_t p = 0; p < k.parts; p++)
            sum += exp(lse[2 * p * k.rows] - top);
        V whole = top + log(sum);
        bool ignored = k.targets[r] == -1;
        V loss = ignored ? V(0) : whole - own;
        ((V *)k.lse)[r] = whole;
        ((V *)f.losses)[r] = loss;
        if (f.counts)
            ((V *)f.counts)[r] = ignored ? 0 : 1;
        if (each && r == 0)
            *(V *)k.count = 1;
    }
}

extern "C" void choir__cuda_part_losses(const choir__k_part_losses *k)
{
    bool each = k->losses == CHOIR__ROWS_EACH;
    parts_of_rows f = {*k, k->loss, NULL};
    if (!each && !(f.losses = row_scratch(k->dtype, k->rows, &f.counts)))
        return;
    if (k->losses != CHOIR__ROWS_MEAN)
        f.counts = NULL;
    if (k->rows > 0)
        choose(k->dtype, [&](auto t) {
            launch(part_losses<decltype(t)>, grid_for(k->rows), BLOCK, 0, f);
        });
    row_losses l = {f.losses, f.counts, k->loss, k->count, k->rows};
    if (!each)
        launch_finish(k->dtype, l);
}

template <class T> __global__ void part_max(choir__k_part_max k)
{
    for (int64_t r = first_thread(); r < k.rows; r += all_threads()) {
        const T *max = (const T *)k.max + r;
        int64_t best = 0;
        for (int64_t p = 1; p < k.parts; p++)
            if (CHOIR__SURPASSES(get(max + p * k.rows), get(max + best * k.rows)))
                best = p;
        k.y[r] = k.index[best * k.rows + r];
    }
}

extern "C" void choir__cuda_part_max(const choir__k_part_max *k)
{
    if (k->rows > 0)
        choose(k->dtype,
            [&](auto t) { launch(part_max<decltype(t)>, grid_for(k->rows), BLOCK, 0, *k); });
}
