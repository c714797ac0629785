/* choir__reduce against the definition (one element at a time, recursively down the tree), for
 * every element type, operation and number of sources. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include "check.h"
#include "base/half.h"
#include "comm/reduce.h"

enum { COUNT = 5000, MAX_SOURCES = 9, OUTPUTS = 2 }; /* more than two blocks of any type */

typedef struct setting {
    choir_dtype dtype;
    choir_reduce_op op;
    int sources;
    choir__node nodes[CHOIR__MAX_NODES];
    char *from[CHOIR__MAX_NODES];
} setting;

/* A number of any type. Integers wrap in 64 bits. */
typedef struct value {
    double f64;
    float f32; /* also bf16 and f16 */
    uint64_t bits;
} value;

static bool is_half(choir_dtype d)
{
    return d == CHOIR_BF16 || d == CHOIR_F16;
}

static value load(choir_dtype dtype, const char *at)
{
    value v = {0};
    uint16_t half;
    memcpy(&half, at, sizeof half);
    switch (dtype) {
    case CHOIR_F32: memcpy(&v.f32, at, 4); break;
    case CHOIR_F64: memcpy(&v.f64, at, 8); break;
    case CHOIR_BF16: v.f32 = choir__f32_from_bf16(half); break;
    case CHOIR_F16: v.f32 = choir__f32_from_f16(half); break;
    case CHOIR_I64: memcpy(&v.bits, at, 8); break;
    case CHOIR_I32: v.bits = (uint64_t)(int64_t) * (const int32_t *)(const void *)at; break;
    case CHOIR_BOOL: v.bits = *at != 0; break;
    default: v.bits = (uint8_t)*at; break;
    }
    return v;
}

static bool same(choir_dtype dtype, const char *got, value want)
{
    value g = load(dtype, got);
    switch (dtype) {
    case CHOIR_F32: return isnan(want.f32) ? isnan(g.f32) : !memcmp(&g.f32, &want.f32, 4);
    case CHOIR_F64: return isnan(want.f64) ? isnan(g.f64) : !memcmp(&g.f64, &want.f64, 8);
    case CHOIR_BF16: want.f32 = choir__f32_from_bf16(choir__bf16_from_f32(want.f32)); break;
    case CHOIR_F16: want.f32 = choir__f32_from_f16(choir__f16_from_f32(want.f32)); break;
    case CHOIR_I64: return g.bits == want.bits;
    case CHOIR_I32: return (uint32_t)g.bits == (uint32_t)want.bits;
    default: return (uint8_t)g.bits == (uint8_t)want.bits;
    }
    return isnan(want.f32) ? isnan(g.f32) : !memcmp(&g.f32, &want.f32, 4);
}

/* Floats are computed in their own type; signed integers are compared as signed. */
static value apply(choir_dtype dtype, choir_reduce_op op, value a, value b)
{
    value r = {0};
    bool wide = dtype == CHOIR_F64, less = wide ? a.f64 < b.f64 : a.f32 < b.f32;
    bool more = wide ? a.f64 > b.f64 : a.f32 > b.f32, nan = isnan(a.f64) || isnan(a.f32);
    if (dtype >= CHOIR_I64)
        less = (int64_t)a.bits<(int64_t)b.bits, more = (int64_t)a.bits>(int64_t) b.bits;
    switch (op) {
    case CHOIR_SUM:
    case CHOIR_MEAN:
        r = (value){a.f64 + b.f64, a.f32 + b.f32, a.bits + b.bits};
        if (dtype == CHOIR_BOOL)
            r.bits = a.bits | b.bits;
        break;
    case CHOIR_PRODUCT: r = (value){a.f64 * b.f64, a.f32 * b.f32, a.bits * b.bits}; break;
    case CHOIR_MIN: r = less || nan ? a : b; break;
    case CHOIR_MAX: r = more || nan ? a : b; break;
    case CHOIR_BAND: r.bits = a.bits & b.bits; break;
    case CHOIR_BOR: r.bits = a.bits | b.bits; break;
    default: r.bits = a.bits ^ b.bits; break;
    }
    if (dtype == CHOIR_I32) /* as they wrap */
        r.bits = (uint64_t)(int64_t)(int32_t)(uint32_t)r.bits;
    return r;
}

/* Returns the node of n leaves from lo: a source, or the sum of two halves, split at the
 * largest power of two below n. */
static value tree(const setting *s, int64_t lo, int64_t n, size_t at)
{
    for (int i = 0; i < s->sources; i++)
        if (s->nodes[i].start == lo && s->nodes[i].leaves == n)
            return load(s->dtype, s->from[i] + at);
    int64_t half = 1;
    while (half * 2 < n)
        half *= 2;
    return apply(s->dtype, s->op, tree(s, lo, half, at), tree(s, lo + half, n - half, at));
}

