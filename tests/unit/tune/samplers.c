/* The samplers' parts: points, algebra, regression, evolution, densities, populations; and that
 * each sampler finds good trials far sooner than chance. */
#include <math.h>

#include "study_fixture.h"
#include "tune/pareto.h"
#include "tune/sampler/algebra.h"
#include "tune/sampler/bohb/density.h"
#include "tune/sampler/cmaes/evolution.h"
#include "tune/sampler/gp/acquire.h"
#include "tune/sampler/gp/minimize.h"
#include "tune/sampler/nsga2/population.h"
#include "tune/sampler/qmc/sobol.h"
#include "tune/space/normal.h"

static choir_study *study_of(
    const choir_space *space, const char *sampler, const char *direction, uint64_t seed)
{
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = sampler;
    opts.direction = direction;
    opts.seed = seed;
    return open_study(space, opts);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (1 + fabs(b));
}

/* --- points --- */

/* Boxes of two coordinates have about as many of the first 2^m points as their volume says: t
 * is the least number such that those of volume 2^(t - m) have exactly as many. */
static void test_sobol_boxes(void **state)
{
    enum { DIMS = 40, M = 8 };
    double mean = 0;
    choir__sobol *s = choir__sobol_new(DIMS, 5);
    for (int d = 0; d < DIMS; d++)
        for (int e = 0; e < d; e++)
            for (int t = 0; t <= M; t++) {
                bool even = true;
                for (int a = 0; a <= M - t && even; a++) {
                    int count[1 << M] = {0}, b = M - t - a;
                    for (int i = 0; i < 1 << M; i++) {
                        int x = (int)(choir__sobol_at(s, i, d) * (1 << a));
                        int y = (int)(choir__sobol_at(s, i, e) * (1 << b));
                        even = even && ++count[(x << b) | y] <= 1 << t;
                    }
                }
                if (even) {
                    mean += t / (0.5 * DIMS * (DIMS - 1));
                    break;
                }
            }
    assert_true(mean < 2.26); /* Joe and Kuo's table: 2.246 */
    choir__sobol_free(s);
}

/* The mean of a product over the coordinates is much closer than with random points. */
static void test_sobol_mean(void **state)
{
    enum { DIMS = 8, POINTS = 1024 };
    double square = 0;
    for (uint64_t key = 0; key < 10; key++) {
        choir__sobol *s = choir__sobol_new(DIMS, key);
        double mean = 0;
        for (int i = 0; i < POINTS; i++) {
            double product = 1;
            for (int d = 0; d < DIMS; d++)
                product *= 0.5 + choir__sobol_at(s, i, d);
            mean += product / POINTS;
        }
        square += (mean - 1) * (mean - 1) / 10;
        choir__sobol_free(s);
    }
    double random = sqrt((pow(13.0 / 12, DIMS) - 1) / POINTS);
    assert_true(sqrt(square) < 0.1 * random);
}

/* All coordinates of the widest space differ, and stay inside [0, 1). */
static void test_sobol_many(void **state)
{
    choir__sobol *s = choir__sobol_new(CHOIR__SOBOL_MAX, 1);
    for (int d = 0; d < CHOIR__SOBOL_MAX; d++) {
        double x = choir__sobol_at(s, ((int64_t)1 << 32) - 1, d);
        assert_true(x >= 0 && x < 1);
        uint64_t seen = 0;
        for (int i = 0; i < 64; i++)
            seen |= (uint64_t)1 << (int)(choir__sobol_at(s, i, d) * 64);
        assert_true(seen == UINT64_MAX); /* one point in each of 64 intervals */
    }
    choir__sobol_free(s);
}

/* Points that conditions exclude are passed over, and trials given by hand use up none. */
static void test_qmc_conditions(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)", "y", "int(1, 9)", "c", "choice(a, b)");
    ok(choir_space_require(space, "x * 9 < y"));
    choir_study *study = study_of(space, "qmc", "minimize", 1);
    int as = 0;
    for (int i = 0; i < 128; i++) {
        choir_trial *t = ask(study);
        assert_true(choir_trial_real(t, "x") * 9 < choir_trial_real(t, "y"));
        as += !strcmp(choir_trial_text(t, "c"), "a");
        tell(study, t, 0);
    }
    assert_true(abs(as - 64) <= 12);
    choir_study_free(study);
    choir_space_free(space);
}

