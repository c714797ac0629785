/* Reference kernels of linear algebra: Cholesky's factor, triangular systems, singular values.
 * device/kernels/linalg.h has the formulas. */
#include "device/cpu/reference/reference.h"
#include "device/kernels/arithmetic.h"
#include "device/queue.h"

void choir__reference_cholesky(const choir__k_cholesky *k)
{
    int64_t n = k->n;
    for (int64_t at = 0; at < k->batch * n * n; at++) {
        int64_t b = at / n / n, i = at / n % n, j = at % n, row = (b * n + i) * n;
        int64_t other = (b * n + j) * n;
        double rest = get(k->x, at, k->dtype);
        for (int64_t l = 0; l < j && j <= i; l++)
            rest -= get(k->y, row + l, k->dtype) * get(k->y, other + l, k->dtype);
        if (i == j && !(rest > 0)) {
            choir__queue_fail(
                CHOIR_ERR_RANGE, CHOIR__CHOLESKY_FAULT, (long long)b, (long long)i, rest);
            return;
        }
        put(k->y, at, k->dtype,
            j > i    ? 0
            : i == j ? sqrt(rest)
                     : rest / get(k->y, other + j, k->dtype));
    }
}

void choir__reference_solve_triangular(const choir__k_solve_triangular *k)
{
    int64_t n = k->n, cols = k->cols;
    for (int64_t at = 0; at < k->batch * n * cols; at++) {
        int64_t b = at / n / cols, r = at / cols % n, c = at % cols;
        int64_t i = k->upper ? n - 1 - r : r, row = (b * n + i) * n;
        double rest = get(k->b, (b * n + i) * cols + c, k->dtype);
        for (int64_t q = 0; q < r; q++) {
            int64_t j = k->upper ? n - 1 - q : q;
            rest -= get(k->a, row + j, k->dtype) * get(k->x, (b * n + j) * cols + c, k->dtype);
        }
        put(k->x, (b * n + i) * cols + c, k->dtype, rest / get(k->a, row + i, k->dtype));
    }
}

/* --- singular values --- */

typedef struct matrix {
    double *u;      /* (n, m): columns of x, then of U */
    double *v;      /* (n, n): columns of V */
    double *length; /* (n): s; below 0: a column that was completed, or written */
    int64_t m, n;
} matrix;

static double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void turn_pair(double *p, double *q, int64_t n, choir__turn t)
{
    for (int64_t i = 0; i < n; i++) {
        double x = p[i], y = q[i];
        p[i] = t.c * x - t.s * y;
        q[i] = t.s * x + t.c * y;
    }
}

static bool turn_once(matrix *a)
{
    bool turned = false;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = i + 1; j < a->n; j++) {
            double *p = a->u + i * a->m, *q = a->u + j * a->m;
            choir__turn t;
            if (!choir__turn_of(
                    product(p, p, a->m), product(q, q, a->m), product(p, q, a->m), a->m, &t))
                continue;
            turn_pair(p, q, a->m, t);
            turn_pair(a->v + i * a->n, a->v + j * a->n, a->n, t);
            turned = true;
        }
    return turned;
}

/* Makes column j a unit vector at right angles to the others. */
static void complete(matrix *a, int64_t j)
{
    double *u = a->u + j * a->m, left = 0;
    for (int64_t axis = 0; axis < a->m && !(left * (double)a->m > 0.5); axis++) {
        for (int64_t i = 0; i < a->m; i++)
            u[i] = i == axis;
        for (int64_t o = 0; o < 2 * a->n; o++) { /* twice, against rounding */
            const double *other = a->u + o % a->n * a->m;
            double along = a->length[o % a->n] == 0 ? 0 : product(u, other, a->m);
            for (int64_t i = 0; i < a->m && along != 0; i++)
                u[i] -= along * other[i];
        }
        left = product(u, u, a->m);
    }
    for (int64_t i = 0; i < a->m; i++)
        u[i] /= sqrt(left);
}

static void divide_columns(matrix *a)
{
    for (int64_t j = 0; j < a->n; j++) {
        double *u = a->u + j * a->m;
        a->length[j] = sqrt(product(u, u, a->m));
        for (int64_t i = 0; i < a->m && a->length[j] > 0; i++)
            u[i] /= a->length[j];
    }
    for (int64_t j = 0; j < a->n; j++)
        if (a->length[j] == 0) {
            complete(a, j);
            a->length[j] = -1;
        }
}

/* Writes the columns in the order of their lengths, from element `at` of y on. */
static void write_columns(matrix *a, const choir__k_svd *k, int64_t at, double scale)
{
    for (int64_t r = 0; r < a->n; r++) {
        int64_t best = 0;
        for (int64_t j = 1; j < a->n; j++)
            if (a->length[j] > a->length[best])
                best = j;
        const double *u = a->u + best * a->m, *v = a->v + best * a->n;
        double most = 0, length = a->length[best] > 0 ? a->length[best] : 0;
        for (int64_t i = 0; i < a->m; i++)
            if (fabs(u[i]) > fabs(most))
                most = u[i];
        double sign = most < 0 ? -1 : 1;
        for (int64_t i = 0; i < a->m; i++)
            put(k->y, at + i * a->n + r, k->dtype, sign * u[i]);
        put(k->y, at + a->m * a->n + r, k->dtype, length * scale);
        for (int64_t i = 0; i < a->n; i++)
            put(k->y, at + (a->m + 1 + i) * a->n + r, k->dtype, sign * v[i]);
        a->length[best] = -2;
    }
}

/* Reads the columns of matrix b and V = 1. Returns the greatest magnitude; NaN: an entry is not
 * finite. */
static double read_columns(matrix *a, const choir__k_svd *k, int64_t b)
{
    double most = 0;
    for (int64_t i = 0; i < a->m * a->n; i++) {
        double e = get(k->x, b * a->m * a->n + i, k->dtype);
        a->u[i % a->n * a->m + i / a->n] = e;
        most = e - e != 0 ? NAN : fabs(e) > most ? fabs(e) : most;
    }
    for (int64_t i = 0; i < a->n * a->n; i++)
        a->v[i] = i / a->n == i % a->n;
    return most;
}

void choir__reference_svd(const choir__k_svd *k)
{
    int64_t room = k->n * (k->m + k->n + 1), all = (k->m + 1 + k->n) * k->n;
    for (int64_t b = 0; b < k->batch; b++) {
        double *u = k->scratch + b * room, *v = u + k->n * k->m;
        matrix a = {.u = u, .v = v, .length = v + k->n * k->n, .m = k->m, .n = k->n};
        double most = read_columns(&a, k, b), scale = choir__svd_scale(most);
        if (isnan(most)) {
            for (int64_t i = 0; i < all; i++)
                put(k->y, b * all + i, k->dtype, NAN);
            continue;
        }
        for (int64_t i = 0; i < k->m * k->n; i++)
            u[i] /= scale;
        for (int sweep = 0; sweep < CHOIR__SVD_SWEEPS && turn_once(&a); sweep++)
            continue;
        divide_columns(&a);
        write_columns(&a, k, b * all, scale);
    }
}
