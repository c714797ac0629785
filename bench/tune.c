/* Samplers of `choir tune` on functions whose best value is known, and their speed.
 *
 *     choir_bench_tune quality SAMPLER FUNCTION SEEDS TRIALS [FIRST_SEED]
 *                                                                regrets: median and quartiles
 *     choir_bench_tune speed SAMPLER TRIALS PARAMETERS           ask and tell, in memory
 *
 * FUNCTION: branin, hartmann6, ones (8 choices of two, 8 real numbers), queens (8 choices),
 * zdt1 (two objectives of 8 real numbers; the regret is the dominated area that is missing). */
#include <choir/choir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct problem {
    const char *name;
    int choices, reals; /* parameters c0, c1, ... and x0, x1, ... */
    const char *choice, *real[6];
    double (*value)(const choir_trial *t);
    double best;
    double (*second)(const choir_trial *t); /* another objective, or NULL */
} problem;

static double x(const choir_trial *t, char kind, int i)
{
    char name[16];
    snprintf(name, sizeof name, "%c%d", kind, i);
    return choir_trial_real(t, name);
}

static double branin(const choir_trial *t)
{
    double a = x(t, 'x', 0), b = x(t, 'x', 1);
    double c = b - 5.1 / (4 * M_PI * M_PI) * a * a + 5 / M_PI * a - 6;
    return c * c + 10 * (1 - 1 / (8 * M_PI)) * cos(a) + 10;
}

static double hartmann6(const choir_trial *t)
{
    static const double a[4][6] = {{10, 3, 17, 3.5, 1.7, 8}, {.05, 10, 17, .1, 8, 14},
        {3, 3.5, 1.7, 10, 17, 8}, {17, 8, .05, 10, .1, 14}};
    static const double p[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
        {2329, 4135, 8307, 3736, 1004, 9991}, {2348, 1451, 3522, 2883, 3047, 6650},
        {4047, 8828, 8732, 5743, 1091, 381}};
    static const double alpha[4] = {1, 1.2, 3, 3.2};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double q = 0;
        for (int j = 0; j < 6; j++) {
            double d = x(t, 'x', j) - p[i][j] * 1e-4;
            q += a[i][j] * d * d;
        }
        sum -= alpha[i] * exp(-q);
    }
    return sum;
}

static double ones(const choir_trial *t)
{
    double sum = 16;
    for (int i = 0; i < 8; i++)
        sum -= x(t, 'c', i) + x(t, 'x', i);
    return sum;
}

static double queens(const choir_trial *t)
{
    int count = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < i; j++) {
            double d = fabs(x(t, 'c', i) - x(t, 'c', j));
            count += d == 0 || d == i - j;
        }
    return count;
}

static double zdt1_first(const choir_trial *t)
{
    return x(t, 'x', 0);
}

static double zdt1_second(const choir_trial *t)
{
    double g = 1;
    for (int i = 1; i < 8; i++)
        g += 9.0 / 7 * x(t, 'x', i);
    return g * (1 - sqrt(x(t, 'x', 0) / g));
}

static const problem problems[] = {
    {"branin", 0, 2, NULL, {"uniform(-5, 10)", "uniform(0, 15)"}, branin, 0.39788735772973816,
        NULL},
    {"hartmann6", 0, 6, NULL,
        {"uniform(0, 1)", "uniform(0, 1)", "uniform(0, 1)", "uniform(0, 1)", "uniform(0, 1)",
            "uniform(0, 1)"},
        hartmann6, -3.32236801141551, NULL},
    {"ones", 8, 8, "choice(0, 1)", {"uniform(0, 1)"}, ones, 0, NULL},
    {"queens", 8, 0, "choice(0, 1, 2, 3, 4, 5, 6, 7)", {NULL}, queens, 0, NULL},
    {"zdt1", 0, 8, NULL, {"uniform(0, 1)"}, zdt1_first, 1.1 * 1.1 - 1.0 / 3, zdt1_second},
};

