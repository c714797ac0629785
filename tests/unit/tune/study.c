/* Studies: the same trials from the same seed however many run at once and in whatever order
 * they end, the suggestions of each sampler, and errors.
 *
 * The oracle of the Parzen estimate is the sum over its kernels, written down once more without
 * anything that makes it fast. */
#include <math.h>

#include "study_fixture.h"
#include "tune/sampler/tpe/parzen.h"
#include "tune/space/normal.h"

static choir_study *study_of(
    const choir_space *space, const char *sampler, uint64_t seed, int64_t window)
{
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = sampler;
    opts.seed = seed;
    opts.window = window;
    return open_study(space, opts);
}

/* --- the rule of order --- */

static choir_space *mixed_space(void)
{
    return SPACE("lr", "log(1e-5, 1e-1)", "width", "int(16, 512, step=16)", "depth",
        "int(1, 64, log)", "optimizer", "choice(sgd, adamw, lamb)", "momentum",
        "uniform(0, 0.99) if optimizer == sgd", "noise", "normal(0, 1)");
}

static double loss(const choir_trial *t)
{
    double a = log(choir_trial_real(t, "lr") / 1e-3),
           b = choir_trial_real(t, "width") / 256 - 1;
    double c = choir_trial_has(t, "momentum") ? choir_trial_real(t, "momentum") - 0.9 : 0.5;
    return a * a + b * b + c * c + fabs(choir_trial_real(t, "noise"));
}

/* Every seventh trial fails or is pruned. */
static void end(choir_study *study, choir_trial *t)
{
    int64_t n = choir_trial_number(t);
    if (n % 7 == 3)
        ok(choir_study_tell(study, t, CHOIR_TRIAL_FAIL, NULL, 0));
    else if (n % 7 == 5) {
        ok(choir_trial_report(t, n % 4, loss(t)));
        ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    } else
        tell(study, t, loss(t));
}

/* Runs up to `workers` trials at once, which end in an order that `order` decides, and returns
 * all trials' parameters as text. */
static char *table(const char *sampler, int64_t window, int workers, unsigned order, int trials)
{
    choir_space *space = mixed_space();
    choir_study *study = study_of(space, sampler, 7, window);
    choir_trial *running[16];
    int count = 0;
    while (choir_study_count(study) < trials || count) {
        while (count < workers && choir_study_count(study) < trials && choir_study_ready(study))
            running[count++] = ask(study);
        order = order * 1103515245u + 12345u;
        int which = (int)(order >> 16) % count;
        end(study, running[which]);
        running[which] = running[--count];
    }
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int64_t i = 0; i < trials; i++)
        for (int k = 0; k < choir_space_count(space); k++) {
            const char *value =
                choir_trial_text(choir_study_trial(study, i), choir_space_name(space, k));
            fprintf(out, "%s%s", value ? value : "-", k == 5 ? "\n" : " ");
        }
    fprintf(out, "best %lld\n", (long long)choir_trial_number(choir_study_best(study)));
    fclose(out);
    choir_study_free(study);
    choir_space_free(space);
    return text;
}

static void test_order(void **state)
{
    static const struct {
        const char *name;
        int trials;
        bool learns; /* from results: another window has other trials */
    } samplers[] = {
        {"random", 90, false},
        {"grid:points=3", 90, false},
        {"qmc", 90, false},
        {"tpe", 90, true},
        {"tpe:rule=4", 90, true},
        {"gp:candidates=100,starts=2", 40, true},
        {"cmaes:population=5", 90, true},
        {"bohb", 90, true},
        {"nsga2:population=8", 90, true},
    };
    for (size_t i = 0; choir__tune_sampler_name(i); i++) { /* none is left out */
        size_t s = 0, n = strlen(choir__tune_sampler_name(i));
        while (s < CHOIR_COUNT(samplers) &&
               strncmp(samplers[s].name, choir__tune_sampler_name(i), n))
            s++;
        assert_true(s < CHOIR_COUNT(samplers));
    }
    for (size_t s = 0; s < CHOIR_COUNT(samplers); s++) {
        const char *name = samplers[s].name;
        int trials = samplers[s].trials;
        static const int workers[] = {4, 16, 16};
        char *one = table(name, 16, 1, 0, trials);
        for (unsigned order = 0; order < CHOIR_COUNT(workers); order++) {
            char *more = table(name, 16, workers[order], order + 1, trials);
            assert_string_equal(one, more);
            free(more);
        }
        char *other = table(name, 2, 1, 0, trials);
        assert_true(!strcmp(one, other) == !samplers[s].learns);
        free(other);
        free(one);
    }
}