/* --- algebra --- */

static void fill_positive(double *a, int n, choir__draws *draws)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            a[i * n + j] = a[j * n + i] = choir__draw(draws) - 0.5 + (i == j) * n;
}

static void test_algebra(void **state)
{
    enum { N = 37 };
    choir__draws draws = {.key = 3};
    double a[N * N], l[N * N], scratch[N * N], inverse[N * N], x[N], b[N];
    fill_positive(a, N, &draws);
    memcpy(l, a, sizeof l);
    assert_true(choir__cholesky(l, N));
    for (int i = 0; i < N; i++)
        b[i] = x[i] = choir__draw(&draws);
    choir__solve_lower(l, N, 0, x);
    choir__solve_lower_transposed(l, N, x);
    choir__invert(l, N, scratch, inverse);
    for (int i = 0; i < N; i++) {
        assert_true(near(choir__dot(a + i * N, x, N), b[i], 1e-12));
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i * N + k] * (k >= j ? inverse[k * N + j] : inverse[j * N + k]);
            assert_true(near(sum, i == j, 1e-12));
        }
    }
    a[0] = -1;
    assert_false(choir__cholesky(a, N));
}

static void test_eigen(void **state)
{
    enum { N = 19 };
    choir__draws draws = {.key = 4};
    double a[N * N], copy[N * N], vectors[N * N], values[N];
    fill_positive(a, N, &draws);
    memcpy(copy, a, sizeof copy);
    choir__eigen(copy, N, vectors, values);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, product = 0;
            for (int k = 0; k < N; k++) {
                sum += vectors[i * N + k] * values[k] * vectors[j * N + k];
                product += vectors[k * N + i] * vectors[k * N + j];
            }
            assert_true(near(sum, a[i * N + j], 1e-10) && near(product, i == j, 1e-10));
        }
}

static double rosenbrock(void *of, const double *x, double *gradient)
{
    int *calls = of;
    ++*calls;
    double a = 1 - x[0], b = x[1] - x[0] * x[0];
    gradient[0] = -2 * a - 400 * x[0] * b;
    gradient[1] = 200 * b;
    return a * a + 100 * b * b;
}

static void test_minimize(void **state)
{
    double x[] = {-1.2, 1}, low[] = {-2, -2}, high[] = {2, 2};
    int calls = 0;
    assert_true(choir__minimize(rosenbrock, &calls, 2, low, high, 1e-8, 200, x) < 1e-12);
    assert_true(near(x[0], 1, 1e-5) && near(x[1], 1, 1e-5) && calls < 100);
    high[0] = 0.5; /* the least value is on the box's side */
    x[0] = -1.2, x[1] = 1;
    assert_true(
        near(choir__minimize(rosenbrock, &calls, 2, low, high, 1e-8, 200, x), 0.25, 1e-9));
    assert_true(x[0] == 0.5 && near(x[1], 0.25, 1e-5));
}

/* --- the Gaussian process --- */

/* A function of the first number, of whether the third is missing, and of the choice. */
static double bumpy(const double *x)
{
    return sin(6 * x[0]) + (isnan(x[2]) ? 0.5 : x[2] * x[2]) + (x[3] == 1);
}

static choir__regression *regression(int64_t n)
{
    static const bool is_choice[] = {false, false, false, true};
    choir__draws draws = {.key = 8};
    choir__regression *r = choir__regression_new(n, 4, is_choice);
    for (int64_t i = 0; i < n; i++) {
        double *x = r->x + i * 4;
        for (int p = 0; p < 3; p++)
            x[p] = choir__draw(&draws);
        x[2] = x[2] < 0.3 ? (double)NAN : x[2];
        x[3] = floor(3 * choir__draw(&draws));
        r->y[i] = bumpy(x);
    }
    choir__regression_fit(r, n);
    choir__regression_solve(r, n);
    return r;
}

