/* Conformance of the optimizers, the gradient norm, dropout, random and store. */
#include "conformance/harness.h"
#include "device/code_map.h"

/* Parameters of one multi-tensor step: name, elements, elements per row, group. */
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
    parameters *start = parameters_new(amsgrad);
    bool squares = kernel == offsetof(choir__kernels, rmsprop);
    for (int i = 0; i < ENTRIES && squares; i++) /* their mean is above the mean's square */
        for (int j = 0; j < MOST; j++)
            start->v[i][j] += 1.5f;
    parameters *expected = parameters_copy(start, amsgrad), *first = NULL;
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

/* Nesterov, momentum, the first step, weight decay and clipping, each with and without. */
static void sgd(void **state)
{
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

static void lion(void **state)
{
    static const float clip = 0.3f;
    for (int v = 0; v < 8; v++) {
        choir__opt_hyper h = {.lr = 1e-2f,
            .beta1 = 0.9f,
            .beta2 = 0.99f,
            .weight_decay = v & 1 ? 0.1f : 0,
            .maximize = !!(v & 2)};
        choir__opt_hyper other = h;
        other.lr = 0.1f;
        assert_steps_alike((choir__opt_hyper[]){h, other}, v & 4 ? &clip : NULL,
            offsetof(choir__kernels, lion), false);
    }
}

/* With the mean of gradients ("centered"), or without. */
static void rmsprop(void **state)
{
    static const float clip = 0.3f;
    for (int v = 0; v < 16; v++) {
        choir__opt_hyper h = {.lr = 1e-2f,
            .beta2 = 0.99f,
            .eps = 1e-3f,
            .momentum = 0.9f,
            .weight_decay = v & 1 ? 0.1f : 0,
            .maximize = !!(v & 2)};
        choir__opt_hyper other = h;
        other.lr = 0.1f;
        other.momentum = 0.5f;
        assert_steps_alike((choir__opt_hyper[]){h, other}, v & 4 ? &clip : NULL,
            offsetof(choir__kernels, rmsprop), v & 8);
    }
}

static void lamb(void **state)
{
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

/* Parameters of zeros and no update: the norms are zero. */
static void lamb_of_zeros(void **state)
{
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

/* Many parameters, some of several thousand elements, some of 16 bits, at odd places in memory,
 * to be distributed over a GPU's blocks. row: elements per row. */
enum { MANY = 300, ROOM = 3 * 2600 + 8 };

typedef struct many {
    float *memory;
    uint16_t *half;
    choir__opt_entry entries[MANY];
    int64_t rows;
} many;

static many *many_new(const many *like, bool halves)
{
    many *p = calloc(1, sizeof *p);
    size_t bytes = (size_t)MANY * 4 * ROOM * sizeof(float);
    p->memory = malloc(bytes);
    p->half = calloc(MANY * ROOM, sizeof *p->half);
    if (like)
        memcpy(p->memory, like->memory, bytes);
    for (int64_t i = 0; i < MANY && !like; i++) {
        float *values = uniform(4 * ROOM, -1, 1);
        memcpy(p->memory + 4 * ROOM * i, values, 4 * ROOM * sizeof(float));
        free(values);
    }
    for (int64_t i = 0; i < MANY; i++) {
        int64_t rows = i % 50 == 7 ? 3 : i % 9, row = i % 50 == 7 ? 2600 : 1 + i * 11 % 70;
        float *at = p->memory + 4 * ROOM * i;
        bool half = halves && i % 3 == 1;
        p->entries[i] = (choir__opt_entry){.param = half ? NULL : at + i % 5,
            .grad = at + ROOM + i % 4 / 3,
            .m = at + 2 * ROOM + i % 7 / 4,
            .v = at + 3 * ROOM,
            .n = rows * row,
            .row = row,
            .group = (int)(i % 2),
            .whole_at = p->rows,
            .whole_rows = rows,
            .half = half ? p->half + ROOM * i + i % 5 : NULL,
            .half_dtype = i % 2 ? CHOIR_BF16 : CHOIR_F16};
        p->rows += rows;
        for (int64_t j = 0; j < ROOM && !like; j++)
            at[3 * ROOM + j] = fabsf(at[3 * ROOM + j]);
        for (int64_t j = 0; j < ROOM; j++)
            p->half[ROOM * i + j] =
                i % 2 ? choir__bf16_from_f32(at[j]) : choir__f16_from_f32(at[j]);
    }
    return p;
}

static void many_free(many *p)
{
    free(p->memory);
    free(p->half);
    free(p);
}

static double many_distance(const many *a, const many *b)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < 4 * MANY * ROOM; i++) {
        double x = (double)a->memory[i], y = (double)b->memory[i];
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static double half_distance(const many *a, const many *b)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < MANY * ROOM; i++) {
        bool bf16 = i / ROOM % 2;
        double x =
            (double)(bf16 ? choir__f32_from_bf16(a->half[i]) : choir__f32_from_f16(a->half[i]));
        double y =
            (double)(bf16 ? choir__f32_from_bf16(b->half[i]) : choir__f32_from_f16(b->half[i]));
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference / norm);
}

static const choir__opt_hyper many_hyper[2] = {{.lr = 0.1f,
                                                   .beta1 = 0.9f,
                                                   .beta2 = 0.99f,
                                                   .eps = 1e-6f,
                                                   .weight_decay = 0.1f,
                                                   .momentum = 0.9f,
                                                   .step_size = 0.03f,
                                                   .rsqrt_bias2 = 2,
                                                   .decoupled = 1,
                                                   .inv_bias1 = 3.69f,
                                                   .inv_bias2 = 25,
                                                   .take1 = 0.1f,
                                                   .trust = 1},
    {.lr = 0.01f,
        .beta1 = 0.8f,
        .beta2 = 0.9f,
        .eps = 1e-3f,
        .momentum = 0.5f,
        .step_size = 0.01f,
        .rsqrt_bias2 = 3,
        .nesterov = 1,
        .inv_bias1 = 1,
        .inv_bias2 = 1,
        .take1 = 0.2f,
        .maximize = 1}};

static void many_parameters(void **state)
{
    enum { KERNELS = 5 }; /* lamb, the last, has no parameters of 16 bits */
    static const size_t kernels[KERNELS] = {offsetof(choir__kernels, sgd),
        offsetof(choir__kernels, adam), offsetof(choir__kernels, lion),
        offsetof(choir__kernels, rmsprop), offsetof(choir__kernels, lamb)};
    static const float clip = 0.3f, skip = 1, go = 0;
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    many *start = many_new(NULL, false);
    double *rows = malloc((size_t)(2 * start->rows) * sizeof *rows);
    for (int i = 0; i < KERNELS * count; i++) {
        const bool halves = i % KERNELS < KERNELS - 1;
        const size_t kernel = kernels[i % KERNELS];
        many *out = many_new(start, halves), *expected = many_new(start, halves);
        choir__k_optim k = {.entries = expected->entries,
            .count = MANY,
            .hyper = many_hyper,
            .clip = &clip,
            .found = &go,
            .rows = rows};
        kernel_at(&choir__cpu_reference, kernel)(&k);
        k.entries = out->entries;
        kernel_at(tables[i / KERNELS], kernel)(&k);
        assert_true(many_distance(out, expected) <= 1e-6);
        assert_true(
            half_distance(out, expected) <= 1e-4); /* another rounding, here and there */
        many *same = many_new(out, false);
        k.found = &skip; /* then nothing is done */
        kernel_at(tables[i / KERNELS], kernel)(&k);
        assert_true(many_distance(out, same) == 0);
        many_free(same);
        many_free(out);
        many_free(expected);
    }
    free(rows);
    many_free(start);
}

/* --- 8-bit state: three matrices, whose rows are shorter and longer than a block --- */

enum { CODED = 3, CODED_MOST = 7 * 600, CODED_BLOCKS = 7 * 3 };

typedef struct coded {
    float param[CODED][CODED_MOST], grad[CODED][CODED_MOST];
    float m_most[CODED][CODED_BLOCKS], v_most[CODED][CODED_BLOCKS];
    uint8_t m[CODED][CODED_MOST], v[CODED][CODED_MOST];
    uint16_t half[CODED_MOST];
    choir__opt_entry entries[CODED];
} coded;

static const int64_t coded_rows[CODED] = {600, 256, 37};

static coded *coded_copy(const coded *like)
{
    coded *c = malloc(sizeof *c);
    memcpy(c, like, sizeof *c);
    for (int i = 0; i < CODED; i++)
        c->entries[i] = (choir__opt_entry){.param = i == 1 ? NULL : c->param[i],
            .grad = c->grad[i],
            .m_codes = c->m[i],
            .v_codes = c->v[i],
            .m_most = c->m_most[i],
            .v_most = c->v_most[i],
            .n = 7 * coded_rows[i],
            .row = coded_rows[i],
            .half = i == 1 ? c->half : NULL,
            .half_dtype = CHOIR_BF16};
    return c;
}

/* Any codes; the last block's state and gradients are zeros. */
static coded *coded_new(void)
{
    coded *c = calloc(1, sizeof *c), *pointed;
    for (int i = 0; i < CODED; i++)
        for (int j = 0; j < CODED_MOST; j++) {
            bool zero = j >= 6 * coded_rows[i];
            c->param[i][j] = (float)(j % 101) / 50 - 1;
            c->grad[i][j] = zero ? 0 : (float)(j * 7 % 97) / 48 - 1;
            c->m[i][j] = zero ? 0 : (uint8_t)(j * 31 % 256);
            c->v[i][j] = zero ? 0 : (uint8_t)(j * 57 % 256);
            c->m_most[i][j % CODED_BLOCKS] = 0.5f + (float)(j % CODED_BLOCKS) / 10;
            c->v_most[i][j % CODED_BLOCKS] = 0.1f + (float)(j % CODED_BLOCKS) / 7;
            c->half[j] = choir__bf16_from_f32(c->param[1][j]);
        }
    pointed = coded_copy(c);
    free(c);
    return pointed;
}

/* Codes may differ by one where a number is halfway between two. */
static void assert_codes_close(const coded *a, const coded *b, const char *isa)
{
    int apart = 0;
    for (int i = 0; i < CODED; i++)
        for (int j = 0; j < CODED_MOST; j++) {
            int m = abs(a->m[i][j] - b->m[i][j]), v = abs(a->v[i][j] - b->v[i][j]);
            if (m > 1 || v > 1)
                fail_msg("%s: codes %d and %d at %d, %d are not %d and %d", isa, a->m[i][j],
                    a->v[i][j], i, j, b->m[i][j], b->v[i][j]);
            apart += m + v;
        }
    assert_true(apart <= CODED * CODED_MOST / 1000);
}

static void assert_near(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * fmaxf(1, fabsf(b[i]))))
            fail_msg("%g at %d is not %g", (double)a[i], i, (double)b[i]);
}

