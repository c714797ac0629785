/* The training loop with callbacks: which are called, and when; that a resumed loop has the
 * bits of one without a break; how it ends. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"

typedef struct counts {
    int begun, steps, evaluated, saved, ended;
    int stop_after, fail_after; /* steps; 0: never */
    int64_t last;               /* the state's step at the latest call */
    choir_status status;        /* that `end` received */
} counts;

typedef struct job {
    choir_env env;
    choir_model_info info;
    choir_data data;
    choir_scope *run;
    choir_training training;
} job;

static choir_status begin(choir_loop *l, void *arg)
{
    counts *c = arg;
    c->begun++;
    c->last = choir_loop_state(l)->step;
    return CHOIR_OK;
}

static choir_status step(choir_loop *l, void *arg)
{
    counts *c = arg;
    c->steps++;
    assert_int_equal(choir_loop_state(l)->step, ++c->last);
    assert_true(isfinite(choir_loop_state(l)->loss));
    if (c->stop_after && c->steps >= c->stop_after)
        choir_loop_stop(l);
    return c->fail_after && c->steps >= c->fail_after ? CHOIR_ERR_ARGUMENT : CHOIR_OK;
}

static choir_status evaluated(choir_loop *l, const choir_score *score, void *arg)
{
    counts *c = arg;
    c->evaluated++;
    assert_true(choir_loop_state(l)->eval_loss == score->loss);
    return CHOIR_OK;
}

static choir_status saved(choir_loop *l, void *arg)
{
    ((counts *)arg)->saved++;
    return CHOIR_OK;
}

static void end(choir_loop *l, choir_status status, void *arg)
{
    counts *c = arg;
    assert_non_null(choir_loop_training(l)->module);
    c->ended++;
    c->status = status;
}

static job job_open(void)
{
    job j = {.training = {0}};
    choir_data_opts opts = choir_data_defaults();
    opts.random_train = 256;
    choir_check(choir_env_init(&j.env));
    j.env.microbatches = 2;
    choir_check(
        choir_model_data("mlp:in=7,hidden=9,classes=4", "random", opts, &j.info, &j.data));
    j.run = choir_run_open(&j.env, 3);
    choir_module *net = choir_model_build(j.run, &j.info);
    j.training = (choir_training){.module = net,
        .optim = choir_adamw(j.run, net, choir_adamw_defaults()),
        .loader = choir_env_loader(j.run, &j.env, j.data.train, 16)};
    return j;
}

static void job_close(job *j)
{
    choir_check(choir_scope_close(j->run));
    choir_data_free(&j->data);
    choir_env_free(&j->env);
}

/* Runs a loop of its own job, and stores its weights' hash. */
static choir_status run(choir_loop_opts opts, counts *c, char sha[65])
{
    job j = job_open();
    j.training.info = &j.info;
    opts.validation = j.data.validation;
    choir_loop *l = choir_loop_new(&j.env, j.training, opts);
    choir_loop_add(l, (choir_callbacks){begin, step, evaluated, saved, end}, c);
    choir_status status = choir_loop_run(l);
    choir_check(choir_weights_sha256(j.training.module, NULL, sha));
    job_close(&j);
    return status;
}

static void all_are_called(void **state)
{
    counts c = {0}, first = {.stop_after = 5}, second = {0};
    char whole[65], again[65], folder[] = "/tmp/choir-loop-XXXXXX", *dir;
    assert_non_null(mkdtemp(folder));
    assert_true(asprintf(&dir, "%s/run", folder) > 0);
    choir_loop_opts opts = choir_loop_defaults();
    opts.steps = 12;
    opts.eval_every = 4;
    ok(run(opts, &c, whole));
    assert_int_equal(c.begun, 1);
    assert_int_equal(c.steps, 12);
    assert_int_equal(c.evaluated, 3);
    assert_int_equal(c.saved, 0);
    assert_int_equal(c.ended, 1);
    opts.save = dir;
    opts.save_every = 2;
    opts.keep = 2;
    ok(run(opts, &first, again)); /* steps 2, 4, and 5, the last */
    assert_int_equal(first.saved, 3);
    assert_string_not_equal(whole, again);
    ok(run(opts, &second, again));
    assert_int_equal(second.steps, 7);
    assert_string_equal(whole, again);
    char command[128];
    snprintf(command, sizeof command, "test $(ls -d %s/step-* | wc -l) = 2 && rm -r %s", dir,
        folder);
    assert_int_equal(system(command), 0);
    free(dir);
}

static void an_error_ends_it(void **state)
{
    counts c = {.fail_after = 3};
    char sha[65];
    choir_loop_opts opts = choir_loop_defaults();
    assert_int_equal(run(opts, &c, sha), CHOIR_ERR_ARGUMENT);
    assert_int_equal(c.steps, 3);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, CHOIR_ERR_ARGUMENT);
}

static void missing_parts(void **state)
{
    job j = job_open();
    j.training.info = &j.info;
    choir_training t = j.training;
    t.loader = NULL;
    choir_loop *l = choir_loop_new(&j.env, t, choir_loop_defaults());
    assert_fails(choir_loop_run(l), CHOIR_ERR_ARGUMENT, "missing a loader");
    choir_scope_clear(j.run);
    choir_loop_new(&j.env, j.training, (choir_loop_opts){0});
    assert_fails(choir_scope_status(j.run), CHOIR_ERR_ARGUMENT, "choir_loop_defaults()");
    choir_scope_clear(j.run);
    job_close(&j);
}

/* Texts whose answers are few of their tokens, so that most batches have no target. */
static job texts_open(void)
{
    job j = {.training = {0}};
    char path[] = "/tmp/choir-loop-XXXXXX.jsonl", line[200];
    int fd = mkstemps(path, 6);
    snprintf(line, sizeof line, "{\"prompt\":\"%0100d\",\"completion\":\"ok\"}\n", 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(write(fd, line, strlen(line)), strlen(line));
    close(fd);
    choir_data_opts opts = choir_data_defaults();
    choir_check(choir_tokenizer_bytes(&opts.tokenizer));
    choir_check(choir_env_init(&j.env));
    choir_check(choir_model_data(
        "gpt2:layers=1,heads=1,width=8,context=16", path, opts, &j.info, &j.data));
    unlink(path);
    j.run = choir_run_open(&j.env, 3);
    choir_module *net = choir_model_build(j.run, &j.info);
    j.training = (choir_training){.module = net,
        .optim = choir_adamw(j.run, net, choir_adamw_defaults()),
        .loader = choir_env_loader(j.run, &j.env, j.data.train, 2)};
    return j;
}

typedef struct seen {
    int with, without;
} seen;

static choir_status look(choir_loop *l, void *arg)
{
    seen *s = arg;
    double loss = choir_loop_state(l)->loss;
    s->with += loss > 1 && loss < 9;
    s->without += isnan(loss);
    return CHOIR_OK;
}

/* A step of which no target counts has no loss, and the loop goes on. */
static void no_target_is_no_loss(void **state)
{
    seen s = {0};
    job j = texts_open();
    j.training.info = &j.info;
    choir_loop_opts opts = choir_loop_defaults();
    opts.steps = 57;
    choir_loop *l = choir_loop_new(&j.env, j.training, opts);
    choir_loop_add(l, (choir_callbacks){.step = look}, &s);
    ok(choir_loop_run(l));
    assert_int_equal(s.with + s.without, 57);
    assert_in_range(s.with, 10, 30);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_called),
        cmocka_unit_test(an_error_ends_it), cmocka_unit_test(missing_parts),
        cmocka_unit_test(no_target_is_no_loss)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
