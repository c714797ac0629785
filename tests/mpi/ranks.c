/* The program that the scripts of this folder start under mpirun. `ranks SCENARIO` checks one
 * promise of the engine.
 *
 * Values follow from rank and place, so every rank knows the data of all others and checks
 * bits: results equal those of choir__reduce over all ranks' data. A rank that fails prints the
 * place and exits with status 1. */
#include <choir/choir.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "comm/group.h"
#include "comm/reduce.h"
#include "failures.h"
#include "multi/ranks.h"
#include "rows_fixture.h"

static int rank, world;
static long checks;

/* Numbers from 1 to 5 and their quarters: sums of 16-bit floats and products stay finite. */
static void fill(void *data, int64_t count, choir_dtype dtype, int of, int salt)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t h = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(of * 31 + salt) * 40503u);
        h ^= h >> 15;
        float value = 1.0f + (float)(h % 17) * (dtype == CHOIR_F32 ? 0.2371f : 0.25f);
        uint32_t whole = h % 3 + 1;
        switch (dtype) {
        case CHOIR_F32: ((float *)data)[i] = value; break;
        case CHOIR_F64: ((double *)data)[i] = (double)value / 3; break;
        case CHOIR_BF16: choir__narrow_bf16((uint16_t *)data + i, &value, 1); break;
        case CHOIR_F16: choir__narrow_f16((uint16_t *)data + i, &value, 1); break;
        case CHOIR_I64: ((int64_t *)data)[i] = (int64_t)whole * 5 - 7; break;
        case CHOIR_I32: ((int32_t *)data)[i] = (int32_t)whole * 5 - 7; break;
        case CHOIR_U8: ((uint8_t *)data)[i] = (uint8_t)whole; break;
        default: ((uint8_t *)data)[i] = h & 1; break;
        }
    }
}

/* Memory for every test, and what should come out. */
typedef struct buffers {
    char *in, *out, *expected, *scratch; /* in: (world, count) */
} buffers;

/* expected = the reduction of the ranks' data, elements [first, first + count). */
static void reduce(buffers *b, int64_t first, int64_t count, int64_t all, choir_dtype dtype,
    choir_reduce_op op)
{
    const char **from = calloc((size_t)world, sizeof *from);
    choir__node *nodes = calloc((size_t)world, sizeof *nodes);
    size_t size = choir_dtype_size(dtype);
    char *to = b->expected;
    for (int r = 0; r < world; r++) {
        fill(b->in + (size_t)(r * all) * size, all, dtype, r, 1);
        from[r] = b->in + (size_t)(r * all + first) * size;
        nodes[r] = (choir__node){r, 1};
    }
    choir__reduce(&(choir__reduce_task){.arith = choir__arith_find(dtype, op),
                      .nodes = nodes,
                      .from = from,
                      .to = &to,
                      .sources = world,
                      .outputs = 1,
                      .scale = op == CHOIR_MEAN ? 1.0 / world : 1,
                      .divisor = op == CHOIR_MEAN ? world : 1},
        b->scratch, 0, count);
    free(from);
    free(nodes);
}

/* exact: compares bits. Otherwise compares up to the last digits, for a sum in another
 * order. */
static int same(const void *a, const void *b, int64_t count, choir_dtype dtype, bool exact)
{
    size_t size = choir_dtype_size(dtype);
    checks++;
    if (exact || (dtype != CHOIR_F32 && dtype != CHOIR_F64))
        return memcmp(a, b, (size_t)count * size) == 0;
    for (int64_t i = 0; i < count; i++) {
        double x = dtype == CHOIR_F32 ? ((const float *)a)[i] : ((const double *)a)[i];
        double y = dtype == CHOIR_F32 ? ((const float *)b)[i] : ((const double *)b)[i];
        double d = x > y ? x - y : y - x;
        if (d > 1e-6 * (x > 0 ? x : -x))
            return 0;
    }
    return 1;
}