static choir_space *space_of(const problem *p)
{
    char name[16];
    choir_space *space = choir_space_new();
    for (int i = 0; i < p->choices; i++) {
        snprintf(name, sizeof name, "c%d", i);
        choir_check(choir_space_add(space, name, p->choice));
    }
    for (int i = 0; i < p->reals; i++) {
        snprintf(name, sizeof name, "x%d", i);
        choir_check(choir_space_add(space, name, p->real[i < 6 && p->real[i] ? i : 0]));
    }
    return space;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static int by_first(const void *a, const void *b)
{
    const choir_trial *const *s = a, *const *t = b;
    double d = choir_trial_value(*s, 0) - choir_trial_value(*t, 0);
    return (d > 0) - (d < 0);
}

/* The area that the front dominates up to (1.1, 1.1). */
static double dominated(const choir_study *study)
{
    int64_t count = choir_study_pareto(study, NULL, 0);
    choir_trial **front = calloc((size_t)count, sizeof(choir_trial *));
    choir_study_pareto(study, front, count);
    qsort(front, (size_t)count, sizeof(choir_trial *), by_first);
    double area = 0, low = 1.1;
    for (int64_t i = 0; i < count; i++) {
        double a = choir_trial_value(front[i], 0), b = choir_trial_value(front[i], 1);
        if (a < 1.1 && b < low) {
            area += (1.1 - a) * (low - b);
            low = b;
        }
    }
    free(front);
    return area;
}

static void quality(const char *sampler, const problem *p, int seeds, int trials, int from)
{
    double begin = now();
    double *regret = calloc((size_t)seeds, sizeof *regret);
    choir_space *space = space_of(p);
    for (int seed = 0; seed < seeds; seed++) {
        choir_study_opts opts = choir_study_defaults();
        opts.sampler = sampler;
        opts.direction = p->second ? "minimize,minimize" : "minimize";
        opts.seed = (uint64_t)(from + seed);
        choir_study *study;
        choir_check(choir_study_open(space, opts, &study));
        for (int i = 0; i < trials; i++) {
            choir_trial *t;
            choir_check(choir_study_ask(study, &t));
            double value[] = {p->value(t), p->second ? p->second(t) : 0};
            choir_check(
                choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, value, p->second ? 2 : 1));
        }
        regret[seed] = p->second ? p->best - dominated(study)
                                 : choir_trial_value(choir_study_best(study), 0) - p->best;
        choir_study_free(study);
    }
    qsort(regret, (size_t)seeds, sizeof *regret, by_size);
    printf(
        "{\"sampler\":\"%s\",\"function\":\"%s\",\"regret_median\":%.6g,\"regret_quartiles\":"
        "[%.6g,%.6g],\"trial_ms\":%.4g}\n",
        sampler, p->name, (regret[(seeds - 1) / 2] + regret[seeds / 2]) / 2, regret[seeds / 4],
        regret[(3 * seeds) / 4], (now() - begin) / seeds / trials * 1e3);
    choir_space_free(space);
    free(regret);
}

/* Prints how long a trial takes, at powers of ten of the number of trials and at the end. */
static void speed(const char *sampler, int trials, int parameters)
{
    choir_space *space = choir_space_new();
    for (int i = 0; i < parameters; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        choir_check(choir_space_add(space, name, "uniform(0, 1)"));
    }
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = sampler;
    choir_study *study;
    choir_check(choir_study_open(space, opts, &study));
    double begin = now(), part = begin;
    for (int i = 0, next = 1000, from = 900; i < trials; i++) {
        choir_trial *t;
        if (i == from)
            part = now();
        choir_check(choir_study_ask(study, &t));
        double value = 0;
        for (int k = 0; k < parameters; k++) {
            double d = x(t, 'x', k) - 0.3;
            value += d * d;
        }
        choir_check(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &value, 1));
        if (i + 1 == next) {
            printf("{\"sampler\":\"%s\",\"trials\":%d,\"trial_us\":%.3f,\"mean_us\":%.3f}\n",
                sampler, next, (now() - part) / (next - from) * 1e6,
                (now() - begin) / next * 1e6);
            next *= 10;
            from = next - 100;
        }
    }
    printf("{\"sampler\":\"%s\",\"trials\":%d,\"mean_us\":%.3f}\n", sampler, trials,
        (now() - begin) / trials * 1e6);
    choir_study_free(study);
    choir_space_free(space);
}

int main(int argc, char **argv)
{
    if ((argc == 6 || argc == 7) && !strcmp(argv[1], "quality")) {
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
            if (!strcmp(problems[i].name, argv[3])) {
                quality(argv[2], &problems[i], atoi(argv[4]), atoi(argv[5]),
                    argc == 7 ? atoi(argv[6]) : 0);
                return 0;
            }
    } else if (argc == 5 && !strcmp(argv[1], "speed")) {
        speed(argv[2], atoi(argv[3]), atoi(argv[4]));
        return 0;
    }
    fprintf(stderr, "usage: choir_bench_tune quality SAMPLER FUNCTION SEEDS TRIALS [FIRST]\n"
                    "       choir_bench_tune speed SAMPLER TRIALS PARAMETERS\n");
    return 2;
}
