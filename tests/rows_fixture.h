/* Collectives on rows that are distributed over the ranks, checked by each rank: the
 * reduce-scatter of the gradients' tree against the tree's definition and against
 * choir__group_tree_reduce, and the all-gather against every rank's input. Bits are compared,
 * without a tolerance. */
#ifndef CHOIR_TESTS_ROWS_FIXTURE_H
#define CHOIR_TESTS_ROWS_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/group.h"
#include "multi/ranks.h"

/* See SUITE_AT in conformance/collectives.h. */
#ifndef SUITE_AT
#define SUITE_AT(p) (p)
#endif

enum { ROWS_LEAVES = 24 };

/* Blocks of every kind: fewer rows than ranks, one row, no rows, many, a part of a larger one
 * whose rows belong to turned ranks; gaps between them. */
typedef struct rows_layout {
    choir__rows_cut cuts[7];
    int count;
    int64_t whole, own; /* elements of the whole buffer; at most, of a rank's rows */
} rows_layout;

static inline rows_layout rows_lay_out(int world, int64_t times)
{
    static const int64_t shapes[][2] = {{5, 3}, {1, 40}, {16, 1}, {0, 9}, {37, 5}, {2, 2}};
    rows_layout l = {.whole = 3, .own = 2};
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++) {
        int64_t rows = shapes[i][0] * times, row = shapes[i][1];
        l.cuts[l.count++] =
            (choir__rows_cut){.at = l.whole, .rows = rows, .row = row, .out = l.own};
        l.whole += rows * row + (int64_t)(i % 3);
        l.own += (rows + world - 1) / world * row + 1;
    }
    choir__rows_cut part = {.at = l.whole,
        .rows = 11 * times,
        .row = 3,
        .out = l.own,
        .first = 9 * times,
        .of = 37 * times,
        .turn = world - 1};
    l.cuts[l.count++] = part;
    l.whole += part.rows * part.row;
    l.own += choir__min(part.rows, (part.of + world - 1) / world) * part.row + 1;
    return l;
}

/* Returns element i of micro-batch m. Magnitudes differ enough that the order of additions
 * shows. */
static inline float rows_gradient(int64_t m, int64_t i)
{
    uint32_t z = (uint32_t)(m * 7919 + i) * 2654435761u;
    z = (z ^ (z >> 15)) * 2246822519u;
    z ^= z >> 13;
    return (float)(int32_t)z * (z % 3 ? 1e-9f : 1e-5f);
}

/* Returns the sum over [first, first + leaves), a node or all, by definition. */
static inline float rows_sum(int64_t first, int64_t leaves, int64_t i, float scale)
{
    float values[ROWS_LEAVES];
    for (int64_t k = 0; k < leaves; k++)
        values[k] = rows_gradient(first + k, i);
    return choir__tree_sum(values, leaves, scale);
}

/* One reduce-scatter; `nodes` has room for this rank's nodes. first, leaves and total are those
 * of choir__tree_scatter. across: the group of ranks with this rank's number in the other
 * groups; NULL: none. */
typedef struct rows_trial {
    choir_group *group, *across;
    const rows_layout *layout;
    float *nodes, *out;
    int64_t stride, out_stride, first, leaves, total; /* elements between nodes, results */
    float scale;
} rows_trial;

static inline int rows_fill(const rows_trial *t)
{
    choir__node nodes[CHOIR__MAX_NODES];
    const choir__tree_scatter a = {.first = t->first, .leaves = t->leaves, .total = t->total};
    int n = choir__scatter_nodes(
        &a, choir_group_rank(t->group), choir_group_world(t->group), nodes);
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < t->layout->whole; i++)
            t->nodes[k * t->stride + i] = rows_sum(nodes[k].start, nodes[k].leaves, i, 1);
    return n;
}

/* Checks this rank's rows of one result, the sum over [first, first + leaves). */
static inline int rows_check(
    const rows_trial *t, const float *out, int64_t first, int64_t leaves, float scale)
{
    for (int c = 0; c < t->layout->count; c++) {
        const choir__rows_cut *cut = &t->layout->cuts[c];
        int64_t lo, n = choir__cut_part(
                        cut, choir_group_rank(t->group), choir_group_world(t->group), &lo);
        for (int64_t i = 0; i < n; i++) {
            float want = rows_sum(first, leaves, cut->at + lo + i, scale);
            CHECK(memcmp(&want, &out[cut->out + i], sizeof want) == 0);
        }
        CHECK(out[cut->out + n] == -7); /* nothing after them */
    }
    return 0;
}

