/* Jobs of a program (choir/job.h): its recorder is called in its own process, whatever the
 * ranks are; a job has the same bits on one rank and on two, in one part and in two; nothing is
 * printed, and nothing stays behind. tests/examples/check_job.sh compares jobs with the
 * command; wrong input is in tests/unit/job/program.c. */
#include <choir/choir.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "folder_fixture.h"
#include "job/report/own.h"

enum { MOST = 64 };

/* Everything that the recorder was called with. */
typedef struct seen {
    choir_job *job;
    int steps, events, ends, notes, texts, failures, changes, elsewhere;
    double losses[MOST];
    int64_t stop_at;   /* after this step choir_job_stop is called; 0: never */
    int64_t signal_at; /* after this step the process gets `signal` */
    int64_t kill_at;   /* after this step one of the ranks is killed */
    int signal;
    pid_t pid;
    pthread_t thread;
} seen;

static void look_where(seen *s)
{
    s->elsewhere += s->pid != getpid() || !pthread_equal(s->thread, pthread_self());
}

/* Kills a child of this process that is a rank. */
static void kill_rank(void)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%d", &child) == 1)
        kill(child, SIGKILL);
    if (f)
        fclose(f);
}

static void on_step(void *arg, const choir_job_step *step)
{
    seen *s = arg;
    look_where(s);
    assert_true(step->step > 0 && step->count > 0 && step->time > 0);
    if (step->step < MOST)
        s->losses[step->step] = step->loss;
    s->steps++;
    if (step->step == s->stop_at)
        choir_job_stop(s->job);
    if (step->step == s->signal_at)
        kill(getpid(), s->signal);
    if (step->step == s->kill_at)
        kill_rank();
}

static void on_event(void *arg, int64_t step, const char *name, const char *json)
{
    seen *s = arg;
    look_where(s);
    assert_true(step >= 0);
    assert_int_equal(*json, '{');
    s->events++;
    s->ends += !strcmp(name, "end");
    s->failures += !strcmp(name, "failure");
    s->changes += !strcmp(name, "membership");
}

static void on_text(void *arg, int64_t step, const char *name, const char *text)
{
    seen *s = arg;
    look_where(s);
    assert_true(step > 0 && *text);
    assert_string_equal(name, "sample");
    s->texts++;
}

static void on_note(void *arg, const char *sentence)
{
    seen *s = arg;
    look_where(s);
    assert_true(*sentence);
    s->notes++;
}

static choir_job_recorder recorder_of(seen *s, choir_job *job)
{
    s->job = job;
    s->pid = getpid();
    s->thread = pthread_self();
    return (choir_job_recorder){
        .arg = s, .step = on_step, .event = on_event, .text = on_text, .note = on_note};
}

/* --- jobs --- */

static const char document[] =
    "{\"format\": \"choir-job\", \"version\": 1, \"data\": \"random\", \"options\": {\"model\": "
    "\"toy\", \"strategy\": \"single\", \"steps\": 6, \"batch-size\": 8, \"microbatches\": 2}}";

static void set(choir_job *job, const char *option, const char *value)
{
    ok(choir_job_set(job, option, value));
}

static choir_job *small(int ranks)
{
    choir_job *job;
    ok(choir_job_parse(document, &job));
    set(job, "strategy", ranks > 1 ? "ddp" : "single");
    set(job, "nproc", ranks > 1 ? "2" : "1");
    return job;
}

