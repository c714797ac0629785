/* Tensor queues and death: a process is killed while it waits to put or to get, or anywhere
 * between. The processes that wait get an error that names it. The items it has put can still
 * be taken, whole, and nothing hangs. */
#include "fault/notes.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

#include "multi/ranks.h"

enum { PATIENCE = 60, LENGTH = 1000, ROUNDS = 30 };

typedef struct job {
    notes *notes;
    choir_tensor_queue *queue;
    int round;
} job;

static choir_status put(choir_tensor_queue *q, choir_scope *s, float value, bool shared)
{
    choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(LENGTH), (double)value);
    choir_status status = shared ? choir_tensor_share_memory(t) : CHOIR_OK;
    return status == CHOIR_OK ? choir_tensor_queue_put(q, &t, 1, PATIENCE) : status;
}

/* The value of an item, whose elements are all the same. */
static choir_status get(choir_tensor_queue *q, choir_scope *s, float *value)
{
    float x[LENGTH];
    choir_tensor *t;
    choir_status status = choir_tensor_queue_get(q, s, &t, 1, PATIENCE);
    if (status == CHOIR_OK)
        status = choir_read(t, x, sizeof x);
    for (int i = 0; i < LENGTH && status == CHOIR_OK; i++)
        if (x[i] != x[0])
            status = CHOIR_ERR_INTERNAL;
    *value = status == CHOIR_OK ? x[0] : -1;
    return status;
}

/* Kills a rank `seconds` after it has started. */
static void kill_rank(notes *n, int rank, double seconds)
{
    while (!*(volatile pid_t *)&n->pid[rank])
        nap(0.01);
    nap(seconds);
    n->died_at = choir__now();
    kill(n->pid[rank], SIGKILL);
}

/* The queue is full: ranks 1 and 2 wait to put. */
static int wait_in_put(int rank, int world, void *arg)
{
    job *j = arg;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_status status = CHOIR_OK;
    float value;
    if (rank == 0) {
        CHECK_OK(put(j->queue, run, 1, false));
        CHECK_OK(put(j->queue, run, 2, false));
        j->notes->pid[0] = getpid();
        kill_rank(j->notes, world - 1, 0.1);
        while (!*(volatile choir_status *)&j->notes->status[1])
            nap(0.01);
        CHECK_OK(get(j->queue, run, &value)); /* the items are still there */
        CHECK(value == 1);
        CHECK_OK(get(j->queue, run, &value));
        CHECK(value == 2);
        note(j->notes, 0, get(j->queue, run, &value));
    } else {
        while (!*(volatile pid_t *)&j->notes->pid[0])
            nap(0.01);
        note_self(j->notes, rank);
        status = put(j->queue, run, 3, false);
        note(j->notes, rank, status);
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static int wait_in_get(int rank, int world, void *arg)
{
    job *j = arg;
    choir_scope *run = choir_scope_open(NULL, 1);
    float value;
    note_self(j->notes, rank);
    if (rank == 0) {
        kill_rank(j->notes, world - 1, 0.1);
        while (!*(volatile choir_status *)&j->notes->status[1])
            nap(0.01);
    }
    note(j->notes, rank, get(j->queue, run, &value));
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void check_named(choir_spawn_fn *fn)
{
    job j = {new_notes(), NULL, 0};
    char name[64];
    choir_check(choir_tensor_queue_new(2, &j.queue));
    assert_fails(choir_spawn(3, fn, &j), CHOIR_ERR_PEER_LOST, "rank 2 (pid ");
    snprintf(
        name, sizeof name, "rank 2 (pid %d), which uses it, has died", (int)j.notes->pid[2]);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(j.notes->status[r], CHOIR_ERR_PEER_LOST);
        assert_non_null(strstr(j.notes->message[r], name));
        assert_true(j.notes->seconds[r] < 30);
    }
    choir_tensor_queue_free(j.queue);
    munmap(j.notes, sizeof *j.notes);
}

static void test_killed_in_put(void **state)
{
    check_named(wait_in_put);
}

static void test_killed_in_get(void **state)
{
    check_named(wait_in_get);
}

/* Rank 2 puts (odd rounds: gets) until it is killed, somewhere; 1 puts, 0 gets. */
static int streams(int rank, int world, void *arg)
{
    job *j = arg;
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_status status = CHOIR_OK;
    bool gets = rank == 0 || (rank == 2 && j->round % 2);
    note_self(j->notes, rank);
    for (int i = 0; status == CHOIR_OK; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        float value;
        if (rank == 1 && i == 20 + 7 * j->round)
            kill_rank(j->notes, 2, 0);
        status = gets ? get(j->queue, s, &value) : put(j->queue, s, (float)i, i % 2);
        note(j->notes, rank, status);
        CHECK_OK(choir_scope_close(s));
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_killed_anywhere(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        job j = {new_notes(), NULL, round};
        choir_check(choir_tensor_queue_new(1 + round % 4, &j.queue));
        assert_int_equal(choir_spawn(3, streams, &j), CHOIR_ERR_PEER_LOST);
        for (int r = 0; r < 2; r++) {
            if (j.notes->status[r] != CHOIR_ERR_PEER_LOST)
                print_message("round %d: rank %d: %s\n", round, r, j.notes->message[r]);
            assert_int_equal(j.notes->status[r], CHOIR_ERR_PEER_LOST);
            assert_non_null(strstr(j.notes->message[r], "rank 2 (pid "));
        }
        choir_tensor_queue_free(j.queue);
        munmap(j.notes, sizeof *j.notes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_in_put),
        cmocka_unit_test(test_killed_in_get),
        cmocka_unit_test(test_killed_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
