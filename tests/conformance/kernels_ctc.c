/* Conformance of connectionist temporal classification: probabilities of paths, and gradients;
 * the reference itself beside a sum over all paths, one by one. */
#include "conformance/harness.h"
#include "device/queue.h"

typedef struct ctc_case {
    int64_t steps, batch, classes, most;
} ctc_case;

static const ctc_case shapes[] = {{1, 1, 2, 1}, {4, 2, 3, 2}, {9, 3, 5, 4}, {7, 2, 11, 0},
    {40, 4, 28, 9}, {33, 2, 6, 16}, {64, 3, 40, 31}, {150, 1, 7, 70}, {600, 1, 30, 20}};

/* variant: 0 lengths as given; 1 shorter ones, some infeasible; 2 with zero_infinity, too */
enum { VARIANTS = 3 };

typedef struct problem {
    int64_t *targets, *steps, *lengths;
    float *x;
    choir__k_ctc k;
} problem;

/* Log-probabilities of random scores. */
static float *log_probabilities(int64_t rows, int64_t classes, float scale)
{
    float *x = uniform(rows * classes, -scale, scale);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++)
            sum += exp((double)x[r * classes + c]);
        for (int64_t c = 0; c < classes; c++)
            x[r * classes + c] -= (float)log(sum);
    }
    return x;
}

/* Blank: the last class in every other problem. Labels repeat, also beside each other. */
static problem problem_of(const ctc_case *c, int variant)
{
    problem p = {.targets = calloc((size_t)(c->batch * c->most + 1), sizeof(int64_t)),
        .steps = malloc((size_t)c->batch * sizeof(int64_t)),
        .lengths = malloc((size_t)c->batch * sizeof(int64_t)),
        .x = log_probabilities(c->steps * c->batch, c->classes, 4)};
    int64_t blank = c->most % 2 ? c->classes - 1 : 0;
    for (int64_t b = 0; b < c->batch; b++) {
        bool last = b == c->batch - 1;
        p.steps[b] = variant ? c->steps * (b + 1) / (c->batch + 1) : c->steps;
        p.lengths[b] = variant && !last ? (c->most + b) / 2 : c->most;
        if (p.lengths[b] > c->most)
            p.lengths[b] = c->most;
        for (int64_t i = 0; i < c->most; i++) {
            int64_t label = (i * 7 / 3 + b) % (c->classes - 1);
            p.targets[b * c->most + i] = label + (label >= blank);
        }
    }
    p.k = (choir__k_ctc){.targets = p.targets,
        .input_lengths = p.steps,
        .target_lengths = p.lengths,
        .steps = c->steps,
        .batch = c->batch,
        .classes = c->classes,
        .most = c->most,
        .blank = blank,
        .zero_infinity = variant == 2};
    return p;
}

static void free_problem(problem *p)
{
    free(p->targets);
    free(p->steps);
    free(p->lengths);
}

static trial trial_of(const problem *p, bool backward)
{
    trial t = backward ? TRIAL(ctc_backward, .x = NULL) : TRIAL(ctc, .x = NULL);
    memcpy(t.args, &p->k, sizeof p->k);
    t.no_half = true;
    t.tolerance = 1e-5;
    return t;
}

static int64_t states_of(const choir__k_ctc *k)
{
    return k->batch * k->steps * (2 * k->most + 1);
}

static void forward(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(shapes) * VARIANTS; i++) {
        problem p = problem_of(&shapes[i / VARIANTS], (int)(i % VARIANTS));
        trial t = trial_of(&p, false);
        give(&t, AT(ctc, x), p.k.steps * p.k.batch * p.k.classes, p.x);
        take(&t, AT(ctc, alpha), states_of(&p.k));
        take(&t, AT(ctc, loss), p.k.batch);
        check(t);
        free_problem(&p);
    }
}

static void backward(void **state)
{
    for (size_t i = 0; i < CHOIR_COUNT(shapes) * VARIANTS; i++) {
        problem p = problem_of(&shapes[i / VARIANTS], (int)(i % VARIANTS));
        float *alpha = malloc((size_t)states_of(&p.k) * sizeof *alpha);
        float *loss = malloc((size_t)p.k.batch * sizeof *loss);
        choir__k_ctc k = p.k;
        k.x = p.x, k.alpha = alpha, k.loss = loss;
        choir__cpu_reference.ctc(&k);
        trial t = trial_of(&p, true);
        t.tolerance = 1e-4; /* alpha, which is given, is rounded to f32 */
        t.f64_tolerance = 1e-9;
        give(&t, AT(ctc_backward, x), k.steps * k.batch * k.classes, p.x);
        give(&t, AT(ctc_backward, alpha), states_of(&k), alpha);
        give(&t, AT(ctc_backward, gloss), k.batch, uniform(k.batch, 0.5f, 2));
        take(&t, AT(ctc_backward, gx), k.steps * k.batch * k.classes);
        check(t);
        free(loss);
        free_problem(&p);
    }
}

/* --- the reference beside all paths --- */

enum { STEPS = 6, CLASSES = 3 };

/* Returns what a path reads, as digits; -1 if it does not read n labels. */
static bool reads(const int *path, const int64_t *target, int64_t n)
{
    int64_t at = 0;
    for (int t = 0; t < STEPS; t++)
        if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) {
            if (at == n || target[at] != path[t])
                return false;
            at++;
        }
    return at == n;
}

static void all_paths(void **state)
{
    static const int64_t targets[][3] = {{1, 2, 1}, {1, 1, 2}, {2, 2, 2}, {0}};
    static const int64_t lengths[] = {3, 3, 3, 0};
    for (size_t i = 0; i < CHOIR_COUNT(lengths); i++) {
        float *values = log_probabilities(STEPS, CLASSES, 2);
        double x[STEPS * CLASSES], gx[STEPS * CLASSES], sum = 0, g[STEPS * CLASSES] = {0};
        double alpha[STEPS * 7], loss, one = 1;
        for (int j = 0; j < STEPS * CLASSES; j++)
            x[j] = (double)values[j];
        for (int code = 0; code < 729; code++) {
            int path[STEPS];
            double log_p = 0;
            for (int t = 0, rest = code; t < STEPS; t++, rest /= CLASSES) {
                path[t] = rest % CLASSES;
                log_p += x[t * CLASSES + path[t]];
            }
            if (!reads(path, targets[i], lengths[i]))
                continue;
            sum += exp(log_p);
            for (int t = 0; t < STEPS; t++)
                g[t * CLASSES + path[t]] -= exp(log_p);
        }
        int64_t steps = STEPS;
        choir__k_ctc k = {.x = x,
            .targets = targets[i],
            .input_lengths = &steps,
            .target_lengths = &lengths[i],
            .alpha = alpha,
            .loss = &loss,
            .gloss = &one,
            .gx = gx,
            .steps = STEPS,
            .batch = 1,
            .classes = CLASSES,
            .most = 3,
            .dtype = CHOIR_F64};
        choir__cpu_reference.ctc(&k);
        choir__cpu_reference.ctc_backward(&k);
        assert_true(fabs(loss + log(sum)) < 1e-12);
        for (int j = 0; j < STEPS * CLASSES; j++)
            assert_true(fabs(gx[j] - g[j] / sum) < 1e-12);
        free(values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_paths),
        cmocka_unit_test(forward),
        cmocka_unit_test(backward),
    };
    return cmocka_run_group_tests_name("ctc kernels", tests, NULL, NULL);
}