/* No process is left. */
static void alone(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* Trains a job that succeeds, and frees it; hex: of its weights. */
static choir_job_result train(choir_job *job, seen *s, char hex[65])
{
    choir_job_result done;
    choir_job_recorder mine = recorder_of(s, job);
    ok(choir_job_train(job, &mine, &done));
    assert_int_equal(s->elsewhere, 0);
    assert_int_equal(s->ends, 1);
    assert_int_equal(strlen(done.weights_sha256), 64);
    assert_null(done.ended_by);
    strcpy(hex, done.weights_sha256);
    alone();
    choir_job_free(job);
    return done;
}

/* --- the same bits --- */

static void test_ranks(void **state)
{
    seen one = {0}, two = {0};
    char hex_one[65], hex_two[65];
    choir_job_result a = train(small(1), &one, hex_one), b = train(small(2), &two, hex_two);
    assert_string_equal(hex_one, hex_two);
    assert_int_equal(one.steps, 6);
    assert_int_equal(two.steps, 6);
    assert_memory_equal(one.losses, two.losses, sizeof one.losses);
    assert_true(a.steps == 6 && b.steps == 6 && a.loss == b.loss);
    assert_true((float)a.loss == (float)one.losses[6]); /* rows have the digits of a float */
    assert_true(a.eval_loss == b.eval_loss && isfinite(a.eval_loss));
    assert_false(a.unrecorded || b.unrecorded || a.signal || b.signal);
}

/* A run folder: it is resumed by the rules of --resume, and its job.json is a document. */
static void resume_on(int ranks)
{
    seen s[4] = {{0}};
    char whole[65], rest[65], copy[65];
    const char *run = at("run%d", ranks);
    train(small(ranks), &s[0], whole);
    choir_job *job = small(ranks);
    set(job, "steps", "3");
    set(job, "save", run);
    set(job, "eval-every", "1");
    choir_job_result done;
    choir_job_recorder mine = recorder_of(&s[1], job);
    ok(choir_job_train(job, &mine, &done));
    assert_string_equal(done.folder, run);
    assert_string_equal(done.latest, at("run%d/latest", ranks));
    assert_string_equal(done.best, at("run%d/best", ranks));
    assert_fails(choir_job_train(job, NULL, &done), CHOIR_ERR_ARGUMENT, "holds a run already");
    assert_true(!done.folder && !done.latest && !done.best && !done.steps);
    choir_job_free(job);

    ok(choir_job_new(&job));
    set(job, "resume", run);
    set(job, "steps", "6");
    set(job, "strategy", ranks > 1 ? "single" : "ddp"); /* another one has the same bits */
    set(job, "nproc", ranks > 1 ? "1" : "2");
    assert_true(train(job, &s[2], rest).steps == 6);
    assert_int_equal(s[2].steps, 3);
    assert_string_equal(whole, rest);

    ok(choir_job_open(at("run%d/job.json", ranks), &job));
    set(job, "steps", "6");
    done = train(job, &s[3], copy);
    assert_string_equal(whole, copy);
    assert_null(done.folder);
}

static void test_resume(void **state)
{
    for (int ranks = 1; ranks <= 2; ranks++)
        resume_on(ranks);
}

/* So many steps are not done when the program hears of the second one: their rows would not fit
 * into the relay, which the program empties. */
static const char many[] = "3000";

/* A program stops its job, by a call or by a signal: the step is saved, and goes on later. */
static void stop_on(int ranks, int number)
{
    seen s = {.stop_at = number ? 0 : 2, .signal_at = number ? 2 : 0, .signal = number},
         rest = {0}, all = {0};
    char whole[65], hex[65], steps[24];
    const char *run = at("stopped%d-%d", ranks, number);
    struct sigaction after;
    choir_job *job = small(ranks);
    set(job, "steps", many);
    set(job, "save", run);
    choir_job_result done;
    choir_job_recorder mine = recorder_of(&s, job);
    assert_fails(choir_job_train(job, &mine, &done), CHOIR_ERR_INTERRUPTED, "saved to");
    assert_int_equal(done.signal, number);
    assert_true(done.steps >= 2 && done.steps < atoi(many) && !*done.weights_sha256);
    assert_non_null(done.latest);
    sigaction(SIGTERM, NULL, &after);
    assert_true(after.sa_handler == SIG_DFL);
    alone();
    choir_job_free(job);

    ok(choir_job_new(&job));
    snprintf(steps, sizeof steps, "%d", (int)done.steps + 4);
    set(job, "resume", run);
    set(job, "steps", steps);
    train(job, &rest, hex);
    assert_int_equal(rest.steps, 4);
    job = small(1);
    set(job, "steps", steps);
    train(job, &all, whole);
    assert_string_equal(hex, whole);
}

static void test_stop(void **state)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        stop_on(ranks, 0);
        stop_on(ranks, SIGTERM);
    }
}

static volatile sig_atomic_t handled;

static void handle(int number)
{
    handled++;
}

