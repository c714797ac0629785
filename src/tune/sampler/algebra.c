/* Dot products, Cholesky's factor, triangular systems, inverses and eigenvectors of small
 * matrices. A dot product has eight sums, joined in one order; everything else is made of it,
 * or goes element by element. */
#include "tune/sampler/algebra.h"

#include <math.h>
#include <string.h>

/* Eight numbers at once, at any address: vectors on any processor, with the same bits. */
typedef double eight __attribute__((vector_size(64), aligned(8), may_alias));

double choir__dot(const double *a, const double *b, int64_t n)
{
    eight sum = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        sum += *(const eight *)(a + i) * *(const eight *)(b + i);
    double total =
        ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

bool choir__cholesky(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *row = a + i * n;
        for (int64_t j = 0; j < i; j++)
            row[j] = (row[j] - choir__dot(row, a + j * n, j)) / a[j * n + j];
        double square = row[i] - choir__dot(row, row, i);
        if (!(square > 0))
            return false;
        row[i] = sqrt(square);
    }
    return true;
}

void choir__solve_lower(const double *l, int64_t n, int64_t from, double *x)
{
    for (int64_t i = from; i < n; i++)
        x[i] = (x[i] - choir__dot(l + i * n + from, x + from, i - from)) / l[i * n + i];
}

void choir__solve_lower_transposed(const double *l, int64_t n, double *x)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        x[i] /= l[i * n + i];
        for (int64_t j = 0; j < i; j++)
            x[j] -= l[i * n + j] * x[i];
    }
}

/* Row i of scratch is column i of L's inverse, whose elements before i are 0. */
void choir__invert(const double *l, int64_t n, double *scratch, double *inverse)
{
    for (int64_t i = 0; i < n; i++) {
        double *column = scratch + i * n;
        memset(column + i, 0, (size_t)(n - i) * sizeof *column);
        column[i] = 1;
        choir__solve_lower(l, n, i, column);
        for (int64_t j = 0; j <= i; j++)
            inverse[i * n + j] = choir__dot(column + i, scratch + j * n + i, n - i);
    }
}

/* Turns rows and columns p and q of a so that a[p][q] becomes 0. */
static void turn(double *a, int64_t n, int64_t p, int64_t q, double *vectors)
{
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int64_t k = 0; k < n; k++) {
        double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (int64_t k = 0; k < n; k++) {
        double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
    }
    for (int64_t k = 0; k < n; k++) {
        double x = vectors[k * n + p], y = vectors[k * n + q];
        vectors[k * n + p] = c * x - s * y;
        vectors[k * n + q] = s * x + c * y;
    }
}

/* Jacobi's method: turns away the elements off the diagonal, one after the other, until they
 * vanish beside it. */
void choir__eigen(double *a, int64_t n, double *vectors, double *values)
{
    enum { SWEEPS = 30 };
    memset(vectors, 0, (size_t)(n * n) * sizeof *vectors);
    for (int64_t i = 0; i < n; i++)
        vectors[i * n + i] = 1;
    bool turned = true;
    for (int sweep = 0; sweep < SWEEPS && turned; sweep++) {
        turned = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                if (fabs(a[p * n + q]) >
                    1e-15 * sqrt(fabs(a[p * n + p] * a[q * n + q])) + 1e-300) {
                    turn(a, n, p, q, vectors);
                    turned = true;
                }
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = a[i * n + i];
}
