/* Checks the reference kernels. Their gradients are compared with differences of their own
 * forward kernels, in f64: for random gy, (L(x + h) - L(x - h)) / 2h with L = sum gy y must
 * equal the backward kernel's result. The forward kernels are short enough to be checked by
 * reading. */
#include "conformance/harness.h"

static const choir__kernels *const k = &choir__cpu_reference;

enum { MOST = 2048 };

/* A forward pass: computes all of y from the values that are varied. */
typedef void forward_fn(void *args, const double *x, double *y);

static double *random_doubles(int64_t n, float low, float high)
{
    float *narrow = uniform(n, low, high);
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)narrow[i];
    free(narrow);
    return wide;
}

static double weighted(
    forward_fn *forward, void *args, const double *x, const double *gy, int64_t m)
{
    double y[MOST], sum = 0;
    assert_true(m <= MOST);
    forward(args, x, y);
    for (int64_t i = 0; i < m; i++)
        sum += gy[i] * y[i];
    return sum;
}

/* Asserts that gx (n) is the gradient of sum gy y (m) with respect to x (n). */
static void assert_gradient(const char *name, forward_fn *forward, void *args, double *x,
    int64_t n, const double *gy, int64_t m, const double *gx)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < n; i++) {
        double at = x[i];
        x[i] = at + h;
        double above = weighted(forward, args, x, gy, m);
        x[i] = at - h;
        double below = weighted(forward, args, x, gy, m);
        x[i] = at;
        double slope = (above - below) / (2 * h);
        if (!(fabs(slope - gx[i]) <= 1e-7 * fmax(1, fabs(slope))))
            fail_msg("%s: gradient %lld is %.10g, the difference %.10g", name, (long long)i,
                gx[i], slope);
    }
}

static void forward_unary(void *args, const double *x, double *y)
{
    choir__k_unary *f = args;
    f->x = x, f->y = y;
    k->unary(f);
}

static void unary(void **state)
{
    enum { N = 41 };
    for (int op = 0; op < CHOIR__UNARY_COUNT; op++) {
        bool positive =
            op == CHOIR__LOG || op == CHOIR__LOG1P || op == CHOIR__SQRT || op == CHOIR__POW;
        double *x = random_doubles(N, positive ? 0.5f : -3, 3), *gy = random_doubles(N, -1, 1);
        double y[N], gx[N];
        choir__k_unary f = {
            .n = N, .a = 1.5, .b = 2, .op = (choir__unary_op)op, .dtype = CHOIR_F64};
        forward_unary(&f, x, y);
        k->unary_backward(&(choir__k_unary_backward){.x = x,
            .y = y,
            .gy = gy,
            .gx = gx,
            .n = N,
            .a = 1.5,
            .b = 2,
            .op = (choir__unary_op)op,
            .dtype = CHOIR_F64});
        assert_gradient("unary", forward_unary, &f, x, N, gy, N, gx);
        free(x);
        free(gy);
    }
}

static void forward_softmax(void *args, const double *x, double *y)
{
    choir__k_softmax *f = args;
    f->x = x, f->y = y;
    k->softmax(f);
}

static void softmax(void **state)
{
    enum { ROWS = 6, COLS = 5, N = ROWS * COLS };
    for (int v = 0; v < 2; v++) {
        double *x = random_doubles(N, -3, 3), *gy = random_doubles(N, -1, 1), y[N], gx[N];
        choir__k_softmax f = {.rows = ROWS, .cols = COLS, .log = v, .dtype = CHOIR_F64};
        forward_softmax(&f, x, y);
        k->softmax_backward(&(choir__k_softmax_backward){.y = y,
            .gy = gy,
            .gx = gx,
            .rows = ROWS,
            .cols = COLS,
            .log = v,
            .dtype = CHOIR_F64});
        assert_gradient("softmax", forward_softmax, &f, x, N, gy, N, gx);
        free(x);
        free(gy);
    }
}

/* x, gamma and beta are stored one after another, so that one loop varies them all. */
static void forward_layer_norm(void *args, const double *x, double *y)
{
    choir__k_layer_norm *f = args;
    f->x = x, f->gamma = x + f->rows * f->cols, f->beta = x + f->rows * f->cols + f->cols;
    f->y = y;
    k->layer_norm(f);
}

