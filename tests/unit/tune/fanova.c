/* fANOVA: marginal variances of a given tree are Optuna's, and those of any tree are what a
 * grid of all its parts says; a grown tree fits its rows; shares of a study. Its forests are
 * compared with Optuna's in tests/interop/tune/importance.py. */
#include <math.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "base/base.h"
#include "base/rng.h"
#include "tune/importance/forest.h"

enum { COLUMNS = 5, ROWS = 60 }; /* two numbers, and a choice of three */

static const double low[COLUMNS] = {-2, 0, 0, 0, 0}, high[COLUMNS] = {3, 8, 1, 1, 1};

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

/* A tree that scikit-learn grew, and what optuna.importance._fanova._tree._FanovaTree of Optuna
 * 5.0.0 says about it. */
static void test_given_tree(void **state)
{
    static const struct {
        double value, box[2 * COLUMNS];
    } tree[] = {
        {4.5433220367247662, {-2, -1.5375466346740723, 0, 8, 0, 1, 0, 1, 0, 0.5}},
        {6.8161018512768443, {-2, -1.5375466346740723, 0, 8, 0, 1, 0, 1, 0.5, 1}},
        {3.9495928043972302,
            {-1.5375466346740723, -1.3164726495742798, 0, 8, 0, 1, 0, 0.5, 0, 1}},
        {1.538759188051779,
            {-1.3164726495742798, 1.1965934634208679, 0, 2.5, 0, 1, 0, 0.5, 0, 1}},
        {2.2801034060516301,
            {-1.3164726495742798, 1.1965934634208679, 2.5, 8, 0, 1, 0, 0.5, 0, 1}},
        {2.3273167235683787,
            {-1.5375466346740723, -0.132217638194561, 0, 8, 0, 1, 0.5, 1, 0, 1}},
        {4.6422838559809367,
            {-0.132217638194561, 1.1965934634208679, 0, 8, 0, 1, 0.5, 1, 0, 1}},
        {4.1225467869454917, {1.1965934634208679, 1.5728247165679932, 0, 8, 0, 1, 0, 1, 0, 1}},
        {5.7559044646018762, {1.5728247165679932, 2.5579373836517334, 0, 6, 0, 1, 0, 1, 0, 1}},
        {8.0215205880428346,
            {1.5728247165679932, 2.5579373836517334, 6, 8, 0, 1, 0, 1, 0, 0.5}},
        {5.9533592630615724,
            {1.5728247165679932, 2.5579373836517334, 6, 8, 0, 1, 0, 1, 0.5, 1}},
        {11.406198120288316, {2.5579373836517334, 3, 0, 8, 0, 1, 0, 1, 0, 1}},
    };
    enum { LEAVES = CHOIR_COUNT(tree) };
    double value[LEAVES], box[LEAVES * 2 * COLUMNS];
    choir__leaves leaves = {COLUMNS, LEAVES, value, box};
    for (size_t i = 0; i < LEAVES; i++) {
        value[i] = tree[i].value;
        memcpy(box + i * 2 * COLUMNS, tree[i].box, sizeof tree[i].box);
    }
    assert_true(near(choir__fanova_variance(&leaves, low, high), 7.271947413607559, 1e-12));
    assert_true(
        near(choir__fanova_marginal(&leaves, low, high, 0, 1), 6.533422043740972, 1e-12));
    assert_true(
        near(choir__fanova_marginal(&leaves, low, high, 1, 1), 0.02555931904163955, 1e-12));
    assert_true(
        near(choir__fanova_marginal(&leaves, low, high, 2, 3), 0.11978659711102986, 1e-12));
}

/* --- grown trees --- */

static double random_unit(uint64_t *drawn)
{
    return (double)(choir__mix(7, (*drawn)++) >> 11) * 0x1p-53;
}

