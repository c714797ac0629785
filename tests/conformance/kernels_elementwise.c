/* Conformance of fill, unary, unary_backward, binary and add_scaled: against the reference, at
 * special floating-point values, and with the same result for an element wherever it is. */
#include "conformance/harness.h"

typedef struct unary_case {
    choir__unary_op op;
    const char *name;
    float low, high; /* range of the inputs */
    double b;        /* the second number; 0: -1.25 */
} unary_case;

static const unary_case unary_cases[] = {
    {CHOIR__NEG, "neg", -3, 3, 0},
    {CHOIR__EXP, "exp", -20, 20, 0},
    {CHOIR__LOG, "log", 1e-6f, 40, 0},
    {CHOIR__SQRT, "sqrt", 1e-6f, 40, 0},
    {CHOIR__TANH, "tanh", -6, 6, 0},
    {CHOIR__SIGMOID, "sigmoid", -15, 15, 0},
    {CHOIR__RELU, "relu", -3, 3, 0},
    {CHOIR__GELU, "gelu", -6, 6, 0},
    {CHOIR__GELU_TANH, "gelu_tanh", -6, 6, 0},
    {CHOIR__SILU, "silu", -15, 15, 0},
    {CHOIR__SQUARE, "square", -3, 3, 0},
    {CHOIR__ABS, "abs", -3, 3, 0},
    {CHOIR__SIN, "sin", -20, 20, 0},
    {CHOIR__COS, "cos", -20, 20, 0},
    {CHOIR__SIGN, "sign", -3, 3, 0},
    {CHOIR__FLOOR, "floor", -30, 30, 0},
    {CHOIR__CEIL, "ceil", -30, 30, 0},
    {CHOIR__ROUND, "round", -30, 30, 0},
    {CHOIR__LOG1P, "log1p", -0.9f, 40, 0},
    {CHOIR__EXPM1, "expm1", -6, 6, 0},
    {CHOIR__ERF, "erf", -4, 4, 0},
    {CHOIR__AFFINE, "affine", -3, 3, 0},
    {CHOIR__POW, "pow", 0.1f, 5, 0},
    {CHOIR__CLAMP, "clamp", -3, 3, 1.25},
    {CHOIR__LEAKY, "leaky_relu", -3, 3, 0},
    {CHOIR__ELU, "elu", -6, 6, 0},
    {CHOIR__SOFTPLUS, "softplus", -20, 20, 2},
};

static bool is_exact(choir__unary_op op)
{
    return op == CHOIR__NEG || op == CHOIR__RELU || op == CHOIR__ABS || op == CHOIR__SQUARE ||
           op == CHOIR__SQRT || (op >= CHOIR__SIGN && op <= CHOIR__ROUND);
}

static void unary(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(unary_cases); c++)
        for (size_t s = 0; s < 2 * CHOIR_COUNT(odd_sizes); s++) {
            const unary_case *u = &unary_cases[c];
            int64_t n = odd_sizes[s / 2];
            trial t =
                TRIAL(unary, .n = n, .op = u->op, .a = 0.375, .b = u->b != 0 ? u->b : -1.25);
            t.name = u->name;
            give(&t, AT(unary, x), n, uniform(n, u->low, u->high));
            if (s % 2)
                in_place(&t, AT(unary, y));
            else
                take(&t, AT(unary, y), n);
            t.exact = is_exact(u->op);
            check(t);
        }
}

