/* Conformance of the optimisers, the gradient norm, dropout, random and store. */
#include "conformance/harness.h"

/* Parameters of one multi-tensor step: name, elements, elements a row, group. */
enum { ENTRIES = 6, MOST = 1056 };

static const int64_t entry_sizes[ENTRIES][3] = {
    {1, 1, 0}, {3, 3, 1}, {17, 1, 0}, {33 * 32, 32, 1}, {15 * 17, 17, 0}, {65, 1, 1}};

typedef struct parameters {
    float param[ENTRIES][MOST], grad[ENTRIES][MOST], m[ENTRIES][MOST], v[ENTRIES][MOST],
        top[ENTRIES][MOST];
    choir__opt_entry entries[ENTRIES];
} parameters;

static void copy_uniform(float *to, float low, float high)
{
    float *values = uniform(MOST, low, high);
    memcpy(to, values, MOST * sizeof *to);
    free(values);
}

static void point_entries(parameters *p, bool amsgrad)
{
    for (int i = 0; i < ENTRIES; i++)
        p->entries[i] = (choir__opt_entry){.param = p->param[i],
            .grad = p->grad[i],
            .m = p->m[i],
            .v = p->v[i],
            .top = amsgrad ? p->top[i] : NULL,
            .n = entry_sizes[i][0],
            .row = entry_sizes[i][1],
            .group = (int)entry_sizes[i][2]};
}

static parameters *parameters_new(bool amsgrad)
{
    parameters *p = calloc(1, sizeof *p);
    for (int i = 0; i < ENTRIES; i++) {
        copy_uniform(p->param[i], -1, 1);
        copy_uniform(p->grad[i], -2, 2);
        copy_uniform(p->m[i], -1, 1);
        copy_uniform(p->v[i], 0, 1);
        copy_uniform(p->top[i], 0, 1);
    }
    point_entries(p, amsgrad);
    return p;
}

static parameters *parameters_copy(const parameters *p, bool amsgrad)
{
    parameters *q = malloc(sizeof *q);
    memcpy(q, p, sizeof *q);
    point_entries(q, amsgrad);
    return q;
}

static void assert_close(const float *a, const float *b, const char *isa, const char *what)
{
    double wide[MOST];
    for (int i = 0; i < MOST; i++)
        wide[i] = (double)b[i];
    double d = distance(a, wide, MOST);
    if (!(d <= 1e-6))
        fail_msg("%s (%s) is off by %g", what, isa, d);
}

typedef void optim_kernel(const choir__k_optim *args);

/* The kernel at this place in a table. */
static optim_kernel *kernel_at(const choir__kernels *table, size_t place)
{
    optim_kernel *kernel;
    memcpy(&kernel, (const char *)table + place, sizeof kernel);
    return kernel;
}

/* amsgrad: entries keep the largest second moment. */
static void assert_steps_alike(
    const choir__opt_hyper hyper[2], const float *clip, size_t kernel, bool amsgrad)
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    parameters *start = parameters_new(amsgrad), *expected = parameters_copy(start, amsgrad),
               *first = NULL;
    double rows[2 * MOST];
    choir__k_optim k = {.entries = expected->entries,
        .count = ENTRIES,
        .hyper = hyper,
        .clip = clip,
        .rows = rows};
    kernel_at(&choir__cpu_reference, kernel)(&k);
    for (int j = 0; j < count; j++) {
        parameters *out = parameters_copy(start, amsgrad);
        k.entries = out->entries;
        kernel_at(tables[j], kernel)(&k);
        for (int i = 0; i < ENTRIES; i++) {
            assert_close(out->param[i], expected->param[i], names[j], "param");
            assert_close(out->m[i], expected->m[i], names[j], "m");
            assert_close(out->v[i], expected->v[i], names[j], "v");
            assert_close(out->top[i], expected->top[i], names[j], "top");
        }
        if (first)
            assert_memory_equal(out->param, first->param, offsetof(parameters, entries));
        if (first)
            free(out);
        else
            first = out;
    }
    free(first);
    free(start);
    free(expected);
}

