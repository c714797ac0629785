/* Lines of another length: a thread per element of the result. In the gradient it visits the
 * entries that its own entry was used for, in order. */
#include "device/cuda/kit/kernel.cuh"
#include "device/kernels/arithmetic.h"

template <class T> __global__ void stretch(choir__k_stretch k)
{
    typedef wide<T> V;
    int64_t rows = k.back ? k.from : k.to, x_rows = k.back ? k.to : k.from;
    for (int64_t l = first_thread(); l < k.outer * rows * k.inner; l += all_threads()) {
        int64_t row = l / k.inner % rows, first = row, end = row + 1;
        const T *x = (const T *)k.x + l / k.inner / rows * x_rows * k.inner + l % k.inner;
        V sum = V(0);
        if (k.back)
            choir__stretch_users(&k, row, &first, &end);
        for (int64_t i = first; i < end; i++) {
            choir__taps taps = choir__taps_of(&k, i);
            for (int t = 0; t < taps.count; t++)
                if (!k.back)
                    sum += V(taps.weight[t]) * get(x + taps.at[t] * k.inner);
                else if (taps.at[t] == row)
                    sum += V(taps.weight[t]) * get(x + i * k.inner);
        }
        put((T *)k.y + l, sum);
    }
}

extern "C" void choir__cuda_stretch(const choir__k_stretch *k)
{
    int64_t n = k->outer * (k->back ? k->from : k->to) * k->inner;
    if (n > 0)
        choose(k->dtype,
            [&](auto t) { launch(stretch<decltype(t)>, grid_for(n), BLOCK, 0, *k); });
}
