/* Scores of an evaluation, and predictions: counted by hand here; scores have the same bits on
 * any number of ranks.
 * The model returns its inputs, which are the scores of 7 classes, with ties. */
#include <math.h>
#include <sys/mman.h>

#include <choir/choir.h>
#include <choir/evaluate.h>
#include "helpers.h"
#include "multi/ranks.h"

enum { SAMPLES = 23, CLASSES = 7 };

typedef struct result {
    choir_score score;
    choir_class_score of[CLASSES];
} result;

static float score_at(int64_t sample, int class)
{
    return (float)((sample * 5 + class * class * 3) % 8) / 4;
}

/* Class 6 is no sample's; sample 9 does not count. */
static int64_t label_at(int64_t sample)
{
    return sample == 9 ? CHOIR_IGNORED : sample * sample % 6;
}

static int64_t length(const choir_dataset *d)
{
    return SAMPLES;
}

static choir_status get(choir_dataset *d, int64_t index, void *x, void *y)
{
    for (int c = 0; c < CLASSES; c++)
        ((float *)x)[c] = score_at(index, c);
    *(int64_t *)y = label_at(index);
    return CHOIR_OK;
}

static const choir_dataset_ops ops = {.length = length, .get = get};

/* A fresh dataset, and the model's description. */
static choir_dataset the_data(void)
{
    return (choir_dataset){.ops = &ops,
        .x_dtype = CHOIR_F32,
        .y_dtype = CHOIR_I64,
        .x_shape = {.ndim = 1, .dim = {CLASSES}},
        .classes = CLASSES};
}

static choir_status evaluate(
    choir_scope *run, choir_group *group, choir_task task, int64_t batch, result *r)
{
    choir_dataset data = the_data();
    choir_model_info info = {.task = task, .classes = CLASSES, .config = "scores"};
    choir_eval_opts opts = choir_eval_defaults();
    opts.batch_size = batch;
    opts.group = group;
    opts.per_class = r->of;
    return choir_evaluate(run, choir_nn_flatten(run), &info, &data, opts, &r->score);
}

/* --- by hand --- */

static int64_t before(int64_t sample, int64_t class)
{
    int64_t count = 0;
    for (int c = 0; c < CLASSES; c++)
        count += score_at(sample, c) > score_at(sample, (int)class) ||
                 (score_at(sample, c) == score_at(sample, (int)class) && c < class);
    return count;
}

static int64_t prediction_at(int64_t sample)
{
    for (int c = 0; c < CLASSES; c++)
        if (before(sample, c) == 0)
            return c;
    return -1;
}

static double loss_at(int64_t sample)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++)
        sum += exp((double)score_at(sample, c));
    return log(sum) - (double)score_at(sample, (int)label_at(sample));
}

static double expected_f1(int class, int64_t *samples, int64_t *predictions)
{
    int64_t right = 0;
    *samples = *predictions = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        if (label_at(i) == CHOIR_IGNORED)
            continue;
        *samples += label_at(i) == class;
        *predictions += prediction_at(i) == class;
        right += label_at(i) == class && prediction_at(i) == class;
    }
    return *samples + *predictions ? 2.0 * (double)right / (double)(*samples + *predictions)
                                   : 0;
}

static void counts_every_sample_once(void **state)
{
    double loss = 0, f1 = 0, rows = SAMPLES - 1;
    int64_t best = 0, top5 = 0, named = 0, samples, predictions;
    result r;
    for (int64_t i = 0; i < SAMPLES; i++) {
        if (label_at(i) == CHOIR_IGNORED)
            continue;
        loss += loss_at(i) / rows;
        best += before(i, label_at(i)) == 0;
        top5 += before(i, label_at(i)) < 5;
    }
    choir_scope *run = choir_scope_open(NULL, 1);
    ok(evaluate(run, NULL, CHOIR_CLASSIFICATION, 5, &r));
    for (int c = 0; c < CLASSES; c++) {
        double expected = expected_f1(c, &samples, &predictions);
        assert_int_equal(r.of[c].samples, samples);
        assert_int_equal(r.of[c].predictions, predictions);
        assert_float_equal(r.of[c].f1, expected, 1e-12);
        f1 += expected;
        named += samples + predictions > 0;
    }
    assert_true(named < CLASSES || r.of[6].predictions);
    assert_int_equal(r.score.samples, SAMPLES);
    assert_float_equal(r.score.loss, loss, 1e-6);
    assert_float_equal(r.score.perplexity, exp(loss), 1e-5);
    assert_float_equal(r.score.accuracy, (double)best / rows, 1e-12);
    assert_float_equal(r.score.top5, (double)top5 / rows, 1e-12);
    assert_float_equal(r.score.f1, f1 / (double)named, 1e-12);
    assert_true(top5 < (int64_t)rows && best < top5 && best > 0); /* the data tell them apart */
    choir_scope_close(run);
}

/* --- predictions --- */

static choir_status is_next(
    void *arg, int64_t sample, int64_t rows, const int64_t *targets, const float *probabilities)
{
    int64_t *next = arg;
    double sum = 0;
    assert_int_equal(sample, (*next)++);
    assert_int_equal(rows, sample != 9); /* which does not count */
    for (int c = 0; c < CLASSES; c++)
        sum += exp((double)score_at(sample, c));
    for (int c = 0; c < CLASSES && rows; c++)
        assert_float_equal(probabilities[c], exp((double)score_at(sample, c)) / sum, 1e-6);
    if (rows)
        assert_int_equal(targets[0], label_at(sample));
    return sample == 20 ? CHOIR_ERR_STATE : CHOIR_OK;
}