static inline int rows_scatter(const rows_trial *t)
{
    choir__node results[CHOIR__MAX_NODES];
    const choir__tree_scatter a = {.nodes = SUITE_AT(t->nodes),
        .node_stride = (size_t)t->stride * sizeof(float),
        .cuts = t->layout->cuts,
        .cut_count = t->layout->count,
        .count = t->layout->whole,
        .first = t->first,
        .leaves = t->leaves,
        .total = t->total,
        .out = (void *)SUITE_AT(t->out),
        .out_stride = (size_t)t->out_stride * sizeof(float),
        .scale = t->scale};
    int mine = rows_fill(t), count = choir__scatter_results(&a, results);
    for (int64_t i = 0; i < count * t->out_stride; i++)
        t->out[i] = -7;
    CHECK_OK(choir__group_tree_scatter(t->group, &a));
    CHECK_OK(choir__queue_wait(choir__group_queue(t->group)));
    for (int k = 0; k < mine; k++) /* peers have read them, and none wrote to them */
        for (int64_t i = 0; i < t->layout->whole; i++)
            t->nodes[k * t->stride + i] += 1;
    if (count == 1 && t->leaves == t->total)
        return rows_check(t, t->out, 0, t->total, t->scale);
    for (int k = 0; k < count; k++)
        if (rows_check(t, t->out + k * t->out_stride, results[k].start, results[k].leaves, 1))
            return 1;
    if (!t->across)
        return 0;
    for (int64_t i = 0; i < count * t->out_stride; i++) /* -7s would add up */
        t->out[i] = t->out[i] == -7 ? 0 : t->out[i];
    CHECK_OK(choir__group_tree_reduce(
        t->across, &(choir__tree_reduce){SUITE_AT(t->out), a.out_stride, t->layout->own,
                       t->total, 0.375f, CHOIR__AUTO, CHOIR_F32}));
    CHECK_OK(choir__queue_wait(choir__group_queue(t->across)));
    for (int64_t i = 0; i < t->out_stride; i++)
        t->out[i] = t->out[i] == 0 ? -7 : t->out[i];
    return rows_check(t, t->out, 0, t->total, 0.375f);
}

/* Compares with choir__group_tree_reduce, which stores its result in node 0. */
static inline int rows_against_reduce(const rows_trial *t)
{
    rows_fill(t);
    CHECK_OK(choir__group_tree_reduce(
        t->group, &(choir__tree_reduce){SUITE_AT(t->nodes), (size_t)t->stride * sizeof(float),
                      t->layout->whole, t->total, t->scale, CHOIR__AUTO, CHOIR_F32}));
    CHECK_OK(choir__queue_wait(choir__group_queue(t->group)));
    for (int c = 0; c < t->layout->count; c++) {
        const choir__rows_cut *cut = &t->layout->cuts[c];
        int64_t lo, n = choir__cut_part(
                        cut, choir_group_rank(t->group), choir_group_world(t->group), &lo);
        CHECK(!n || memcmp(t->out + cut->out, t->nodes + cut->at + lo,
                        (size_t)n * sizeof(float)) == 0);
    }
    return 0;
}

static inline uint16_t rows_value(int64_t i, int salt)
{
    return (uint16_t)((uint32_t)(i + 1) * 40503u + (uint32_t)salt * 7u);
}

/* Gathers all ranks' rows of u16 numbers twice: into other memory and in place. mine, all:
 * memory for them. */
static inline int rows_gather(
    choir_group *group, const rows_layout *l, uint16_t *mine, uint16_t *all, int salt)
{
    int rank = choir_group_rank(group), world = choir_group_world(group);
    for (int in_place = 0; in_place < 2; in_place++) {
        const choir__gather_rows a = {
            in_place ? NULL : SUITE_AT(mine), SUITE_AT(all), l->cuts, l->count, CHOIR_BF16};
        memset(all, 0xfe, (size_t)l->whole * sizeof *all);
        for (int c = 0; c < l->count; c++) {
            int64_t lo, n = choir__cut_part(&l->cuts[c], rank, world, &lo);
            int64_t at = l->cuts[c].at + lo;
            for (int64_t i = 0; i < n; i++)
                *(in_place ? all + at + i : mine + l->cuts[c].out + i) =
                    rows_value(at + i, salt + in_place);
        }
        CHECK_OK(choir__group_gather_rows(group, &a));
        CHECK_OK(choir__queue_wait(choir__group_queue(group)));
        int64_t next = 0;
        for (int c = 0; c < l->count; c++) {
            const choir__rows_cut *cut = &l->cuts[c];
            for (; next < cut->at; next++)
                CHECK(all[next] == 0xfefe); /* between the blocks */
            for (; next < cut->at + cut->rows * cut->row; next++)
                CHECK(all[next] == rows_value(next, salt + in_place));
        }
        memset(mine, 1, (size_t)l->own * sizeof *mine); /* peers have read them */
    }
    return 0;
}

#endif
