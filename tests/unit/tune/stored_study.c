/* Stored studies, on every kind of storage that is a file: trials, values and attributes are
 * there again; trials without a worker are given again, once; two workers share the trials of
 * one study, which are those of a study in memory; and refusals. */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/base.h"
#include "study_fixture.h"
#include "tune/storage/store.h"
#include "tune/study_sync.h"

static choir_space *make_space(void)
{
    return SPACE("x", "uniform(0, 1)", "width", "int(16, 512, step=16)", "o",
        "choice(sgd, adamw, 0.5)", "m", "normal(0, 1) if o == sgd");
}

static choir_study_opts options(int64_t window)
{
    choir_study_opts opts = choir_study_defaults();
    opts.storage = url;
    opts.window = window;
    opts.seed = 5;
    return opts;
}

static choir_study *open_with(choir_study_opts opts)
{
    choir_space *space = make_space();
    choir_study *s = open_study(space, opts);
    choir_space_free(space);
    return s;
}

/* Its value follows from the parameters, so that all who run the trial find the same. */
static double value_of(const choir_trial *t)
{
    double m = choir_trial_has(t, "m") ? choir_trial_real(t, "m") : 3;
    return choir_trial_real(t, "x") + m * m + (double)choir_trial_int(t, "width") / 100;
}

static void end(choir_study *s, choir_trial *t)
{
    tell(s, t, value_of(t));
}

/* Both have the same trials. */
static void assert_same(const choir_study *a, const choir_study *b)
{
    assert_int_equal(choir_study_count(a), choir_study_count(b));
    for (int64_t i = 0; i < choir_study_count(a); i++) {
        const choir_trial *x = choir_study_trial(a, i), *y = choir_study_trial(b, i);
        double u = choir_trial_value(x, 0), v = choir_trial_value(y, 0);
        assert_int_equal(choir_trial_result(x), choir_trial_result(y));
        assert_true((isnan(u) && isnan(v)) || u == v);
        for (const char *const *name = (const char *const[]){"x", "width", "o", "m", NULL};
             *name; name++) {
            const char *p = choir_trial_text(x, *name), *q = choir_trial_text(y, *name);
            assert_true(p && q ? !strcmp(p, q) : !p && !q);
        }
    }
}

