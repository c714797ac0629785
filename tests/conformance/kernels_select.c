/* Conformance of the kernels that compare, choose, look up, order and reduce along a
 * dimension. */
#include "conformance/harness.h"

typedef struct view_case {
    int ndim;
    int64_t shape[CHOIR__MAX_DIMS];
    int64_t y[CHOIR__MAX_DIMS], a[CHOIR__MAX_DIMS], b[CHOIR__MAX_DIMS]; /* strides */
} view_case;

static const view_case view_cases[] = {
    {0, {0}, {0}, {0}, {0}},
    {1, {257}, {1}, {1}, {1}},
    {1, {33}, {1}, {0}, {1}},
    {1, {33}, {1}, {1}, {0}},
    {2, {7, 65}, {65, 1}, {65, 1}, {0, 1}},
    {2, {7, 65}, {65, 1}, {0, 1}, {1, 0}},
    {2, {31, 17}, {17, 1}, {1, 31}, {17, 1}},
    {3, {3, 7, 33}, {231, 33, 1}, {33, 99, 1}, {231, 33, 1}},
    {4, {2, 3, 5, 17}, {255, 85, 17, 1}, {255, 1, 51, 3}, {0, 1, 0, 0}},
};

static int64_t extent(const int64_t *shape, const int64_t *stride, int ndim)
{
    int64_t last = 0;
    for (int d = 0; d < ndim; d++)
        last += (shape[d] - 1) * stride[d];
    return last + 1;
}

/* Whole numbers, so that some are equal. */
static float *whole(int64_t n, float low, float high)
{
    float *x = uniform(n, low, high);
    for (int64_t i = 0; i < n; i++)
        x[i] = rintf(x[i]);
    return x;
}

static void comparisons(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(view_cases); c++)
        for (int op = 0; op < CHOIR__COMPARE_COUNT; op++) {
            const view_case *v = &view_cases[c];
            trial t = TRIAL(compare, .ndim = v->ndim, .op = (choir__compare_op)op);
            choir__k_compare *k = (choir__k_compare *)t.args;
            memcpy(k->shape, v->shape, sizeof k->shape);
            memcpy(k->y.stride, v->y, sizeof v->y);
            memcpy(k->a.stride, v->a, sizeof v->a);
            memcpy(k->b.stride, v->b, sizeof v->b);
            int64_t na = extent(v->shape, v->a, v->ndim), nb = extent(v->shape, v->b, v->ndim);
            float *a = whole(na, -2, 2), *b = whole(nb, -2, 2);
            a[na / 2] = NAN;
            b[nb / 3] = INFINITY;
            give(&t, AT(compare, a.p), na, a);
            give(&t, AT(compare, b.p), nb, b);
            take_raw(&t, AT(compare, y.p), extent(v->shape, v->y, v->ndim), 1);
            check(t);
        }
}

/* Integers are compared as such: doubles cannot tell these apart. */
static void compare_integers(void **state)
{
    enum { N = 21 };
    static const choir_dtype dtypes[] = {CHOIR_I64, CHOIR_I32, CHOIR_U8, CHOIR_BOOL};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    unsigned char a[N * 8], b[N * 8], y[N], expected[N];
    for (int i = 0; i < N; i++) {
        int64_t big = (INT64_C(1) << 62) + i % 3, other = (INT64_C(1) << 62) + i % 2;
        memcpy(a + 8 * i, &big, 8);
        memcpy(b + 8 * i, &other, 8);
    }
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (size_t c = 0; c < CHOIR_COUNT(dtypes) * CHOIR__COMPARE_COUNT; c++) {
            choir__k_compare k = {.a = {.p = a, .stride = {1}},
                .b = {.p = b, .stride = {1}},
                .y = {.p = expected, .stride = {1}},
                .shape = {N},
                .ndim = 1,
                .op = (choir__compare_op)(c % CHOIR__COMPARE_COUNT),
                .dtype = dtypes[c / CHOIR__COMPARE_COUNT]};
            choir__cpu_reference.compare(&k);
            k.y.p = y;
            tables[j]->compare(&k);
            assert_memory_equal(y, expected, sizeof y);
            if (k.dtype == CHOIR_I64 && k.op == CHOIR__LT)
                for (int i = 0; i < N; i++)
                    assert_int_equal(y[i], i % 3 < i % 2);
        }
}