/* The regression predicts new values, finds that the second number does not matter, and gives
 * the slopes of its mean and variance. */
static void test_regression(void **state)
{
    enum { N = 60 };
    choir__regression *r = regression(N);
    assert_true(r->weight[1] < 0.1 * r->weight[0]);
    double scratch[N * 6], mean, variance, up[2], down[2], by_mean[4], by_variance[4];
    choir__draws draws = {.key = 9};
    double error = 0;
    for (int i = 0; i < 50; i++) {
        double x[4] = {choir__draw(&draws), choir__draw(&draws), choir__draw(&draws),
            floor(3 * choir__draw(&draws))};
        if (i % 3 == 0)
            x[2] = (double)NAN;
        choir__regression_predict(r, x, scratch, &mean, &variance, by_mean, by_variance);
        error += fabs(mean - bumpy(x)) / 50;
        assert_true(variance > 0 && variance <= r->scale);
        for (int p = 0; p < 3; p++) {
            double at = x[p], h = 1e-5;
            if (isnan(at))
                continue;
            x[p] = at + h;
            choir__regression_predict(r, x, scratch, &up[0], &up[1], NULL, NULL);
            x[p] = at - h;
            choir__regression_predict(r, x, scratch, &down[0], &down[1], NULL, NULL);
            x[p] = at;
            assert_true(near((up[0] - down[0]) / (2 * h), by_mean[p], 1e-4));
            assert_true(near((up[1] - down[1]) / (2 * h), by_variance[p], 1e-4));
        }
    }
    assert_true(error < 0.05);
    choir__regression_free(r);
}

/* The expected improvement's logarithm against a sum over the normal density, and its slope. */
static void test_improvement(void **state)
{
    enum { N = 20 };
    choir_space *space = SPACE("a", "uniform(0, 1)", "b", "uniform(0, 1)", "c", "uniform(0, 1)",
        "d", "choice(x, y, z)");
    choir__regression *r = regression(N);
    double scratch[N * 6], slope[4], x[] = {0.4, 0.5, 0.6, 1}, mean, variance;
    choir__acquisition a = {.space = space, .regression = r, .scratch = scratch};
    choir__regression_predict(r, x, scratch, &mean, &variance, NULL, NULL);
    double sigma = sqrt(variance);
    for (double z = -40; z <= 4; z += 1.37) {
        a.best = mean - z * sigma;
        double sum = 0, step = 1e-3; /* of (z + n) times the density, over the peak's factor */
        for (double n = -z + step / 2; n < -z + 12; n += step)
            sum += step * (z + n) * exp(-0.5 * (n * n - (z < 0 ? z * z : 0)));
        double expected = log(sum) - (z < 0 ? 0.5 * z * z : 0) - 0.91893853320467274178;
        if (z > 0) /* all of the density's lower part, too */
            expected = log(z * choir__normal_cdf(z) + exp(-0.5 * z * z - 0.9189385332046727));
        double value = choir__log_improvement(&a, x, slope);
        assert_true(near(value, expected + log(sigma), 1e-5));
        for (int p = 0; p < 3; p++) {
            double at = x[p], h = 1e-6;
            x[p] = at + h;
            double up = choir__log_improvement(&a, x, NULL);
            x[p] = at - h;
            double down = choir__log_improvement(&a, x, NULL);
            x[p] = at;
            assert_true(near((up - down) / (2 * h), slope[p], 1e-3));
        }
    }
    choir__regression_free(r);
    choir_space_free(space);
}

/* --- evolution, densities, populations --- */