static void unary_backward(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(unary_cases); c++)
        for (size_t s = 0; s < 2 * CHOIR_COUNT(odd_sizes); s++) {
            const unary_case *u = &unary_cases[c];
            int64_t n = odd_sizes[s / 2];
            trial t = TRIAL(
                unary_backward, .n = n, .op = u->op, .a = 0.375, .b = u->b != 0 ? u->b : -1.25);
            t.name = u->name;
            bool share = u->op == CHOIR__TANH || u->op == CHOIR__SIGMOID; /* y in [0, 1) */
            give(&t, AT(unary_backward, x), n, uniform(n, u->low, u->high));
            give(&t, AT(unary_backward, y), n,
                share ? uniform(n, 0, 1) : uniform(n, u->op == CHOIR__RELU ? -1 : 0.1f, 2));
            give(&t, AT(unary_backward, gy), n, uniform(n, -2, 2));
            if (s % 2)
                in_place(&t, AT(unary_backward, gx));
            else
                take(&t, AT(unary_backward, gx), n);
            t.exact = u->op == CHOIR__NEG || u->op == CHOIR__RELU || u->op == CHOIR__ABS ||
                      (u->op >= CHOIR__SIGN && u->op <= CHOIR__ROUND);
            check(t);
        }
}

/* ReLU and ABS pass no gradient at 0. */
static void slope_at_zero(void **state)
{
    for (int abs = 0; abs < 2; abs++) {
        trial t = TRIAL(unary_backward, .n = 19, .op = abs ? CHOIR__ABS : CHOIR__RELU);
        give(&t, AT(unary_backward, x), 19, uniform(19, 0, 0));
        give(&t, AT(unary_backward, y), 19, uniform(19, 0, 0));
        give(&t, AT(unary_backward, gy), 19, uniform(19, 1, 2));
        take(&t, AT(unary_backward, gx), 19);
        t.exact = true;
        check(t);
    }
}

/* Compares each element, not a norm: absolutely where the values are of order 1 and their sum
 * cancels (GELU far below 0), relatively elsewhere. */
static void assert_each_close(
    choir__unary_op op, const float *x, const float *y, int64_t n, const char *what)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    choir__cpu_reference.unary(
        &(choir__k_unary){.x = wide, .y = wide, .n = n, .op = op, .dtype = CHOIR_F64});
    for (int64_t i = 0; i < n; i++) {
        double ref = (double)(float)wide[i], out = (double)y[i];
        bool cancels = op == CHOIR__GELU || op == CHOIR__GELU_TANH || op == CHOIR__SILU;
        double unit = cancels ? fmax(fabs(ref), 0.1) : fabs(ref);
        bool tiny = fabs(ref) < 1.2e-38 && fabs(out) < 1.3e-38; /* denormals may be flushed */
        if (!same_value(out, ref) && !tiny && !(fabs(out - ref) <= 3e-6 * unit))
            fail_msg("%s: op %d of %g is %g, not %g", what, (int)op, (double)x[i], out, ref);
    }
    free(wide);
}

static void special_values(void **state)
{
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 100, -100, 1e-30f,
        -1e-30f, 1, -1, 88.7f, 88.8f, -87.3f, -103.0f, -104.5f, 3e38f, -3e38f, 1e-40f, 0.5f, 9,
        -9, 1e4f, -1e4f};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    enum { N = CHOIR_COUNT(special) };
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (int op = 0; op < CHOIR__AFFINE; op++) {
            float y[N];
            tables[j]->unary(&(choir__k_unary){
                .x = special, .y = y, .n = N, .op = (choir__unary_op)op, .dtype = CHOIR_F32});
            assert_each_close((choir__unary_op)op, special, y, N, names[j]);
        }
}

/* Walks densely over all inputs for which exp and similar functions differ. */
static void sweep(void **state)
{
    enum { N = 20001 };
    static const choir__unary_op ops[] = {CHOIR__EXP, CHOIR__TANH, CHOIR__SIGMOID, CHOIR__GELU,
        CHOIR__GELU_TANH, CHOIR__SILU, CHOIR__LOG1P, CHOIR__EXPM1, CHOIR__ERF};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int wide = 0; wide < 2; wide++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(i - N / 2) * (wide ? 0.0105f : 0.0005f);
        for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
            for (size_t o = 0; o < CHOIR_COUNT(ops); o++) {
                tables[j]->unary(&(choir__k_unary){.x = x, .y = y, .n = N, .op = ops[o]});
                assert_each_close(ops[o], x, y, N, names[j]);
            }
    }
    free(x);
    free(y);
}