/* Rows with different values. */
static choir__forest_table make_table(double *x, double *y)
{
    uint64_t drawn = 0;
    for (int i = 0; i < ROWS; i++) {
        double a = x[i] = -2 + 5 * random_unit(&drawn);
        double b = x[ROWS + i] = floor(9 * random_unit(&drawn));
        int c = (int)(3 * random_unit(&drawn));
        for (int k = 0; k < 3; k++)
            x[(2 + k) * ROWS + i] = c == k;
        y[i] = a * a + 0.3 * b + 3 * (c == 1) * (a > 0) + (c == 2) + 0.01 * random_unit(&drawn);
    }
    choir__forest_table t = {
        COLUMNS, ROWS, x, y, (double *)(uintptr_t)low, (double *)(uintptr_t)high, NULL};
    choir__table_sort(&t);
    return t;
}

/* Returns the leaf at a point; there must be one. */
static int64_t leaf_at(const choir__leaves *l, const double *point)
{
    int64_t found = -1;
    for (int64_t i = 0; i < l->count; i++) {
        const double *box = l->box + i * 2 * COLUMNS;
        bool in = true;
        for (int c = 0; c < COLUMNS; c++)
            in = in && point[c] > box[2 * c] - (box[2 * c] == low[c]) &&
                 point[c] <= box[2 * c + 1];
        assert_true(!in || found < 0);
        found = in ? i : found;
    }
    assert_true(found >= 0);
    return found;
}

static void test_tree_fits(void **state)
{
    double x[COLUMNS * ROWS], y[ROWS];
    choir__forest_table t = make_table(x, y);
    choir__leaves l = {.count = 0};
    int64_t exact = 0;
    choir__forest_tree(&t, 1, &l);
    for (int i = 0; i < ROWS; i++) {
        double point[COLUMNS];
        for (int c = 0; c < COLUMNS; c++)
            point[c] = x[c * ROWS + i];
        exact += near(l.value[leaf_at(&l, point)], y[i], 1e-12);
    }
    /* of rows drawn with replacement, 1 - 1/e are there; the whole tree fits them */
    assert_int_equal(exact, l.count);
    assert_true(exact > ROWS / 2 && exact < 4 * ROWS / 5);
    choir__leaves_free(&l);
    free(t.order);
}

/* --- a grid --- */

typedef struct grid {
    double at[COLUMNS][2 * ROWS + 2]; /* (cells) the middles of a column's cells */
    double size[COLUMNS][2 * ROWS + 2];
    int cells[COLUMNS];
} grid;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void make_grid(const choir__leaves *l, grid *g)
{
    for (int c = 0; c < COLUMNS; c++) {
        double *ends = choir__alloc(2 * (size_t)l->count * sizeof(double));
        g->cells[c] = 0;
        for (int64_t i = 0; i < 2 * l->count; i++)
            ends[i] = l->box[(i / 2 * COLUMNS + c) * 2 + i % 2];
        qsort(ends, 2 * (size_t)l->count, sizeof(double), by_size);
        for (int64_t i = 0; i + 1 < 2 * l->count; i++) {
            if (ends[i] == ends[i + 1])
                continue;
            g->at[c][g->cells[c]] = (ends[i] + ends[i + 1]) / 2;
            g->size[c][g->cells[c]++] = (ends[i + 1] - ends[i]) / (high[c] - low[c]);
        }
        free(ends);
    }
}

/* Returns the mean over the cells of columns from c on that are free, at a point. */
static double mean_at(
    const choir__leaves *l, const grid *g, const bool *fixed, double *point, int c)
{
    if (c == COLUMNS)
        return l->value[leaf_at(l, point)];
    if (fixed[c])
        return mean_at(l, g, fixed, point, c + 1);
    double sum = 0;
    for (int i = 0; i < g->cells[c]; i++) {
        point[c] = g->at[c][i];
        sum += g->size[c][i] * mean_at(l, g, fixed, point, c + 1);
    }
    return sum;
}

/* Adds the squares of the means over the columns outside of first ... end - 1, from `mean`. */
static double squares(const choir__leaves *l, const grid *g, const bool *fixed, double *point,
    double mean, int c, int end)
{
    if (c == end) {
        double d = mean_at(l, g, fixed, point, 0) - mean;
        return d * d;
    }
    double sum = 0;
    for (int i = 0; i < g->cells[c]; i++) {
        point[c] = g->at[c][i];
        sum += g->size[c][i] * squares(l, g, fixed, point, mean, c + 1, end);
    }
    return sum;
}