static int by_second(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

/* The distribution finds the least value of a narrow tilted valley. */
static void test_evolution(void **state)
{
    enum { DIMS = 5, POPULATION = 8 };
    double mean[DIMS] = {0.5, 0.5, 0.5, 0.5, 0.5}, value = 1;
    choir__evolution *e = choir__evolution_new(DIMS, POPULATION, mean, 0.2);
    choir__draws draws = {.key = 1};
    int generation = 0;
    for (; !choir__evolution_ended(e) && generation < 2000; generation++) {
        double drawn[POPULATION][DIMS], sorted[POPULATION][DIMS], order[POPULATION][2];
        for (int k = 0; k < POPULATION; k++) {
            choir__evolution_draw(e, &draws, drawn[k]);
            order[k][0] = k, order[k][1] = 0;
            for (int i = 0; i < DIMS; i++) {
                double z = drawn[k][i] - 0.3 + (i ? drawn[k][i - 1] - 0.3 : 0);
                order[k][1] += pow(30, i) * z * z;
            }
        }
        qsort(order, POPULATION, sizeof order[0], by_second);
        for (int k = 0; k < POPULATION; k++)
            memcpy(sorted[k], drawn[(int)order[k][0]], sizeof sorted[k]);
        value = order[0][1];
        choir__evolution_step(e, sorted[0], value, order[POPULATION - 1][1]);
    }
    assert_true(value < 1e-10 && generation < 1000);
    choir__evolution_free(e);
}

/* The density sums to 1, and its draws come as often as it says. */
static void test_density(void **state)
{
    static const int places[] = {0, 3};
    choir__density *d = choir__density_new(12, 2, places);
    choir__draws draws = {.key = 6};
    for (int i = 0; i < 12; i++) {
        d->x[2 * i] = 0.4 + 0.2 * choir__draw(&draws);
        d->x[2 * i + 1] = i % 4 == 0 ? 2 : 0;
    }
    choir__density_fit(d);
    double sum = 0, share[3] = {0}, drawn[3] = {0};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 1000; i++) {
            double x[] = {(i + 0.5) / 1000, c};
            share[c] += choir__density_at(d, x) / 1000;
        }
    for (int i = 0; i < 20000; i++) {
        double x[2];
        choir__density_draw(d, 1, &draws, x);
        drawn[(int)x[1]] += 1.0 / 20000;
    }
    for (int c = 0; c < 3; c++)
        sum += share[c];
    assert_true(near(sum, 1, 1e-3));
    assert_true(share[0] > share[2] && share[2] > share[1]);
    /* a draw leaves its place for any of the three, so it keeps a third of the width */
    assert_true(near(drawn[0], 0.75 - d->width[1] * (0.75 - 1.0 / 3), 0.03));
    choir__density_free(d);
}

/* BOHB looks at the largest budget with enough trials: later steps say the contrary of earlier
 * ones here, and few trials are complete. */
static void test_bohb_budget(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)");
    choir_study *study = study_of(space, "bohb:random=0", "minimize", 2);
    for (int i = 0; i < 60; i++) {
        char given[32];
        snprintf(given, sizeof given, "x=%.4f", (i + 0.5) / 40);
        if (i < 40)
            ok(choir_study_enqueue(study, given));
        choir_trial *t = ask(study);
        double x = choir_trial_real(t, "x");
        assert_true(i < 40 || x < 0.2);
        ok(choir_trial_report(t, 1, -x));
        if (i % 2)
            ok(choir_trial_report(t, 9, x));
        if (i == 20 || i == 30)
            tell(study, t, -x);
        else
            ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    }
    choir_study_free(study);
    choir_space_free(space);
}

/* The count of ones in eight choices, and the sum of eight numbers. */
static double missing_ones(const char *sampler, uint64_t seed)
{
    choir_space *space = choir_space_new();
    char name[3] = "c0";
    for (int i = 0; i < 16; i++) {
        name[0] = i < 8 ? 'c' : 'x', name[1] = (char)('0' + i % 8);
        ok(choir_space_add(space, name, i < 8 ? "choice(0, 1)" : "uniform(0, 1)"));
    }
    choir_study *study = study_of(space, sampler, "maximize", seed);
    for (int i = 0; i < 150; i++) {
        choir_trial *t = ask(study);
        double sum = 0;
        for (int k = 0; k < 16; k++)
            sum += choir_trial_real(t, choir_space_name(space, k));
        tell(study, t, sum);
    }
    double missing = 16 - choir_trial_value(choir_study_best(study), 0);
    choir_study_free(study);
    choir_space_free(space);
    return missing;
}