static void test_window(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)");
    choir_study *study = study_of(space, "random", 1, 2);
    choir_trial *a = ask(study), *b = ask(study), *c = NULL;
    assert_false(choir_study_ready(study));
    assert_fails(choir_study_ask(study, &c), CHOIR_ERR_STATE, "follows from trial 0");
    tell(study, b, 1);
    assert_false(choir_study_ready(study));
    tell(study, a, 2);
    c = ask(study);
    assert_int_equal(choir_trial_number(c), 2);
    assert_ptr_equal(choir_study_best(study), b);
    choir_study_free(study);
    choir_space_free(space);
}

/* --- samplers --- */

static void test_grid(void **state)
{
    choir_space *space =
        SPACE("a", "choice(x, y)", "b", "int(1, 3) if a == y", "c", "log(1, 100)");
    ok(choir_space_require(space, "c > 1"));
    choir_study *study = study_of(space, "grid:points=3", 1, 1);
    static const char *const expected[] = {
        "x - 10", "x - 100", "y 1 10", "y 1 100", "y 2 10", "y 2 100", "y 3 10", "y 3 100"};
    for (size_t i = 0; i < CHOIR_COUNT(expected); i++) {
        choir_trial *t = ask(study);
        const char *b = choir_trial_text(t, "b");
        char text[64];
        snprintf(text, sizeof text, "%s %s %.0f", choir_trial_text(t, "a"), b ? b : "-",
            choir_trial_real(t, "c"));
        assert_string_equal(text, expected[i]);
        tell(study, t, 0);
    }
    choir_trial *t;
    assert_int_equal(choir_study_ask(study, &t), CHOIR_ERR_END);
    choir_study_free(study);
    choir_space_free(space);
}

/* Every whole number of a range once, also on a logarithmic scale, and given trials use up no
 * point of the grid. */
static void test_grid_of_integers(void **state)
{
    choir_space *space = SPACE("x", "int(1, 8, log)");
    choir_study *study = study_of(space, "grid", 1, 1);
    ok(choir_study_enqueue(study, "x=5"));
    for (int i = 0; i < 9; i++) {
        choir_trial *t = ask(study);
        assert_int_equal(choir_trial_int(t, "x"), i ? i : 5);
        tell(study, t, 0);
    }
    choir_study_free(study);
    choir_space_free(space);
}

/* Each value of each distribution is as likely as it should be. */
static void test_random(void **state)
{
    choir_space *space = SPACE("u", "uniform(2, 4)", "l", "log(1, 10000)", "i", "int(1, 4)",
        "c", "choice(a, b, c, d)", "n", "normal(10, 3)", "j", "int(1, 15, log)");
    choir_study *study = study_of(space, "random", 3, 1);
    int n = 20000, low_u = 0, low_l = 0, ones = 0, bs = 0, low_j = 0;
    double mean = 0, square = 0;
    for (int k = 0; k < n; k++) {
        choir_trial *t = ask(study);
        low_u += choir_trial_real(t, "u") < 2.5;
        low_l += choir_trial_real(t, "l") < 10;
        ones += choir_trial_int(t, "i") == 1;
        bs += !strcmp(choir_trial_text(t, "c"), "b");
        low_j += choir_trial_int(t, "j") <= 2;
        double z = (choir_trial_real(t, "n") - 10) / 3;
        mean += z / n, square += z * z / n;
        tell(study, t, 0);
    }
    double part_j = log(2.5 / 0.5) / log(15.5 / 0.5);
    int counts[] = {low_u, low_l, ones, bs};
    for (size_t i = 0; i < CHOIR_COUNT(counts); i++) /* five standard deviations */
        assert_true(fabs(counts[i] - 0.25 * n) < 5 * sqrt(n * 0.25 * 0.75));
    assert_true(fabs(low_j - part_j * n) < 5 * sqrt(n * part_j * (1 - part_j)));
    assert_true(fabs(mean) < 5 / sqrt(n) && fabs(square - 1) < 5 * sqrt(2.0 / n));
    choir_study_free(study);
    choir_space_free(space);
}