static int check_reductions(
    choir_group *g, buffers *b, int64_t n, choir_dtype dtype, choir_reduce_op op, bool exact)
{
    size_t size = choir_dtype_size(dtype);
    int root = (int)(n % world);
    reduce(b, 0, n, n, dtype, op);
    fill(b->out, n, dtype, rank, 1);
    CHECK_OK(choir_group_all_reduce(g, b->out, n, dtype, op, NULL));
    CHECK(same(b->out, b->expected, n, dtype, exact));
    fill(b->out, n, dtype, rank, 1);
    CHECK_OK(choir_group_reduce(g, b->out, n, dtype, op, root, NULL));
    if (rank != root)
        fill(b->expected, n, dtype, rank, 1); /* untouched */
    CHECK(same(b->out, b->expected, n, dtype, exact));
    int64_t all = n * world;
    reduce(b, rank * n, n, all, dtype, op);
    fill(b->in, all, dtype, rank, 1);
    memset(b->out, 0, (size_t)n * size);
    CHECK_OK(choir_group_reduce_scatter(g, b->in, b->out, n, dtype, op, NULL));
    CHECK(same(b->out, b->expected, n, dtype, exact));
    CHECK_OK(choir_group_reduce_scatter(/* in place */
        g, b->in, b->in + (size_t)(rank * n) * size, n, dtype, op, NULL));
    CHECK(same(b->in + (size_t)(rank * n) * size, b->expected, n, dtype, exact));
    return 0;
}

static int check_moves(choir_group *g, buffers *b, int64_t n, choir_dtype dtype)
{
    size_t part = (size_t)n * choir_dtype_size(dtype);
    int root = (int)((n + 1) % world);
    fill(b->expected, n, dtype, root, 2);
    fill(b->out, n, dtype, rank, 2);
    CHECK_OK(choir_group_broadcast(g, b->out, n, dtype, root, NULL));
    CHECK(same(b->out, b->expected, n, dtype, true));

    for (int r = 0; r < world; r++)
        fill(b->expected + (size_t)r * part, n, dtype, r, 3);
    fill(b->in, n, dtype, rank, 3);
    memset(b->out, 0, part * (size_t)world);
    CHECK_OK(choir_group_all_gather(g, b->in, b->out, n, dtype, NULL));
    CHECK(same(b->out, b->expected, n * world, dtype, true));
    memset(b->out, 0, part * (size_t)world);
    memcpy(b->out + (size_t)rank * part, b->in, part);
    CHECK_OK(choir_group_all_gather(g, b->out + (size_t)rank * part, b->out, n, dtype, NULL));
    CHECK(same(b->out, b->expected, n * world, dtype, true));
    memset(b->out, 0, part * (size_t)world);
    CHECK_OK(choir_group_gather(g, b->in, rank == root ? b->out : NULL, n, dtype, root, NULL));
    CHECK(rank != root || same(b->out, b->expected, n * world, dtype, true));

    fill(b->in, n * world, dtype, root, 4);
    memset(b->out, 0, part);
    CHECK_OK(choir_group_scatter(g, rank == root ? b->in : NULL, b->out, n, dtype, root, NULL));
    CHECK(same(b->out, b->in + (size_t)rank * part, n, dtype, true));

    for (int r = 0; r < world; r++) {
        fill(b->in, n * world, dtype, r, 5);
        memcpy(b->expected + (size_t)r * part, b->in + (size_t)rank * part, part);
    }
    fill(b->in, n * world, dtype, rank, 5);
    CHECK_OK(choir_group_all_to_all(g, b->in, b->out, n, dtype, NULL));
    CHECK(same(b->out, b->expected, n * world, dtype, true));
    return 0;
}

/* Rank a sends (a + 2 * b) % 4 * n elements to b. */
static int64_t uneven(int a, int b, int64_t n)
{
    return (a + 2 * b) % 4 * n;
}

static int check_uneven(choir_group *g, buffers *b, int64_t n)
{
    int64_t *sent = calloc(2 * (size_t)world, sizeof *sent), *got = sent + world, at = 0,
            to = 0;
    float *in = (float *)(void *)b->in, *out = (float *)(void *)b->out;
    for (int r = 0; r < world; r++) {
        sent[r] = uneven(rank, r, n);
        got[r] = uneven(r, rank, n);
        for (int64_t i = 0; i < sent[r]; i++)
            in[at++] = (float)(rank * 100 + r) + (float)i;
    }
    CHECK_OK(choir_group_all_to_all_uneven(g, in, sent, out, got, CHOIR_F32, NULL));
    for (int r = 0; r < world; r++)
        for (int64_t i = 0; i < got[r]; i++, to++)
            CHECK(out[to] == (float)(r * 100 + rank) + (float)i);
    checks++;
    free(sent);
    return 0;
}