/* Six choices of eight places each: how many of them are not the right one, whose number says
 * nothing about how far a place is from it. */
static double wrong_choices(const char *sampler, uint64_t seed)
{
    choir_space *space = choir_space_new();
    char name[3] = "c0";
    for (int i = 0; i < 6; i++) {
        name[1] = (char)('0' + i);
        ok(choir_space_add(space, name, "choice(0, 1, 2, 3, 4, 5, 6, 7)"));
    }
    choir_study *study = study_of(space, sampler, "minimize", seed);
    for (int i = 0; i < 150; i++) {
        choir_trial *t = ask(study);
        double wrong = 0;
        for (int k = 0; k < 6; k++)
            wrong += choir_trial_real(t, choir_space_name(space, k)) != (5 * k + 2) % 8;
        tell(study, t, wrong);
    }
    double least = choir_trial_value(choir_study_best(study), 0);
    choir_study_free(study);
    choir_space_free(space);
    return least;
}

/* BOHB leaves less than 0.6 of what random search leaves. */
static void check_bohb(double (*left)(const char *sampler, uint64_t seed), uint64_t seeds)
{
    double ours = 0, random = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        ours += left("bohb", seed);
        random += left("random", seed);
    }
    if (!(ours < 0.6 * random))
        fail_msg("bohb leaves %g, random %g", ours, random);
}

static void test_bohb(void **state)
{
    check_bohb(missing_ones, 4);
    check_bohb(wrong_choices, 6);
}

/* The trials of two objectives at the points of a grid: fronts are its diagonals. */
static void test_population(void **state)
{
    choir_trial trial[25] = {{0}};
    choir__individual all[25];
    double values[25][2];
    const double sign[] = {1, -1};
    for (int i = 0; i < 25; i++) {
        values[i][0] = i % 5, values[i][1] = -(i / 5);
        trial[i].number = i;
        trial[i].values = values[i];
        all[24 - i] = (choir__individual){.trial = &trial[i]};
    }
    choir__population_rank(all, 25, sign, 2);
    for (int i = 0; i < 25; i++) {
        assert_int_equal(all[i].rank,
            (int)(values[all[i].trial->number][0] - values[all[i].trial->number][1]));
        assert_true(i == 0 || !choir__individual_better(&all[i], &all[i - 1]));
    }
    assert_true(all[3].trial->number == 2 && isinf(all[4].room)); /* rank 2: the ends first */
}

static void test_pareto(void **state)
{
    static const double values[][2] = {{3, 3}, {1, 1}, {2, 5}, {2, 2}, {0, 0}, {1, 1}, {4, 0}};
    choir_space *space = SPACE("x", "uniform(0, 1)");
    choir_study *study = study_of(space, "random", "minimize,maximize", 2);
    choir_trial *front[8];
    assert_int_equal(choir_study_pareto(study, NULL, 0), 0);
    for (size_t i = 0; i < CHOIR_COUNT(values); i++)
        ok(choir_study_tell(study, ask(study), CHOIR_TRIAL_COMPLETE, values[i], 2));
    assert_int_equal(choir_study_pareto(study, front, 8), 4);
    static const int expected[] = {1, 2, 4, 5};
    for (int i = 0; i < 4; i++)
        assert_int_equal(choir_trial_number(front[i]), expected[i]);
    front[1] = NULL;
    assert_int_equal(choir_study_pareto(study, front, 1), 4);
    assert_null(front[1]);
    choir_study_free(study);
    choir_space_free(space);
}

/* --- whole samplers --- */

