/* Stored studies whose trials stop and go on: the same table of trials as in memory, whether
 * one worker runs them or several that share the storage, that leave and come back, or that are
 * killed; each segment ends once; and Optuna's states of the trials. */
#include <signal.h>
#include <sys/wait.h>

#include "tune/storage/store.h"
#include "tune/storage/worker.h"
#include "tune/study.h"
#include "unit/curve.h"

static char study_name[64] = "study";

typedef struct plan {
    const char *scheduler, *sampler;
    int64_t window, trials;
} plan;

static const plan plans[] = {
    {"asha:min=1,max=27,eta=3", "tpe", 8, 18},
    {"hyperband:min=1,max=27,eta=3", "bohb", 8, 18},
    {"pbt:population=8,interval=5,max=15", "random", 4, 12},
    {"asha:min=2,max=18,eta=3", "grid:points=3", 4, 12},
};

static choir_study *open_plan(const plan *p, bool stored)
{
    choir_space *space = curve_space();
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = p->scheduler;
    opts.sampler = p->sampler;
    opts.window = p->window;
    opts.trials = p->trials;
    opts.seed = 3;
    opts.storage = stored ? url : NULL;
    opts.name = study_name;
    choir_study *study = open_study(space, opts);
    choir_space_free(space);
    return study;
}

/* --- workers of one process, which take turns --- */

enum { WORKERS = 4, AT_ONCE = 2 };

typedef struct worker {
    choir_study *study;
    choir_trial *trial[AT_ONCE]; /* (busy) */
    int64_t step[AT_ONCE];
    int late[AT_ONCE]; /* steps after it was stopped */
    int busy;
    bool over;
} worker;

/* A trial that goes on begins from a checkpoint that is a few steps old. */
static void begin(worker *w)
{
    choir_trial *t;
    choir_status status = choir_study_ask(w->study, &t);
    w->over = status == CHOIR_ERR_END;
    if (status == CHOIR_ERR_STATE || w->over)
        return;
    ok(status);
    int64_t step = choir_trial_step(t);
    w->trial[w->busy] = t;
    w->step[w->busy] = step < 0 ? 0 : step - roll(2) * roll((int)step + 1);
    w->late[w->busy++] = roll(3);
}

/* Looks at other workers' trials as often as it waits for them. */
static void try_to_begin(worker *w)
{
    if (choir_study_ready(w->study))
        begin(w);
    else if (w->study->kept)
        ok(choir__study_sync_refresh(w->study));
}

static void advance(worker *w, int i)
{
    choir_trial *t = w->trial[i];
    bool stop = choir_trial_should_stop(t);
    if (w->step[i] < CURVE_STEPS && (!stop || w->late[i]-- > 0)) {
        w->step[i]++;
        ok(choir_trial_report(t, w->step[i], curve_at(t, w->step[i])));
        return;
    }
    double value = curve_at(t, CURVE_STEPS);
    ok(choir_study_tell(w->study, t, curve_end(t, w->step[i], stop), &value, 1));
    w->busy--;
    w->trial[i] = w->trial[w->busy];
    w->step[i] = w->step[w->busy];
    w->late[i] = w->late[w->busy];
}

/* Runs a study to its end; returns its table. leaves: now and then a worker leaves its trials.
 */
static char *run(const plan *p, int workers, bool stored, bool leaves)
{
    worker all[WORKERS] = {{0}};
    for (int i = 0; i < workers; i++)
        all[i].study = open_plan(p, stored);
    for (int over = 0; over < workers;) {
        worker *w = &all[roll(workers)];
        if (leaves && roll(150) == 0) {
            choir_study_free(w->study);
            *w = (worker){.study = open_plan(p, stored)};
        }
        if (w->busy < AT_ONCE && !w->over)
            try_to_begin(w);
        if (w->busy)
            advance(w, roll(w->busy));
        over = 0;
        for (int i = 0; i < workers; i++)
            over += all[i].over && !all[i].busy;
    }
    char *table = curve_table(all[0].study);
    for (int i = 0; i < workers; i++) {
        char *other = curve_table(all[i].study);
        assert_string_equal(table, other);
        free(other);
        choir_study_free(all[i].study);
    }
    return table;
}

