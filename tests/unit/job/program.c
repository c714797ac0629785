/* A program's job (choir/job.h) in one process: documents, options and pairs of them that are
 * wrong, each of which is one sentence and begins nothing; jobs that train again. */
#include <choir/choir.h>

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
    } wrong[] = {{"", "line 1"}, {"[]", "missing \"format\""}, {"{}", "missing \"format\""},
        {"{\"format\": \"choir-study\"}", "got 'choir-study'"},
        {"{\"format\": \"choir-job\"}", "missing \"version\": 1"},
        {"{\"format\": \"choir-job\", \"version\": 2}", "\"version\": 1, got 2"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"option\": {}}",
            "did you mean 'options'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"stesp\": 4}}", "'steps'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"steps\": 0}}", "got '0'"},
        {"{\"format\": \"choir-job\", \"version\": 1, \"options\": {\"lr\": \"x\"}}", "\"x\""}};
    choir_job *job;
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
        {"bytes", "perhaps", "--bytes: expected true or false"},
        {"amp", "half", "choose one of"}, {"page", NULL, "unknown option"},
        {"log", "xls:a", "unknown kind of log"}, {"data", NULL, "missing data"}};
    choir_job *job = small();
    choir_job_result done;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(choir_job_set(job, wrong[i].option, wrong[i].value), CHOIR_ERR_ARGUMENT,
            wrong[i].words);
    ok(choir_job_train(job, NULL, &done)); /* none of them has left anything */
    choir_job_free(job);
}

static void count(void *arg, int64_t step, const char *name, const char *json)
{
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

/* A folder may have any name. */
static void test_odd_folders(void **state)
{
    static const char *const names[] = {"two\nlines", "a:b", "run:", "%s%n", " "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *place = at("%s", names[i]);
        choir_job *job = small();
        choir_job_result done;
        set(job, "save", place);
        set(job, "log", "csv:/dev/null");
        ok(choir_job_train(job, NULL, &done));
        assert_string_equal(done.folder, place);
        assert_non_null(done.latest);
        choir_job_free(job);
    }
}

/* One job trains in a process at a time: a recorder cannot begin another one. */
static choir_status inner;
static choir_job_result inner_done;

static void train_within(void *arg, const choir_job_step *step)
{
    inner = choir_job_train(arg, NULL, &inner_done);
}

static void test_busy(void **state)
{
    choir_job *job = small(), *other = small();
    choir_job_recorder mine = {.arg = other, .step = train_within};
    memset(&inner_done, 0x5a, sizeof inner_done);
    ok(choir_job_train(job, &mine, NULL));
    assert_int_equal(inner, CHOIR_ERR_STATE);
    assert_true(!inner_done.steps && isnan(inner_done.loss) && !inner_done.folder);
    choir_job_free(other);
    choir_job_free(job);
}

/* A signal that comes after the last step stops nothing, but the program learns it. */
static void stop_late(void *arg, int64_t step, const char *name, const char *json)
{
    if (!strcmp(name, "end"))
        raise(SIGTERM);
}

static void test_late_signal(void **state)
{
    const choir_job_recorder mine = {.event = stop_late};
    choir_job_result done;
    choir_job *job = small();
    ok(choir_job_train(job, &mine, &done));
    assert_int_equal(done.signal, SIGTERM);
    ok(choir_job_train(job, NULL, &done));
    assert_int_equal(done.signal, 0);
    choir_job_free(job);
}

/* Gives the program a locale that writes 0,5, made from the system's sources if it is not
 * installed. Returns false on a system without them. */
static bool speak_german(void)
{
    char made[4096];
    if (setlocale(LC_ALL, "de_DE.UTF-8"))
        return true;
    snprintf(made, sizeof made, "localedef -c -i de_DE -f UTF-8 %s >/dev/null 2>&1",
        at("de_DE.UTF-8"));
    (void)!system(made); /* a warning has a status, too */
    setenv("LOCPATH", folder, 1);
    const bool done = setlocale(LC_ALL, "de_DE.UTF-8");
    unsetenv("LOCPATH");
    return done;
}

static void first_line(const char *path, char *line, int bytes)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, bytes, f));
    fclose(f);
}

/* A job reads and writes the same numbers in every locale of a program. */
static void test_locale(void **state)
{
    static const char text[] =
        "{\"format\": \"choir-job\", \"version\": 1, \"data\": \"random\", \"options\": "
        "{\"model\": \"toy\", \"steps\": 2, \"lr\": 0.125, \"batch-size\": 8}}";
    choir_job_result done[2];
    char line[2][512];
    for (int german = 0; german < 2; german++) {
        choir_job *job;
        if (german && !speak_german())
            skip();
        ok(choir_job_parse(text, &job));
        set(job, "weight-decay", "0.25");
        set(job, "optimizer", "adamw:eps=0.001");
        set(job, "save", at(german ? "german" : "plain"));
        choir_status status = choir_job_train(job, NULL, &done[german]);
        setlocale(LC_ALL, "C");
        ok(status);
        choir_job_free(job);
        first_line(at(german ? "german/metrics.jsonl" : "plain/metrics.jsonl"), line[german],
            sizeof line[german]);
    }
    assert_string_equal(done[0].weights_sha256, done[1].weights_sha256);
    for (int i = 0; i < 2; i++) { /* {"step":1,"time":1796021593.217446,"loss":... */
        const char *time = strstr(line[i], "\"time\":");
        assert_non_null(time);
        assert_int_equal(time[7 + strspn(time + 7, "0123456789")], '.');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrong_documents),
        cmocka_unit_test(test_wrong_options), cmocka_unit_test(test_wrong_pairs),
        cmocka_unit_test(test_again), cmocka_unit_test(test_odd_folders),
        cmocka_unit_test(test_busy), cmocka_unit_test(test_late_signal),
        cmocka_unit_test(test_locale)};
    unsetenv("RANK");
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