static void adam_with_codes(void **state)
{
    static const choir__opt_hyper h = {.lr = 1e-2f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .weight_decay = 0.1f,
        .decoupled = 1,
        .step_size = 0.0369f,
        .rsqrt_bias2 = 15.8f};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    coded *start = coded_new(), *expected = coded_copy(start), *first = NULL;
    choir__k_adam k = {
        .entries = expected->entries, .count = CODED, .hyper = &h, .coded = true};
    choir__cpu_reference.adam(&k);
    for (int j = 0; j < count; j++) {
        coded *out = coded_copy(start);
        k.entries = out->entries;
        tables[j]->adam(&k);
        for (int i = 0; i < CODED; i++) {
            assert_near(out->param[i], expected->param[i], CODED_MOST);
            assert_near(out->m_most[i], expected->m_most[i], CODED_BLOCKS);
            assert_near(out->v_most[i], expected->v_most[i], CODED_BLOCKS);
        }
        assert_codes_close(out, expected, names[j]);
        if (first) {
            assert_memory_equal(out, first, offsetof(coded, entries));
            free(out);
        } else {
            first = out;
        }
    }
    free(first);
    free(start);
    free(expected);
}

/* The numbers of bitsandbytes' create_dynamic_map: a few of them, and that all ascend. */
static void code_maps(void **state)
{
    const choir__code_maps *maps = choir__code_maps_get();
    for (int i = 0; i < 255; i++) {
        assert_true(maps->m.value[i] < maps->m.value[i + 1]);
        assert_true(maps->v.value[i] < maps->v.value[i + 1]);
    }
    assert_true(maps->m.value[127] == 0 && maps->v.value[0] == 0);
    assert_true(maps->m.value[255] == 1 && maps->v.value[255] == 1);
    assert_true(fabsf(maps->m.value[0] + 0.99296875f) < 1e-6f);
    assert_true(fabsf(maps->v.value[254] - 0.996484375f) < 1e-6f);
    assert_true(fabsf(maps->m.value[128] - 5.5e-7f) < 1e-12f);
    assert_true(fabsf(maps->v.value[1] - 3.25e-7f) < 1e-12f);
}