static void layer_norm(void **state)
{
    enum { ROWS = 4, COLS = 7, N = ROWS * COLS, ALL = N + 2 * COLS };
    double *x = random_doubles(ALL, 0.5f, 3), *gy = random_doubles(N, -1, 1);
    double y[N], mean[ROWS], rstd[ROWS], g[ALL];
    choir__k_layer_norm f = {.mean = mean,
        .rstd = rstd,
        .rows = ROWS,
        .cols = COLS,
        .eps = 1e-3f,
        .dtype = CHOIR_F64};
    forward_layer_norm(&f, x, y);
    k->layer_norm_backward(&(choir__k_layer_norm_backward){.x = x,
        .gamma = f.gamma,
        .mean = mean,
        .rstd = rstd,
        .gy = gy,
        .gx = g,
        .rows = ROWS,
        .cols = COLS,
        .dtype = CHOIR_F64});
    k->layer_norm_weights(&(choir__k_layer_norm_weights){.x = x,
        .mean = mean,
        .rstd = rstd,
        .gy = gy,
        .ggamma = g + N,
        .gbeta = g + N + COLS,
        .rows = ROWS,
        .cols = COLS,
        .dtype = CHOIR_F64});
    assert_gradient("layer_norm", forward_layer_norm, &f, x, ALL, gy, N, g);
    free(x);
    free(gy);
}

static void forward_batch_norm(void *args, const double *x, double *y)
{
    choir__k_batch_norm *f = args;
    f->x = x, f->gamma = x + f->rows * f->cols, f->beta = x + f->rows * f->cols + f->cols;
    f->y = y;
    k->batch_norm(f);
}

static void batch_norm(void **state)
{
    enum { ROWS = 7, COLS = 4, N = ROWS * COLS, ALL = N + 2 * COLS };
    for (int train = 0; train < 2; train++) {
        double *x = random_doubles(ALL, 0.5f, 3), *gy = random_doubles(N, -1, 1);
        double *running_mean = random_doubles(COLS, 0, 1),
               *running_var = random_doubles(COLS, 1, 2);
        double y[N], mean[COLS], rstd[COLS], g[ALL];
        choir__k_batch_norm f = {.mean = mean,
            .rstd = rstd,
            .running_mean = running_mean,
            .running_var = running_var,
            .rows = ROWS,
            .cols = COLS,
            .eps = 1e-3f,
            .train = train,
            .dtype = CHOIR_F64};
        forward_batch_norm(&f, x, y);
        k->batch_norm_backward(&(choir__k_batch_norm_backward){.x = x,
            .gamma = f.gamma,
            .mean = mean,
            .rstd = rstd,
            .gy = gy,
            .gx = g,
            .ggamma = g + N,
            .gbeta = g + N + COLS,
            .rows = ROWS,
            .cols = COLS,
            .train = train,
            .dtype = CHOIR_F64});
        assert_gradient("batch_norm", forward_batch_norm, &f, x, ALL, gy, N, g);
        free(x);
        free(gy);
        free(running_mean);
        free(running_var);
    }
}

static void forward_cross_entropy(void *args, const double *x, double *y)
{
    choir__k_cross_entropy *f = args;
    f->logits = x, f->loss = y;
    k->cross_entropy(f);
}

static void cross_entropy(void **state)
{
    enum { ROWS = 5, COLS = 6, N = ROWS * COLS };
    static const int64_t targets[ROWS] = {0, 5, -100, 3, 3};
    for (int s = 0; s < 2; s++) {
        double *x = random_doubles(N, -3, 3), gy = 1.5, loss, lse[ROWS], count, gx[N];
        float smoothing = s ? 0.2f : 0;
        choir__k_cross_entropy f = {.targets = targets,
            .lse = lse,
            .count = &count,
            .rows = ROWS,
            .cols = COLS,
            .ignore_index = -100,
            .smoothing = smoothing,
            .dtype = CHOIR_F64};
        forward_cross_entropy(&f, x, &loss);
        assert_true(count == 4);
        k->cross_entropy_backward(&(choir__k_cross_entropy_backward){.logits = x,
            .lse = lse,
            .count = &count,
            .gloss = &gy,
            .targets = targets,
            .glogits = gx,
            .rows = ROWS,
            .cols = COLS,
            .ignore_index = -100,
            .smoothing = smoothing,
            .dtype = CHOIR_F64});
        assert_gradient("cross_entropy", forward_cross_entropy, &f, x, N, &gy, 1, gx);
        free(x);
    }
}

static void forward_nll(void *args, const double *x, double *y)
{
    choir__k_nll *f = args;
    f->x = x, f->loss = y;
    k->nll(f);
}

