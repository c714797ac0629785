/* Ranks that die, leave, stop, are late or disagree while a collective uses messages, or while
 * two ranks send and receive. Every rank that waits for them, directly or not, gets an error
 * that names them. */
#include "fault/notes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "multi/ranks.h"

enum { COUNT = 100000 };

/* The victim's action after a few rounds. */
typedef enum fate { DIES, STOPS, SLEEPS, LEAVES } fate;

typedef struct story {
    notes *notes;
    const char *algorithm; /* NULL: messages round the ring, in place of collectives */
    fate fate;
    int victim;
    double timeout_s;
} story;

static choir_status round_of(choir_group *g, const story *s, float *x)
{
    int world = choir_group_world(g), rank = choir_group_rank(g);
    if (s->algorithm)
        return choir_group_all_reduce(g, x, COUNT, CHOIR_F32, CHOIR_SUM, NULL);
    choir_group_batch_begin(g);
    choir_group_send(g, x, COUNT / 2, CHOIR_F32, (rank + 1) % world, NULL);
    choir_group_receive(
        g, x + COUNT / 2, COUNT / 2, CHOIR_F32, (rank + world - 1) % world, NULL);
    return choir_group_batch_end(g, NULL);
}

static void await_the_others(const story *s, int world)
{
    for (int r = 0; r < world; r++)
        while (r != s->victim && !*(volatile choir_status *)&s->notes->status[r])
            nap(0.01);
}

static int rank_of(int rank, int world, void *arg)
{
    story *s = arg;
    choir_group *g;
    choir_group_opts opts = choir_group_defaults();
    float *x = calloc(COUNT, sizeof *x);
    choir_status status = CHOIR_OK;
    opts.timeout_s = s->timeout_s;
    CHECK_OK(choir_group_init(NULL, opts, &g));
    CHECK_OK(choir_group_algorithm(g, s->algorithm));
    note_self(s->notes, rank);
    for (int i = 0; !status; i++) {
        if (i == 3 && rank == s->victim) {
            s->notes->died_at = choir__now();
            if (s->fate == LEAVES)
                break;
            if (s->fate == SLEEPS)
                await_the_others(s, world);
            else
                kill(getpid(), s->fate == DIES ? SIGKILL : SIGSTOP);
        }
        status = round_of(g, s, x);
    }
    note(s->notes, rank, status);
    choir_group_free(g);
    free(x);
    /* The ranks that know resume the victim. It ends without a search for leaks: the tracer of
     * that search stops it, too, and another SIGCONT would undo this. */
    if (s->fate == STOPS && rank == s->victim)
        _exit(0);
    if (s->fate == STOPS)
        kill(s->notes->pid[s->victim], SIGCONT);
    return 0;
}

/* words: how the victim is named, on its neighbours and on all others. */
static void tell(story s, int world, choir_status want, const char *words)
{
    char who[128];
    s.notes = new_notes();
    choir_spawn(world, rank_of, &s);
    snprintf(
        who, sizeof who, "rank %d (pid %d) %s", s.victim, (int)s.notes->pid[s.victim], words);
    for (int r = 0; r < world; r++) {
        if (r == s.victim)
            continue;
        if (s.notes->status[r] != want || !strstr(s.notes->message[r], who))
            fail_msg("%s, rank %d of %d: %s '%s', want '%s'",
                s.algorithm ? s.algorithm : "messages", r, world,
                choir_status_name(s.notes->status[r]), s.notes->message[r], who);
        assert_true(s.notes->seconds[r] < HANGS_S);
    }
    munmap(s.notes, sizeof *s.notes);
}

static const char *const algorithms[] = {"ring", "exchange", "binomial", "double_tree", NULL};

static void test_death(void **state)
{
    for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++)
        tell((story){.algorithm = algorithms[a], .fate = DIES, .victim = 2, .timeout_s = 60}, 5,
            CHOIR_ERR_PEER_LOST, "died during");
}

static void test_leaving(void **state)
{
    for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++)
        tell((story){.algorithm = algorithms[a], .fate = LEAVES, .victim = 1, .timeout_s = 60},
            4, CHOIR_ERR_PEER_LOST, "has left the group, and");
}

static void test_stop(void **state)
{
    tell((story){.algorithm = "ring", .fate = STOPS, .victim = 2, .timeout_s = LATE_S}, 5,
        CHOIR_ERR_TIMEOUT, "is stopped");
    tell((story){.algorithm = NULL, .fate = STOPS, .victim = 1, .timeout_s = LATE_S}, 2,
        CHOIR_ERR_TIMEOUT, "is stopped");
}