static void where(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(view_cases); c++) {
        const view_case *v = &view_cases[c];
        trial t = TRIAL(where, .ndim = v->ndim);
        choir__k_where *k = (choir__k_where *)t.args;
        memcpy(k->shape, v->shape, sizeof k->shape);
        memcpy(k->y.stride, v->y, sizeof v->y);
        memcpy(k->a.stride, v->a, sizeof v->a);
        memcpy(k->b.stride, v->b, sizeof v->b);
        memcpy(k->mask.stride, c % 2 ? v->b : v->y, sizeof v->b);
        int64_t na = extent(v->shape, v->a, v->ndim), nb = extent(v->shape, v->b, v->ndim);
        int64_t nm = extent(v->shape, k->mask.stride, v->ndim);
        unsigned char *mask = malloc((size_t)nm);
        for (int64_t i = 0; i < nm; i++)
            mask[i] = i * i % 3 == 1;
        k->mask.p = mask;
        give(&t, AT(where, a.p), na, uniform(na, -2, 2));
        give(&t, AT(where, b.p), nb, uniform(nb, 0.5f, 2));
        take(&t, AT(where, y.p), extent(v->shape, v->y, v->ndim));
        t.exact = true;
        check(t);
        free(mask);
    }
}

/* --- along a dimension: (outer, n, inner) --- */

static const int64_t line_cases[][3] = {{1, 1, 1}, {3, 7, 1}, {1, 257, 1}, {5, 65, 1},
    {2, 9, 3}, {1, 33, 65}, {3, 5, 130}, {1, 2, 1025}};

static void extreme(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(line_cases) * 4; c++) {
        const int64_t *l = line_cases[c / 4];
        int64_t all = l[0] * l[1] * l[2];
        trial t = TRIAL(extreme, .outer = l[0], .n = l[1], .inner = l[2], .least = c % 2);
        float *x = c & 2 ? whole(all, -3, 3) : uniform(all, -5, 5);
        if (c & 2)
            x[all / 2] = x[all - 1] = NAN;
        give(&t, AT(extreme, x), all, x);
        take(&t, AT(extreme, y), l[0] * l[2]);
        if (c % 3)
            take_raw(&t, AT(extreme, index), l[0] * l[2], sizeof(int64_t));
        t.exact = true;
        check(t);
    }
}

static void cumsum(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(line_cases) * 2; c++) {
        const int64_t *l = line_cases[c / 2];
        int64_t all = l[0] * l[1] * l[2];
        trial t = TRIAL(cumsum, .outer = l[0], .n = l[1], .inner = l[2], .back = c % 2);
        give(&t, AT(cumsum, x), all, uniform(all, -1, 2));
        take(&t, AT(cumsum, y), all);
        check(t);
    }
}

/* --- lookups: x (4, 7, 5) or a tensor of the index's shape, along each dimension --- */

enum { D0 = 4, D1 = 7, D2 = 5, POINTED = D0 * D1 * D2 };

/* Indices of a shape, many of them equal. */
static int64_t *indices(int64_t n, int64_t size)
{
    int64_t *index = malloc((size_t)n * sizeof *index);
    for (int64_t i = 0; i < n; i++)
        index[i] = i * i * 7 % 11 % size;
    return index;
}

typedef struct lookup_case {
    int dim;
    int64_t shape[3], a[3], index[3]; /* of the index; strides */
} lookup_case;

static const lookup_case lookup_cases[] = {
    {0, {9, 7, 5}, {35, 5, 1}, {35, 5, 1}}, {1, {4, 3, 5}, {15, 5, 1}, {15, 5, 1}},
    {2, {4, 7, 33}, {231, 33, 1}, {231, 33, 1}}, {2, {3, 2, 4}, {8, 4, 1}, {8, 4, 1}},
    {0, {17, 7, 5}, {35, 5, 1}, {1, 0, 0}}, /* index_select */
    {1, {4, 6, 5}, {30, 5, 1}, {0, 1, 0}}, {2, {4, 7, 6}, {42, 6, 1}, {0, 0, 1}},
    {1, {4, 6, 5}, {1, 4, 24}, {30, 5, 1}}, /* another order */
};
static const int64_t pointed[3] = {D1 * D2, D2, 1}, pointed_shape[3] = {D0, D1, D2};

static void gather(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(lookup_cases); c++) {
        const lookup_case *l = &lookup_cases[c];
        int64_t n = extent(l->shape, l->index, 3);
        int64_t *index = indices(n, pointed_shape[l->dim]);
        trial t = TRIAL(
            gather, .ndim = 3, .dim = l->dim, .size = pointed_shape[l->dim], .index.p = index);
        choir__k_gather *k = (choir__k_gather *)t.args;
        memcpy(k->shape, l->shape, sizeof l->shape);
        memcpy(k->y.stride, l->a, sizeof l->a);
        memcpy(k->index.stride, l->index, sizeof l->index);
        memcpy(k->x.stride, pointed, sizeof pointed);
        give(&t, AT(gather, x.p), POINTED, uniform(POINTED, -2, 2));
        take(&t, AT(gather, y.p), extent(l->shape, l->a, 3));
        t.exact = true;
        check(t);
        free(index);
    }
}

