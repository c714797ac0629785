/* Softmax and its gradient, row by row: the first pass over a row reduces, and the second,
 * which finds the row in the cache, writes. The forward's first pass computes the largest and
 * the sum of exponentials together (kit/vector.cuh). */
#include "device/cuda/kit/vector.cuh"

template <class K> struct of_rows {
    K k;
    int lead;
};

template <class A> __global__ void softmax(of_rows<choir__k_softmax> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    const choir__k_softmax &k = f.k;
    int64_t r = row_here(), lead = row_lead<A>(f.lead, r, k.cols);
    if (r >= k.rows)
        return;
    const T *x = (const T *)k.x + r * k.cols;
    T *y = (T *)k.y + r * k.cols;
    exp_sum<V> s = exp_sum_none<V>();
    EACH_SLOT(row_access<T>, c, k.cols, 0)
    {
        V v[row_access<T>::N];
        load_row<row_access<T>>(v, x, c, k.cols, V(-INFINITY));
        exp_sum_add<row_access<T>>(s, v);
    }
    s = exp_sum_row<T>(s);
    V shift = k.log ? log(s.sum) : V(0), factor = V(1) / s.sum;
    EACH_SLOT(A, c, k.cols, lead)
    {
        V v[A::N];
        load<A>(v, x, c, k.cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            v[j] = k.log ? v[j] - s.top - shift : exp_for<T>(v[j] - s.top) * factor;
        store<A>(y, c, k.cols, v);
    }
}

extern "C" void choir__cuda_softmax(const choir__k_softmax *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->x, k->y);
    of_rows<choir__k_softmax> f = {*k, lead > 0 ? lead : 0};
    dim3 threads = row_threads(k->cols);
    if (k->rows > 0)
        choose_access(k->dtype, lead, [&](auto a) {
            launch(softmax<decltype(a)>, row_blocks(k->rows, threads), threads, 0, f);
        });
}

template <class A> __global__ void softmax_backward(of_rows<choir__k_softmax_backward> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    const choir__k_softmax_backward &k = f.k;
    int64_t r = row_here(), lead = row_lead<A>(f.lead, r, k.cols);
    if (r >= k.rows)
        return;
    const T *y = (const T *)k.y + r * k.cols, *gy = (const T *)k.gy + r * k.cols;
    V sum = 0;
    EACH_SLOT(row_access<T>, c, k.cols, 0)
    {
        const int N = row_access<T>::N;
        V v[N], g[N], part = 0;
        load_row<row_access<T>>(g, gy, c, k.cols);
        if (!k.log)
            load_row<row_access<T>>(v, y, c, k.cols);
#pragma unroll
        for (int j = 0; j < N; j++)
            part += k.log ? g[j] : g[j] * v[j];
        sum += part;
    }
    sum = row_sum(sum);
    EACH_SLOT(A, c, k.cols, lead)
    {
        V v[A::N], g[A::N];
        load<A>(g, gy, c, k.cols);
        load<A>(v, y, c, k.cols);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            g[j] = k.log ? g[j] - exp_for<T>(v[j]) * sum : v[j] * (g[j] - sum);
        store<A>((T *)k.gx + r * k.cols, c, k.cols, g);
    }
}

extern "C" void choir__cuda_softmax_backward(const choir__k_softmax_backward *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->y, k->gy, k->gx);
    of_rows<choir__k_softmax_backward> f = {*k, lead > 0 ? lead : 0};
    dim3 threads = row_threads(k->cols);
    if (k->rows > 0)
        choose_access(k->dtype, lead, [&](auto a) {
            launch(softmax_backward<decltype(a)>, row_blocks(k->rows, threads), threads, 0, f);
        });
}