/* A signal that the program handles is the program's. */
static void test_own_handler(void **state)
{
    seen s = {.signal_at = 2, .signal = SIGTERM};
    char hex[65];
    struct sigaction before, own = {.sa_handler = handle}, after;
    sigaction(SIGTERM, &own, &before);
    assert_true(train(small(1), &s, hex).steps == 6);
    assert_int_equal(handled, 1);
    sigaction(SIGTERM, &before, &after);
    assert_true(after.sa_handler == handle);
}

/* A rank that dies is one error, and an event; with max-restarts the job goes on. */
static void test_lost_rank(void **state)
{
    seen lost = {.kill_at = 2}, gone_on = {.kill_at = 2}, one = {0};
    char hex[65], whole[65];
    choir_job *job = small(2);
    choir_job_result done;
    set(job, "steps", many);
    choir_job_recorder mine = recorder_of(&lost, job);
    assert_fails(choir_job_train(job, &mine, &done), CHOIR_ERR_PEER_LOST, "SIGKILL");
    assert_int_equal(lost.failures, 1);
    assert_true(!*done.weights_sha256);
    alone();
    set(job, "max-restarts", "1");
    train(job, &gone_on, hex);
    assert_true(gone_on.changes >= 1 && gone_on.steps >= atoi(many));
    job = small(1);
    set(job, "steps", many);
    train(job, &one, whole);
    assert_string_equal(hex, whole);
}

/* --- what people read --- */

/* Trains with both outputs in a file, and returns the number of bytes in it. */
static size_t printed(choir_job *job, const choir_job_recorder *recorder)
{
    const char *path = at("printed");
    size_t bytes;
    fflush(NULL);
    int kept[] = {dup(1), dup(2)}, fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    choir_status status = choir_job_train(job, recorder, NULL);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(kept[i], i + 1);
        close(kept[i]);
    }
    close(fd);
    ok(status);
    free(slurp(path, &bytes));
    unlink(path);
    return bytes;
}

/* A language model writes a sample, and a warm-up without an end is worth a note. */
static void test_words(void **state)
{
    seen s = {0};
    char text[1200] = "";
    while (strlen(text) < 1100)
        strcat(text, "the ranks go on, and each has its part. ");
    for (int ranks = 1; ranks <= 2; ranks++) {
        choir_job *job = small(ranks);
        set(job, "data", put("text", text));
        set(job, "model", "gpt2:layers=1,heads=2,width=16,context=16");
        set(job, "schedule", "cosine:warmup=100");
        s = (seen){0};
        choir_job_recorder mine = recorder_of(&s, job);
        assert_int_equal(printed(job, &mine), 0);
        assert_true(s.texts == 1 && s.notes >= 1 && s.steps == 6 && !s.elsewhere);
        mine.prints = true;
        assert_true(printed(job, &mine) > 100);
        assert_int_equal(printed(job, NULL), 0);
        choir_job_free(job);
    }
}

/* A message that is longer than a packet arrives whole, and so does the one behind it. */
typedef struct longs {
    choir__job job;
    int whole, other;
} longs;

enum { LONG = 500000 };

static void on_long_note(void *arg, const char *sentence)
{
    longs *l = arg;
    size_t bytes = strlen(sentence);
    l->whole += bytes == LONG && strspn(sentence, "x") == LONG;
    l->other += !strcmp(sentence, "short");
}

static int send_notes(int rank, int world, void *arg)
{
    const longs *l = arg;
    char *text = malloc(LONG + 1);
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    for (int i = 0; i < 3; i++) {
        choir__own_note(&l->job.records, text);
        choir__own_note(&l->job.records, "short");
    }
    free(text);
    return 0;
}

static void test_long_messages(void **state)
{
    longs l = {.job = choir__job_new("train")};
    choir_job_recorder mine = {.arg = &l, .note = on_long_note};
    l.job.records.own = &mine;
    ok(choir__relay_open(&mine, &l.job.records.relay));
    ok(choir_spawn(1, send_notes, &l));
    choir__relay_deliver(l.job.records.relay);
    choir__relay_close(l.job.records.relay);
    assert_int_equal(l.whole, 3);
    assert_int_equal(l.other, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_resume), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_own_handler), cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_words), cmocka_unit_test(test_long_messages)};
    unsetenv("RANK");
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
