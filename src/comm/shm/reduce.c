/* Sums of several arrays in the fixed tree.
 *
 * Memory is read once and written once: block by block of 8 KiB, with the partial sums of a
 * block on a stack in L1. Nodes come in order; neighbours that are halves of one node merge as
 * they come, and what remains at the end folds from the right. Each element meets the same
 * additions in the same order whatever the number of ranks, the slice or the block it falls
 * into, so the bits are those of choir__tree_sum.
 *
 * The loops are plain additions (no multiply-add to contract), so compiling them again for
 * wider vectors changes no bit. */
#include "comm/shm/reduce.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The resolvers behind target_clones run before the sanitizers' runtime is up. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&         \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CLONES
#endif

/* Each loop touches element i alone, so out may be a or b: ivdep says that much. */
#define COMBINE(name, type, x, expression)                                                     \
    CLONES static void name(void *out_, const void *a_, const void *b_, int64_t n)             \
    {                                                                                          \
        type *out = out_;                                                                      \
        const type *a = a_, *b = b_;                                                           \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                   \
        {                                                                                      \
            type x = a[i], y = b[i];                                                           \
            out[i] = expression;                                                               \
        }                                                                                      \
    }

/* Integers wrap around; a NaN wins over any number. */
COMBINE(sum_f32, float, x, x + y)
COMBINE(sum_f64, double, x, x + y)
COMBINE(sum_i64, uint64_t, x, x + y)
COMBINE(sum_i32, uint32_t, x, x + y)
COMBINE(min_f32, float, x, x < y || x != x ? x : y)
COMBINE(min_f64, double, x, x < y || x != x ? x : y)
COMBINE(min_i64, int64_t, x, x < y ? x : y)
COMBINE(min_i32, int32_t, x, x < y ? x : y)
COMBINE(max_f32, float, x, x > y || x != x ? x : y)
COMBINE(max_f64, double, x, x > y || x != x ? x : y)
COMBINE(max_i64, int64_t, x, x > y ? x : y)
COMBINE(max_i32, int32_t, x, x > y ? x : y)

#define RESCALE(name, type, expression)                                                        \
    CLONES static void name(void *x_, int64_t n, double scale, int64_t divisor)                \
    {                                                                                          \
        type *x = x_;                                                                          \
        (void)scale;                                                                           \
        (void)divisor;                                                                         \
        for (int64_t i = 0; i < n; i++)                                                        \
            x[i] = expression;                                                                 \
    }

RESCALE(scale_f32, float, x[i] * (float)scale)
RESCALE(scale_f64, double, x[i] * scale)
RESCALE(divide_i64, int64_t, x[i] / divisor)
RESCALE(divide_i32, int32_t, x[i] / (int32_t)divisor)

const choir__arith *choir__arith_find(choir_dtype dtype, choir_reduce_op op)
{
    static const choir__arith table[CHOIR_DTYPE_COUNT][CHOIR_MAX + 1] = {
        [CHOIR_F32] = {[CHOIR_SUM] = {4, sum_f32, scale_f32},
            [CHOIR_MEAN] = {4, sum_f32, scale_f32},
            [CHOIR_MIN] = {4, min_f32, scale_f32},
            [CHOIR_MAX] = {4, max_f32, scale_f32}},
        [CHOIR_F64] = {[CHOIR_SUM] = {8, sum_f64, scale_f64},
            [CHOIR_MEAN] = {8, sum_f64, scale_f64},
            [CHOIR_MIN] = {8, min_f64, scale_f64},
            [CHOIR_MAX] = {8, max_f64, scale_f64}},
        [CHOIR_I64] = {[CHOIR_SUM] = {8, sum_i64, divide_i64},
            [CHOIR_MEAN] = {8, sum_i64, divide_i64},
            [CHOIR_MIN] = {8, min_i64, divide_i64},
            [CHOIR_MAX] = {8, max_i64, divide_i64}},
        [CHOIR_I32] = {[CHOIR_SUM] = {4, sum_i32, divide_i32},
            [CHOIR_MEAN] = {4, sum_i32, divide_i32},
            [CHOIR_MIN] = {4, min_i32, divide_i32},
            [CHOIR_MAX] = {4, max_i32, divide_i32}},
    };
    if ((unsigned)dtype >= CHOIR_DTYPE_COUNT || (unsigned)op > CHOIR_MAX)
        return NULL;
    const choir__arith *found = &table[dtype][op];
    return found->size ? found : NULL;
}

/* --- one block --- */

/* What is on the stack: a node and where its sum lies (a source, or this level's buffer). */
typedef struct partial {
    choir__node node;
    const char *at;
} partial;

/* The tree over all sources at elements [first, first + n), before scaling; lands in result. */
static void reduce_block(
    const choir__reduction *r, char *scratch, int64_t first, int64_t n, char *result)
{
    partial stack[CHOIR__REDUCE_LEVELS];
    size_t offset = (size_t)first * r->arith->size;
    int top = 0, left = r->sources - 1; /* combinations to go: the last one writes the result */
    for (int i = 0; i < r->sources; i++) {
        stack[top++] = (partial){r->nodes[i], r->from[i] + offset};
        bool last = i == r->sources - 1;
        while (top > 1 &&
               (last || choir__tree_siblings(stack[top - 2].node, stack[top - 1].node))) {
            partial *p = &stack[top - 2];
            char *out = --left ? scratch + (size_t)(top - 2) * CHOIR__BLOCK : result;
            r->arith->combine(out, p->at, p[1].at, n);
            p->at = out;
            p->node.leaves += p[1].node.leaves;
            top--;
        }
    }
    if (r->sources == 1 && stack[0].at != result)
        memcpy(result, stack[0].at, (size_t)n * r->arith->size);
}

static void stream(char *to, const char *from, size_t bytes)
{
#ifdef __SSE2__
    if ((uintptr_t)to % 16 == 0) {
        size_t whole = bytes / 16 * 16;
        for (size_t i = 0; i < whole; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i),
                _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        to += whole, from += whole, bytes -= whole;
    }
#endif
    memcpy(to, from, bytes);
}

void choir__reduce(const choir__reduction *r, char *scratch, int64_t begin, int64_t end)
{
    size_t size = r->arith->size;
    int64_t step = (int64_t)(CHOIR__BLOCK / size);
    char *buffer = scratch + (size_t)CHOIR__REDUCE_LEVELS * CHOIR__BLOCK;
    for (int64_t first = begin; first < end; first += step) {
        int64_t n = choir__min(step, end - first);
        size_t offset = (size_t)first * size, bytes = (size_t)n * size;
        char *result = r->stream ? buffer : r->to[0] + offset;
        reduce_block(r, scratch, first, n, result);
        if (r->scale != 1 || r->divisor != 1)
            r->arith->rescale(result, n, r->scale, r->divisor);
        for (int i = !r->stream; i < r->outputs; i++) {
            if (r->stream)
                stream(r->to[i] + offset, result, bytes);
            else
                memcpy(r->to[i] + offset, result, bytes);
        }
    }
#ifdef __SSE2__
    if (r->stream)
        _mm_sfence(); /* before the step that says it is there */
#endif
}

void choir__reduce_slice(
    int64_t count, size_t size, int rank, int world, int64_t *lo, int64_t *hi)
{
    int64_t line = 64 / (int64_t)size, lines = (count + line - 1) / line;
    *lo = choir__min(lines * rank / world * line, count);
    *hi = choir__min(lines * (rank + 1) / world * line, count);
}
