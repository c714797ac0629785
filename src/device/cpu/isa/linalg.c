/* Factors of matrices, and triangular systems. Cholesky's factor is made of dot products of
 * rows, whose 16 lanes are joined in a fixed order; a triangular system subtracts multiples of
 * rows. Singular values are computed in f64, 8 lanes at a time, from the columns of the matrix,
 * which are rows of the scratch memory. */
#include "device/cpu/isa/isa.h"
#include "device/kernels/arithmetic.h"
#include "device/queue.h"

/* --- Cholesky's factor --- */

static float dot(const float *a, const float *b, int64_t n)
{
    vec sum[L] = {{0}};
    for (int64_t i = 0; i < n; i += 16)
        LANES(j)
    sum[j] += v_get(a + i + j * W, n - i - j * W) * v_get(b + i + j * W, n - i - j * W);
    return lanes_sum(sum);
}

/* Returns false, with the queue stopped, if matrix `at` is not positive definite. */
static bool factor(const float *x, float *y, int64_t n, int64_t at)
{
    for (int64_t i = 0; i < n; i++) {
        float *row = y + i * n;
        for (int64_t j = 0; j < i; j++)
            row[j] = (x[i * n + j] - dot(row, y + j * n, j)) / y[j * n + j];
        float pivot = x[i * n + i] - dot(row, row, i);
        if (!(pivot > 0)) {
            choir__queue_fail(CHOIR_ERR_RANGE, CHOIR__CHOLESKY_FAULT, (long long)at,
                (long long)i, (double)pivot);
            return false;
        }
        row[i] = sqrtf(pivot);
        memset(row + i + 1, 0, (size_t)(n - i - 1) * sizeof *row);
    }
    return true;
}

void KERNEL(cholesky)(const choir__k_cholesky *k)
{
    F32_ONLY(cholesky, k);
    bool fine = true;
    for (int64_t b = 0; b < k->batch && fine; b++)
        fine = factor(
            (const float *)k->x + b * k->n * k->n, (float *)k->y + b * k->n * k->n, k->n, b);
}

/* --- triangular systems --- */

/* y -= c x */
static void subtract(float *y, const float *x, float c, int64_t n)
{
    vec factor = v_set(c);
    for (int64_t i = 0; i < n; i += W)
        v_put(y + i, v_get(y + i, n - i) - factor * v_get(x + i, n - i), n - i);
}

static void divide(float *y, float c, int64_t n)
{
    vec divisor = v_set(c);
    for (int64_t i = 0; i < n; i += W)
        v_put(y + i, v_get(y + i, n - i) / divisor, n - i);
}

static void solve(const choir__k_solve_triangular *k, const float *a, float *x)
{
    for (int64_t r = 0; r < k->n; r++) {
        int64_t i = k->upper ? k->n - 1 - r : r;
        float *row = x + i * k->cols;
        for (int64_t q = 0; q < r; q++) {
            int64_t j = k->upper ? k->n - 1 - q : q;
            subtract(row, x + j * k->cols, a[i * k->n + j], k->cols);
        }
        divide(row, a[i * k->n + i], k->cols);
    }
}

void KERNEL(solve_triangular)(const choir__k_solve_triangular *k)
{
    F32_ONLY(solve_triangular, k);
    int64_t entries = k->n * k->cols;
    if (k->x != k->b && entries > 0)
        memcpy(k->x, k->b, (size_t)(entries * k->batch) * sizeof(float));
    for (int64_t b = 0; b < k->batch; b++)
        solve(k, (const float *)k->a + b * k->n * k->n, (float *)k->x + b * entries);
}

/* --- singular values --- */

enum { D = 8 };
typedef double eight __attribute__((vector_size(8 * D), aligned(8), may_alias));

static double dot8(const double *a, const double *b, int64_t n)
{
    eight sum = {0};
    int64_t i = 0;
    for (; i + D <= n; i += D)
        sum += *(const eight *)(a + i) * *(const eight *)(b + i);
    double total =
        ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

static void turn_pair(double *p, double *q, int64_t n, choir__turn t)
{
    int64_t i = 0;
    for (; i + D <= n; i += D) {
        eight x = *(const eight *)(p + i), y = *(const eight *)(q + i);
        *(eight *)(p + i) = t.c * x - t.s * y;
        *(eight *)(q + i) = t.s * x + t.c * y;
    }
    for (; i < n; i++) {
        double x = p[i], y = q[i];
        p[i] = t.c * x - t.s * y;
        q[i] = t.s * x + t.c * y;
    }
}

/* One matrix on its way: the columns of x, which become U diag(s), and the columns of V. */
typedef struct matrix {
    double *u;      /* (n, m) */
    double *v;      /* (n, n) */
    double *length; /* (n): s, or one of the two below */
    int64_t m, n;
} matrix;

enum { COMPLETED = -1, WRITTEN = -2 };

/* Reads x's columns; V is the identity. Returns false if an entry is not finite. Squares of
 * floats are numbers in f64, so nothing is scaled. */
static bool read_columns(matrix *a, const float *x)
{
    bool finite = true;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++) {
            float e = x[i * a->n + j];
            finite &= e - e == 0;
            a->u[j * a->m + i] = e;
        }
    memset(a->v, 0, (size_t)(a->n * a->n) * sizeof *a->v);
    for (int64_t j = 0; j < a->n; j++)
        a->v[j * a->n + j] = 1;
    return finite;
}