static void test_marginals(void **state)
{
    static const int first[] = {0, 1, 2, 0}, count[] = {1, 1, 3, COLUMNS};
    double x[COLUMNS * ROWS], y[ROWS], point[COLUMNS];
    choir__forest_table t = make_table(x, y);
    choir__leaves l = {.count = 0};
    grid *g = choir__alloc(sizeof *g);
    /* a small tree, whose cells are few */
    choir__forest_table small = {
        COLUMNS, 12, choir__alloc(COLUMNS * 12 * sizeof(double)), y, t.low, t.high, NULL};
    for (int c = 0; c < COLUMNS; c++)
        memcpy(small.x + c * 12, x + c * ROWS, 12 * sizeof(double));
    choir__table_sort(&small);
    for (uint64_t key = 0; key < 4; key++) {
        choir__forest_tree(&small, key, &l);
        make_grid(&l, g);
        const bool none[COLUMNS] = {false};
        double mean = mean_at(&l, g, none, point, 0);
        for (size_t i = 0; i < CHOIR_COUNT(first); i++) {
            bool fixed[COLUMNS] = {false};
            for (int c = first[i]; c < first[i] + count[i]; c++)
                fixed[c] = true;
            double expected = squares(&l, g, fixed, point, mean, first[i], first[i] + count[i]);
            double got = count[i] == COLUMNS
                             ? choir__fanova_variance(&l, low, high)
                             : choir__fanova_marginal(&l, low, high, first[i], count[i]);
            assert_true(near(got, expected, 1e-10));
        }
    }
    choir__leaves_free(&l);
    free(small.x);
    free(small.order);
    free(t.order);
    free(g);
}

/* --- studies --- */

static choir_study *make_study(const char *direction, double sign, int trials)
{
    choir_study *study;
    choir_space *space = choir_space_new();
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = "random";
    opts.direction = direction;
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    ok(choir_space_add(space, "o", "choice(a, b, c)"));
    ok(choir_space_add(space, "m", "uniform(0, 1) if o == a"));
    ok(choir_space_add(space, "one", "7"));
    ok(choir_study_open(space, opts, &study));
    choir_space_free(space);
    for (int i = 0; i < trials; i++) {
        choir_trial *t;
        ok(choir_study_ask(study, &t));
        double value =
            sign * (3 * choir_trial_real(t, "x") + (*choir_trial_text(t, "o") == 'b'));
        if (i == 5)
            value = sign * (double)INFINITY;
        ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &value, 1));
    }
    return study;
}

/* The variances are 9 / 12, and, over 0 and 1 in each column of the choice, about 1 / 8 for the
 * column of b; parameters that are not in all trials, or have one value, have none. */
static void test_shares(void **state)
{
    double share[4], again[4];
    choir_study *least = make_study("minimize", 1, 200),
                *most = make_study("maximize", -1, 200);
    ok(choir_study_importance_by(least, "fanova", 0, share));
    assert_true(share[0] > 0.7 && share[0] < 0.9 && share[1] > 0.1);
    assert_true(share[2] == 0 && share[3] == 0);
    assert_true(near(share[0] + share[1], 1, 1e-12));
    ok(choir_study_importance_by(most, "fanova", 0, again));
    for (int i = 0; i < 4; i++) /* the same forest, of values with the other sign */
        assert_true(share[i] == again[i]);
    ok(choir_study_importance_by(least, "ped-anova", 0, share));
    ok(choir_study_importance(least, 0, again));
    assert_memory_equal(share, again, sizeof share);
    assert_fails(choir_study_importance_by(least, "anova", 0, share), CHOIR_ERR_ARGUMENT,
        "unknown evaluator 'anova'");
    assert_int_equal(choir_study_importance_by(least, "fanova", 1, share), CHOIR_ERR_ARGUMENT);
    choir_study_free(least);
    choir_study_free(most);
    for (int trials = 0; trials < 2; trials++) {
        least = make_study("minimize", 1, trials);
        assert_int_equal(choir_study_importance_by(least, "fanova", 0, share),
            trials ? CHOIR_OK : CHOIR_ERR_STATE);
        choir_study_free(least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_tree),
        cmocka_unit_test(test_tree_fits),
        cmocka_unit_test(test_marginals),
        cmocka_unit_test(test_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
