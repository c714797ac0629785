/* Tensors in GPU memory that processes pass on. The receiver of a shared tensor gets the same
 * memory; other tensors arrive as copies with the same values. Tensors can return to their
 * owner and go on to a third process. Lent memory is free again when no process holds it,
 * however a borrower ends; a process that may not map it gets the reason. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "tensor_queue_fixture.h"

static choir_scope *open_run(void)
{
    return choir_scope_open(choir_device_find("cuda:0"), 1);
}

static queues open_queues(void)
{
    queues q;
    choir_check(choir_tensor_queue_new(2, &q.to));
    choir_check(choir_tensor_queue_new(2, &q.back));
    choir_check(choir_tensor_queue_new(2, &q.on));
    return q;
}

static void run_ranks(int ranks, choir_spawn_fn *fn)
{
    queues q = open_queues();
    ok(choir_spawn(ranks, fn, &q));
    choir_tensor_queue_free(q.to);
    choir_tensor_queue_free(q.back);
    choir_tensor_queue_free(q.on);
}

/* All ranks are on one GPU. */
static size_t used(void)
{
    choir_device_stats stats;
    choir_device_get_stats(choir_device_find("cuda:0"), &stats);
    return stats.bytes_now;
}

/* --- the same memory --- */

/* Small memory is cut out of slabs, large is an allocation of its own. */
static int same_memory(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    for (int64_t n = 33; n < 1 << 20; n *= 10000) {
        choir_scope *s = choir_step_open(run, 0);
        if (rank == 0) {
            choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(n), 1);
            CHECK(!choir_tensor_is_shared(t));
            CHECK_OK(choir_tensor_share_memory(t));
            CHECK(choir_tensor_is_shared(t) && all_are(t, 1));
            CHECK_OK(choir_tensor_queue_put(q->to, (choir_tensor *[]){t, t}, 2, PATIENCE));
            get(q->back, s); /* the other has written */
            CHECK(all_are(t, 2));
            CHECK(fill(t, 3));
            CHECK_OK(put(q->to, choir_zeros(s, CHOIR_F32, CHOIR_SCALAR)));
        } else {
            choir_tensor *t[2];
            CHECK_OK(choir_tensor_queue_get(q->to, s, t, 2, PATIENCE));
            CHECK(t[0]->storage->data == t[1]->storage->data);
            CHECK(choir_tensor_is_shared(t[0]) && all_are(t[0], 1));
            CHECK(fill(t[0], 2));
            CHECK_OK(put(q->back, choir_zeros(s, CHOIR_F32, CHOIR_SCALAR)));
            get(q->to, s);
            CHECK(all_are(t[1], 3)); /* written after it was passed on */
        }
        CHECK_OK(choir_scope_close(s));
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_same_memory(void **state)
{
    run_ranks(2, same_memory);
}

/* --- copies --- */

static void test_copies(void **state)
{
    run_ranks(2, copies);
}

/* --- on to a third, and home --- */

static int travels(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    if (rank == 0) {
        size_t before = used();
        choir_scope *s = choir_step_open(run, 0);
        choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(1000), 1);
        void *data = t->storage->data;
        CHECK_OK(choir_tensor_share_memory(t));
        CHECK_OK(put(q->to, t));
        CHECK_OK(choir_scope_close(s));
        CHECK(used() > before); /* it is lent */
        s = choir_step_open(run, 0);
        t = get(q->on, s);
        CHECK(t->storage->data == data && all_are(t, 3));
        CHECK_OK(choir_scope_close(s));
        get(q->on, run); /* the others have released it */
        CHECK_OK(put(q->to, choir_zeros(run, CHOIR_F32, CHOIR_SCALAR)));
    } else {
        choir_scope *s = choir_step_open(run, 0);
        choir_tensor *t = get(rank == 1 ? q->to : q->back, s);
        CHECK(all_are(t, (float)rank));
        CHECK(fill(t, (float)rank + 1));
        CHECK_OK(put(rank == 1 ? q->back : q->on, t));
        CHECK_OK(choir_scope_close(s));
        if (rank == 2)
            CHECK_OK(put(q->on, choir_zeros(run, CHOIR_F32, CHOIR_SCALAR)));
        else
            get(q->to, run);
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_travels(void **state)
{
    run_ranks(3, travels);
}

/* --- what comes back --- */

/* Many loans leave nothing behind, and memory is reused. */
static int lends_often(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    for (int i = 0; i < 50; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        if (rank == 0) {
            CHECK_OK(put(q->to, choir_full(s, CHOIR_F32, choir_dims(1 << 18), i)));
            get(q->back, s); /* the other has released it */
        } else {
            choir_scope *inner = choir_step_open(run, (uint64_t)i);
            CHECK(all_are(get(q->to, inner), (float)i));
            CHECK_OK(choir_scope_close(inner));
            CHECK_OK(put(q->back, choir_zeros(s, CHOIR_F32, CHOIR_SCALAR)));
        }
        CHECK_OK(choir_scope_close(s));
        CHECK(used() < 4 << 20); /* of 1 MiB each, those not yet looked for */
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

/* Rank 0 returns while its item is still under way, and rank 1 gets it whole. */
static int outlives(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    if (rank == 0) {
        CHECK_OK(put(q->to, choir_full(run, CHOIR_F32, choir_dims(5000), 4)));
    } else {
        usleep(200000);
        CHECK(all_are(get(q->to, run), 4));
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_loans(void **state)
{
    run_ranks(2, lends_often);
    run_ranks(2, outlives);
}

/* A killed borrower holds nothing any more. */
static int loses_borrower(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run(), *s = choir_step_open(run, 0);
    choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(1 << 18), 1);
    if (rank == 1) {
        CHECK_OK(choir_scope_close(s));
        get(q->to, run);
        raise(SIGKILL);
    }
    size_t before = used();
    CHECK_OK(put(q->to, t));
    CHECK(used() > before);
    CHECK(choir_tensor_queue_get(q->back, s, &t, 1, PATIENCE) == CHOIR_ERR_PEER_LOST);
    CHECK(strstr(choir_error_message(), "rank 1"));
    CHECK(choir_tensor_queue_get(q->back, s, &t, 1, 0) == CHOIR_ERR_PEER_LOST);
    CHECK(used() == before);
    CHECK_OK(choir_scope_close(s));
    CHECK_OK(choir_scope_close(run));
    return 0;
}

/* A producer that was killed is named; the item it has put is lost or whole. */
static int loses_owner(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    choir_tensor *t;
    choir_status status;
    if (rank == 1) {
        CHECK_OK(put(q->to, choir_full(run, CHOIR_F32, choir_dims(100), 1)));
        raise(SIGKILL);
    }
    CHECK(choir_tensor_queue_get(q->back, run, &t, 1, PATIENCE) == CHOIR_ERR_PEER_LOST);
    status = choir_tensor_queue_get(q->to, run, &t, 1, PATIENCE);
    CHECK(status == CHOIR_ERR_DEVICE || (status == CHOIR_OK && all_are(t, 1)));
    CHECK(choir_tensor_queue_get(q->to, run, &t, 1, PATIENCE) == CHOIR_ERR_PEER_LOST);
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_deaths(void **state)
{
    choir_spawn_fn *fns[] = {loses_borrower, loses_owner};
    for (int i = 0; i < 2; i++) {
        queues q = open_queues();
        assert_fails(choir_spawn(2, fns[i], &q), CHOIR_ERR_PEER_LOST, "rank 1");
        choir_tensor_queue_free(q.to);
        choir_tensor_queue_free(q.back);
        choir_tensor_queue_free(q.on);
    }
}

/* --- who may not --- */

static int refused(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    choir_scope *host = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_tensor *t = choir_zeros(run, CHOIR_F32, CHOIR_SCALAR);
    choir_tensor *h = choir_zeros(host, CHOIR_F32, CHOIR_SCALAR);
    if (rank == 0) {
        CHECK(choir_tensor_queue_put(q->to, (choir_tensor *[]){t, h}, 2, 0) ==
              CHOIR_ERR_ARGUMENT);
        CHECK(strstr(choir_error_message(), "on several devices"));
        CHECK_OK(put(q->to, t));
        CHECK_OK(put(q->to, h));
        CHECK_OK(put(q->to, t));
        get(q->back, host);
    } else {
        CHECK(choir_tensor_queue_get(q->to, host, &h, 1, PATIENCE) == CHOIR_ERR_DEVICE);
        CHECK(strstr(choir_error_message(), "in a GPU's memory, and the scope is on cpu:0"));
        CHECK(choir_tensor_queue_get(q->to, run, &t, 1, PATIENCE) == CHOIR_ERR_DEVICE);
        CHECK(
            strstr(choir_error_message(), "the processors' memory, and the scope is on cuda"));
        if (choir_device_count("cuda") > 1) {
            choir_scope *other = choir_scope_open(choir_device_find("cuda:1"), 1);
            CHECK(choir_tensor_queue_get(q->to, other, &t, 1, PATIENCE) == CHOIR_ERR_DEVICE);
            CHECK(strstr(choir_error_message(), "the tensor passed is on"));
            CHECK_OK(choir_scope_close(other));
        }
        h = choir_zeros(host, CHOIR_F32, CHOIR_SCALAR);
        CHECK_OK(put(q->back, h));
    }
    CHECK_OK(choir_scope_close(host));
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_refused(void **state)
{
    run_ranks(2, refused);
}

/* A process may talk to itself, and gets its own memory. Last: it has a GPU then. */
static void test_alone(void **state)
{
    queues q = open_queues();
    choir_scope *run = open_run();
    choir_tensor *t = choir_full(run, CHOIR_F32, choir_dims(10), 1), *got;
    choir_check(choir_tensor_share_memory(t));
    choir_check(put(q.to, t));
    choir_check(choir_tensor_queue_get(q.to, run, &got, 1, 0));
    assert_ptr_equal(got->storage->data, t->storage->data);
    choir_check(put(q.to, t)); /* never taken */
    choir_tensor_queue_free(q.to);
    choir_tensor_queue_free(q.back);
    choir_tensor_queue_free(q.on);
    choir_check(choir_scope_close(run));
}

int main(void)
{
    if (choir__device_look("cuda", (char[200]){""}, 200) < 1)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_memory),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_travels),
        cmocka_unit_test(test_loans),
        cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