static void test_lateness(void **state)
{
    tell((story){.algorithm = "ring", .fate = SLEEPS, .victim = 2, .timeout_s = LATE_S}, 5,
        CHOIR_ERR_TIMEOUT, "did not come to all_reduce of 100000 f32");
    tell((story){.algorithm = NULL, .fate = SLEEPS, .victim = 0, .timeout_s = LATE_S}, 2,
        CHOIR_ERR_TIMEOUT, "did not");
}

/* --- disagreement --- */

typedef struct quarrel {
    notes *notes;
    int which;
} quarrel;

static choir_status disagree(choir_group *g, int which, float *x)
{
    int rank = choir_group_rank(g);
    bool odd = rank == 1;
    switch (which) {
    case 0: /* counts */
        choir_group_algorithm(g, "ring");
        return choir_group_all_reduce(g, x, odd ? 99 : 100, CHOIR_F32, CHOIR_SUM, NULL);
    case 1: /* by steps and by messages */
        choir_group_algorithm(g, odd ? "ring" : NULL);
        return choir_group_all_reduce(g, x, 100, CHOIR_F32, CHOIR_SUM, NULL);
    case 2: /* by two schedules */
        choir_group_algorithm(g, odd ? "ring" : "binomial");
        return choir_group_all_reduce(g, x, 100, CHOIR_F32, CHOIR_SUM, NULL);
    case 3: /* a message of another length */
        if (rank > 1) {
            nap(0.5);
            return CHOIR_OK;
        }
        return odd ? choir_group_send(g, x, 5, CHOIR_F32, 0, NULL)
                   : choir_group_receive(g, x, 4, CHOIR_F32, 1, NULL);
    case 4: /* a message instead of a collective */
        choir_group_algorithm(g, "exchange");
        if (odd) {
            choir_status status = choir_group_send(g, x, 100, CHOIR_F32, 0, NULL);
            nap(0.5); /* its next call would be another disagreement */
            return status;
        }
        return choir_group_all_reduce(g, x, 100, CHOIR_F32, CHOIR_SUM, NULL);
    default: { /* counts of uneven parts */
        const int64_t give[] = {1, 1, 1}, take[] = {1, 1, 1}, more[] = {1, 1, 2};
        choir_group_algorithm(g, "exchange");
        return choir_group_all_to_all_uneven(
            g, x, odd ? more : give, x + 50, take, CHOIR_F32, NULL);
    }
    }
}

static int quarrelling(int rank, int world, void *arg)
{
    quarrel *q = arg;
    choir_group *g;
    choir_group_opts opts = choir_group_defaults();
    float x[100] = {0};
    opts.timeout_s = 20;
    CHECK_OK(choir_group_init(NULL, opts, &g));
    choir_status status = disagree(g, q->which, x);
    for (int i = 0; i < 3 && !status; i++) /* who has sent and gone on, hears of it here */
        status = choir_group_barrier(g, NULL);
    note(q->notes, rank, status);
    nap(0.3);
    choir_group_free(g);
    return 0;
}

static void test_disagreement(void **state)
{
    static const char *const words[][2] = {{"all_reduce of 99 f32", "all_reduce of 100 f32"},
        {"(algorithm ring)", "(algorithm auto)"}, {"all_reduce", "all_reduce"},
        {"send of 5 f32 to rank 0", "receive of 4 f32 from rank 1"},
        {"send of 100 f32 to rank 0", "all_reduce of 100 f32"},
        {"rank 1 sends 8 bytes where rank 2 expects 4", "all_to_all of uneven parts of f32"}};
    for (int which = 0; which < (int)CHOIR_COUNT(words); which++) {
        quarrel q = {new_notes(), which};
        ok(choir_spawn(3, quarrelling, &q));
        for (int r = 0; r < 3; r++)
            if (q.notes->status[r] != CHOIR_ERR_MISMATCH ||
                !strstr(q.notes->message[r], words[which][0]) ||
                !strstr(q.notes->message[r], words[which][1]))
                fail_msg("%d, rank %d: %s '%s'", which, r,
                    choir_status_name(q.notes->status[r]), q.notes->message[r]);
        munmap(q.notes, sizeof *q.notes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_lateness),
        cmocka_unit_test(test_disagreement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
