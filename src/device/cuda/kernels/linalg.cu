/* Factors of matrices, and triangular systems. A block has a matrix: its threads share the
 * entries of one column after another, or a pair of columns'. A column of a triangular
 * system belongs to one thread. device/kernels/linalg.h has the formulas. */
#include "device/cuda/kit/kernel.cuh"
#include "device/kernels/arithmetic.h"

/* --- Cholesky's factor --- */

struct cholesky_call {
    choir__k_cholesky k;
    choir__cuda_fault *fault;
};

/* y becomes the lower triangle of x, from which multiples of finished columns are subtracted. */
template <class V> __global__ void cholesky(cholesky_call c)
{
    const int64_t n = c.k.n, entries = n * n;
    const V *x = (const V *)c.k.x + blockIdx.x * entries;
    V *y = (V *)c.k.y + blockIdx.x * entries;
    for (int64_t i = threadIdx.x; i < entries; i += blockDim.x)
        y[i] = i % n > i / n ? V(0) : x[i];
    for (int64_t j = 0; j < n; j++) {
        __syncthreads();
        V pivot = y[j * n + j];
        if (!(pivot > V(0))) {
            if (threadIdx.x == 0)
                raise_fault(
                    c.fault, CHOIR__BAD_PIVOT, j, 0, (int64_t)blockIdx.x, (double)pivot);
            return;
        }
        V root = sqrt(pivot);
        __syncthreads(); /* all have read the pivot */
        for (int64_t i = j + threadIdx.x; i < n; i += blockDim.x)
            y[i * n + j] = i == j ? root : y[i * n + j] / root;
        __syncthreads();
        int64_t rest = n - j - 1;
        for (int64_t e = threadIdx.x; e < rest * rest; e += blockDim.x) {
            int64_t i = j + 1 + e / rest, l = j + 1 + e % rest;
            if (l <= i)
                y[i * n + l] -= y[i * n + j] * y[l * n + j];
        }
    }
}

extern "C" void choir__cuda_cholesky(const choir__k_cholesky *k)
{
    cholesky_call c = {*k, choir__cuda_here()->fault};
    if (k->batch == 0 || k->n == 0)
        return;
    if (k->dtype == CHOIR_F64)
        launch(cholesky<double>, (unsigned)k->batch, BLOCK, 0, c);
    else
        launch(cholesky<float>, (unsigned)k->batch, BLOCK, 0, c);
}

/* --- triangular systems --- */

template <class V> __global__ void solve_triangular(choir__k_solve_triangular k)
{
    for (int64_t t = first_thread(); t < k.batch * k.cols; t += all_threads()) {
        int64_t n = k.n, from = t / k.cols * n * k.cols + t % k.cols;
        const V *a = (const V *)k.a + t / k.cols * n * n, *b = (const V *)k.b + from;
        V *x = (V *)k.x + from;
        for (int64_t r = 0; r < n; r++) {
            int64_t i = k.upper ? n - 1 - r : r;
            V rest = b[i * k.cols];
            for (int64_t q = 0; q < r; q++) {
                int64_t j = k.upper ? n - 1 - q : q;
                rest -= a[i * n + j] * x[j * k.cols];
            }
            x[i * k.cols] = rest / a[i * n + i];
        }
    }
}

extern "C" void choir__cuda_solve_triangular(const choir__k_solve_triangular *k)
{
    if (k->batch * k->cols * k->n == 0)
        return;
    if (k->dtype == CHOIR_F64)
        launch(solve_triangular<double>, grid_for(k->batch * k->cols), BLOCK, 0, *k);
    else
        launch(solve_triangular<float>, grid_for(k->batch * k->cols), BLOCK, 0, *k);
}

/* --- singular values --- */

struct matrix {
    double *u, *v, *length; /* columns of U (n, m) and V (n, n); s, below 0: see below */
    int64_t m, n;
};

enum { COMPLETED = -1, WRITTEN = -2 };

__device__ inline double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += a[i] * b[i];
    return block_sum(sum);
}

__device__ inline void turn_pair(double *p, double *q, int64_t n, choir__turn t)
{
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        double x = p[i], y = q[i];
        p[i] = t.c * x - t.s * y;
        q[i] = t.s * x + t.c * y;
    }
}

/* An entry of a column is always the same thread's, so that only sums need barriers. */
__device__ inline bool turn_once(const matrix &a)
{
    bool turned = false;
    for (int64_t i = 0; i < a.n; i++)
        for (int64_t j = i + 1; j < a.n; j++) {
            double *p = a.u + i * a.m, *q = a.u + j * a.m;
            double pp = product(p, p, a.m), qq = product(q, q, a.m), pq = product(p, q, a.m);
            choir__turn t;
            if (!choir__turn_of(pp, qq, pq, a.m, &t))
                continue;
            turn_pair(p, q, a.m, t);
            turn_pair(a.v + i * a.n, a.v + j * a.n, a.n, t);
            turned = true;
        }
    return turned;
}