/* One element at a time gives the bits of 67 at once: a vector loop's body and remainder
 * agree. */
static void position_independence(void **state)
{
    enum { N = 67 };
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (size_t c = 0; c < CHOIR_COUNT(unary_cases); c++) {
            const unary_case *u = &unary_cases[c];
            float *x = uniform(N, u->low, u->high), *y = uniform(N, 0.1f, 1), together[N],
                  alone[N];
            choir__k_unary k = {.x = x, .y = together, .n = N, .op = u->op, .a = 0.3, .b = 0.7};
            tables[j]->unary(&k);
            for (int i = 0; i < N; i++) {
                k.x = x + i, k.y = alone + i, k.n = 1;
                tables[j]->unary(&k);
            }
            assert_memory_equal(together, alone, sizeof alone);
            choir__k_unary_backward b = {.x = x,
                .y = y,
                .gy = x,
                .gx = together,
                .n = N,
                .op = u->op,
                .a = 0.3,
                .b = 0.7};
            tables[j]->unary_backward(&b);
            for (int i = 0; i < N; i++) {
                b.x = b.gy = x + i, b.y = y + i, b.gx = alone + i, b.n = 1;
                tables[j]->unary_backward(&b);
            }
            assert_memory_equal(together, alone, sizeof alone);
            free(x);
            free(y);
        }
}

typedef struct view_case {
    int ndim;
    int64_t shape[CHOIR__MAX_DIMS];
    int64_t y[CHOIR__MAX_DIMS], a[CHOIR__MAX_DIMS], b[CHOIR__MAX_DIMS]; /* strides */
} view_case;

static const view_case view_cases[] = {
    {0, {0}, {0}, {0}, {0}},                                  /* one number */
    {1, {257}, {1}, {1}, {1}},                                /* alike */
    {1, {33}, {1}, {0}, {1}},                                 /* a scalar first */
    {1, {33}, {1}, {1}, {0}},                                 /* a scalar last */
    {1, {17}, {1}, {3}, {2}},                                 /* steps */
    {2, {7, 65}, {65, 1}, {65, 1}, {0, 1}},                   /* a bias */
    {2, {7, 65}, {65, 1}, {65, 1}, {1, 0}},                   /* one value per row */
    {2, {7, 65}, {65, 1}, {0, 1}, {1, 0}},                    /* an outer product */
    {2, {31, 17}, {17, 1}, {1, 31}, {17, 1}},                 /* a transpose */
    {2, {5, 15}, {40, 1}, {40, 1}, {40, 1}},                  /* columns of a matrix */
    {2, {31, 17}, {1, 31}, {1, 31}, {1, 31}},                 /* all transposed */
    {3, {3, 7, 33}, {231, 33, 1}, {231, 33, 1}, {0, 33, 1}},  /* a mask a batch shares */
    {3, {3, 7, 33}, {231, 33, 1}, {33, 99, 1}, {231, 33, 1}}, /* permuted */
    {3, {3, 7, 33}, {231, 33, 1}, {0, 0, 1}, {33, 0, 0}},     /* broadcast everywhere */
    {4, {2, 3, 5, 17}, {255, 85, 17, 1}, {255, 1, 51, 3},
        {0, 1, 0, 0}}, /* channels last to first */
    {6, {2, 1, 3, 2, 2, 5}, {60, 60, 20, 10, 5, 1}, {1, 0, 2, 6, 12, 24},
        {60, 9, 20, 10, 5, 1}},
};

static int64_t extent(const int64_t *shape, const int64_t *stride, int ndim)
{
    int64_t last = 0;
    for (int d = 0; d < ndim; d++)
        last += (shape[d] - 1) * stride[d];
    return last + 1;
}

