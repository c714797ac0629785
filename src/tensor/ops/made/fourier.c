/* Fourier transforms, made of products. n numbers are n1 rows of n2, with n = n1 n2:
 *
 *   x[n2 i + j]  --transform of each column i-->  --times w^(j k)-->  --of each row j-->  X[k +
 * n1 l]
 *
 * with w = exp(-2 pi i / n) (Cooley & Tukey, 1965). Rows and columns are transformed in the
 * same way, until a factor is small, or prime: that is a product with the matrix w^(j k). */

#include <choir/make.h>
#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/ops/made/places.h"

enum { SMALL = 32 }; /* transformed by one product */

/* Complex numbers: real and imaginary parts, (rows, n) */
typedef struct complex {
    choir_tensor *re, *im;
} complex;

static complex times(complex a, complex b)
{
    return (complex){choir_sub(choir_mul(a.re, b.re), choir_mul(a.im, b.im)),
        choir_add(choir_mul(a.re, b.im), choir_mul(a.im, b.re))};
}

/* Returns w^(j k): (rows, cols), with w = exp(-+2 pi i / n); the angle is computed in f64, from
 * j k modulo n. */
static complex powers(choir_tensor *like, int64_t rows, int64_t cols, int64_t n, bool inverse)
{
    choir_device *device = choir__device_of(like);
    choir_tensor *j =
        choir_reshape(choir__places(like->scope, device, rows), choir_dims(rows, 1));
    choir_tensor *jk = choir_mul(j, choir__places(like->scope, device, cols));
    choir_tensor *turns = choir_floor(choir_scale(jk, 1 / (double)n));
    jk = choir_sub(jk, choir_scale(turns, (double)n));
    choir_tensor *angle =
        choir_scale(jk, (inverse ? 2 : -2) * 3.14159265358979323846 / (double)n);
    return (complex){
        choir_cast(choir_cos(angle), like->dtype), choir_cast(choir_sin(angle), like->dtype)};
}

/* Returns the greatest divisor of n that is at most its root. */
static int64_t divisor(int64_t n)
{
    int64_t best = 1;
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0)
            best = d;
    return best;
}

static complex by_matrix(complex x, int64_t n, bool inverse)
{
    complex w = powers(x.re, n, n, n, inverse);
    return (complex){choir_sub(choir_matmul(x.re, w.re), choir_matmul(x.im, w.im)),
        choir_add(choir_matmul(x.re, w.im), choir_matmul(x.im, w.re))};
}

static choir_tensor *turned(choir_tensor *x, int64_t a, int64_t b)
{
    return choir_transpose(choir_reshape(x, choir_dims(-1, a, b)), 1, 2);
}

/* x (rows, n) -> (rows, n) */
static complex transform(complex x, int64_t n, bool inverse)
{
    int64_t n1 = n > SMALL ? divisor(n) : 1, n2 = n / n1;
    if (n1 == 1)
        return by_matrix(x, n, inverse);
    choir_shape columns = choir_dims(-1, n1), rows = choir_dims(-1, n2);
    complex y = {choir_reshape(turned(x.re, n1, n2), columns), /* (rows n2, n1) */
        choir_reshape(turned(x.im, n1, n2), columns)};
    y = transform(y, n1, inverse);
    choir_shape grid = choir_dims(-1, n2, n1);
    y = (complex){choir_reshape(y.re, grid), choir_reshape(y.im, grid)};
    y = times(y, powers(y.re, n2, n1, n, inverse));
    y = (complex){choir_reshape(turned(y.re, n2, n1), rows), /* (rows n1, n2) */
        choir_reshape(turned(y.im, n2, n1), rows)};
    y = transform(y, n2, inverse);
    choir_shape whole = choir_dims(-1, n);
    return (complex){
        choir_reshape(turned(y.re, n1, n2), whole), choir_reshape(turned(y.im, n1, n2), whole)};
}

static choir_tensor *part(choir_tensor *x, int which)
{
    choir_shape rows = choir_dims(-1, x->shape.dim[x->shape.ndim - 2]);
    return choir_reshape(choir_narrow(x, -1, which, 1), rows);
}