/* Makes column j a unit vector at right angles to the others. */
__device__ inline void complete(const matrix &a, int64_t j)
{
    double *u = a.u + j * a.m, left = 0;
    for (int64_t axis = 0; axis < a.m && !(left * (double)a.m > 0.5); axis++) {
        for (int64_t i = threadIdx.x; i < a.m; i += blockDim.x)
            u[i] = i == axis;
        for (int64_t o = 0; o < 2 * a.n; o++) { /* twice, against rounding */
            const double *other = a.u + o % a.n * a.m;
            if (a.length[o % a.n] == 0)
                continue;
            double along = product(u, other, a.m);
            for (int64_t i = threadIdx.x; i < a.m; i += blockDim.x)
                u[i] -= along * other[i];
        }
        left = product(u, u, a.m);
    }
    for (int64_t i = threadIdx.x; i < a.m; i += blockDim.x)
        u[i] /= sqrt(left);
}

__device__ inline void set_length(const matrix &a, int64_t j, double length)
{
    __syncthreads(); /* all have read the one before */
    if (threadIdx.x == 0)
        a.length[j] = length;
    __syncthreads();
}

__device__ inline void divide_columns(const matrix &a)
{
    for (int64_t j = 0; j < a.n; j++) {
        double *u = a.u + j * a.m, length = sqrt(product(u, u, a.m));
        for (int64_t i = threadIdx.x; i < a.m && length > 0; i += blockDim.x)
            u[i] /= length;
        set_length(a, j, length);
    }
    for (int64_t j = 0; j < a.n; j++)
        if (a.length[j] == 0) {
            complete(a, j);
            set_length(a, j, COMPLETED);
        }
}

/* Returns the sign of the first entry of the greatest magnitude. */
__device__ inline double sign_of(const double *u, int64_t m)
{
    double most = 0;
    for (int64_t i = 0; i < m; i++)
        if (fabs(u[i]) > fabs(most))
            most = u[i];
    return most < 0 ? -1 : 1;
}

template <class V> __device__ inline void write_columns(const matrix &a, V *y, double scale)
{
    for (int64_t r = 0; r < a.n; r++) {
        int64_t best = 0;
        __syncthreads();
        for (int64_t j = 1; j < a.n; j++)
            if (a.length[j] > a.length[best])
                best = j;
        const double *u = a.u + best * a.m, *v = a.v + best * a.n;
        double sign = sign_of(u, a.m), length = a.length[best];
        for (int64_t i = threadIdx.x; i < a.m; i += blockDim.x)
            y[i * a.n + r] = V(sign * u[i]);
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
            y[(a.m + 1 + i) * a.n + r] = V(sign * v[i]);
        if (threadIdx.x == 0)
            y[a.m * a.n + r] = V(length > 0 ? length * scale : 0);
        set_length(a, best, WRITTEN);
    }
}

template <class V> __global__ void svd(choir__k_svd k)
{
    const int64_t m = k.m, n = k.n, all = (m + 1 + n) * n;
    double *u = k.scratch + blockIdx.x * n * (m + n + 1), most = 0;
    const V *x = (const V *)k.x + blockIdx.x * m * n;
    V *y = (V *)k.y + blockIdx.x * all;
    matrix a = {u, u + n * m, u + n * m + n * n, m, n};
    for (int64_t i = threadIdx.x; i < m * n; i += blockDim.x) {
        double e = (double)x[i];
        most = e - e != 0 ? NAN : fabs(e) > most ? fabs(e) : most;
    }
    most = block_max(most);
    double scale = choir__svd_scale(most);
    if (most != most) {
        for (int64_t i = threadIdx.x; i < all; i += blockDim.x)
            y[i] = V(NAN);
        return;
    }
    for (int64_t j = 0; j < n; j++) { /* thread t has the entries t, t + BLOCK, ... */
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x)
            a.u[j * m + i] = (double)x[i * n + j] / scale;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            a.v[j * n + i] = i == j;
    }
    for (int sweep = 0; sweep < CHOIR__SVD_SWEEPS && turn_once(a); sweep++)
        continue;
    divide_columns(a);
    write_columns(a, y, scale);
}

extern "C" void choir__cuda_svd(const choir__k_svd *k)
{
    if (k->batch * k->n == 0)
        return;
    if (k->dtype == CHOIR_F64)
        launch(svd<double>, (unsigned)k->batch, BLOCK, 0, *k);
    else
        launch(svd<float>, (unsigned)k->batch, BLOCK, 0, *k);
}
