/* Every collective of the shared-memory engine, for each placement of the data: in private
 * memory, in memory that all ranks map, or one here and one there; in place and not; small
 * enough for one step, and of several chunks. The ranks are forks of this program. */
#include <stdio.h>
#include <stdlib.h>
#include <choir/group.h>

#include "check.h"
#include "base/base.h"
#include "base/half.h"
#include "comm/group.h"
#include "multi/ranks.h"
#include "sample.h"

enum { LARGEST = 40001, GUARD = 64 };

static const int worlds[] = {1, 2, 3, 5, 6, 8};
static const int64_t sizes[] = {0, 1, 63, 700, 9001, LARGEST};

/* Where a test puts its two arrays. */
typedef enum layout { PRIVATE, SHARED, IN_SHARED, OUT_SHARED, MIXED, LAYOUTS } layout;

typedef struct room {
    choir_group *group;
    int rank, world;
    char *private_in, *private_out, *shared_in, *shared_out;
    char *in, *out; /* as the layout says */
} room;

static void place(room *r, layout l)
{
    bool odd = r->rank % 2;
    bool in = l == SHARED || l == IN_SHARED || (l == MIXED && odd);
    bool out = l == SHARED || l == OUT_SHARED || (l == MIXED && !odd);
    r->in = in ? r->shared_in + 8 * (size_t)(r->rank % 3) : r->private_in;
    r->out = out ? r->shared_out + 8 * (size_t)(r->rank % 3) : r->private_out;
}

/* Returns element i of a rank's data; the value identifies both the rank and i. */
static int32_t value(int rank, int64_t i)
{
    uint64_t z = ((uint64_t)i * 64 + (uint64_t)rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (int32_t)(z >> 33) % 20011 - 10005;
}

static void fill(char *at, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)(void *)at)[i] = value(rank, i);
}

static void wipe(char *at, int64_t n)
{
    memset(at, 0x77, (size_t)n * 4 + GUARD);
}

/* Checks that n elements equal a rank's data from element `first` on. */
static bool holds(const char *at, int rank, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (((const int32_t *)(const void *)at)[i] != value(rank, first + i))
            return false;
    return true;
}

static bool untouched(const char *at)
{
    for (int i = 0; i < GUARD; i++)
        if (at[i] != 0x77)
            return false;
    return true;
}

#define AT(base, element) ((base) + (size_t)(element)*4)

/* --- moves --- */

static int moves(room *r, int64_t n, int root)
{
    choir_group *g = r->group;
    bool is_root = r->rank == root;
    wipe(r->out, n);
    fill(r->out, r->rank, n);
    CHECK_OK(choir_group_broadcast(g, r->out, n, CHOIR_I32, root, NULL));
    CHECK(holds(r->out, root, 0, n) && untouched(AT(r->out, n)));

    fill(r->in, r->rank, n);
    wipe(r->out, n * r->world);
    CHECK_OK(choir_group_gather(g, r->in, is_root ? r->out : NULL, n, CHOIR_I32, root, NULL));
    for (int s = 0; s < r->world && is_root; s++)
        CHECK(holds(AT(r->out, s * n), s, 0, n));
    CHECK(untouched(is_root ? AT(r->out, r->world * n) : r->out));

    wipe(r->out, n * r->world);
    CHECK_OK(choir_group_all_gather(g, r->in, r->out, n, CHOIR_I32, NULL));
    for (int s = 0; s < r->world; s++)
        CHECK(holds(AT(r->out, s * n), s, 0, n));
    CHECK(untouched(AT(r->out, r->world * n)) && holds(r->in, r->rank, 0, n));

    wipe(r->out, n * r->world); /* in place */
    fill(AT(r->out, r->rank * n), r->rank, n);
    CHECK_OK(choir_group_all_gather(g, AT(r->out, r->rank * n), r->out, n, CHOIR_I32, NULL));
    for (int s = 0; s < r->world; s++)
        CHECK(holds(AT(r->out, s * n), s, 0, n));

    fill(r->in, r->rank, n * r->world);
    wipe(r->out, n);
    CHECK_OK(choir_group_scatter(g, is_root ? r->in : NULL, r->out, n, CHOIR_I32, root, NULL));
    CHECK(holds(r->out, root, r->rank * n, n) && untouched(AT(r->out, n)));
    return 0;
}