/* An average takes a share, copies the parameter, or stays. */
static void average(void **state)
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    many *start = many_new(NULL, false);
    for (int i = 0; i < 3 * count; i++) {
        many *out = many_new(start, false), *expected = many_new(start, false);
        choir__opt_hyper h = {.take = i % 3 == 0 ? 0.3f : i % 3 == 1 ? 1 : 0};
        choir__k_average k = {.entries = expected->entries, .count = MANY, .hyper = &h};
        for (int e = 0; e < MANY; e++) {
            expected->entries[e].average = e % 7 ? expected->entries[e].v : NULL;
            out->entries[e].average = e % 7 ? out->entries[e].v : NULL;
        }
        choir__cpu_reference.average(&k);
        k.entries = out->entries;
        tables[i / 3]->average(&k);
        assert_true(many_distance(out, expected) <= 1e-6);
        assert_true((many_distance(out, start) > 0) == (h.take != 0));
        many_free(out);
        many_free(expected);
    }
    many_free(start);
}

/* The norms are measured, and the step uses given sums of the whole model. */
static void lamb_in_parts(void **state)
{
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    many *start = many_new(NULL, false);
    double *rows = malloc((size_t)(2 * start->rows) * sizeof *rows);
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--) {
        many *whole = many_new(start, false), *parts = many_new(start, false);
        choir__k_lamb k = {
            .entries = whole->entries, .count = MANY, .hyper = many_hyper, .rows = rows};
        tables[j]->lamb(&k);
        k.entries = parts->entries;
        k.part = CHOIR__LAMB_MEASURE;
        tables[j]->lamb(&k);
        k.part = CHOIR__LAMB_STEP;
        k.whole_rows = start->rows;
        tables[j]->lamb(&k);
        assert_memory_equal(
            whole->memory, parts->memory, (size_t)(4 * MANY * ROOM) * sizeof(float));
        many_free(whole);
        many_free(parts);
    }
    free(rows);
    many_free(start);
}