static value divided(const setting *s, value v, int by)
{
    if (s->op != CHOIR_MEAN)
        return v;
    v.f64 *= 1.0 / by;
    v.f32 *= (float)(1.0 / by);
    v.bits = (uint64_t)((int64_t)v.bits / by);
    return v;
}

/* Fills with random bits: some floats are infinite, NaN or subnormal, most have magnitudes that
 * add up. */
static void fill(choir_dtype dtype, char *at, uint64_t *state)
{
    for (int i = 0; i < COUNT; i++) {
        uint64_t r = *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        r ^= r >> 29;
        float small = (float)((int64_t)(r % 20001) - 10000) / 64;
        bool any = r >> 40 & 15; /* one in sixteen is anything at all */
        if (any && dtype == CHOIR_F32)
            ((float *)(void *)at)[i] = small;
        else if (any && dtype == CHOIR_F64)
            ((double *)(void *)at)[i] = (double)small / 3;
        else if (any && dtype == CHOIR_BF16)
            ((uint16_t *)(void *)at)[i] = choir__bf16_from_f32(small);
        else if (any && dtype == CHOIR_F16)
            ((uint16_t *)(void *)at)[i] = choir__f16_from_f32(small);
        else if (dtype == CHOIR_BOOL)
            at[i] = (char)(r >> 60 & 1 ? r >> 50 : 0);
        else
            memcpy(at + (size_t)i * choir_dtype_size(dtype), &r, choir_dtype_size(dtype));
    }
}

/* Checks elements [3, COUNT - 2) of the reduction, written to OUTPUTS places. */
static void check(setting *s, int64_t leaves, bool stream, int own)
{
    static _Alignas(64) char scratch[CHOIR__REDUCE_SCRATCH];
    const choir__arith *arith = choir__arith_find(s->dtype, s->op);
    const size_t size = arith->size, bytes = COUNT * size;
    char *out[OUTPUTS], *untouched = calloc(COUNT, size), *place = calloc(COUNT, size);
    out[1] = malloc(bytes);
    out[0] = own >= 0 ? place : malloc(bytes); /* place: the source `own`, but for its values */
    memset(out[1], 0x5a, bytes);
    memset(untouched, 0x5a, bytes);
    const char *from[CHOIR__MAX_NODES];
    for (int i = 0; i < s->sources; i++)
        from[i] = i == own ? place : s->from[i];
    if (own >= 0)
        memcpy(place, s->from[own], bytes);
    int divisor = s->op == CHOIR_MEAN ? (int)leaves : 1;
    choir__reduce_task r = {.arith = arith,
        .nodes = s->nodes,
        .from = from,
        .to = out,
        .sources = s->sources,
        .outputs = OUTPUTS,
        .scale = 1.0 / divisor,
        .divisor = divisor,
        .stream = stream};
    choir__reduce(&r, scratch, 3, COUNT - 2);
    for (size_t i = 3; i < COUNT - 2; i++) {
        value want = divided(s, tree(s, 0, leaves, i * size), divisor);
        for (int k = 0; k < OUTPUTS; k++)
            if (!same(s->dtype, out[k] + i * size, want))
                fail_msg("%s, operation %d, %d sources, element %zu, output %d is wrong",
                    choir_dtype_name(s->dtype), (int)s->op, s->sources, i, k);
    }
    assert_memory_equal(out[1], untouched, 3 * size);
    assert_memory_equal(out[1] + (COUNT - 2) * size, untouched, 2 * size);
    if (own < 0)
        free(out[0]);
    free(out[1]);
    free(place);
    free(untouched);
}

static bool exists(choir_dtype dtype, choir_reduce_op op)
{
    bool real = dtype == CHOIR_F32 || dtype == CHOIR_F64 || is_half(dtype);
    return !(real && op >= CHOIR_BAND) && !(dtype == CHOIR_BOOL && op == CHOIR_MEAN);
}

static void every_type_and_operation(void **unused)
{
    for (int d = 0; d < CHOIR_DTYPE_COUNT; d++)
        for (int op = 0; op < CHOIR_REDUCE_OP_COUNT; op++) {
            setting s = {.dtype = (choir_dtype)d, .op = (choir_reduce_op)op};
            const choir__arith *arith = choir__arith_find(s.dtype, s.op);
            assert_int_equal(arith != NULL, exists(s.dtype, s.op));
            if (!arith)
                continue;
            assert_int_equal(arith->size, choir_dtype_size(s.dtype));
            uint64_t random = (uint64_t)d * 64 + (uint64_t)op;
            for (int i = 0; i < MAX_SOURCES; i++) {
                s.nodes[i] = (choir__node){i, 1};
                s.from[i] = malloc(COUNT * arith->size);
                fill(s.dtype, s.from[i], &random);
            }
            for (s.sources = 1; s.sources <= MAX_SOURCES; s.sources++)
                check(&s, s.sources, s.sources % 2, s.sources % 3 ? s.sources / 2 : -1);
            for (int i = 0; i < MAX_SOURCES; i++)
                free(s.from[i]);
        }
    assert_null(choir__arith_find(CHOIR_DTYPE_COUNT, CHOIR_SUM));
    assert_null(choir__arith_find(CHOIR_F32, CHOIR_REDUCE_OP_COUNT));
}