/* Nesterov, momentum, the first step, weight decay and clipping, each there or not. */
static void sgd(void **state)
{
    (void)state;
    static const float clip = 0.3f;
    for (int v = 0; v < 32; v++) {
        choir__opt_hyper h = {.lr = 0.1f,
            .momentum = v & 1 ? 0.9f : 0,
            .nesterov = !!(v & 2),
            .first = !!(v & 4),
            .weight_decay = v & 8 ? 0.01f : 0,
            .dampening = v % 3 ? 0 : 0.1f,
            .maximize = v % 5 == 0};
        choir__opt_hyper other = h;
        other.lr = 0.03f;
        other.weight_decay = 0;
        assert_steps_alike((choir__opt_hyper[]){h, other}, v & 16 ? &clip : NULL,
            offsetof(choir__kernels, sgd), false);
    }
}

/* A plain step needs no momentum buffer. */
static void sgd_without_buffers(void **state)
{
    (void)state;
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    choir__opt_hyper h = {.lr = 0.5f};
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        float p[19], g[19];
        for (int i = 0; i < 19; i++)
            p[i] = (float)i, g[i] = 2;
        choir__opt_entry e = {.param = p, .grad = g, .n = 19, .row = 1};
        tables[j]->sgd(&(choir__k_sgd){.entries = &e, .count = 1, .hyper = &h});
        for (int i = 0; i < 19; i++)
            assert_true(p[i] == (float)i - 1);
    }
}

static void adam(void **state)
{
    (void)state;
    static const float clip = 0.3f;
    for (int v = 0; v < 16; v++) {
        choir__opt_hyper h = {.lr = 1e-2f,
            .beta1 = 0.9f,
            .beta2 = 0.999f,
            .eps = 1e-8f,
            .weight_decay = v & 1 ? 0.1f : 0,
            .decoupled = !!(v & 2),
            .maximize = v % 3 == 0,
            .step_size = 0.0369f,
            .rsqrt_bias2 = 15.8f};
        choir__opt_hyper other = h;
        other.step_size = 0.001f;
        other.eps = 0.1f;
        assert_steps_alike((choir__opt_hyper[]){h, other}, v & 4 ? &clip : NULL,
            offsetof(choir__kernels, adam), v & 8);
    }
}

static void lamb(void **state)
{
    (void)state;
    static const float clip = 0.3f;
    for (int v = 0; v < 32; v++) {
        choir__opt_hyper h = {.lr = 1e-2f,
            .beta1 = 0.9f,
            .beta2 = 0.999f,
            .eps = 1e-6f,
            .weight_decay = v & 1 ? 0.1f : 0,
            .decoupled = !!(v & 2),
            .trust = !!(v & 8),
            .maximize = !!(v & 16),
            .take1 = v % 3 ? 0.1f : 1,
            .inv_bias1 = 3.69f,
            .inv_bias2 = 250};
        choir__opt_hyper other = h;
        other.trust = !h.trust;
        other.inv_bias1 = other.inv_bias2 = 1;
        assert_steps_alike((choir__opt_hyper[]){h, other}, v & 4 ? &clip : NULL,
            offsetof(choir__kernels, lamb), false);
    }
}

/* Nothing to scale by: parameters of zeros, and no update. */
static void lamb_of_zeros(void **state)
{
    (void)state;
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count] = &choir__cpu_reference;
    choir__opt_hyper h = {.lr = 0.5f, .eps = 1, .trust = 1, .take1 = 1, .inv_bias1 = 1};
    for (int j = 0; j <= count; j++)
        for (int zero = 0; zero < 2; zero++) {
            float p[3] = {0}, g[3] = {0}, m[3] = {0}, v[3] = {0};
            double rows[6];
            for (int i = 0; i < 3; i++)
                *(zero ? &g[i] : &p[i]) = 1;
            choir__opt_entry e = {.param = p, .grad = g, .m = m, .v = v, .n = 3, .row = 1};
            tables[j]->lamb(
                &(choir__k_lamb){.entries = &e, .count = 1, .hyper = &h, .rows = rows});
            for (int i = 0; i < 3; i++)
                assert_true(p[i] == (zero ? -0.5f : 1));
        }
}