/* A row's sum depends only on the row, not on its place or on other rows. */
static void grad_norm_rows(void **state)
{
    static const int64_t widths[] = {1, 5, 31, 32, 33, 64, 127, 129, 768, 4099};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    for (int j = isa_tables(tables, names) - 1; j >= 0; j--)
        for (size_t w = 0; w < CHOIR_COUNT(widths); w++) {
            enum { COUNT = 37 };
            int64_t row = widths[w];
            float *x = uniform(COUNT * row, -1, 1), *y = malloc((size_t)(row + 3) * 4);
            double rows[COUNT], alone, exact = 0;
            choir__opt_entry e = {.grad = x, .n = COUNT * row, .row = row};
            choir__k_grad_norm k = {.entries = &e, .count = 1, .rows = rows};
            tables[j]->grad_norm(&k);
            for (int r = 0; r < COUNT; r++) {
                float *at = y + r % 4;
                choir__opt_entry one = {.grad = at, .n = row, .row = row};
                memcpy(at, x + r * row, (size_t)row * sizeof *at);
                k.entries = &one, k.rows = &alone;
                tables[j]->grad_norm(&k);
                assert_memory_equal(&alone, &rows[r], sizeof alone);
            }
            for (int64_t i = 0; i < row; i++)
                exact += (double)x[i] * (double)x[i];
            assert_true(fabs(rows[0] - exact) <= 1e-12 * exact);
            free(x);
            free(y);
        }
}

