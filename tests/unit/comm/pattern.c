/* The public walk through algorithms: which data move, in which order, and that all of them
 * arrive. */
#include <stdlib.h>
#include <unistd.h>
#include <choir/pattern.h>

#include "check.h"
#include "base/base.h"

static const char *const algorithms[] = {
    "exchange", "binomial", "halving", "hierarchical", "ring", "double_tree"};
static const char *const collectives[] = {"all_reduce", "reduce", "reduce_scatter",
    "all_gather", "gather", "scatter", "broadcast", "all_to_all"};

static choir_pattern *pattern_of(
    const char *collective, const char *algorithm, int ranks, int nodes)
{
    choir_pattern *p;
    ok(choir_pattern_new(collective, algorithm, ranks, nodes, &p));
    return p;
}

/* The ring as in drawings: in step k, rank r sends chunk r - k, then the sum that it has
 * received. */
static void test_ring(void **state)
{
    for (int ranks = 2; ranks <= 64; ranks++) {
        choir_pattern *p = pattern_of("all_reduce", "ring", ranks, 1);
        int count;
        const choir_pattern_move *m = choir_pattern_moves(p, &count);
        assert_int_equal(choir_pattern_ranks(p), ranks);
        assert_int_equal(choir_pattern_chunks(p), ranks);
        assert_int_equal(choir_pattern_steps(p), 2 * (ranks - 1));
        assert_int_equal(count, ranks * 2 * (ranks - 1));
        for (int i = 0; i < count; i++) {
            bool gather = m[i].step >= ranks - 1;
            int step = gather ? m[i].step - ranks : m[i].step;
            assert_int_equal(m[i].step, i / ranks);
            assert_int_equal(m[i].to, (m[i].from + 1) % ranks);
            assert_int_equal(m[i].chunk, (m[i].from - step + 2 * ranks) % ranks);
            assert_int_equal(m[i].chunks, 1);
            assert_int_equal(m[i].added, !gather);
        }
        choir_pattern_free(p);
    }
}

/* Moves numbers as the pattern says; at the end every rank has the sum. */
static void follow(const choir_pattern *p)
{
    enum { ROOM = 64 * 64 };
    static int data[64][ROOM], before[64][ROOM];
    int count, ranks = choir_pattern_ranks(p), chunks = choir_pattern_chunks(p);
    const choir_pattern_move *m = choir_pattern_moves(p, &count);
    assert_in_range(chunks, 1, ROOM);
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < chunks; c++)
            data[r][c] = r * 3 + c;
    for (int i = 0; i < count; i++) {
        if (i == 0 || m[i].step != m[i - 1].step)
            memcpy(before, data, sizeof data); /* a step's moves happen at the same time */
        for (int c = m[i].chunk; c < m[i].chunk + m[i].chunks; c++)
            data[m[i].to][c] =
                m[i].added ? data[m[i].to][c] + before[m[i].from][c] : before[m[i].from][c];
    }
    for (int r = 0; r < ranks; r++)
        for (int c = 0; c < chunks; c++)
            assert_int_equal(data[r][c], 3 * ranks * (ranks - 1) / 2 + ranks * c);
}

static void test_sums(void **state)
{
    for (int ranks = 1; ranks <= 64; ranks += ranks < 20 ? 1 : 11)
        for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++) {
            int nodes = strcmp(algorithms[a], "hierarchical") == 0 ? (ranks + 3) / 4 : 1;
            choir_pattern *p = pattern_of("all_reduce", algorithms[a], ranks, nodes);
            if (nodes == 1)
                follow(p);
            for (int r = 0; r < ranks; r++)
                for (int c = 0; c < choir_pattern_chunks(p); c++) {
                    uint64_t whole = UINT64_MAX >> (64 - ranks);
                    assert_true(choir_pattern_parts(p, 0, r, c) == UINT64_C(1) << r);
                    assert_true(choir_pattern_parts(p, choir_pattern_steps(p), r, c) == whole);
                }
            choir_pattern_free(p);
        }
}

/* Returns the ranks (bits) whose numbers chunk c of `rank` must contain after a collective. */
static uint64_t in_the_end(const char *collective, int ranks, int rank, int c)
{
    const uint64_t whole = UINT64_MAX >> (64 - ranks);
    if (strcmp(collective, "reduce_scatter") == 0)
        return rank == c ? whole : 0;
    if (strcmp(collective, "reduce") == 0)
        return rank == 0 ? whole : 0;
    if (strcmp(collective, "all_gather") == 0)
        return UINT64_C(1) << c;
    if (strcmp(collective, "gather") == 0)
        return rank == 0 ? UINT64_C(1) << c : 0;
    if (strcmp(collective, "scatter") == 0)
        return rank == c;
    if (strcmp(collective, "broadcast") == 0)
        return 1;
    if (strcmp(collective, "all_to_all") == 0)
        return c % ranks == rank ? UINT64_C(1) << c / ranks : 0;
    return whole;
}