static void grad_norm(void **state)
{
    (void)state;
    static const float max_norms[] = {0, -1, 0.5f, 1e6f};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    parameters *p = parameters_new(false);
    for (int64_t entries = 0; entries <= ENTRIES; entries++)
        for (size_t m = 0; m < CHOIR_COUNT(max_norms); m++) {
            double rows[2048];
            float expected[2], first[2] = {0};
            choir__k_grad_norm k = {.entries = p->entries,
                .count = entries,
                .rows = rows,
                .norm = &expected[0],
                .clip = &expected[1],
                .max_norm = max_norms[m]};
            choir__cpu_reference.grad_norm(&k);
            for (int j = 0; j < count; j++) {
                float out[2] = {NAN, NAN};
                k.norm = &out[0], k.clip = &out[1];
                tables[j]->grad_norm(&k);
                assert_true(fabsf(out[0] - expected[0]) <= 1e-6f * expected[0]);
                assert_true(fabsf(out[1] - expected[1]) <= 1e-6f * expected[1]);
                if (j == 0)
                    memcpy(first, out, sizeof out);
                assert_memory_equal(first, out, sizeof out);
            }
        }
    free(p);
}

/* The rows of all entries are the leaves of one tree. The first row's sum is (1 + 2^-24)^2,
 * whose root lies halfway between 1 and the next float; each of the others is half a unit of
 * its last place, so alone it is lost and in pairs it counts. Of 3 + 2 rows the tree ((0 1) (2
 * 3)) 4 ends above the middle; neither adding in order does, nor a tree an entry. */
static void grad_norm_tree(void **state)
{
    (void)state;
    enum { ROW = 4 };
    float a[3][ROW] = {
        {1, 0x1p-12f, 0x1p-12f, 0x1p-24f}, {0x1p-27f, 0x1p-27f}, {0x1p-27f, 0x1p-27f}};
    float b[2][ROW] = {{0x1p-27f, 0x1p-27f}, {0x1p-27f, 0x1p-27f}};
    choir__opt_entry e[2] = {
        {.grad = a[0], .n = 3 * ROW, .row = ROW}, {.grad = b[0], .n = 2 * ROW, .row = ROW}};
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count] = &choir__cpu_reference;
    for (int j = 0; j <= count; j++) {
        double rows[5];
        float norm, clip;
        tables[j]->grad_norm(&(choir__k_grad_norm){
            .entries = e, .count = 2, .rows = rows, .norm = &norm, .clip = &clip});
        assert_true(norm == 1 + 0x1p-23f);
        assert_true(clip == 1);

        /* the same rows from two calls, as of two devices, and the tree in a third */
        norm = clip = 0;
        for (int i = 0; i < 2; i++)
            tables[j]->grad_norm(&(choir__k_grad_norm){
                .entries = &e[i], .count = 1, .given = i ? 3 : 0, .rows = rows});
        tables[j]->grad_norm(
            &(choir__k_grad_norm){.given = 5, .rows = rows, .norm = &norm, .clip = &clip});
        assert_true(norm == 1 + 0x1p-23f);
        assert_true(clip == 1);
    }
}

/* The mask is exact: an element is 0 just where the generator says so. */
static void dropout(void **state)
{
    (void)state;
    static const float rates[] = {0, 0.1f, 0.5f, 0.999f, 1};
    static const uint64_t step = 0x100000007;
    for (size_t i = 0; i < CHOIR_COUNT(odd_sizes) * CHOIR_COUNT(rates) * 2; i++) {
        int64_t n = odd_sizes[i / 2 / CHOIR_COUNT(rates)];
        float p = rates[i / 2 % CHOIR_COUNT(rates)];
        trial t =
            TRIAL(dropout, .step = &step, .n = n, .key = choir__key(7, "dropout"), .p = p);
        give(&t, AT(dropout, x), n, uniform(n, 1, 2));
        if (i % 2)
            in_place(&t, AT(dropout, y));
        else
            take(&t, AT(dropout, y), n);
        check(t);
    }
}

