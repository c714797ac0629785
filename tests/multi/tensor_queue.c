/* Tensor queues. The receiver of a tensor in shared memory gets the same memory; other tensors
 * arrive as copies with the same values. Each item arrives exactly once with any number of
 * producers and consumers. A queue is bounded, and ends when all producers have left. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <choir/choir.h>

#include "helpers.h"
#include "tensor_queue_fixture.h"

static choir_scope *open_run(void)
{
    return choir_scope_open(NULL, 1);
}

static void open_queues(queues *q, int capacity)
{
    choir_check(choir_tensor_queue_new(capacity, &q->to));
    choir_check(choir_tensor_queue_new(capacity, &q->back));
    q->got = shared_memory(4096);
}

static void close_queues(queues *q)
{
    choir_tensor_queue_free(q->to);
    choir_tensor_queue_free(q->back);
    munmap(q->got, 4096);
}

static int64_t file_of(const choir_tensor *t)
{
    struct stat file = {.st_ino = 0};
    return t->storage->mapping && !fstat(t->storage->mapping->fd, &file) ? (int64_t)file.st_ino
                                                                         : 0;
}

/* --- the same memory --- */

static int same_memory(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    if (rank == 0) {
        choir_tensor *t = choir_full(run, CHOIR_F32, choir_dims(32, 33), 1);
        CHECK(!choir_tensor_is_shared(t));
        CHECK_OK(choir_tensor_share_memory(t));
        CHECK_OK(choir_tensor_share_memory(t));
        CHECK(choir_tensor_is_shared(t) && all_are(t, 1));
        CHECK_OK(put(q->to, t));
        choir_tensor *file = get(q->back, run); /* the other has written */
        CHECK(choir_item(file) == (double)file_of(t) && file_of(t));
        CHECK(all_are(t, 2));
        CHECK(fill(t, 3));
        CHECK_OK(put(q->to, choir_zeros(run, CHOIR_F32, CHOIR_SCALAR)));
    } else {
        choir_tensor *t = get(q->to, run);
        CHECK(choir_tensor_is_shared(t) && all_are(t, 1));
        CHECK(fill(t, 2));
        int64_t file = file_of(t);
        CHECK_OK(put(q->back, choir_from(run, CHOIR_I64, CHOIR_SCALAR, &file)));
        get(q->to, run);
        CHECK(all_are(t, 3)); /* written after it was passed on */
    }
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_same_memory(void **state)
{
    queues q;
    open_queues(&q, 2);
    ok(choir_spawn(2, same_memory, &q));
    close_queues(&q);
}

/* A parameter of a shared module, and a view of it, are handles, too. */
static int passes_parameters(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    choir_tensor *t[2] = {NULL};
    CHECK_OK(choir_tensor_queue_get(q->to, run, t, 2, PATIENCE));
    CHECK(choir_tensor_is_shared(t[0]) && choir_tensor_is_shared(t[1]));
    CHECK(t[0]->storage->mapping == t[1]->storage->mapping); /* mapped once */
    CHECK(choir_tensor_size(t[1], 0) == 2 && all_are(t[1], 5));
    CHECK(fill(t[0], 6)); /* the master's weight */
    CHECK(all_are(t[1], 6));
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_parameters(void **state)
{
    choir_scope *run = open_run();
    queues q;
    open_queues(&q, 2);
    choir_module *net = choir_nn_linear(run, 4, 3);
    choir_tensor *weight = choir_module_find(net, "weight"), *t[2] = {weight};
    assert_true(fill(weight, 5));
    choir_check(choir_module_share_memory(net));
    choir_scope *s = choir_step_open(run, 0);
    t[1] = choir_narrow(choir_transpose(choir_in(s, weight), 0, 1), 0, 1, 2); /* (2, 3) */
    ok(choir_tensor_queue_put(q.to, t, 2, 0));
    ok(choir_spawn(1, passes_parameters, &q));
    float seen[12];
    choir_check(choir_read(weight, seen, sizeof seen));
    for (int i = 0; i < 12; i++)
        assert_true(seen[i] == 6);
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
    close_queues(&q);
}

/* --- private memory --- */

static void test_copies(void **state)
{
    queues q;
    open_queues(&q, 2);
    ok(choir_spawn(2, copies, &q));
    close_queues(&q);
}

/* --- several of each --- */

enum { ITEMS = 200, LENGTH = 512 };

/* Ranks 0-2 put, 3 and 4 get. Items have the value rank * ITEMS + i in every element. */
static int producers_and_consumers(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    choir_status status = CHOIR_OK;
    for (int i = 0; i < ITEMS && rank < 3; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *t = choir_full(s, CHOIR_F32, choir_dims(LENGTH), rank * ITEMS + i);
        if (i % 2)
            CHECK_OK(choir_tensor_share_memory(t));
        CHECK_OK(put(q->to, t));
        CHECK_OK(choir_scope_close(s));
    }
    if (rank >= 3)
        choir_tensor_queue_done(q->to);
    for (int i = 0; rank >= 3 && status == CHOIR_OK; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *t;
        status = choir_tensor_queue_get(q->to, s, &t, 1, PATIENCE);
        if (status == CHOIR_OK) {
            float first = (float)choir_item(choir_narrow(t, 0, LENGTH - 1, 1));
            CHECK(all_are(t, first));
            q->got[(int)first]++;
            q->got[rank * ITEMS]++; /* got here */
        }
        CHECK_OK(choir_scope_close(s));
    }
    CHECK(rank < 3 || status == CHOIR_ERR_END);
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_each_once(void **state)
{
    queues q;
    assert_true((5 * ITEMS) * sizeof(int64_t) <= 2 * 4096);
    open_queues(&q, 3);
    munmap(q.got, 4096);
    q.got = shared_memory(8192);
    ok(choir_spawn(5, producers_and_consumers, &q));
    for (int i = 0; i < 3 * ITEMS; i++)
        assert_int_equal(q.got[i], 1);
    assert_int_equal(q.got[3 * ITEMS] + q.got[4 * ITEMS], 3 * ITEMS);
    munmap((char *)q.got + 4096, 4096);
    close_queues(&q);
}

/* --- ends, bounds, errors --- */

static void test_alone(void **state)
{
    choir_scope *run = open_run();
    choir_tensor_queue *q = NULL;
    choir_tensor *t = choir_full(run, CHOIR_F32, CHOIR_SCALAR, 4), *got = NULL, *many[9];
    assert_int_equal(choir_tensor_queue_new(0, &q), CHOIR_ERR_ARGUMENT);
    assert_fails(choir_tensor_queue_new(65, &q), CHOIR_ERR_ARGUMENT, "65 items: from 1 to 64");
    choir_check(choir_tensor_queue_new(2, &q));
    assert_int_equal(choir_tensor_queue_put(q, many, 9, 0), CHOIR_ERR_ARGUMENT);
    assert_fails(
        choir_tensor_queue_get(q, run, &got, 1, -1), CHOIR_ERR_END, "no rank is left to put");
    for (int round = 0; round < 3; round++) { /* a process may talk to itself */
        choir_check(choir_tensor_queue_put(q, &t, 1, 0));
        choir_check(choir_tensor_queue_put(q, &t, 1, 0));
        assert_fails(choir_tensor_queue_put(q, &t, 1, -1), CHOIR_ERR_STATE,
            "full, and no rank is left to get");
        for (int i = 0; i < 2; i++) {
            choir_check(choir_tensor_queue_get(q, run, &got, 1, 0));
            assert_true(choir_item(got) == 4);
        }
    }
    choir_check(choir_tensor_queue_put(q, (choir_tensor *[]){t, t}, 2, 0));
    assert_fails(
        choir_tensor_queue_get(q, run, &got, 1, 0), CHOIR_ERR_SHAPE, "2 tensors came where 1");
    choir_check(choir_tensor_queue_put(q, &t, 1, 0));
    choir_tensor_queue_close(q);
    choir_tensor_queue_close(q);
    assert_fails(choir_tensor_queue_put(q, &t, 1, 0), CHOIR_ERR_STATE, "closed");
    choir_check(choir_tensor_queue_get(q, run, &got, 1, 0)); /* the item put before the close */
    assert_fails(choir_tensor_queue_get(q, run, &got, 1, -1), CHOIR_ERR_END, "closed");
    choir_tensor_queue_free(q);
    choir_tensor_queue_free(NULL);

    choir_tensor *view = choir_reshape(t, choir_dims(1, 1));
    choir_check(choir_tensor_share_memory(t));
    assert_true(choir_tensor_is_shared(view) && choir_item(view) == 4); /* it moves along */
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *u = choir_full(run, CHOIR_F32, choir_dims(2), 4);
    choir_in(s, u);
    assert_fails(choir_tensor_share_memory(u), CHOIR_ERR_STATE, "another scope");
    choir_tensor *w = choir_module_find(choir_nn_linear(run, 2, 2), "weight");
    assert_fails(choir_tensor_share_memory(w), CHOIR_ERR_STATE, "choir_module_share_memory");
    choir_check(choir_scope_close(s));
    choir_check(choir_scope_close(run));
}

static int times_out(int rank, int world, void *arg)
{
    queues *q = arg;
    choir_scope *run = open_run();
    choir_tensor *t = choir_full(run, CHOIR_F32, CHOIR_SCALAR, 4);
    if (rank == 0) {
        CHECK(choir_tensor_queue_get(q->to, run, &t, 1, 0.01) == CHOIR_ERR_TIMEOUT);
        CHECK(strstr(choir_error_message(), "it is empty"));
        for (int i = 0; i < 3; i++)
            CHECK_OK(choir_tensor_queue_put(q->to, &t, 1, 0)); /* capacity 3 */
        CHECK(choir_tensor_queue_put(q->to, &t, 1, 0) == CHOIR_ERR_TIMEOUT);
        CHECK(choir_tensor_queue_put(q->to, &t, 1, 0.01) == CHOIR_ERR_TIMEOUT);
        CHECK(strstr(choir_error_message(), "it is full"));
    }
    if (rank == 0) /* no rank leaves before this */
        CHECK_OK(put(q->back, t));
    else
        get(q->back, run);
    CHECK_OK(choir_scope_close(run));
    return 0;
}

static void test_timeouts(void **state)
{
    queues q;
    open_queues(&q, 3);
    ok(choir_spawn(2, times_out, &q));
    close_queues(&q);
}

static choir_status puts_in_step(choir_scope *step, void *arg)
{
    choir_tensor *t = choir_zeros(step, CHOIR_F32, CHOIR_SCALAR);
    choir_status status = choir_tensor_queue_put(arg, &t, 1, 0);
    return status;
}

static void test_recorded(void **state)
{
    choir_scope *run = open_run();
    choir_tensor_queue *q;
    choir_check(choir_tensor_queue_new(4, &q));
    choir_check(choir_step(run, puts_in_step, q));
    choir_check(choir_step(run, puts_in_step, q));
    assert_int_equal(choir_step(run, puts_in_step, q), CHOIR_ERR_UNSUPPORTED);
    choir_tensor_queue_free(q);
    choir_scope_close(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_same_memory),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