/* Leaves of both signs nearly cancel, so that any tree but the reference's shows. */
static void grad_norm_many_rows(void **state)
{
    static const int64_t counts[] = {1, 2, 3, 7, 255, 257, 2047, 2048, 2049, 5000, 70001};
    const choir__kernels *tables[MAX_TABLES];
    const char *names[MAX_TABLES];
    int count = isa_tables(tables, names);
    for (size_t i = 0; i < CHOIR_COUNT(counts); i++) {
        int64_t n = counts[i];
        float *x = uniform(n, -1, 1), norm[2], clip;
        double *leaf = malloc((size_t)n * sizeof *leaf),
               *rows = malloc((size_t)n * sizeof *rows);
        double sum = 0;
        for (int64_t r = 0; r < n; r++)
            sum += leaf[r] = (double)x[r] * 1e9 / 3;
        leaf[n / 2] += 1 - sum;
        for (int j = -1; j < count; j++) {
            choir__k_grad_norm k = {
                .given = n, .rows = rows, .norm = &norm[j >= 0], .clip = &clip};
            memcpy(rows, leaf, (size_t)n * sizeof *rows);
            (j < 0 ? &choir__cpu_reference : tables[j])->grad_norm(&k);
            assert_true(norm[0] > 0.9f && norm[0] < 1.1f);
            assert_memory_equal(&norm[0], &norm[j >= 0], sizeof norm[0]);
        }
        free(x);
        free(leaf);
        free(rows);
    }
}

/* The rows of all entries are the leaves of one tree. The first row's sum is (1 + 2^-24)^2,
 * whose root is halfway between 1 and the next float; each other row is half a unit of its last
 * place: alone it is lost, in pairs it counts. Of 3 + 2 rows the tree ((0 1) (2 3)) 4 ends
 * above the middle; adding in order, or one tree per entry, does not. */
static void grad_norm_tree(void **state)
{
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

/* The mask is exact: an element is 0 exactly where the generator says so. */
static void dropout(void **state)
{
    static const float rates[] = {0, 0.1f, 0.5f, 0.999f, 1};
    static const uint64_t step = 0x100000007;
    for (size_t i = 0; i < CHOIR_COUNT(odd_sizes) * CHOIR_COUNT(rates) * 2; i++) {
        int64_t n = odd_sizes[i / 2 / CHOIR_COUNT(rates)];
        float p = rates[i / 2 % CHOIR_COUNT(rates)];
        trial t =
            TRIAL(dropout, .step = &step, .n = n, .key = choir__rng_key(7, "dropout"), .p = p);
        give(&t, AT(dropout, x), n, uniform(n, 1, 2));
        if (i % 2)
            in_place(&t, AT(dropout, y));
        else
            take(&t, AT(dropout, y), n);
        check(t);
    }
    for (int64_t cols = 1; cols < 70; cols += 11) { /* columns of wider rows */
        trial t = TRIAL(dropout, .step = &step, .n = 3 * cols, .key = choir__rng_key(7, "part"),
            .p = 0.5f, .cols = cols, .first = 2 * cols + 1, .whole = 4 * cols + 1);
        give(&t, AT(dropout, x), 3 * cols, uniform(3 * cols, 1, 2));
        take(&t, AT(dropout, y), 3 * cols);
        check(t);
    }
}

/* The rate is a value that some element draws: that element is kept, because unit >= p. */
static void dropout_mask(void **state)
{
    enum { N = 257 };
    const uint64_t key = choir__rng_key(1, "mask"), step = 3;
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
    for (size_t i = 0; i < CHOIR_COUNT(odd_sizes) * 4; i++) {
        int64_t n = odd_sizes[i / 4];
        trial t = TRIAL(random, .n = n, .key = choir__rng_key(3, "weight"),
            .first = i % 4 / 2 ? 0x200000004 : 0, .a = -0.25, .b = 1.5, .normal = i % 2);
        take(&t, AT(random, y), n);
        check(t);
    }
}

/* Any range of a parameter has the values of the whole there, and the moments are right. */
static void random_is_a_function_of_place(void **state)
{
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
        cmocka_unit_test(adam_with_codes),
        cmocka_unit_test(code_maps),
        cmocka_unit_test(average),
        cmocka_unit_test(lion),
        cmocka_unit_test(rmsprop),
        cmocka_unit_test(lamb),
        cmocka_unit_test(lamb_of_zeros),
        cmocka_unit_test(grad_norm),
        cmocka_unit_test(grad_norm_tree),
        cmocka_unit_test(grad_norm_rows),
        cmocka_unit_test(grad_norm_many_rows),
        cmocka_unit_test(many_parameters),
        cmocka_unit_test(lamb_in_parts),
        cmocka_unit_test(dropout),
        cmocka_unit_test(dropout_mask),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(random_is_a_function_of_place),
        cmocka_unit_test(store),
    };
    return cmocka_run_group_tests_name("optimiser and random kernels", tests, NULL, NULL);
}