/* The rate itself is drawn by some element: that one is kept, for unit >= p. */
static void dropout_mask(void **state)
{
    (void)state;
    enum { N = 257 };
    const uint64_t key = choir__key(1, "mask"), step = 3;
    const choir__kernels *tables[MAX_TABLES + 1];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    tables[count] = &choir__cpu_reference;
    for (uint64_t drawn = 0; drawn < N; drawn += 16) {
        float *x = uniform(N, 1, 2), y[N];
        uint32_t word[4];
        choir__philox(key, step, drawn / 4, word);
        float p = choir__unit(word[drawn % 4]);
        for (int j = 0; j <= count; j++) {
            tables[j]->dropout(
                &(choir__k_dropout){.x = x, .y = y, .step = &step, .n = N, .key = key, .p = p});
            for (uint64_t i = 0; i < N; i++) {
                choir__philox(key, step, i / 4, word);
                assert_int_equal(y[i] != 0, choir__unit(word[i % 4]) >= p);
            }
        }
        free(x);
    }
}

static void random_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < CHOIR_COUNT(odd_sizes) * 4; i++) {
        int64_t n = odd_sizes[i / 4];
        trial t = TRIAL(random, .n = n, .key = choir__key(3, "weight"),
            .first = i % 4 / 2 ? 0x200000004 : 0, .a = -0.25, .b = 1.5, .normal = i % 2);
        take(&t, AT(random, y), n);
        check(t);
    }
}

/* Any stretch of a parameter is what the whole has there, and the moments are right. */
static void random_is_a_function_of_place(void **state)
{
    (void)state;
    enum { N = 40000, CUT = 1236 };
    float *whole = malloc(N * sizeof *whole), *part = malloc(N * sizeof *part);
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (int normal = 0; normal < 2; normal++) {
            choir__k_random k = {
                .y = whole, .n = N, .key = 99, .a = 1, .b = 3, .normal = normal};
            tables[j]->random(&k);
            k.y = part, k.first = CUT, k.n = N - CUT;
            tables[j]->random(&k);
            assert_memory_equal(part, whole + CUT, (N - CUT) * sizeof *whole);
            double mean = 0, square = 0;
            for (int i = 0; i < N; i++) {
                mean += (double)whole[i] / N;
                square += (double)whole[i] * (double)whole[i] / N;
            }
            double deviation = sqrt(square - mean * mean);
            assert_true(fabs(mean - (normal ? 1 : 2)) < 0.06);
            assert_true(fabs(deviation / (normal ? 3 : 2 / sqrt(12)) - 1) < 0.02);
        }
    free(whole);
    free(part);
}

static void store(void **state)
{
    (void)state;
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (uint32_t bytes = 0; bytes <= 240; bytes += 12) {
            unsigned char y[256], expected[256];
            choir__k_store k = {.y = y, .bytes = bytes};
            memset(y, 0xA5, sizeof y);
            memset(expected, 0xA5, sizeof expected);
            for (uint32_t i = 0; i < bytes; i++)
                expected[i] = k.data[i] = (unsigned char)(i * 7);
            tables[j]->store(&k);
            assert_memory_equal(y, expected, sizeof y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd),
        cmocka_unit_test(sgd_without_buffers),
        cmocka_unit_test(adam),
        cmocka_unit_test(lamb),
        cmocka_unit_test(lamb_of_zeros),
        cmocka_unit_test(grad_norm),
        cmocka_unit_test(grad_norm_tree),
        cmocka_unit_test(dropout),
        cmocka_unit_test(dropout_mask),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(random_is_a_function_of_place),
        cmocka_unit_test(store),
    };
    return cmocka_run_group_tests_name("optimiser and random kernels", tests, NULL, NULL);
}