static void nll(void **state)
{
    enum { ROWS = 5, COLS = 6, N = ROWS * COLS };
    static const int64_t targets[ROWS] = {0, 5, 2, 3, 2};
    double *x = random_doubles(N, -3, 0), gy = 1.5, loss, count, gx[N];
    choir__k_nll f = {.targets = targets,
        .count = &count,
        .rows = ROWS,
        .cols = COLS,
        .ignore_index = 2,
        .dtype = CHOIR_F64};
    forward_nll(&f, x, &loss);
    f.gloss = &gy, f.gx = gx;
    k->nll_backward(&f);
    assert_gradient("nll", forward_nll, &f, x, N, &gy, 1, gx);
    free(x);
}

static const choir__conv_shape windows[] = {
    {.n = 2,
        .h = 5,
        .w = 4,
        .c = 2,
        .oh = 5,
        .ow = 4,
        .o = 3,
        .kh = 3,
        .kw = 3,
        .groups = 1,
        .stride_h = 1,
        .stride_w = 1,
        .pad_h = 1,
        .pad_w = 1,
        .dilation_h = 1,
        .dilation_w = 1},
    {.n = 1,
        .h = 7,
        .w = 6,
        .c = 4,
        .oh = 3,
        .ow = 3,
        .o = 6,
        .kh = 3,
        .kw = 2,
        .groups = 2,
        .stride_h = 2,
        .stride_w = 3,
        .pad_h = 1,
        .pad_w = 1,
        .dilation_h = 2,
        .dilation_w = 1},
};

/* x, w and bias are stored one after another. */
static void forward_conv(void *args, const double *x, double *y)
{
    choir__k_conv *f = args;
    const choir__conv_shape *s = &f->s;
    f->x = x, f->w = x + s->n * s->h * s->w * s->c;
    f->bias = (const double *)f->w + s->o * s->kh * s->kw * (s->c / s->groups);
    f->y = y;
    k->conv(f);
}

static void conv(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(windows); i++) {
        choir__conv_shape s = windows[i];
        int64_t nx = s.n * s.h * s.w * s.c, nw = s.o * s.kh * s.kw * (s.c / s.groups);
        int64_t ny = s.n * s.oh * s.ow * s.o, all = nx + nw + s.o;
        double *x = random_doubles(all, -1, 1), *gy = random_doubles(ny, -1, 1), y[MOST],
               g[MOST];
        choir__k_conv f = {.s = s, .dtype = CHOIR_F64};
        forward_conv(&f, x, y);
        k->conv_backward_input(&(choir__k_conv_backward_input){
            .gy = gy, .w = f.w, .gx = g, .s = s, .dtype = CHOIR_F64});
        k->conv_backward_weight(&(choir__k_conv_backward_weight){
            .gy = gy, .x = x, .gw = g + nx, .gbias = g + nx + nw, .s = s, .dtype = CHOIR_F64});
        assert_gradient("conv", forward_conv, &f, x, all, gy, ny, g);
        free(x);
        free(gy);
    }
}

static void forward_pool(void *args, const double *x, double *y)
{
    choir__k_pool *f = args;
    f->x = x, f->y = y;
    k->pool(f);
}

static void pool(void **state)
{
    for (size_t i = 0; i < 2 * CHOIR_COUNT(windows); i++) {
        choir__conv_shape s = windows[i / 2];
        s.o = s.c;
        int64_t nx = s.n * s.h * s.w * s.c, ny = s.n * s.oh * s.ow * s.c;
        double *x = random_doubles(nx, -1, 1), *gy = random_doubles(ny, -1, 1), y[MOST],
               gx[MOST];
        uint8_t index[MOST];
        choir__k_pool f = {.index = index, .s = s, .max = i % 2, .dtype = CHOIR_F64};
        forward_pool(&f, x, y);
        k->pool_backward(&(choir__k_pool_backward){
            .gy = gy, .index = index, .gx = gx, .s = s, .max = i % 2, .dtype = CHOIR_F64});
        assert_gradient("pool", forward_pool, &f, x, nx, gy, ny, gx);
        free(x);
        free(gy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary),
        cmocka_unit_test(softmax),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(batch_norm),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(nll),
        cmocka_unit_test(conv),
        cmocka_unit_test(pool),
    };
    return cmocka_run_group_tests_name("reference gradients", tests, NULL, NULL);
}