static void workers_take_turns(void **state)
{
    for (size_t k = 0; k < CHOIR_COUNT(plans); k++) {
        plan p = plans[k];
        dice = 1;
        char *memory = run(&p, 1, false, false);
        for (int workers = k ? WORKERS : 1; workers <= WORKERS; workers += WORKERS - 1) {
            snprintf(study_name, sizeof study_name, "%s %d", p.scheduler, workers);
            dice = (unsigned)workers;
            char *stored = run(&p, workers, true, true);
            assert_string_equal(memory, stored);
            free(stored);
        }
        choir_study *again = open_plan(&p, true); /* all from its records */
        char *read = curve_table(again);
        assert_string_equal(memory, read);
        free(read);
        choir_trial *t;
        assert_int_equal(choir_study_ask(again, &t), CHOIR_ERR_END);
        choir_study_free(again);
        free(memory);
    }
}

/* --- processes that are killed --- */

/* Runs trials, two at once, and is killed at a step. Its exit status is 0 at the study's end.
 */
static int be_worker(const plan *p, unsigned seed, int until_kill, int log)
{
    dice = seed;
    worker w = {.study = open_plan(p, true)};
    while (!w.over || w.busy) {
        if (w.busy < AT_ONCE && !w.over)
            try_to_begin(&w);
        if (until_kill-- == 0)
            kill(getpid(), SIGKILL);
        if (!w.busy)
            continue;
        choir_trial *t = w.trial[0];
        int busy = w.busy;
        char line[64];
        int n = snprintf(line, sizeof line, "%d %d\n", (int)choir_trial_number(t),
            (int)choir_trial_budget(t));
        advance(&w, 0);
        if (w.busy < busy && write(log, line, (size_t)n) != n)
            return 1; /* told, so it must not run again */
    }
    choir_study_free(w.study);
    return 0;
}

static void workers_are_killed(void **state)
{
    for (size_t k = 0; k < CHOIR_COUNT(plans); k++) {
        const plan *p = &plans[k];
        strcpy(study_name, p->scheduler);
        int log[2], started = 0, running = 0;
        assert_int_equal(pipe(log), 0);
        for (; started < 8 || running; running--) {
            for (; running < 3 && started < 8; running++, started++)
                if (fork() == 0)
                    _exit(be_worker(p, (unsigned)started + 1,
                        started < 5 ? 5 + 17 * (started % 5) : -1, log[1]));
            int status;
            assert_true(wait(&status) > 0);
            assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        }
        close(log[1]);
        FILE *in = fdopen(log[0], "r");
        static bool told[64][CURVE_STEPS + 1];
        memset(told, 0, sizeof told);
        for (int number, budget; fscanf(in, "%d %d", &number, &budget) == 2;) {
            assert_false(told[number][budget]);
            told[number][budget] = true;
        }
        fclose(in);
        dice = 1;
        char *memory = run(p, 1, false, false);
        choir_study *shared = open_plan(p, true);
        char *table = curve_table(shared);
        assert_string_equal(memory, table);
        free(memory);
        free(table);
        choir_study_free(shared);
    }
}

/* --- what Optuna sees --- */

static choir_trial *go(choir_study *study, int64_t late, double loss)
{
    choir_trial *t = NULL;
    ok(choir_study_ask(study, &t));
    int64_t from = choir_trial_step(t), to = choir_trial_budget(t) + late;
    for (int64_t i = from < 0 ? 1 : from + 1; i <= to; i++)
        ok(choir_trial_report(t, i, loss + (double)i));
    ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    return t;
}

static const choir_study *look(void)
{
    choir_study_opts looking = choir_study_defaults();
    looking.storage = url;
    choir_study *s = NULL;
    ok(choir_study_open(NULL, looking, &s));
    return s;
}

/* Reports from after a trial was stopped count when it goes on, also elsewhere. A study that
 * gets more trials goes on with those that were stopped. */