static void predicts_in_order(void **state)
{
    choir_dataset data = the_data();
    choir_model_info info = {
        .task = CHOIR_CLASSIFICATION, .classes = CLASSES, .config = "scores"};
    choir_eval_opts opts = choir_eval_defaults();
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_module *net = choir_nn_flatten(run);
    int64_t next = 0;
    opts.batch_size = 5;
    opts.max_batches = 4;
    ok(choir_predict(run, net, &info, &data, opts, is_next, &next));
    assert_int_equal(next, 20);
    next = opts.max_batches = 0; /* all, until an error */
    assert_int_equal(
        choir_predict(run, net, &info, &data, opts, is_next, &next), CHOIR_ERR_STATE);
    assert_int_equal(next, 21);
    info.classes = CLASSES + 1;
    assert_int_equal(
        choir_predict(run, net, &info, &data, opts, is_next, &next), CHOIR_ERR_SHAPE);
    info.task = CHOIR_LANGUAGE;
    assert_fails(choir_predict(run, net, &info, &data, opts, is_next, &next),
        CHOIR_ERR_ARGUMENT, "got scores, which has no classes");
    choir_scope_close(run);
}

/* --- on several ranks --- */

static int on_a_rank(int rank, int world, void *arg)
{
    result *results = arg;
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    CHECK_OK(evaluate(run, env.group, CHOIR_CLASSIFICATION, 4, &results[rank]));
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void same_bits_on_any_ranks(void **state)
{
    result one, *all = shared_memory(4 * sizeof *all);
    choir_scope *run = choir_scope_open(NULL, 1);
    memset(&one, 0, sizeof one);
    ok(evaluate(run, NULL, CHOIR_CLASSIFICATION, 4, &one));
    choir_scope_close(run);
    for (int world = 2; world <= 4; world++) {
        ok(choir_spawn(world, on_a_rank, all));
        for (int r = 0; r < world; r++)
            assert_memory_equal(&all[r], &one, sizeof one);
    }
    munmap(all, 4 * sizeof *all);
}

/* A dataset one of whose samples the last rank, which counts it, cannot read. */
static choir_status get_but_one(choir_dataset *d, int64_t index, void *x, void *y)
{
    return index == SAMPLES - 1 ? CHOIR_ERR_IO : get(d, index, x, y);
}

static const choir_dataset_ops broken_ops = {.length = length, .get = get_but_one};

typedef struct question {
    choir_group *group;
    int asked, last; /* calls so far; the one that ends the evaluation, 0: none */
} question;

static choir_status ask(void *arg, choir_status mine)
{
    question *q = arg;
    int32_t ends = mine != CHOIR_OK || ++q->asked == q->last;
    CHECK_OK(choir_group_all_reduce(q->group, &ends, 1, CHOIR_I32, CHOIR_MAX, NULL));
    return ends ? CHOIR_ERR_INTERRUPTED : CHOIR_OK;
}

/* Ranks of 2, 1, 1, ... batches ask equally often, and end together: at an answer, and where
 * one of them cannot read. The score of an evaluation that goes on is the one without
 * questions. */
static int ends_with_others(int rank, int world, void *arg)
{
    result *results = arg;
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    choir_dataset data = the_data(), broken = the_data();
    choir_model_info info = {
        .task = CHOIR_CLASSIFICATION, .classes = CLASSES, .config = "scores"};
    question q = {.group = env.group};
    choir_eval_opts opts = {.batch_size = 4, .workers = 1, .group = env.group};
    choir_module *net = choir_nn_flatten(run);
    int rounds = (6 + world - 1) / world + 1;
    broken.ops = &broken_ops;
    opts.per_class = results[rank].of;
    opts.between = ask;
    opts.arg = &q;
    CHECK_OK(choir_evaluate(run, net, &info, &data, opts, &results[rank].score));
    CHECK(q.asked == rounds);
    for (int last = 1; last <= rounds; last++) {
        q = (question){.group = env.group, .last = last};
        CHECK(choir_evaluate(run, net, &info, &data, opts, &results[rank].score) ==
                  CHOIR_ERR_INTERRUPTED &&
              q.asked == last);
    }
    q.last = 0;
    CHECK(choir_evaluate(run, net, &info, &broken, opts, &results[rank].score) != CHOIR_OK);
    opts.between = NULL;
    CHECK(choir_evaluate(run, net, &info, &broken, opts, &results[rank].score) == CHOIR_ERR_IO);
    CHECK_OK(choir_evaluate(run, net, &info, &data, opts, &results[rank].score));
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void ranks_end_together(void **state)
{
    result *all = shared_memory(4 * sizeof *all);
    for (int world = 1; world <= 4; world++)
        ok(choir_spawn(world, ends_with_others, all));
    munmap(all, 4 * sizeof *all);
}

static void refuses(void **state)
{
    result r;
    choir_scope *run = choir_scope_open(NULL, 1);
    assert_fails(evaluate(run, NULL, CHOIR_LANGUAGE, 4, &r), CHOIR_ERR_ARGUMENT,
        "scores has no classes");
    assert_true(isnan(r.score.loss) && isnan(r.score.f1));
    choir_scope_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_on_any_ranks),
        cmocka_unit_test(ranks_end_together),
        cmocka_unit_test(counts_every_sample_once),
        cmocka_unit_test(predicts_in_order),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