static choir_tensor *joined(complex y, choir_shape shape)
{
    return choir_reshape(choir_stack((choir_tensor *[]){y.re, y.im}, 2, -1), shape);
}

#define TRANSFORM(title)                                                                       \
    {                                                                                          \
        .name = title, .composed = true, .cast = CHOIR__CAST_F32                               \
    }
static const choir__op fft_op = TRANSFORM("fft"), ifft_op = TRANSFORM("ifft"),
                       rfft_op = TRANSFORM("rfft"), irfft_op = TRANSFORM("irfft");

/* Begins an op on x, whose products stay f32 where an autocast is on. Returns NULL with
 * *poisoned if x has no n numbers to transform. */
static choir_scope *begin(
    const choir__op *op, choir_tensor **x, bool complex_numbers, choir_tensor **poisoned)
{
    choir_scope *scope = choir__begin(op, x, 1, poisoned);
    if (!scope)
        return NULL;
    choir_shape s = (*x)->shape;
    bool fits = complex_numbers
                    ? s.ndim >= 2 && s.dim[s.ndim - 1] == 2 && s.dim[s.ndim - 2] > 0
                    : s.ndim >= 1 && s.ndim < CHOIR_MAX_DIMS && s.dim[s.ndim - 1] > 0;
    if (fits && choir__is_float((*x)->dtype))
        return scope;
    *poisoned = choir__shape_error(op->name, scope, x, 1,
        complex_numbers ? "expected floating numbers (..., n, 2), n at least 1"
                        : "expected floating numbers (..., n), n at least 1");
    return NULL;
}

static choir_tensor *fft(const choir__op *op, choir_tensor *x, bool inverse)
{
    choir_tensor *poisoned;
    choir_scope *scope = begin(op, &x, true, &poisoned);
    if (!scope)
        return poisoned;
    bool cast = scope->autocast.on;
    scope->autocast.on = false;
    int64_t n = x->shape.dim[x->shape.ndim - 2];
    complex y = transform((complex){part(x, 0), part(x, 1)}, n, inverse);
    choir_tensor *z = joined(y, x->shape);
    scope->autocast.on = cast;
    return inverse ? choir_scale(z, 1 / (double)n) : z;
}

choir_tensor *choir_fft(choir_tensor *x)
{
    return fft(&fft_op, x, false);
}

choir_tensor *choir_ifft(choir_tensor *x)
{
    return fft(&ifft_op, x, true);
}

choir_tensor *choir_rfft(choir_tensor *x)
{
    choir_tensor *poisoned;
    if (!begin(&rfft_op, &x, false, &poisoned))
        return poisoned;
    int64_t n = choir__cols(x);
    choir_tensor *y = choir_fft(choir_stack((choir_tensor *[]){x, choir_scale(x, 0)}, 2, -1));
    return choir_narrow(y, -2, 0, n / 2 + 1);
}

/* The other half are the conjugates of the first, from the end to the second. */
choir_tensor *choir_irfft(choir_tensor *x, int64_t n)
{
    choir_tensor *poisoned;
    choir_scope *scope = begin(&irfft_op, &x, true, &poisoned);
    if (!scope)
        return poisoned;
    int half = x->shape.ndim - 2;
    if (n < 1 || x->shape.dim[half] != n / 2 + 1)
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "irfft: expected (..., %lld, 2) for %lld numbers, got %s", (long long)(n / 2 + 1),
            (long long)n, choir__shape_text(x->shape));
    int64_t others = n - n / 2 - 1;
    choir_tensor *all = x;
    if (others) {
        choir_tensor *back = choir_flip(choir_narrow(x, half, 1, others), half);
        choir_tensor *im = choir_neg(choir_narrow(back, -1, 1, 1));
        choir_tensor *tail =
            choir_cat((choir_tensor *[]){choir_narrow(back, -1, 0, 1), im}, 2, -1);
        all = choir_cat((choir_tensor *[]){x, tail}, 2, half);
    }
    choir_tensor *y = choir_narrow(choir_ifft(all), -1, 0, 1);
    choir_shape shape = y->shape;
    shape.ndim--;
    return y->poisoned ? y : choir_reshape(y, shape);
}