/* TPE finds the least value of a bowl far better than chance. */
static void test_tpe(void **state)
{
    choir_space *space = mixed_space();
    static const char *const samplers[] = {"random", "tpe", "tpe:multivariate=0", "tpe:rule=4"};
    double best[CHOIR_COUNT(samplers)] = {0};
    for (size_t s = 0; s < CHOIR_COUNT(samplers); s++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            choir_study *study = study_of(space, samplers[s], seed, 1);
            for (int k = 0; k < 150; k++) {
                choir_trial *t = ask(study);
                tell(study, t, loss(t));
            }
            best[s] += choir_trial_value(choir_study_best(study), 0) / 8;
            choir_study_free(study);
        }
    for (size_t s = 1; s < CHOIR_COUNT(samplers); s++)
        assert_true(best[s] < 0.5 * best[0]);
    choir_space_free(space);
}

/* A condition keeps trials away from a part of the space, which TPE must not find promising for
 * that. */
static void test_tpe_with_condition(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)", "y", "uniform(0, 1)");
    ok(choir_space_require(space, "x + y < 0.5"));
    choir_study *study = study_of(space, "tpe", 2, 1);
    for (int k = 0; k < 60; k++) {
        choir_trial *t = ask(study);
        assert_true(choir_trial_real(t, "x") + choir_trial_real(t, "y") < 0.5);
        tell(study, t, choir_trial_real(t, "x"));
    }
    choir_study_free(study);
    choir_space_free(space);
}

/* A condition on a parameter that few trials have keeps it in them, and disturbs no other. */
static void test_tpe_with_conditional(void **state)
{
    choir_space *space = SPACE("o", "choice(a, b)", "m", "uniform(0, 1) if o == a");
    ok(choir_space_require(space, "m < 0.02"));
    choir_study *study = study_of(space, "tpe", 4, 1);
    for (int k = 0; k < 40; k++) {
        choir_trial *t = ask(study);
        assert_true(choir_trial_has(t, "m") == !strcmp(choir_trial_text(t, "o"), "a"));
        assert_true(!choir_trial_has(t, "m") || choir_trial_real(t, "m") < 0.02);
        tell(study, t, choir_trial_has(t, "m") ? choir_trial_real(t, "m") : 1);
    }
    choir_study_free(study);
    choir_space_free(space);
}

/* --- the Parzen estimate --- */

/* Draws observations from their distributions, fits an estimate, and writes their values to
 * `observed` (n, dims), unless it is NULL. The caller frees the estimate. */
static choir__parzen *estimate(
    const choir__dist *const *dist, int dims, int64_t n, choir__draws *draws, double *observed)
{
    choir__parzen *p = choir__parzen_new(dist, dims, n);
    p->rows = choir__calloc((size_t)(dims * n) + 1, sizeof(int32_t));
    for (int d = 0; d < dims; d++) {
        int32_t *row = p->rows + d * n;
        p->of[d].sorted = row;
        for (int64_t i = 0; i < n; i++) {
            double value = choir__dist_draw(dist[d], draws);
            double v = choir__to_unit(&p->of[d], value);
            int64_t at = i;
            if (observed)
                observed[i * dims + d] = value;
            p->of[d].mu[i] = v;
            for (; at > 0 && p->of[d].mu[row[at - 1]] > v; at--)
                row[at] = row[at - 1];
            row[at] = (int32_t)i;
        }
    }
    choir__parzen_fit(p, CHOIR__WIDTH_NEIGHBOURS, NULL);
    return p;
}