static double loss(const choir_trial *t)
{
    double a = log(choir_trial_real(t, "lr") / 1e-3);
    double b = choir_trial_real(t, "width") / 256 - 1;
    double c = choir_trial_has(t, "momentum") ? choir_trial_real(t, "momentum") - 0.9 : 0.5;
    double d = choir_trial_real(t, "one") - 3;
    return a * a + b * b + c * c + d + fabs(choir_trial_real(t, "noise"));
}

/* The mean of the best values of some studies. */
static double mean_best(const choir_space *space, const char *sampler, int seeds, int trials)
{
    double best = 0;
    for (int seed = 0; seed < seeds; seed++) {
        choir_study *study = study_of(space, sampler, "minimize", (uint64_t)seed);
        for (int k = 0; k < trials; k++) {
            choir_trial *t = ask(study);
            double value = loss(t);
            if (k % 11 == 5)
                value = k % 2 ? (double)INFINITY : (double)NAN;
            ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &value, 1));
        }
        best += choir_trial_value(choir_study_best(study), 0) / seeds;
        choir_study_free(study);
    }
    return best;
}

/* Numbers on both scales, whole ones, choices, a conditional and a constant parameter, and a
 * condition; some trials fail, or have an infinite value. */
static void test_mixed(void **state)
{
    static const struct {
        const char *name;
        int seeds, trials;
        double share; /* of what random search leaves */
    } samplers[] = {
        {"gp:candidates=200,starts=3", 2, 60, 0.5},
        {"cmaes", 6, 120, 0.5},
        {"bohb", 6, 120, 1.2},
        {"nsga2:population=10", 6, 120, 0.8},
    };
    choir_space *space = SPACE("lr", "log(1e-5, 1e-1)", "width", "int(16, 2048, step=16)",
        "optimizer", "choice(sgd, adamw, lamb)", "momentum",
        "uniform(0, 0.99) if optimizer == sgd", "noise", "normal(0, 1)", "one", "int(3, 3)");
    ok(choir_space_require(space, "width % 32 == 0"));
    for (size_t s = 0; s < CHOIR_COUNT(samplers); s++) {
        double best = mean_best(space, samplers[s].name, samplers[s].seeds, samplers[s].trials);
        double random = mean_best(space, "random", 12, samplers[s].trials);
        if (!(best < samplers[s].share * random))
            fail_msg("%s: %g, random %g", samplers[s].name, best, random);
    }
    choir_space_free(space);
}

/* A constant parameter changes nothing in what TPE suggests for the others. */
/* A normal parameter is a number like another to a model of the loss. */
static void test_normal_numbers(void **state)
{
    choir_space *space = SPACE("a", "normal(5, 2)", "b", "normal(0, 1)");
    for (uint64_t seed = 0; seed < 3; seed++) {
        choir_study *study = study_of(space, "gp:candidates=200,starts=3", "minimize", seed);
        for (int i = 0; i < 30; i++) {
            choir_trial *t = ask(study);
            double a = choir_trial_real(t, "a") - 1, b = choir_trial_real(t, "b") - 0.3;
            tell(study, t, a * a + b * b);
        }
        double best = choir_trial_value(choir_study_best(study), 0);
        if (!(best < 0.05))
            fail_msg("seed %d: expected less than 0.05, got %g", (int)seed, best);
        choir_study_free(study);
    }
    choir_space_free(space);
}

static void test_tpe_constant(void **state)
{
    choir_space *with = SPACE("x", "uniform(0, 1)", "y", "uniform(0, 1)", "a", "int(5, 5)", "b",
        "uniform(2, 2)", "c", "choice(k)");
    double best[2];
    for (int constant = 0; constant < 2; constant++) {
        best[constant] = 0;
        for (uint64_t seed = 0; seed < 40; seed++) {
            choir_space *space =
                constant ? with : SPACE("x", "uniform(0, 1)", "y", "uniform(0, 1)");
            choir_study *study = study_of(space, "tpe", "minimize", seed);
            for (int i = 0; i < 60; i++) {
                choir_trial *t = ask(study);
                assert_true(!constant ||
                            (choir_trial_int(t, "a") == 5 && choir_trial_real(t, "b") == 2));
                tell(study, t,
                    hypot(choir_trial_real(t, "x") - 0.3, choir_trial_real(t, "y") - 0.6));
            }
            best[constant] += choir_trial_value(choir_study_best(study), 0) / 40;
            choir_study_free(study);
            if (!constant)
                choir_space_free(space);
        }
    }
    assert_true(best[1] < 1.3 * best[0]);
    choir_space_free(with);
}