/* A ring of messages, all of them at once; then a line that needs the order. */
static int check_messages(choir_group *g, buffers *b, int64_t n)
{
    int next = (rank + 1) % world, before = (rank + world - 1) % world;
    if (world == 1)
        return 0;
    fill(b->in, n, CHOIR_F32, rank, 6);
    fill(b->expected, n, CHOIR_F32, before, 6);
    choir_group_batch_begin(g);
    CHECK_OK(choir_group_send(g, b->in, n, CHOIR_F32, next, NULL));
    CHECK_OK(choir_group_receive(g, b->out, n, CHOIR_F32, before, NULL));
    CHECK_OK(choir_group_batch_end(g, NULL));
    CHECK(same(b->out, b->expected, n, CHOIR_F32, true));
    for (int turn = 0; turn < 3; turn++) {
        int32_t token = rank == 0 ? turn : -1;
        if (rank > 0)
            CHECK_OK(choir_group_receive(g, &token, 1, CHOIR_I32, rank - 1, NULL));
        CHECK(token == turn);
        if (rank + 1 < world)
            CHECK_OK(choir_group_send(g, &token, 1, CHOIR_I32, rank + 1, NULL));
    }
    return 0;
}

/* Micro-batches over ranks, as DDP has them: leaves [lo, hi) summed into nodes. */
static int check_tree(choir_group *g, buffers *b, int64_t leaves, int64_t n)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    float *values = calloc((size_t)leaves, sizeof *values);
    float *mine = (float *)(void *)b->in;
    choir__tree_run(leaves, rank, world, &lo, &hi);
    int count = choir__tree_nodes(lo, hi, nodes);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < count; k++) {
            for (int64_t l = 0; l < nodes[k].leaves; l++)
                values[l] = 0.1f * (float)(nodes[k].start + l) + (float)(i % 13) * 0.3f;
            mine[k * n + i] = choir__tree_sum(values, nodes[k].leaves, 1);
        }
    choir__tree_reduce args = {.nodes = mine,
        .node_stride = (size_t)n * 4,
        .count = n,
        .leaves = leaves,
        .scale = 0.25f};
    choir__group_tree_reduce(g, &args);
    CHECK_OK(choir_group_barrier(g, NULL));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t l = 0; l < leaves; l++)
            values[l] = 0.1f * (float)l + (float)(i % 13) * 0.3f;
        CHECK(mine[i] == choir__tree_sum(values, leaves, 0.25f));
    }
    checks++;
    free(values);
    return 0;
}

/* few: for slow networks. */
static int collectives(choir_group *g, bool few)
{
    static const int64_t counts[] = {0, 1, 7, 501, 1003, 4099, 70001};
    static const char *const algorithms[] = {NULL, "native"};
    enum { MOST = 300007 };
    size_t room = (size_t)MOST * 8 * (size_t)world * (size_t)world;
    buffers b = {
        malloc(room), malloc(room), malloc(room), aligned_alloc(64, CHOIR__REDUCE_SCRATCH)};
    for (size_t c = 0; c < CHOIR_COUNT(counts); c += few ? 3 : 1)
        for (choir_dtype t = 0; t < CHOIR_DTYPE_COUNT; t++) {
            if (check_moves(g, &b, counts[c], t))
                return 1;
            for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++)
                for (choir_reduce_op op = 0; op < CHOIR_REDUCE_OP_COUNT; op++) {
                    CHECK_OK(choir_group_algorithm(g, algorithms[a]));
                    if (choir__arith_find(t, op) &&
                        ((!few && counts[c] < 5000) || op < CHOIR_MIN) &&
                        check_reductions(g, &b, counts[c], t, op, !a))
                        return 1;
                }
            CHECK_OK(choir_group_algorithm(g, NULL));
        }
    CHECK(check_reductions(g, &b, MOST, CHOIR_F32, CHOIR_SUM, true) == 0);
    for (int64_t leaves = 1; leaves <= 13; leaves += 3)
        for (size_t c = 1; c < CHOIR_COUNT(counts); c++)
            CHECK(check_tree(g, &b, leaves, counts[c]) == 0);
    for (int64_t n = 0; n <= 4000; n += 1000)
        CHECK(check_uneven(g, &b, n) == 0 && check_messages(g, &b, n) == 0);
    free(b.in);
    free(b.out);
    free(b.expected);
    free(b.scratch);
    return 0;
}

/* --- groups of groups --- */