/* Trials of every outcome, then the same study again. */
static void is_there_again(void **state)
{
    double infinite = (double)INFINITY;
    choir_study *s = open_with(options(4));
    for (int i = 0; i < 12; i++)
        end(s, ask(s));
    choir_trial *t = ask(s);
    ok(choir_trial_report(t, 0, 0.5));
    ok(choir_trial_report(t, 7, (double)NAN));
    ok(choir_trial_report(t, 9, -infinite));
    ok(choir_trial_report(t, 9, infinite));
    ok(choir_trial_set_attribute(t, "note", "{\"a\":[1,\"\\n\"]}"));
    ok(choir_study_tell(s, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    ok(choir_study_tell(s, ask(s), CHOIR_TRIAL_FAIL, NULL, 0));
    ok(choir_study_tell(s, ask(s), CHOIR_TRIAL_COMPLETE, &infinite, 1));
    ok(choir_study_set_attribute(s, "by", "\"us\""));
    choir_trial *far = ask(s), *other = ask(s);
    static const int64_t steps[] = {(int64_t)1 << 31, (int64_t)3 << 40, INT64_MAX - 1};
    for (size_t i = 0; i < CHOIR_COUNT(steps); i++)
        ok(choir_trial_report(far, steps[i], (double)i));
    assert_int_equal(choir_trial_report(far, INT64_MAX, 1), CHOIR_ERR_ARGUMENT);
    assert_false(choir_trial_should_stop(far));
    ok(choir_trial_report(other, 1, 2));

    choir_study_opts looking = choir_study_defaults();
    looking.storage = url;
    choir_study *look = NULL;
    choir_study_free(s); /* with two trials that run */
    ok(choir_study_open(NULL, looking, &look));
    s = open_with(options(4));
    assert_same(s, look);
    assert_int_equal(choir_study_ask(look, &t), CHOIR_ERR_STATE);
    t = choir_study_trial(look, 12);
    assert_string_equal(choir_trial_attribute(t, "note"), "{\"a\":[1,\"\\n\"]}");
    assert_string_equal(choir_study_attribute(look, "by"), "\"us\"");
    assert_true(isinf(choir_trial_value(choir_study_trial(s, 14), 0)));
    assert_int_equal(choir_space_count(choir_study_space(look)), 4);
    int64_t there[CHOIR_COUNT(steps)];
    assert_int_equal(choir_trial_reports(choir_study_trial(look, 15), there, NULL, 3), 3);
    assert_memory_equal(there, steps, sizeof steps);
    choir_study_free(look);

    assert_int_equal(choir_trial_number(ask(s)), 15); /* again, and new ones after them */
    assert_int_equal(choir_trial_number(ask(s)), 16);
    assert_int_equal(choir_trial_number(ask(s)), 17);
    choir_study_free(s);
}

/* A study that is closed and opened again at every trial is one in memory. */
static void same_trials(void **state)
{
    choir_study_opts memory = options(3);
    memory.storage = NULL;
    choir_study *whole = open_with(memory), *part = NULL;
    ok(choir_study_enqueue(whole, "x=0.25,o=sgd"));
    ok(choir_study_enqueue(whole, "width=32"));
    for (int i = 0; i < 40; i++)
        end(whole, ask(whole));
    for (int i = 0; i < 40; i++) {
        if (i % 4 == 0) {
            choir_study_free(part);
            part = open_with(options(3));
            ok(choir_study_enqueue(part, "x=0.25,o=sgd"));
            ok(choir_study_enqueue(part, "width=32"));
        }
        choir_trial *t = ask(part);
        assert_int_equal(choir_trial_number(t), i);
        end(part, t);
    }
    assert_same(whole, part);
    choir_study_free(whole);
    choir_study_free(part);
}

static int count_points(const choir_study *s, const char *name, const char *text)
{
    int count = 0;
    for (int64_t i = 0; i < choir_study_count(s); i++) {
        const char *there = choir_trial_text(choir_study_trial(s, i), name);
        count += there && !strcmp(there, text);
    }
    return count;
}

static void enqueue(choir_study *s, const char *const *points)
{
    for (; *points; points++)
        if (choir_study_enqueue(s, *points) != CHOIR_OK)
            fail_msg("%s: %s", *points, choir_error_message());
}

/* When a study goes on, given trials that are new are added, and no one twice. */
static void given_points(void **state)
{
    choir_study_opts opts = options(2);
    opts.trials = 6;
    choir_study *s = open_with(opts);
    enqueue(s, (const char *const[]){"x=0.25", "x=0.5,o=sgd,m=0.125", "x=0.25", NULL});
    for (int i = 0; i < 3; i++)
        end(s, ask(s));
    assert_int_equal(count_points(s, "x", "0.25"), 1); /* the third one is suggested */
    choir_study_free(s);

    s = open_with(opts);
    enqueue(s, (const char *const[]){"x=0.25", "x=0.75,o=0.5", "x=0.5,o=sgd,m=0.125", "x=0.5",
                   "x=0.75,o=0.5", NULL});
    assert_fails(choir_study_enqueue(s, "x=0.125,x=0.875"), CHOIR_ERR_ARGUMENT,
        "parameter x is given twice in one trial");
    ok(choir_study_enqueue(s, "x=0.875"));
    assert_fails(choir_study_enqueue(s, "x=0.125"), CHOIR_ERR_END,
        "trial x=0.125: the study of 6 trials");
    static const char *const next[] = {"0.75", "0.5", "0.875"};
    for (size_t i = 0; i < CHOIR_COUNT(next); i++) {
        choir_trial *t = ask(s);
        assert_string_equal(choir_trial_text(t, "x"), next[i]);
        end(s, t);
    }
    choir_trial *t = NULL;
    assert_int_equal(choir_study_ask(s, &t), CHOIR_ERR_END);
    choir_study_free(s);
}

/* Workers that are given lists which differ run each point once. */
static void workers_are_given_points(void **state)
{
    choir_study *a = open_with(options(8)), *b = open_with(options(8));
    enqueue(a, (const char *const[]){"x=0.25", "x=0.5", "x=0.75", NULL});
    enqueue(b, (const char *const[]){"x=0.25", "x=0.875", "x=0.5", NULL});
    for (int i = 0; i < 8; i++)
        end(i % 2 ? a : b, ask(i % 2 ? a : b));
    choir_study_free(a);
    choir_study_free(b);
    a = open_with(options(8));
    for (const char *const *x = (const char *const[]){"0.25", "0.5", "0.75", "0.875", NULL}; *x;
         x++)
        assert_int_equal(count_points(a, "x", *x), 1);
    choir_study_free(a);
}

/* A worker whose points found no number, since others took the last ones, knows how many. */
static void points_are_left(void **state)
{
    choir_study_opts opts = options(4);
    opts.trials = 4;
    choir_study *a = open_with(opts), *b = open_with(opts);
    enqueue(b, (const char *const[]){"x=0.25", "x=0.5", "x=0.75", NULL});
    choir_trial *first = ask(b), *t = NULL;
    assert_int_equal(choir__study_sync_points_left(b), 2);
    for (int i = 1; i < 4; i++)
        end(a, ask(a));
    end(b, first);
    assert_int_equal(choir_study_ask(b, &t), CHOIR_ERR_END);
    assert_int_equal(choir__study_sync_points_left(b), 2);
    choir_study_free(a);
    choir_study_free(b);
}

/* Runs a worker's trials, and is killed in the middle of one. Its exit status is 0 if there
 * are no more. */
static int be_worker(int until_kill, int log)
{
    choir_study_opts opts = options(4);
    opts.trials = 40;
    choir_study *s = open_with(opts);
    for (;;) {
        choir_trial *t;
        choir_status status = choir_study_ask(s, &t);
        if (status == CHOIR_ERR_END)
            return 0;
        if (status == CHOIR_ERR_STATE) {
            usleep(2000);
            continue;
        }
        if (status != CHOIR_OK) {
            fprintf(stderr, "%s\n", choir_error_message());
            return 1;
        }
        if (until_kill-- == 0)
            kill(getpid(), SIGKILL);
        end(s, t);
        char line[16];
        int n = snprintf(line, sizeof line, "%d\n", (int)choir_trial_number(t));
        if (write(log, line, (size_t)n) != n) /* told, so it must not run again */
            return 1;
    }
}

/* Four processes at once, of which some are killed and replaced. */
static void workers_share(void **state)
{
    int log[2], started = 0, running = 0, times[40] = {0};
    assert_int_equal(pipe(log), 0);
    for (; started < 12 || running; running--) {
        for (; running < 4 && started < 12; running++, started++)
            if (fork() == 0)
                _exit(be_worker(started < 8 ? started % 5 : -1, log[1]));
        int status;
        assert_true(wait(&status) > 0);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    }
    close(log[1]);
    FILE *in = fdopen(log[0], "r");
    for (int number; fscanf(in, "%d", &number) == 1;)
        times[number]++;
    fclose(in);
    for (int i = 0; i < 40; i++)
        assert_int_equal(times[i], 1);

    choir_study_opts opts = options(4);
    opts.storage = NULL;
    choir_study *whole = open_with(opts), *shared = open_with(options(4));
    for (int i = 0; i < 40; i += 4) { /* in the order of the window */
        choir_trial *t[4];
        for (int k = 0; k < 4; k++)
            t[k] = ask(whole);
        for (int k = 0; k < 4; k++)
            end(whole, t[k]);
    }
    assert_same(whole, shared);
    choir_study_free(whole);
    choir_study_free(shared);
}

static void refused(void **state)
{
    choir_space *space = make_space();
    choir_study *s = NULL;
    choir_study_opts looking = choir_study_defaults();
    looking.storage = url;
    assert_int_not_equal(choir_study_open(NULL, looking, &s), CHOIR_OK); /* no file */
    choir_study_opts other = options(5);
    other.seed = 6;
    choir_study_free(open_with(other)); /* without trials it takes another definition */
    choir_study *first = open_with(options(4));
    end(first, ask(first));
    choir_study_free(first);
    choir_study_opts opts[] = {
        options(5), options(4), options(4), options(4), options(4), options(4)};
    opts[1].seed = 6;
    opts[2].direction = "maximize";
    opts[3].sampler = "random";
    opts[4].direction = "minimize,minimize";
    opts[4].sampler = "random";
    opts[5].free = true;
    static const char *const whats[] = {"window 4, got 5", "seed 5, got 6", "direction",
        "sampler \"tpe\", got \"random\"", "direction", "order \"fixed\", got \"free\""};
    for (size_t i = 0; i < CHOIR_COUNT(opts); i++) {
        assert_fails(choir_study_open(space, opts[i], &s), CHOIR_ERR_ARGUMENT, whats[i]);
    }
    ok(choir_space_add(space, "y", "uniform(0, 1)"));
    assert_fails(choir_study_open(space, options(4), &s), CHOIR_ERR_ARGUMENT, "space");
    looking.name = "other";
    assert_fails(choir_study_open(NULL, looking, &s), CHOIR_ERR_ARGUMENT, "no study 'other'");
    choir_study_opts second = options(4);
    second.name = "second";
    choir_study_free(open_with(second));
    looking.name = NULL;
    assert_fails(
        choir_study_open(NULL, looking, &s), CHOIR_ERR_ARGUMENT, "choose one of study, second");
    opts[0].storage = "studies.txt";
    assert_int_equal(choir_study_open(space, opts[0], &s), CHOIR_ERR_ARGUMENT);
    choir_space_free(space);
}

/* A space is known again by its meaning; the order of its parameters decides about draws. */
static void spaces_are_compared(void **state)
{
    static const char *const spaces[][5] = {
        {"uniform(0, 1)", "int(1,8)", "choice(a, b)", "normal(0, 1) if o == a", "x*width < 6"},
        {"uniform(0,1.0)", "int(1, 8)", "choice(a,b)", "normal(0,1) if o==a", "x * width<6"},
        {"uniform(0,2)", "int(1, 8)", "choice(a,b)", "normal(0,1) if o==a", "x * width<6"},
        {"uniform(0,1)", "int(1, 8)", "choice(b,a)", "normal(0,1) if o==a", "x * width<6"},
        {"uniform(0,1)", "int(1, 8)", "choice(a,b)", "normal(0,1) if o==b", "x * width<6"},
        {"uniform(0,1)", "int(1, 8)", "choice(a,b)", "normal(0,1) if o==a", "x * width<7"},
        {"uniform(0,1)", "int(1, 8)", "choice(a,b)", "normal(0,1) if o==a", "x * width<6"}};
    static const char *const names[] = {"x", "width", "o", "m"};
    static const char *const whats[] = {
        "", "", "the space", "the space", "the space", "the conditions", "the space"};
    for (size_t i = 0; i < CHOIR_COUNT(spaces); i++) {
        choir_space *space = choir_space_new();
        choir_study *s;
        bool turned = i + 1 == CHOIR_COUNT(spaces);
        for (int p = 0; p < 4; p++) {
            int at = turned && p < 2 ? 1 - p : p;
            ok(choir_space_add(space, names[at], spaces[i][at]));
        }
        ok(choir_space_require(space, spaces[i][4]));
        choir_status status = choir_study_open(space, options(4), &s);
        assert_int_equal(status, i < 2 ? CHOIR_OK : CHOIR_ERR_ARGUMENT);
        if (i >= 2 && !strstr(choir_error_message(), whats[i]))
            fail_msg("%zu: no '%s' in: %s", i, whats[i], choir_error_message());
        if (i < 2) {
            end(s, ask(s));
            choir_study_free(s);
        }
        choir_space_free(space);
    }
}

/* A file that is none of Choir's is not written to, whatever it ends with. */
static void other_files_stay(void **state)
{
    static const char *const texts[] = {"notes without a line's end", "{\"a\":1}", "SQLite"};
    char path[80], text[80] = "";
    choir_study *s = NULL;
    if (strcmp(scheme, "journal") != 0)
        return;
    choir_space *space = make_space();
    snprintf(path, sizeof path, "%s/study", storage_folder);
    for (size_t i = 0; i < CHOIR_COUNT(texts); i++) {
        FILE *f = fopen(path, "w");
        fputs(texts[i], f);
        fclose(f);
        assert_fails(choir_study_open(space, options(4), &s), CHOIR_ERR_FORMAT,
            "line 1: expected a line of Optuna's");
        f = fopen(path, "r");
        assert_int_equal(fread(text, 1, sizeof text, f), strlen(texts[i]));
        fclose(f);
        assert_memory_equal(text, texts[i], strlen(texts[i]));
    }
    FILE *f = fopen(path, "w");
    fputs("{\"op_co", f); /* of a writer that was killed */
    fclose(f);
    choir_study_free(open_with(options(4)));
    choir_space_free(space);
}

/* Names that are not UTF-8 are refused, since JSON and Optuna cannot read them; the study, and
 * the others of its file, stay readable. */
static void names_are_utf8(void **state)
{
    choir_study *s = open_with(options(4)), *other = NULL;
    choir_space *space = make_space();
    choir_study_opts latin = options(4);
    latin.name = "caf\xe9";
    assert_fails(choir_study_open(space, latin, &other), CHOIR_ERR_ARGUMENT,
        "expected a study's name in UTF-8");
    choir_space_free(space);
    choir_trial *t = ask(s);
    assert_fails(choir_trial_set_attribute(t, "caf\xe9", "1"), CHOIR_ERR_ARGUMENT,
        "expected a key in UTF-8");
    assert_int_equal(choir_study_set_attribute(s, "caf\xe9", "1"), CHOIR_ERR_ARGUMENT);
    ok(choir_trial_set_attribute(t, "caf\xc3\xa9", "1"));
    end(s, t);
    choir_study_free(s);
    s = open_with(options(4));
    assert_string_equal(choir_trial_attribute(choir_study_trial(s, 0), "caf\xc3\xa9"), "1");
    choir_study_free(s);
}

/* A journal gets no line that cannot be read back. */
static void journal_stays_readable(void **state)
{
    if (strcmp(scheme, "journal") != 0)
        return;
    choir_study_free(open_with(options(4)));
    choir__study_store *store = NULL;
    choir__stored_study about = {.name = choir__strdup("study"), .objectives = 1};
    ok(choir__study_store_open(url, true, &store));
    ok(choir__study_store_study(store, &about));
    choir__change *c = choir__change_new(CHOIR__CHANGE_ATTRIBUTE, -1);
    c->attribute.key = choir__strdup("caf\xe9");
    c->attribute.json = choir__strdup("1");
    choir__study_store_send_awaited(store, c);
    assert_fails(choir__study_store_wait(store, c), CHOIR_ERR_ARGUMENT,
        "expected names and values in UTF-8");
    choir__change_free(c);
    choir__study_store_close(store);
    choir__stored_study_free(&about);
    choir_study_free(open_with(options(4)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_there_again),
        cmocka_unit_test(same_trials), cmocka_unit_test(given_points),
        cmocka_unit_test(workers_are_given_points), cmocka_unit_test(points_are_left),
        cmocka_unit_test(workers_share), cmocka_unit_test(refused),
        cmocka_unit_test(names_are_utf8), cmocka_unit_test(spaces_are_compared),
        cmocka_unit_test(other_files_stay), cmocka_unit_test(journal_stays_readable)};
    return run_on_storages(tests, CHOIR_COUNT(tests));
}