/* Sources that hold several leaves, like a rank's run of micro-batches. */
static void nodes_of_many_leaves(void **unused)
{
    static const choir_dtype types[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16, CHOIR_U8};
    uint64_t random = 1;
    for (size_t t = 0; t < CHOIR_COUNT(types); t++)
        for (int64_t leaves = 1; leaves <= 23; leaves++)
            for (int world = 1; world <= 5; world += 2) {
                setting s = {.dtype = types[t], .op = CHOIR_MEAN};
                for (int r = 0; r < world; r++) {
                    int64_t lo, hi;
                    choir__tree_run(leaves, r, world, &lo, &hi);
                    choir__node nodes[CHOIR__MAX_NODES];
                    int n = choir__tree_nodes(lo, hi, nodes);
                    memcpy(s.nodes + s.sources, nodes, (size_t)n * sizeof *nodes);
                    s.sources += n;
                }
                for (int i = 0; i < s.sources; i++) {
                    s.from[i] = malloc(COUNT * choir_dtype_size(s.dtype));
                    fill(s.dtype, s.from[i], &random);
                }
                check(&s, leaves, leaves % 2, -1);
                for (int i = 0; i < s.sources; i++)
                    free(s.from[i]);
            }
}

/* Sums are in f32: in bf16, 256 + 1 would be 256 again and again. */
static void rounded_once(void **unused)
{
    static _Alignas(64) char scratch[CHOIR__REDUCE_SCRATCH];
    uint16_t values[9], result;
    const char *from[9];
    choir__node nodes[9];
    char *to = (char *)&result;
    for (int i = 0; i < 9; i++) {
        values[i] = choir__bf16_from_f32(i == 8 ? 256 : 1);
        from[i] = (const char *)&values[i];
        nodes[i] = (choir__node){i, 1};
    }
    choir__reduce_task r = {.arith = choir__arith_find(CHOIR_BF16, CHOIR_SUM),
        .nodes = nodes,
        .from = from,
        .to = &to,
        .sources = 9,
        .outputs = 1,
        .scale = 1,
        .divisor = 1};
    choir__reduce(&r, scratch, 0, 1);
    assert_true(choir__f32_from_bf16(result) == 264);
    values[0] = choir__bf16_from_f32(0x1p127f), values[1] = values[0]; /* beyond, and back */
    r.scale = 1.0 / 9;
    choir__reduce(&r, scratch, 0, 1);
    assert_true(isinf(choir__f32_from_bf16(result)));
}

/* Without `wide`, each step rounds: algorithms that pass on partial results work like this. */
static void rounded_each_time(void **unused)
{
    for (int d = CHOIR_BF16; d <= CHOIR_F16; d++)
        for (int op = CHOIR_SUM; op <= CHOIR_PRODUCT; op++) {
            const choir__arith *arith = choir__arith_find((choir_dtype)d, (choir_reduce_op)op);
            uint64_t random = 7;
            uint16_t *a = malloc(2 * COUNT), *b = malloc(2 * COUNT), *out = malloc(2 * COUNT);
            fill((choir_dtype)d, (char *)a, &random);
            fill((choir_dtype)d, (char *)b, &random);
            arith->combine(out, a, b, COUNT);
            for (int i = 0; i < COUNT; i++)
                assert_true(same((choir_dtype)d, (char *)(out + i),
                    apply((choir_dtype)d, (choir_reduce_op)op,
                        load((choir_dtype)d, (char *)(a + i)),
                        load((choir_dtype)d, (char *)(b + i)))));
            memcpy(out, a, 2 * COUNT);
            arith->rescale(out, COUNT, 1.0 / 3, 3);
            for (int i = 0; i < COUNT; i++) {
                value third = load((choir_dtype)d, (char *)(a + i));
                third.f32 *= (float)(1.0 / 3);
                assert_true(same((choir_dtype)d, (char *)(out + i), third));
            }
            free(a);
            free(b);
            free(out);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation),
        cmocka_unit_test(nodes_of_many_leaves),
        cmocka_unit_test(rounded_once),
        cmocka_unit_test(rounded_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