/* The share of ZDT1's dominated area that is missing after 400 trials. */
static double missing_area(const char *sampler, uint64_t seed)
{
    choir_space *space = SPACE(
        "a", "uniform(0, 1)", "b", "uniform(0, 1)", "c", "uniform(0, 1)", "d", "uniform(0, 1)");
    choir_study *study = study_of(space, sampler, "minimize,maximize", seed);
    for (int i = 0; i < 400; i++) {
        choir_trial *t = ask(study);
        double x = choir_trial_real(t, "a"), sum = 0;
        for (int k = 1; k < 4; k++)
            sum += choir_trial_real(t, (char[]){(char)('a' + k), '\0'});
        double g = 1 + 3 * sum, both[] = {x, -g * (1 - sqrt(x / g))};
        ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, both, 2));
    }
    choir_trial *front[400];
    int64_t count = choir_study_pareto(study, front, 400);
    double area = 0;
    for (int i = 0; i < 1000; i++) { /* strips of the first objective */
        double x = (i + 0.5) / 1000, least = 1;
        for (int64_t k = 0; k < count; k++)
            if (choir_trial_value(front[k], 0) <= x)
                least = fmin(least, -choir_trial_value(front[k], 1));
        area += (1 - least) / 1000;
    }
    choir_study_free(study);
    choir_space_free(space);
    return (2.0 / 3 - area) / (2.0 / 3);
}

static void test_nsga2(void **state)
{
    double ours = 0, random = 0;
    for (uint64_t seed = 0; seed < 3; seed++) {
        ours += missing_area("nsga2:population=20", seed) / 3;
        random += missing_area("random", seed) / 3;
    }
    assert_true(ours < 0.3 * random);
}

static void test_errors(void **state)
{
    choir_space *words = SPACE("a", "choice(x, y)", "b", "uniform(0, 1) if a == x");
    static const struct {
        const char *sampler, *direction, *says;
    } bad[] = {
        {"cmaes", "minimize", "expected a parameter that is a number"},
        {"cmaes:sigma=0", "minimize", "sigma"},
        {"gp", "minimize,maximize", "expected one direction, got 2"},
        {"bohb", "minimize,maximize", "expected one direction, got 2"},
        {"bohb:points=2", "minimize", "points"},
        {"qmc:points=2", "minimize", "points"},
        {"nsga2:population=1", "minimize", "population"},
        {"tpe:liar=3", "minimize", "liar"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++) {
        choir_study_opts opts = choir_study_defaults();
        choir_study *study = NULL;
        opts.sampler = bad[i].sampler;
        opts.direction = bad[i].direction;
        assert_int_not_equal(choir_study_open(words, opts, &study), CHOIR_OK);
        assert_says(bad[i].says);
    }
    choir_space_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sobol_boxes),
        cmocka_unit_test(test_sobol_mean),
        cmocka_unit_test(test_sobol_many),
        cmocka_unit_test(test_qmc_conditions),
        cmocka_unit_test(test_algebra),
        cmocka_unit_test(test_eigen),
        cmocka_unit_test(test_minimize),
        cmocka_unit_test(test_regression),
        cmocka_unit_test(test_improvement),
        cmocka_unit_test(test_evolution),
        cmocka_unit_test(test_density),
        cmocka_unit_test(test_bohb_budget),
        cmocka_unit_test(test_bohb),
        cmocka_unit_test(test_population),
        cmocka_unit_test(test_pareto),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_normal_numbers),
        cmocka_unit_test(test_tpe_constant),
        cmocka_unit_test(test_nsga2),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