static void turn_all(matrix *a)
{
    bool turned = true;
    for (int sweep = 0; sweep < CHOIR__SVD_SWEEPS && turned; sweep++) {
        turned = false;
        for (int64_t i = 0; i < a->n; i++)
            for (int64_t j = i + 1; j < a->n; j++) {
                double *p = a->u + i * a->m, *q = a->u + j * a->m;
                choir__turn t;
                if (!choir__turn_of(
                        dot8(p, p, a->m), dot8(q, q, a->m), dot8(p, q, a->m), a->m, &t))
                    continue;
                turn_pair(p, q, a->m, t);
                turn_pair(a->v + i * a->n, a->v + j * a->n, a->n, t);
                turned = true;
            }
    }
}

/* Makes column j of U a unit vector at right angles to all columns whose length is not 0: the
 * rest of the first axis that leaves one. */
static void complete(matrix *a, int64_t j)
{
    double *u = a->u + j * a->m, left = 0;
    for (int64_t axis = 0; axis < a->m && !(left * (double)a->m > 0.5); axis++) {
        memset(u, 0, (size_t)a->m * sizeof *u);
        u[axis] = 1;
        for (int64_t o = 0; o < 2 * a->n; o++) { /* twice, against rounding */
            const double *other = a->u + o % a->n * a->m;
            if (a->length[o % a->n] == 0)
                continue;
            double along = dot8(u, other, a->m);
            for (int64_t i = 0; i < a->m; i++)
                u[i] -= along * other[i];
        }
        left = dot8(u, u, a->m);
    }
    for (int64_t i = 0; i < a->m; i++)
        u[i] /= sqrt(left);
}

/* Turns columns of U into unit vectors, and stores their lengths. */
static void divide_columns(matrix *a)
{
    for (int64_t j = 0; j < a->n; j++) {
        double *u = a->u + j * a->m;
        a->length[j] = sqrt(dot8(u, u, a->m));
        for (int64_t i = 0; i < a->m && a->length[j] > 0; i++)
            u[i] /= a->length[j];
    }
    for (int64_t j = 0; j < a->n; j++)
        if (a->length[j] == 0) {
            complete(a, j);
            a->length[j] = COMPLETED;
        }
}

/* Returns the sign of the first entry of the greatest magnitude. */
static double sign_of(const double *u, int64_t m)
{
    double most = 0;
    for (int64_t i = 0; i < m; i++)
        if (fabs(u[i]) > fabs(most))
            most = u[i];
    return most < 0 ? -1 : 1;
}

/* Writes the column of the greatest length as column r. */
static void write_next(matrix *a, float *y, int64_t r)
{
    int64_t best = 0;
    for (int64_t j = 1; j < a->n; j++)
        if (a->length[j] > a->length[best])
            best = j;
    const double *u = a->u + best * a->m, *v = a->v + best * a->n;
    double sign = sign_of(u, a->m);
    for (int64_t i = 0; i < a->m; i++)
        y[i * a->n + r] = (float)(sign * u[i]);
    y[a->m * a->n + r] = (float)(a->length[best] > 0 ? a->length[best] : 0);
    for (int64_t i = 0; i < a->n; i++)
        y[(a->m + 1 + i) * a->n + r] = (float)(sign * v[i]);
    a->length[best] = WRITTEN;
}

static void decompose(matrix *a, const float *x, float *y)
{
    int64_t all = (a->m + 1 + a->n) * a->n;
    if (!read_columns(a, x)) {
        for (int64_t i = 0; i < all; i++)
            y[i] = NAN;
        return;
    }
    turn_all(a);
    divide_columns(a);
    for (int64_t r = 0; r < a->n; r++)
        write_next(a, y, r);
}

void KERNEL(svd)(const choir__k_svd *k)
{
    F32_ONLY(svd, k);
    int64_t room = k->n * (k->m + k->n + 1);
    for (int64_t b = 0; b < k->batch; b++) {
        double *u = k->scratch + b * room, *v = u + k->n * k->m;
        matrix a = {.u = u, .v = v, .length = v + k->n * k->n, .m = k->m, .n = k->n};
        decompose(&a, (const float *)k->x + b * k->m * k->n,
            (float *)k->y + b * (k->m + 1 + k->n) * k->n);
    }
}
