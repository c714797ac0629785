/* Regression trees: see forest.h.
 *
 * Each column's rows are sorted once. A node is the same range of every column's list; a split
 * divides the ranges and keeps their order, so that a tree of depth d takes d passes over the
 * lists. Each node draws the order in which it looks at columns, since of equally
 * good splits the first one is taken. */
#include "tune/importance/forest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { MOST_DEPTH = 64 };

typedef struct grower {
    const choir__forest_table *t;
    uint64_t key;
    uint64_t drawn;
    double *times;    /* (rows) how often a row was drawn */
    bool *right;      /* (rows) the row goes to the right side of the split */
    int64_t *order;   /* (columns, rows) the first `count` of each list: rows that were drawn */
    int64_t *scratch; /* (rows) */
    int *columns;     /* (columns) in the order in which they are looked at */
    double *box;      /* (columns, 2) bounds of the node */
    choir__leaves *leaves;
} grower;

typedef struct split {
    int column; /* -1: none */
    int64_t at; /* the first row of the right side, in the column's list */
    double threshold, score;
} split;

/* --- rows in order --- */

static int by_x(const void *a, const void *b, void *arg)
{
    const double *x = arg;
    int64_t i = *(const int64_t *)a, k = *(const int64_t *)b;
    return x[i] != x[k] ? (x[i] > x[k]) - (x[i] < x[k]) : (i > k) - (i < k);
}

void choir__table_sort(choir__forest_table *t)
{
    size_t rows = (size_t)t->rows;
    t->order = choir__alloc(((size_t)t->columns * rows + 1) * sizeof(int64_t));
    for (int c = 0; c < t->columns; c++) {
        int64_t *order = t->order + (size_t)c * rows;
        for (size_t i = 0; i < rows; i++)
            order[i] = (int64_t)i;
        qsort_r(order, rows, sizeof *order, by_x, t->x + (size_t)c * rows);
    }
}

/* --- a node --- */

/* Draws a whole number below n. */
static int64_t draw(grower *g, int64_t n)
{
    return (int64_t)((double)(choir__mix(g->key, g->drawn++) >> 11) * 0x1p-53 * (double)n);
}

/* Looks for a better split by a column: of all that divide its values, the one with the
 * largest sum of squares between the sides. */
static void look_at(
    const grower *g, int column, int64_t from, int64_t to, double n, double sum, split *best)
{
    const double *x = g->t->x + (int64_t)column * g->t->rows;
    const int64_t *order = g->order + (int64_t)column * g->t->rows;
    double left = 0, left_n = 0;
    for (int64_t i = from; i + 1 < to; i++) {
        int64_t row = order[i], next = order[i + 1];
        left += g->times[row] * g->t->y[row];
        left_n += g->times[row];
        if (x[row] == x[next])
            continue;
        double right = sum - left, right_n = n - left_n;
        double score = left * left / left_n + right * right / right_n;
        if (score <= best->score)
            continue;
        double middle = x[row] / 2 + x[next] / 2;
        *best = (split){column, i + 1, middle == x[next] ? x[row] : middle, score};
    }
}

static split find_split(grower *g, int64_t from, int64_t to, double n, double sum)
{
    split best = {-1, 0, 0, -(double)INFINITY};
    for (int i = g->t->columns - 1; i > 0; i--) {
        int k = (int)draw(g, i + 1), column = g->columns[i];
        g->columns[i] = g->columns[k];
        g->columns[k] = column;
    }
    for (int i = 0; i < g->t->columns; i++)
        look_at(g, g->columns[i], from, to, n, sum, &best);
    return best;
}

/* Divides every column's list. */
static void divide(grower *g, const split *s, int64_t from, int64_t to)
{
    const int64_t *order = g->order + (int64_t)s->column * g->t->rows;
    for (int64_t i = from; i < to; i++)
        g->right[order[i]] = i >= s->at;
    for (int c = 0; c < g->t->columns; c++) {
        int64_t *list = g->order + (int64_t)c * g->t->rows, left = from, right = 0;
        for (int64_t i = from; i < to; i++)
            if (g->right[list[i]])
                g->scratch[right++] = list[i];
            else
                list[left++] = list[i];
        memcpy(list + left, g->scratch, (size_t)right * sizeof *list);
    }
}

static void add_leaf(grower *g, double value)
{
    choir__leaves *l = g->leaves;
    size_t bytes = 2 * (size_t)l->columns * sizeof(double);
    CHOIR__GROW(l->value, l->count);
    l->box = choir__grow(l->box, (size_t)l->count, bytes);
    memcpy((char *)l->box + (size_t)l->count * bytes, g->box, bytes);
    l->value[l->count++] = value;
}

static void grow(grower *g, int64_t from, int64_t to, int depth)
{
    double n = 0, sum = 0, squares = 0;
    for (int64_t i = from; i < to; i++) {
        int64_t row = g->order[i];
        double y = g->t->y[row], times = g->times[row];
        n += times, sum += times * y, squares += times * y * y;
    }
    bool flat = squares / n - sum / n * (sum / n) <= 0x1p-52;
    split s = {.column = -1};
    if (!flat && depth < MOST_DEPTH)
        s = find_split(g, from, to, n, sum);
    if (s.column < 0) {
        add_leaf(g, sum / n);
        return;
    }
    divide(g, &s, from, to);
    double *side = g->box + 2 * (size_t)s.column, low = side[0], high = side[1];
    side[1] = s.threshold;
    grow(g, from, s.at, depth + 1);
    side[0] = s.threshold, side[1] = high;
    grow(g, s.at, to, depth + 1);
    side[0] = low;
}

/* --- a tree --- */

/* Draws the rows, and lists those that were drawn. Returns their number. */
static int64_t draw_rows(grower *g)
{
    int64_t rows = g->t->rows, count = 0;
    for (int64_t i = 0; i < rows; i++)
        g->times[draw(g, rows)]++;
    for (int c = 0; c < g->t->columns; c++) {
        const int64_t *from = g->t->order + c * rows;
        count = 0;
        for (int64_t i = 0; i < rows; i++)
            if (g->times[from[i]] > 0)
                g->order[c * rows + count++] = from[i];
    }
    return count;
}

void choir__forest_tree(const choir__forest_table *t, uint64_t key, choir__leaves *leaves)
{
    size_t rows = (size_t)t->rows, columns = (size_t)t->columns;
    grower g = {.t = t,
        .key = key,
        .times = choir__calloc(rows, sizeof(double)),
        .right = choir__calloc(rows, sizeof(bool)),
        .order = choir__alloc((columns * rows + 1) * sizeof(int64_t)),
        .scratch = choir__alloc(rows * sizeof(int64_t)),
        .columns = choir__alloc(columns * sizeof(int)),
        .box = choir__alloc(2 * columns * sizeof(double)),
        .leaves = leaves};
    leaves->columns = t->columns;
    leaves->count = 0;
    for (int c = 0; c < t->columns; c++) {
        g.columns[c] = c;
        g.box[2 * c] = t->low[c], g.box[2 * c + 1] = t->high[c];
    }
    grow(&g, 0, draw_rows(&g), 0);
    free(g.times);
    free(g.right);
    free(g.order);
    free(g.scratch);
    free(g.columns);
    free(g.box);
}

void choir__leaves_free(choir__leaves *leaves)
{
    free(leaves->value);
    free(leaves->box);
    *leaves = (choir__leaves){.count = 0};
}