/* Every collective with every algorithm that supports it; ranks may have more than they
 * must. */
static void test_collectives(void **state)
{
    int done = 0;
    for (int ranks = 1; ranks <= 12; ranks++)
        for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++)
            for (size_t k = 0; k < CHOIR_COUNT(collectives); k++) {
                choir_pattern *p;
                choir_status status =
                    choir_pattern_new(collectives[k], algorithms[a], ranks, 1, &p);
                if (status == CHOIR_ERR_UNSUPPORTED)
                    continue;
                ok(status);
                int chunks = choir_pattern_chunks(p), steps = choir_pattern_steps(p);
                bool numbered = strcmp(collectives[k], "reduce") == 0 ||
                                strcmp(collectives[k], "broadcast") == 0 ||
                                strcmp(collectives[k], "all_reduce") == 0;
                int each = numbered ? 1 : chunks / ranks;
                if (strcmp(collectives[k], "all_to_all") == 0)
                    each = chunks / ranks / ranks;
                for (int r = 0; r < ranks; r++)
                    for (int c = 0; c < chunks; c++) {
                        uint64_t want = in_the_end(collectives[k], ranks, r, c / each);
                        uint64_t has = choir_pattern_parts(p, steps, r, c);
                        assert_true(want == 0 || has == want);
                    }
                choir_pattern_free(p);
                done++;
            }
    assert_int_equal(done, 12 * (8 + 7 + 2 + 2 + 5 + 3));
}

static void test_wrong(void **state)
{
    choir_pattern *p;
    assert_fails(choir_pattern_new("sum", "ring", 4, 1, &p), CHOIR_ERR_ARGUMENT, "'sum'");
    assert_fails(
        choir_pattern_new("all_reduce", "wring", 4, 1, &p), CHOIR_ERR_ARGUMENT, "'wring'");
    assert_int_equal(choir_pattern_new("all_reduce", "ring", 0, 1, &p), CHOIR_ERR_ARGUMENT);
    assert_fails(choir_pattern_new("all_reduce", "ring", 65, 1, &p), CHOIR_ERR_ARGUMENT,
        "ranks, got 65");
    assert_int_equal(choir_pattern_new("all_reduce", "ring", 4, 5, &p), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_pattern_new("gather", "ring", 4, 1, &p), CHOIR_ERR_UNSUPPORTED);
    choir_pattern_free(NULL);
    p = pattern_of("all_reduce", "ring", 17, 1);
    assert_int_equal(choir_pattern_svg(p, "/dev/null"), CHOIR_ERR_UNSUPPORTED);
    choir_pattern_free(p);
    p = pattern_of("all_reduce", "ring", 3, 1);
    assert_int_equal(choir_pattern_svg(p, "/nowhere/at/all.svg"), CHOIR_ERR_IO);
    assert_int_equal(choir_pattern_svg(p, "/dev/full"), CHOIR_ERR_IO);
    choir_pattern_free(p);
}

/* The picture has a panel per step and one for the end, a box per cell, an arrow per chunk
 * sent. */
static void test_picture(void **state)
{
    static char text[1 << 20];
    char path[] = "/tmp/choir_pattern_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    choir_pattern *p = pattern_of("all_reduce", "ring", 5, 1);
    ok(choir_pattern_svg(p, path));
    ssize_t bytes = read(fd, text, sizeof text - 1);
    assert_true(bytes > 0);
    assert_int_equal(occurrences(text, "<svg "), 1);
    assert_int_equal(occurrences(text, "</svg>"), 1);
    assert_int_equal(occurrences(text, ">step "), 8);
    assert_int_equal(occurrences(text, "rx='3'"), 9 * 5 * 5);
    assert_int_equal(occurrences(text, "marker-end='url(#add)'"), 4 * 5);
    assert_int_equal(occurrences(text, "marker-end='url(#put)'"), 4 * 5);
    assert_int_equal(occurrences(text, "<text"), occurrences(text, "</text>"));
    choir_pattern_free(p);
    close(fd);
    unlink(path);
}

static void test_print(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    choir_pattern *p = pattern_of("all_reduce", "ring", 3, 1);
    ok(choir_pattern_print(p, file));
    fclose(file);
    assert_non_null(strstr(text, "step 1: what comes is added\n"
                                 "  2 -> 0: chunk 2  0 -> 1: chunk 0  1 -> 2: chunk 1\n"
                                 "  rank 0    a      a     +ac\n"
                                 "  rank 1   +ab     b      b\n"
                                 "  rank 2    c     +bc     c\n"));
    assert_non_null(strstr(text, "  rank 0   =abc    abc    ac\n"));
    free(text);
    choir_pattern_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_picture),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