static int all_to_alls(room *r, int64_t n)
{
    choir_group *g = r->group;
    int64_t gives[64], wants[64], at = 0;
    fill(r->in, r->rank, n * r->world);
    wipe(r->out, n * r->world);
    CHECK_OK(choir_group_all_to_all(g, r->in, r->out, n, CHOIR_I32, NULL));
    for (int s = 0; s < r->world; s++)
        CHECK(holds(AT(r->out, s * n), s, r->rank * n, n));
    CHECK(untouched(AT(r->out, r->world * n)) && holds(r->in, r->rank, 0, n * r->world));

    CHECK_OK(choir_group_all_to_all(g, r->in, r->in, n, CHOIR_I32, NULL)); /* in place */
    for (int s = 0; s < r->world; s++)
        CHECK(holds(AT(r->in, s * n), s, r->rank * n, n));

    /* Rank s sends (s + d) % 4 quarters of n to rank d: some parts are empty, and so is rank
     * 0's for itself. */
    fill(r->in, r->rank, n * r->world);
    wipe(r->out, n * r->world);
    for (int d = 0; d < r->world; d++)
        gives[d] = wants[d] = n / 4 * ((r->rank + d) % 4);
    CHECK_OK(choir_group_all_to_all_uneven(g, r->in, gives, r->out, wants, CHOIR_I32, NULL));
    for (int s = 0; s < r->world; s++) {
        int64_t first = 0;
        for (int d = 0; d < r->rank; d++)
            first += n / 4 * ((s + d) % 4);
        CHECK(holds(AT(r->out, at), s, first, wants[s]));
        at += wants[s];
    }
    CHECK(untouched(AT(r->out, at)));
    return 0;
}

/* --- reductions --- */

static const choir_dtype dtypes[] = {
    CHOIR_F32, CHOIR_F64, CHOIR_BF16, CHOIR_F16, CHOIR_I64, CHOIR_I32, CHOIR_U8, CHOIR_BOOL};

/* Exact in every type: 1 or 2 as floats, small as integers; sums of 8 ranks fit all. */
static void store(choir_dtype dtype, char *at, int64_t i, double x)
{
    uint16_t half =
        dtype == CHOIR_BF16 ? choir__bf16_from_f32((float)x) : choir__f16_from_f32((float)x);
    switch (dtype) {
    case CHOIR_F32: ((float *)(void *)at)[i] = (float)x; break;
    case CHOIR_F64: ((double *)(void *)at)[i] = x; break;
    case CHOIR_I64: ((int64_t *)(void *)at)[i] = (int64_t)x; break;
    case CHOIR_I32: ((int32_t *)(void *)at)[i] = (int32_t)x; break;
    case CHOIR_U8: ((uint8_t *)(void *)at)[i] = (uint8_t)x; break;
    case CHOIR_BOOL: ((uint8_t *)(void *)at)[i] = x != 0; break;
    default: ((uint16_t *)(void *)at)[i] = half; break;
    }
}

static double small(choir_dtype dtype, int rank, int64_t i)
{
    int32_t v = value(rank, i);
    return dtype == CHOIR_BOOL ? v & 1 : 1 + (v & 1);
}

static double reduced(choir_dtype dtype, choir_reduce_op op, int world, int64_t i)
{
    double x = small(dtype, 0, i);
    for (int r = 1; r < world; r++) {
        double y = small(dtype, r, i);
        switch (op) {
        case CHOIR_MIN: x = x < y ? x : y; break;
        case CHOIR_MAX: x = x > y ? x : y; break;
        case CHOIR_PRODUCT: x *= y; break;
        case CHOIR_BAND: x = (double)((int)x & (int)y); break;
        case CHOIR_BOR: x = (double)((int)x | (int)y); break;
        case CHOIR_BXOR: x = (double)((int)x ^ (int)y); break;
        default: x += y; break;
        }
    }
    if (op == CHOIR_MEAN && dtype >= CHOIR_I64)
        x = (double)((int64_t)x / world);
    else if (op == CHOIR_MEAN) /* as floats of any width give it, for sums so small */
        x = dtype == CHOIR_F64 ? x * (1.0 / world) : (double)((float)x * (float)(1.0 / world));
    if (dtype == CHOIR_U8)
        x = (double)(uint8_t)(int64_t)x;
    return dtype == CHOIR_BOOL ? x != 0 : x;
}

static void fill_small(choir_dtype dtype, char *at, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        store(dtype, at, i, small(dtype, rank, i));
}

/* Checks that n elements at `at` equal the reduction from element `first` on. */
static bool is_reduced(
    choir_dtype dtype, choir_reduce_op op, int world, const char *at, int64_t first, int64_t n)
{
    size_t size = choir_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        char want[8];
        store(dtype, want, 0, reduced(dtype, op, world, first + i));
        if (memcmp(at + (size_t)i * size, want, size) != 0)
            return false;
    }
    return true;
}