/* The kernel's logarithm, by the definition. */
static double kernel(const choir__parzen *p, int d, int64_t i, double x)
{
    const choir__parzen_kernels *k = &p->of[d];
    double mu = k->mu[i], s = k->sigma[i];
    if (k->dist->kind == CHOIR__CHOICE) {
        double share = 1.0 / (double)(p->count + 1), places = k->dist->choice_count;
        if (i == p->count)
            return -log(places);
        return log((share + (mu == x)) / (1 + places * share));
    }
    double inside = choir__normal_cdf((1 - mu) / s) - choir__normal_cdf(-mu / s);
    if (k->dist->kind == CHOIR__INTEGER && !k->dist->log) {
        double half = 0.5 * k->dist->step / k->scale;
        return log(
            (choir__normal_cdf((x + half - mu) / s) - choir__normal_cdf((x - half - mu) / s)) /
            inside);
    }
    double z = (x - mu) / s;
    return log(exp(-0.5 * z * z) / (s * sqrt(2 * M_PI) * inside));
}

static void test_parzen(void **state)
{
    choir_space *space = SPACE("a", "uniform(0, 1)", "b", "int(1, 9)", "c", "choice(p, q, r)");
    const choir__dist *dist[] = {
        &space->param[0].dist, &space->param[1].dist, &space->param[2].dist};
    choir__draws draws = {.key = 5};
    for (int64_t n = 0; n < 60; n += 7) {
        choir__parzen *p = estimate(dist, 3, n, &draws, NULL);
        for (int k = 0; k < 50; k++) {
            double x[3], sum = 0;
            choir__parzen_draw(p, &draws, x);
            for (int64_t i = 0; i <= n; i++)
                sum += p->weight[i] * exp(kernel(p, 0, i, x[0]) + kernel(p, 1, i, x[1]) +
                                          kernel(p, 2, i, x[2]));
            assert_true(fabs(choir__parzen_log(p, x) - log(sum)) < 1e-10);
        }
        choir__parzen_free(p);
    }
    choir_space_free(space);
}

/* Beyond 1,000 others, every k-th stands for k: the suggestions stay inside the space, and
 * close to the best. */
static void test_many(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)", "y", "uniform(0, 1)");
    choir_study *study = study_of(space, "tpe:kernels=100", 1, 1);
    int near = 0;
    for (int k = 0; k < 600; k++) {
        choir_trial *t = ask(study);
        double x = choir_trial_real(t, "x") - 0.7, y = choir_trial_real(t, "y") - 0.2;
        near += k >= 500 && x * x + y * y < 0.01;
        tell(study, t, x * x + y * y);
    }
    assert_true(near > 50);
    choir_study_free(study);
    choir_space_free(space);
}

/* --- telling and looking --- */

static void test_given(void **state)
{
    choir_space *space = mixed_space();
    choir_study *study = study_of(space, "random", 1, 1);
    ok(choir_study_enqueue(study, "lr=0.01,optimizer=sgd,momentum=0.5"));
    ok(choir_study_enqueue(study, "optimizer=adamw,momentum=0.5"));
    choir_trial *t = ask(study);
    assert_string_equal(choir_trial_text(t, "lr"), "0.01");
    assert_true(choir_trial_real(t, "momentum") == 0.5);
    assert_true(choir_trial_has(t, "width"));
    tell(study, t, 1);
    t = ask(study);
    assert_string_equal(choir_trial_text(t, "optimizer"), "adamw");
    assert_false(choir_trial_has(t, "momentum"));
    assert_null(choir_trial_text(t, "momentum"));
    assert_int_equal(choir_study_enqueue(study, "rate=0.01"), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_study_enqueue(study, "lr=5"), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_study_enqueue(study, "width=17"), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_study_enqueue(study, "optimizer"), CHOIR_ERR_ARGUMENT);
    choir_study_free(study);
    choir_space_free(space);
}