static void binary(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(view_cases); c++)
        for (int op = 0; op < CHOIR__BINARY_COUNT; op++) {
            const view_case *v = &view_cases[c];
            trial t = TRIAL(binary, .ndim = v->ndim, .op = (choir__binary_op)op);
            choir__k_binary *k = (choir__k_binary *)t.args;
            memcpy(k->shape, v->shape, sizeof k->shape);
            memcpy(k->y.stride, v->y, sizeof v->y);
            memcpy(k->a.stride, v->a, sizeof v->a);
            memcpy(k->b.stride, v->b, sizeof v->b);
            int64_t na = extent(v->shape, v->a, v->ndim), nb = extent(v->shape, v->b, v->ndim);
            give(&t, AT(binary, a.p), na, uniform(na, -2, 2));
            give(&t, AT(binary, b.p), nb, uniform(nb, 0.5f, 2));
            take(&t, AT(binary, y.p), extent(v->shape, v->y, v->ndim));
            t.exact = op != CHOIR__POWER || !test_device();
            check(t);
        }
}

static void binary_in_place(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(odd_sizes); s++)
        for (int first = 0; first < 2; first++) {
            int64_t n = odd_sizes[s];
            trial t = TRIAL(binary, .ndim = 2, .shape = {3, n}, .op = CHOIR__SUB,
                .y.stride = {n, 1}, .a.stride = {n, 1}, .b.stride = {n, 1});
            give(&t, first ? AT(binary, b.p) : AT(binary, a.p), 3 * n, uniform(3 * n, -2, 2));
            give(&t, first ? AT(binary, a.p) : AT(binary, b.p), 3 * n, uniform(3 * n, -2, 2));
            in_place(&t, AT(binary, y.p));
            t.exact = true;
            check(t);
        }
}

static void add_scaled(void **state)
{
    for (size_t s = 0; s < CHOIR_COUNT(odd_sizes); s++)
        for (int variant = 0; variant < 4; variant++) { /* 1: in place; 2: b is NULL */
            int64_t n = odd_sizes[s];
            trial t = TRIAL(add_scaled, .n = n, .scale = variant == 1 ? 1.0f : 1.0f / 3);
            t.no_half = true;
            if (!(variant & 2))
                give(&t, AT(add_scaled, b), n, uniform(n, -2, 2));
            give(&t, AT(add_scaled, a), n, uniform(n, -2, 2));
            if (variant & 1)
                in_place(&t, AT(add_scaled, y));
            else
                take(&t, AT(add_scaled, y), n);
            t.exact = true;
            check(t);
        }
}

static void fill(void **state)
{
    static const double values[] = {0, 1, -1.5, 3.99, 1e-3, 300, -1e30, 1e30, NAN};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (int dtype = 0; dtype < CHOIR_DTYPE_COUNT; dtype++)
            for (size_t c = 0; c < CHOIR_COUNT(odd_sizes) * CHOIR_COUNT(values); c++) {
                unsigned char expected[1040 * 8], out[1040 * 8];
                double value = values[c % CHOIR_COUNT(values)];
                choir__k_fill k = {.n = odd_sizes[c / CHOIR_COUNT(values)],
                    .value = value,
                    .dtype = (choir_dtype)dtype};
                memset(expected, 0xA5, sizeof expected);
                memset(out, 0xA5, sizeof out);
                k.y = expected, choir__cpu_reference.fill(&k);
                k.y = out, tables[j]->fill(&k);
                assert_memory_equal(out, expected, sizeof out);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary),
        cmocka_unit_test(unary_backward),
        cmocka_unit_test(slope_at_zero),
        cmocka_unit_test(special_values),
        cmocka_unit_test(sweep),
        cmocka_unit_test(position_independence),
        cmocka_unit_test(binary),
        cmocka_unit_test(binary_in_place),
        cmocka_unit_test(add_scaled),
        cmocka_unit_test(fill),
    };
    return cmocka_run_group_tests_name("elementwise kernels", tests, NULL, NULL);
}
