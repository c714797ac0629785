/* A program's job (choir/job.h) in one process: documents, options and pairs of them that are
 * wrong, each of which is one sentence and begins nothing; jobs that train again. */
#include <choir/choir.h>

#include <math.h>
#include <sys/wait.h>

#include "folder_fixture.h"

static const char document[] =
    "{\"format\": \"choir-job\", \"version\": 1, \"data\": \"random\", \"options\": {\"model\": "
    "\"toy\", \"strategy\": \"single\", \"steps\": 2, \"batch-size\": 8, \"microbatches\": 2}}";

static void set(choir_job *job, const char *option, const char *value)
{
    ok(choir_job_set(job, option, value));
}

static choir_job *small(void)
{
    choir_job *job;
    ok(choir_job_parse(document, &job));
    return job;
}

static void test_wrong_documents(void **state)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {{"", "line 1"}, {"[]", "choir-job"}, {"{}", "choir-job"},
        {"{\"format\": \"choir-job\", \"version\": 2}", "\"version\": 1, got 2"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"option\": {}}",
            "did you mean 'options'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"stesp\": 4}}", "'steps'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"steps\": 0}}", "got '0'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"lr\": \"x\"}}", "\"x\""}};
    choir_job *job;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_fails(choir_job_parse(wrong[i].text, &job), CHOIR_ERR_ARGUMENT, wrong[i].words);
        assert_null(job);
        assert_fails(choir_job_open(put("wrong.json", wrong[i].text), &job), CHOIR_ERR_ARGUMENT,
            i ? wrong[i].words : "wrong.json:1");
    }
    unlink(at("wrong.json"));
    assert_fails(choir_job_open(at("nowhere.json"), &job), CHOIR_ERR_IO, "nowhere.json");
}

static void test_wrong_options(void **state)
{
    static const struct {
        const char *option, *value, *words;
    } wrong[] = {{"stesp", "4", "unknown option 'stesp'; did you mean 'steps'"},
        {"steps", "0", "--steps: expected"}, {"steps", NULL, "missing value of --steps"},
        {"bytes", "perhaps", "--bytes: expected"}, {"amp", "half", "choose one of"},
        {"page", NULL, "unknown option"}, {"log", "xls:a", "unknown kind of log"},
        {"data", NULL, "missing data"}};
    choir_job *job = small();
    choir_job_result done;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(choir_job_set(job, wrong[i].option, wrong[i].value), CHOIR_ERR_ARGUMENT,
            wrong[i].words);
    ok(choir_job_train(job, NULL, &done)); /* none of them has left anything */
    choir_job_free(job);
}

static void count(void *arg, int64_t step, const char *name, const char *json)
{
    (void)step, (void)name, (void)json;
    ++*(int *)arg;
}

/* Options that do not go together are refused before anything begins. */
static void test_wrong_pairs(void **state)
{
    static const struct {
        const char *option, *value, *other, *words;
    } wrong[] = {{"epochs", "2", "steps", "--steps 5 with --epochs 2: choose one of them"},
        {"strategy", "nowhere", NULL, "unknown strategy"},
        {"patience", "2", NULL, "--eval-every"},
        {"nproc", "2", NULL, "--nproc 2 with --strategy single"},
        {"summary", NULL, NULL, "--summary trains nothing"},
        {"model", "gpt9", NULL, "unknown model"}, {"optimizer", "adamx", NULL, "unknown"},
        {"data", "/nowhere", NULL, "/nowhere"}, {"devices", "cpu:x", NULL, "--devices"},
        {"resume", "/nowhere", NULL, "/nowhere"}, {"batch-size", "7", NULL, "divide"},
        {"max-time", "soon", NULL, "--max-time"},
        {"max-restarts", "1", NULL, "--strategy single"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        choir_job *job = small();
        choir_job_result done;
        int events = 0;
        const choir_job_recorder mine = {.arg = &events, .event = count};
        set(job, wrong[i].option, wrong[i].value);
        if (wrong[i].other)
            set(job, wrong[i].other, "5");
        choir_status status = choir_job_train(job, &mine, &done);
        if (status == CHOIR_OK)
            fail_msg("--%s %s was taken", wrong[i].option, wrong[i].value);
        assert_says(wrong[i].words);
        assert_null(strchr(choir_error_message(), '\n'));
        assert_true(!done.steps && isnan(done.loss) && !*done.weights_sha256 && !events);
        choir_job_free(job);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
}

/* A handle trains again, with other options and with the same ones. */
static void test_again(void **state)
{
    choir_job *job = small();
    choir_job_result first, other, again;
    (void)state;
    ok(choir_job_train(job, NULL, &first));
    set(job, "seed", "7");
    ok(choir_job_train(job, NULL, &other));
    set(job, "seed", "42");
    ok(choir_job_train(job, NULL, &again));
    assert_string_not_equal(first.weights_sha256, other.weights_sha256);
    assert_string_equal(first.weights_sha256, again.weights_sha256);
    ok(choir_job_train(job, NULL, NULL));
    choir_job_free(job);
}

/* One job trains in a process at a time: a recorder cannot begin another one. */
static choir_status inner;

static void train_within(void *arg, const choir_job_step *step)
{
    (void)step;
    inner = choir_job_train(arg, NULL, NULL);
}

static void test_busy(void **state)
{
    choir_job *job = small(), *other = small();
    choir_job_recorder mine = {.arg = other, .step = train_within};
    (void)state;
    ok(choir_job_train(job, &mine, NULL));
    assert_int_equal(inner, CHOIR_ERR_STATE);
    choir_job_free(other);
    choir_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_documents),
        cmocka_unit_test(test_wrong_options), cmocka_unit_test(test_wrong_pairs),
        cmocka_unit_test(test_again), cmocka_unit_test(test_busy)};
    unsetenv("RANK");
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