static void test_told(void **state)
{
    choir_space *space = SPACE("x", "uniform(0, 1)");
    choir_study *study = study_of(space, "tpe", 1, 4);
    choir_trial *t = ask(study);
    double nan = (double)NAN, two[] = {1, 2};
    assert_int_equal(
        choir_study_tell(study, t, CHOIR_TRIAL_RUNNING, two, 1), CHOIR_ERR_ARGUMENT);
    assert_int_equal(
        choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, two, 2), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_trial_report(t, -1, 0), CHOIR_ERR_ARGUMENT);
    ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &nan, 1));
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_FAIL);
    assert_int_equal(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, two, 1), CHOIR_ERR_STATE);
    assert_int_equal(choir_trial_report(t, 1, 0), CHOIR_ERR_STATE);
    assert_null(choir_study_best(study));
    assert_null(choir_study_trial(study, 1));
    choir_study_free(study);
    choir_space_free(space);
}

static void test_errors(void **state)
{
    choir_space *space = SPACE("width", "int(64, 512)", "heads", "int(2, 8)");
    choir_study_opts opts = choir_study_defaults();
    choir_study *study = NULL;
    static const struct {
        const char *sampler, *direction, *says;
    } bad[] = {
        {"tpee", "minimize", "unknown sampler 'tpee' (did you mean 'tpe'?)"},
        {"tpe:startup=-1", "minimize", "startup"},
        {"tpe:multivariate=2", "minimize", "multivariate: expected true or false, got '2'"},
        {"tpe", "minimize,maximize", "expected one direction, got 2"},
        {"random", "least", "unknown direction 'least'"},
        {"grid:step=3", "minimize", "step"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++) {
        opts.sampler = bad[i].sampler;
        opts.direction = bad[i].direction;
        assert_int_not_equal(choir_study_open(space, opts, &study), CHOIR_OK);
        assert_says(bad[i].says);
    }
    assert_int_equal(
        choir_study_open(space, (choir_study_opts){0}, &study), CHOIR_ERR_ARGUMENT);
    ok(choir_space_require(space, "width == heads"));
    study = study_of(space, "tpe", 0, 1);
    choir_trial *t;
    assert_fails(choir_study_ask(study, &t), CHOIR_ERR_ARGUMENT, "'width == heads'");
    choir_study_free(study);
    choir_space_free(space);
}

/* Prints estimates for tests/interop/tune/densities.py: a line "estimate N", N lines of
 * observed values, and lines of a point and the logarithm of its density. */
static void print_densities(void)
{
    enum { DIMS = 5, POINTS = 20 };
    static const int64_t counts[] = {0, 1, 2, 5, 24, 25, 26, 27, 60, 130};
    choir_space *space = SPACE("a", "uniform(0, 1)", "b", "log(1e-3, 10)", "c", "int(1, 9)",
        "d", "choice(p, q, r)", "e", "int(1, 40, step=3)");
    const choir__dist *dist[DIMS];
    choir__draws draws = {.key = 5};
    double observed[130 * DIMS], x[DIMS];
    for (int i = 0; i < DIMS; i++)
        dist[i] = &space->param[i].dist;
    for (size_t c = 0; c < CHOIR_COUNT(counts); c++) {
        choir__parzen *p = estimate(dist, DIMS, counts[c], &draws, observed);
        printf("estimate %lld\n", (long long)counts[c]);
        for (int64_t i = 0; i < counts[c] * DIMS; i++)
            printf("%.17g%c", observed[i], i % DIMS == DIMS - 1 ? '\n' : ' ');
        for (int i = 0; i < POINTS; i++) {
            choir__parzen_draw(p, &draws, x);
            for (int d = 0; d < DIMS; d++)
                printf("%.17g ", choir__from_unit(&p->of[d], x[d]));
            printf("%.17g\n", choir__parzen_log(p, x));
        }
        choir__parzen_free(p);
    }
    choir_space_free(space);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "densities")) {
        print_densities();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_grid_of_integers),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_tpe),
        cmocka_unit_test(test_tpe_with_condition),
        cmocka_unit_test(test_tpe_with_conditional),
        cmocka_unit_test(test_parzen),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