static void goes_on(void **state)
{
    plan p = {"asha:min=2,max=4,eta=2", "random", 1, 2};
    choir_study *s = open_plan(&p, true);
    go(s, 1, 0); /* 2 steps and a late one */
    choir_study_free(s);
    s = open_plan(&p, true);
    go(s, 0, 5);
    choir_trial *t = NULL;
    ok(choir_study_ask(s, &t));
    assert_int_equal(choir_trial_number(t), 0);
    assert_int_equal(choir_trial_step(t), 2);
    assert_int_equal(choir_trial_last_step(t), 3);
    const choir_study *other = look();
    assert_int_equal(choir_trial_result(choir_study_trial(other, 0)), CHOIR_TRIAL_RUNNING);
    assert_int_equal(choir_trial_result(choir_study_trial(other, 1)), CHOIR_TRIAL_PRUNED);
    assert_ptr_equal(choir_study_best(other), choir_study_trial(other, 0)); /* as it was */
    assert_true(choir_trial_value(choir_study_best(other), 0) == 2);
    choir_study_free((choir_study *)(uintptr_t)other);
    ok(choir_trial_report(t, 4, 7));
    ok(choir_study_tell(s, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
    choir_trial *none;
    assert_int_equal(choir_study_ask(s, &none), CHOIR_ERR_END);
    choir_study_free(s);

    p.trials = 4; /* trial 1 is one of the best two of four now */
    s = open_plan(&p, true);
    assert_int_equal(choir_trial_number(go(s, 0, 8)), 2);
    assert_int_equal(choir_trial_number(go(s, 0, 9)), 3);
    assert_int_equal(choir_trial_number(t = go(s, 0, 5)), 1);
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
    assert_int_equal(choir_study_ask(s, &none), CHOIR_ERR_END);
    choir_study_free(s);
    other = look();
    static const choir_trial_state states[] = {
        CHOIR_TRIAL_COMPLETE, CHOIR_TRIAL_COMPLETE, CHOIR_TRIAL_PRUNED, CHOIR_TRIAL_PRUNED};
    static const double values[] = {7, 9, 10, 11};
    for (int i = 0; i < 4; i++) {
        t = choir_study_trial(other, i);
        assert_int_equal(choir_trial_result(t), states[i]);
        assert_true(choir_trial_value(t, 0) == values[i]);
    }
    choir_study_free((choir_study *)(uintptr_t)other);
}

/* Sends a change of trial 0 and returns whether it was lost. */
static bool send(choir__study_store *store, choir__change_kind kind, const char *by,
    const char *former, const char *segments)
{
    choir__change *c = choir__change_new(kind, 0);
    c->worker = choir__strdup(by);
    c->former = former ? choir__strdup(former) : NULL;
    c->segments = segments ? choir__strdup(segments) : NULL;
    c->after = kind == CHOIR__CHANGE_PAUSE ? choir__worker_pause(1) : NULL;
    choir__study_store_send_awaited(store, c);
    ok(choir__study_store_wait(store, c));
    bool lost = c->lost;
    choir__change_free(c);
    return lost;
}

/* A worker ends a segment, begins the next one of the same trial, and dies. Whoever has seen it
 * in the first one must not take that segment over. */
static void died_in_a_later_segment(void **state)
{
    static const char first[] = "\"first 1\"", second[] = "\"second 2\"";
    static const char segments[] = "[{\"until\":4}]";
    char *pause = choir__worker_pause(1);
    choir__study_store *store;
    choir__stored_study about = {.name = choir__strdup("study"), .objectives = 1};
    ok(choir__study_store_open(url, true, &store));
    ok(choir__study_store_study(store, &about));
    assert_false(send(store, CHOIR__CHANGE_BEGIN, first, NULL, NULL));
    send(store, CHOIR__CHANGE_PAUSE, first, NULL, segments);
    assert_false(send(store, CHOIR__CHANGE_TAKE, first, pause, segments));
    assert_true(send(store, CHOIR__CHANGE_TAKE, second, first, NULL));
    assert_false(send(store, CHOIR__CHANGE_TAKE, second, first, segments));
    choir__study_store_close(store);
    choir__stored_study_free(&about);
    free(pause);
}

static void refused(void **state)
{
    choir_space *space = curve_space();
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = "asha";
    opts.storage = url;
    opts.free = true;
    choir_study *s = NULL;
    assert_fails(
        choir_study_open(space, opts, &s), CHOIR_ERR_UNSUPPORTED, "expected a study in memory");
    choir_space_free(space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(workers_take_turns),
        cmocka_unit_test(workers_are_killed), cmocka_unit_test(goes_on),
        cmocka_unit_test(died_in_a_later_segment), cmocka_unit_test(refused)};
    return run_on_storages(tests, CHOIR_COUNT(tests));
}