static void scatter_add(void **state)
{
    for (size_t c = 0; c < CHOIR_COUNT(lookup_cases); c++) {
        const lookup_case *l = &lookup_cases[c];
        int64_t n = extent(l->shape, l->a, 3);
        int64_t *index = indices(extent(l->shape, l->index, 3), pointed_shape[l->dim]);
        trial t = TRIAL(scatter_add, .ndim = 3, .dim = l->dim, .size = pointed_shape[l->dim],
            .index.p = index);
        choir__k_scatter_add *k = (choir__k_scatter_add *)t.args;
        memcpy(k->shape, l->shape, sizeof l->shape);
        memcpy(k->x.stride, l->a, sizeof l->a);
        memcpy(k->index.stride, l->index, sizeof l->index);
        memcpy(k->y.stride, pointed, sizeof pointed);
        give(&t, AT(scatter_add, x.p), n, uniform(n, -2, 2));
        update(&t, AT(scatter_add, y.p), POINTED, uniform(POINTED, -1, 1));
        t.exact = true; /* terms in order: the reference's bits, on every device */
        t.no_half = true;
        check(t);
        free(index);
    }
}

/* Lines of thousands of terms: a GPU divides them among threads and blocks. */
static void scatter_long(void **state)
{
    static const struct {
        int64_t lines, n, size, hot; /* every hot-th term belongs to one element */
    } cases[] = {{1, 40, 3, 2}, {1, 5000, 97, 3}, {1, 9001, 9001, 5}, {3, 2500, 16, 1},
        {20, 700, 1000, 7}, {1, 4100, 1, 1}};
    for (size_t c = 0; c < CHOIR_COUNT(cases); c++)
        for (int inner = 0; inner < 2; inner++) { /* lines beside each other, or in a row */
            int64_t lines = cases[c].lines, n = cases[c].n, size = cases[c].size;
            int64_t *index = malloc((size_t)(lines * n) * sizeof *index);
            for (int64_t i = 0; i < lines * n; i++)
                index[i] = i % cases[c].hot ? i * 7919 % 104729 % size : size / 2;
            trial t =
                TRIAL(scatter_add, .ndim = 2, .dim = !inner, .size = size, .index.p = index);
            choir__k_scatter_add *k = (choir__k_scatter_add *)t.args;
            int64_t along[2] = {inner ? lines : n, 1};
            memcpy(k->shape, inner ? (int64_t[]){n, lines} : (int64_t[]){lines, n},
                2 * sizeof *k->shape);
            memcpy(k->x.stride, along, sizeof along);
            memcpy(k->index.stride, along, sizeof along);
            memcpy(k->y.stride, (int64_t[]){inner ? lines : size, 1}, sizeof along);
            give(&t, AT(scatter_add, x.p), lines * n, uniform(lines * n, -2, 2));
            update(&t, AT(scatter_add, y.p), lines * size, uniform(lines * size, -1, 1));
            t.exact = true;
            t.no_half = true;
            check(t);
            free(index);
        }
}

/* Permutations along a dimension, as sorting makes them. */
static void scatter_distinct(void **state)
{
    static int64_t index[POINTED];
    for (int dim = 0; dim < 3; dim++) {
        for (int64_t i = 0; i < POINTED; i++) {
            int64_t at = i / pointed[dim] % pointed_shape[dim]; /* 3 and 4, 7, 5 are coprime */
            index[i] = (3 * at + (i - at * pointed[dim]) % 11) % pointed_shape[dim];
        }
        trial t = TRIAL(scatter_add, .ndim = 3, .dim = dim, .size = pointed_shape[dim],
            .index.p = index, .distinct = true);
        choir__k_scatter_add *k = (choir__k_scatter_add *)t.args;
        memcpy(k->shape, pointed_shape, sizeof pointed_shape);
        memcpy(k->x.stride, pointed, sizeof pointed);
        memcpy(k->index.stride, pointed, sizeof pointed);
        memcpy(k->y.stride, pointed, sizeof pointed);
        give(&t, AT(scatter_add, x.p), POINTED, uniform(POINTED, -2, 2));
        update(&t, AT(scatter_add, y.p), POINTED, uniform(POINTED, -1, 1));
        t.exact = true;
        t.no_half = true;
        check(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons),
        cmocka_unit_test(compare_integers),
        cmocka_unit_test(where),
        cmocka_unit_test(extreme),
        cmocka_unit_test(cumsum),
        cmocka_unit_test(gather),
        cmocka_unit_test(scatter_add),
        cmocka_unit_test(scatter_long),
        cmocka_unit_test(scatter_distinct),
    };
    return cmocka_run_group_tests_name("selecting kernels", tests, NULL, NULL);
}