static int reductions(room *r, int64_t n, choir_dtype dtype, choir_reduce_op op, int root)
{
    choir_group *g = r->group;
    size_t size = choir_dtype_size(dtype);
    int world = r->world;
    fill_small(dtype, r->in, r->rank, n);
    CHECK_OK(choir_group_all_reduce(g, r->in, n, dtype, op, NULL));
    CHECK(is_reduced(dtype, op, world, r->in, 0, n));

    fill_small(dtype, r->in, r->rank, n);
    CHECK_OK(choir_group_reduce(g, r->in, n, dtype, op, root, NULL));
    if (r->rank == root)
        CHECK(is_reduced(dtype, op, world, r->in, 0, n));
    else
        for (int64_t i = 0; i < n; i++) {
            char want[8];
            store(dtype, want, 0, small(dtype, r->rank, i));
            CHECK(memcmp(r->in + (size_t)i * size, want, size) == 0);
        }

    fill_small(dtype, r->in, r->rank, n * world);
    wipe(r->out, n);
    CHECK_OK(choir_group_reduce_scatter(g, r->in, r->out, n, dtype, op, NULL));
    CHECK(is_reduced(dtype, op, world, r->out, r->rank * n, n));
    char *own = r->in + (size_t)(r->rank * n) * size; /* in place */
    CHECK_OK(choir_group_reduce_scatter(g, r->in, own, n, dtype, op, NULL));
    CHECK(is_reduced(dtype, op, world, own, r->rank * n, n));
    return 0;
}

/* --- */

static int everything(int rank, int world, void *arg)
{
    room r = {.rank = rank, .world = world};
    choir__shared *ins, *outs;
    size_t bytes = (size_t)LARGEST * 8 * 8 + 4096;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &r.group));
    CHECK_OK(choir__shared_new(r.group, bytes, &ins));
    CHECK_OK(choir__shared_new(r.group, bytes, &outs));
    r.private_in = malloc(bytes);
    r.private_out = malloc(bytes);
    r.shared_in = choir__shared_at(ins, rank);
    r.shared_out = choir__shared_at(outs, rank);
    for (int l = 0; l < LAYOUTS; l++)
        for (size_t s = 0; s < CHOIR_COUNT(sizes); s++) {
            if (!sample_combination(3)) /* the same for all ranks */
                continue;
            int root = (int)((size_t)l + s) % world;
            place(&r, (layout)l);
            if (moves(&r, sizes[s], root) || all_to_alls(&r, sizes[s]))
                return 1;
            for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++) {
                bool real = dtypes[d] < CHOIR_I64, boolean = dtypes[d] == CHOIR_BOOL;
                int op = (int)((s + d + (size_t)l) % CHOIR_REDUCE_OP_COUNT);
                if ((op < CHOIR_BAND || !real) && !(boolean && op == CHOIR_MEAN) &&
                    reductions(&r, sizes[s], dtypes[d], (choir_reduce_op)op, root))
                    return 1;
                if (reductions(&r, sizes[s], dtypes[d], CHOIR_SUM, root))
                    return 1;
            }
        }
    free(r.private_in);
    free(r.private_out);
    choir__shared_free(ins);
    choir__shared_free(outs);
    choir_group_free(r.group);
    return 0;
}

static void test_everywhere(void **state)
{
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        ok(choir_spawn(worlds[w], everything, NULL));
}

/* A region of rank 0 that all ranks use: each its own part of it. */
static int one_region(int rank, int world, void *arg)
{
    choir_group *g;
    choir__shared *shared;
    const int64_t n = 30000;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &g));
    CHECK_OK(choir__shared_new(g, rank == 0 ? (size_t)(n * 8 * world) : 0, &shared));
    char *mine = (char *)choir__shared_at(shared, 0) + (size_t)(n * 4 * rank);
    fill_small(CHOIR_F32, mine, rank, n);
    CHECK_OK(choir_group_all_reduce(g, mine, n, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK(is_reduced(CHOIR_F32, CHOIR_SUM, world, mine, 0, n));
    fill(mine, rank, n);
    CHECK_OK(choir_group_broadcast(g, mine, n, CHOIR_I32, world - 1, NULL));
    CHECK(holds(mine, world - 1, 0, n));
    /* The whole region is the result for all ranks: each rank's part is already in place. */
    fill(mine, rank, n);
    CHECK_OK(choir_group_all_gather(g, mine, choir__shared_at(shared, 0), n, CHOIR_I32, NULL));
    for (int s = 0; s < world; s++)
        CHECK(holds(AT((char *)choir__shared_at(shared, 0), s * n), s, 0, n));
    choir__shared_free(shared);
    choir_group_free(g);
    return 0;
}

static void test_one_region(void **state)
{
    ok(choir_spawn(3, one_region, NULL));
}

/* Both ends of an uneven all_to_all must have equal counts; all ranks report the same pair. */
static int uneven_mismatch(int rank, int world, void *arg)
{
    choir_group *g;
    int32_t in[12] = {0}, out[12];
    int64_t gives[3] = {2, 2, 2}, wants[3] = {2, 2, 2};
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &g));
    if (rank == 1)
        gives[2] = 3;
    CHECK(choir_group_all_to_all_uneven(g, in, gives, out, wants, CHOIR_I32, NULL) ==
          CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), "rank 1 has 3 i32 for rank 2, which expects 2"));
    choir_group_free(g);
    return 0;
}

static void test_uneven_mismatch(void **state)
{
    ok(choir_spawn(3, uneven_mismatch, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_one_region),
        cmocka_unit_test(test_uneven_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