/* Rows cut over the ranks, small and in pieces; in halves of the group, and between them. */
static int rows(choir_group *g)
{
    enum { TIMES = 9000 };
    const rows_layout small = rows_lay_out(world, 1), large = rows_lay_out(world, TIMES);
    float *x = calloc((size_t)(5 * large.whole + 5 * large.own), sizeof *x);
    float *out = x + 5 * large.whole;
    for (int64_t total = 1; total <= 9; total++) {
        rows_trial t = {g, NULL, &small, x, out, large.whole, large.own, 0, total, total,
            1.0f / (float)total};
        CHECK(rows_scatter(&t) == 0 && rows_against_reduce(&t) == 0);
        checks += 2;
    }
    rows_trial t = {g, NULL, &large, x, out, large.whole, large.own, 0, 3, 3, 1};
    CHECK(rows_scatter(&t) == 0);
    CHECK(rows_gather(g, &small, (void *)out, (void *)x, 1) == 0);
    CHECK(rows_gather(g, &large, (void *)out, (void *)x, 2) == 0);
    for (int half = 0; half < 2 && world % 2 == 0; half++) {
        choir_group *near, *across;
        int each = half ? 2 : world / 2, groups = world / each;
        const rows_layout part = rows_lay_out(each, 1);
        CHECK_OK(choir_group_split(g, rank / each, rank, &near));
        CHECK_OK(choir_group_split(g, rank % each, rank, &across));
        t = (rows_trial){near, across, &part, x, out, large.whole, part.own,
            rank / each * each * 3, each * 3, world * 3, groups > 1 ? 1 : 0.375f};
        CHECK(rows_scatter(&t) == 0);
        CHECK(rows_gather(near, &part, (void *)out, (void *)x, 3) == 0);
        checks += 2;
        choir_group_free(across);
        choir_group_free(near);
    }
    free(x);
    return 0;
}

static int split(choir_group *g)
{
    for (int turn = 0; turn < 20; turn++) {
        choir_group *child;
        int color = rank % 3 == 2 ? -1 : rank % 2, sum = 0;
        CHECK_OK(choir_group_split(g, color, -rank, &child));
        CHECK((child == NULL) == (color < 0));
        if (!child)
            continue;
        for (int r = 0; r < world; r++)
            sum += r % 3 != 2 && r % 2 == color ? r : 0;
        int32_t mine = rank;
        CHECK_OK(choir_group_all_reduce(child, &mine, 1, CHOIR_I32, CHOIR_SUM, NULL));
        CHECK(mine == sum);
        mine = rank;
        CHECK_OK(choir_group_broadcast(child, &mine, 1, CHOIR_I32, 0, NULL));
        CHECK(mine >= rank && mine % 2 == color); /* the key turned the order round */
        checks++;
        choir_group_free(child);
    }
    printf("rank %d of %d has split its group 20 times\n", rank, world);
    fflush(stdout); /* it may not come to its end, see machines.sh */
    return 0;
}

static int twice(choir_group_opts opts)
{
    for (int turn = 0; turn < 3; turn++) {
        choir_group *g;
        int32_t one = 1;
        CHECK_OK(choir_group_init(NULL, opts, &g));
        CHECK_OK(choir_group_all_reduce(g, &one, 1, CHOIR_I32, CHOIR_SUM, NULL));
        CHECK(one == choir_group_world(g));
        choir_group_free(g);
    }
    return 0;
}

static int run(choir_group *g, const char *scenario)
{
    if (!strcmp(scenario, "collectives"))
        return collectives(g, false);
    if (!strcmp(scenario, "few_collectives"))
        return collectives(g, true);
    if (!strcmp(scenario, "split"))
        return split(g);
    if (!strcmp(scenario, "rows"))
        return rows(g);
    if (!strcmp(scenario, "where")) { /* one line a rank */
        char line[200];
        snprintf(line, sizeof line, "rank %d of %d, %s, node %d of %d, local %d of %d\n", rank,
            world, choir_group_backend(g), choir_group_node(g, -1), choir_group_nodes(g),
            choir_group_local_rank(g, -1), choir_group_local_world(g));
        CHECK(write(STDOUT_FILENO, line, strlen(line)) > 0);
        return 0;
    }
    return failures(g, scenario);
}

int main(int argc, char **argv)
{
    choir_group *g = NULL;
    choir_group_opts opts = choir_group_defaults();
    const char *timeout = getenv("TIMEOUT_S");
    opts.timeout_s = timeout ? atof(timeout) : 60;
    if (argc < 2)
        return 2;
    if (!strcmp(argv[1], "twice"))
        return twice(opts);
    if (!strcmp(argv[1], "never"))
        return never_comes(opts);
    CHECK_OK(choir_group_init(NULL, opts, &g));
    rank = choir_group_rank(g);
    world = choir_group_world(g);
    int status = run(g, argv[1]);
    choir_group_free(g);
    if (rank == 0 && !status && checks)
        printf("%ld checks on %d ranks\n", checks, world);
    return status;
}
