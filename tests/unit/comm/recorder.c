/* The board and its flight recorder: one process writes, and another reads it even if the
 * writer is stopped, is in the middle of a call, or has forked. */

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <choir/device.h>
#include "check.h"
#include "base/board/board.h"
#include "comm/flight/flight.h"
#include "data/loading/prefetch.h"
#include "device/queue.h"

static void nap(double s)
{
    struct timespec t = {0, (long)(s * 1e9)};
    nanosleep(&t, NULL);
}

static choir__stamp all_reduce(uint32_t seq, uint64_t count)
{
    return (choir__stamp){
        .kind = CHOIR__ALL_REDUCE, .dtype = CHOIR_F32, .count = count, .seq = seq};
}

static void make_call(choir__flight_log *log, uint32_t seq, uint64_t count)
{
    choir__stamp stamp = all_reduce(seq, count);
    choir__flight_log_begin(log, &stamp);
    choir__flight_log_end(log, &stamp, CHOIR_OK);
}

static const choir__seen_group *group_named(const choir__seen *seen, const char *name)
{
    for (int i = 0; i < seen->group_count; i++)
        if (!strcmp(seen->groups[i].name, name))
            return &seen->groups[i];
    return NULL;
}

/* --- another process: does one thing, then stops itself --- */

typedef void script(void);

static pid_t begin(script *fn)
{
    pid_t pid = fork();
    if (pid == 0) {
        fn();
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    return pid;
}

static void finish(pid_t pid)
{
    int status;
    kill(pid, SIGCONT);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

typedef struct job {
    choir__flight_log *log;
    uint32_t seq;
} job;

static void run_call(const void *args)
{
    const job *c = args;
    make_call(c->log, c->seq, c->seq);
}

static void hundred_calls(void)
{
    choir__flight_job("a secret", 1, 3, 2);
    choir__flight_log *log = choir__flight_log_open("world", "shm", 1, 3);
    choir__queue *queue = choir__queue_new((choir__queue_opts){
        .gauges = choir__flight_log_gauges(log), .timed = true, .patience_us = 1000000});
    for (uint32_t i = 1; i <= 100; i++)
        choir__queue_issue(queue, run_call, &(job){log, i}, sizeof(job));
    nap(0.05);
    choir__queue_wait(queue);
    choir__queue_issue(queue, run_call, &(job){log, 101}, sizeof(job));
    choir__queue_wait(queue);
    choir__stamp failed = all_reduce(102, 5);
    choir__flight_log_begin(log, &failed);
    choir__flight_log_end(log, &failed, CHOIR_ERR_PEER_LOST);
    choir__queues_quiesce();
}

static void test_ring(void **state)
{
    pid_t pid = begin(hundred_calls);
    choir__seen *seen = choir__flight_read(pid);
    assert_non_null(seen);
    assert_int_equal(seen->state, 'T');
    assert_int_equal(seen->who.rank, 1);
    assert_int_equal(seen->who.world, 3);
    assert_true(seen->who.job != 0);
    assert_non_null(strstr(seen->command, "test_unit_recorder"));
    const choir__seen_group *group = group_named(seen, "world");
    assert_non_null(group);
    assert_string_equal(group->backend, "shm");
    assert_int_equal(group->rank, 1);
    assert_int_equal(group->world, 3);
    assert_int_equal(group->begun, 102);
    assert_int_equal(group->ended, 102);
    assert_int_equal(group->queued, 0);
    assert_int_equal(group->count, CHOIR__FLIGHT_ENTRIES);
    double before = 0;
    for (int i = 0; i < group->count; i++) {
        const choir__seen_call *call = &group->calls[i];
        assert_int_equal(call->number, 102 - CHOIR__FLIGHT_ENTRIES + 1 + i);
        assert_int_equal(call->stamp.seq, call->number);
        assert_int_equal(call->stamp.count, i < group->count - 1 ? call->number : 5);
        if (i < 62)
            assert_true(call->begun - call->issued > 0.04 && call->begun - call->issued < 20);
        else if (i == 62)
            assert_true(call->begun - call->issued < 20);
        assert_true(call->begun >= before && call->ended >= call->begun);
        assert_true(call->ended <= seen->at && seen->at - call->begun < 60);
        before = call->ended;
    }
    assert_true(group->calls[62].issued > 0 && group->calls[63].issued == 0);
    assert_int_equal(group->calls[63].status, CHOIR_ERR_PEER_LOST);
    ok(group->calls[62].status);
    choir__seen_free(seen);
    finish(pid);
}

static void stuck_in_another_group(void)
{
    choir__flight_log *world = choir__flight_log_open("world", "shm", 0, 2);
    choir__flight_log *part = choir__flight_log_open("world/1", "shm", 0, 2);
    make_call(world, 40, 3);
    choir__stamp barrier = {.kind = CHOIR__BARRIER, .seq = 12};
    choir__flight_log_begin(part, &barrier);
    atomic_store(&choir__flight_log_gauges(world)->issued, 1);
    nap(0.2);
}

static void test_last_seen(void **state)
{
    char text[CHOIR__SEEN_TEXT];
    pid_t pid = begin(stuck_in_another_group);
    choir__flight_log_last_seen(pid, "world", 0, text);
    if (strncmp(text, "finished all_reduce of 3 f32 (number 40) 0.", 43) != 0 ||
        !strstr(text, " s ago, 1 more queued, running barrier (number 12) of group world/1 "
                      "for 0."))
        fail_msg("'%s'", text);
    choir__flight_log_last_seen(pid, "world/1", 0, text);
    if (strncmp(text, "running barrier (number 12) for 0.", 34) != 0)
        fail_msg("'%s'", text);
    choir__flight_log_last_seen(
        pid, "world", 1, text); /* no such rank there, but it is stuck */
    if (strncmp(text, "running barrier (number 12) of group world/1 for 0.", 51) != 0)
        fail_msg("'%s'", text);
    finish(pid);
    assert_string_equal(choir__flight_log_last_seen(pid, "world", 0, text), "");
    assert_null(choir__flight_read(pid));
}

static void no_calls(void)
{
    choir__flight_log_open("world", "shm", 0, 2);
}

static void test_no_calls(void **state)
{
    char text[CHOIR__SEEN_TEXT];
    pid_t pid = begin(no_calls);
    assert_string_equal(
        choir__flight_log_last_seen(pid, "world", 0, text), "has called nothing yet");
    finish(pid);
}

/* --- batches: several run at once --- */

static void side_by_side(void)
{
    choir__flight_log *log = choir__flight_log_open("world", "shm", 0, 2);
    choir__stamp stamps[3];
    for (int i = 0; i < 3; i++) {
        stamps[i] =
            (choir__stamp){.kind = CHOIR__SEND, .dtype = CHOIR_F32, .count = 10 + i, .peer = 1};
    }
    for (int i = 0; i < 3; i++)
        choir__flight_log_begin(log, &stamps[i]);
    choir__flight_log_end(log, &stamps[0], CHOIR_OK);
    choir__flight_log_end(log, &stamps[2], CHOIR_OK);
}

static void test_batch(void **state)
{
    pid_t pid = begin(side_by_side);
    choir__seen *seen = choir__flight_read(pid);
    const choir__seen_group *group = group_named(seen, "world");
    assert_int_equal(group->count, 3);
    assert_true(group->calls[0].ended && !group->calls[1].ended && group->calls[2].ended);
    assert_ptr_equal(choir__seen_current(group), &group->calls[1]);
    choir__seen_free(seen);
    finish(pid);
}

/* --- the board --- */

static void test_places(void **state)
{
    void *first = choir__board_take(CHOIR__BOARD_GROUP, 1000);
    void *second = choir__board_take(CHOIR__BOARD_GROUP, 1000);
    assert_non_null(first);
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_true((char *)second >= (char *)first + 1000);
    memset(first, 7, 1000);
    choir__board_give_back(first);
    char *again = choir__board_take(CHOIR__BOARD_GROUP, 1000);
    assert_ptr_equal(again, first);
    assert_int_equal(again[500], 0);
    assert_null(choir__board_take(CHOIR__BOARD_GROUP, 1 << 20));
    void *all[500] = {0};
    int count = 0;
    while (count < 500 && (all[count] = choir__board_take(CHOIR__BOARD_GROUP, 64)))
        count++;
    assert_true(count > 50 && count < 500);
    for (int i = 0; i < count; i++)
        choir__board_give_back(all[i]);
    choir__board_give_back(again);
    choir__board_give_back(second);
    choir__board_give_back(NULL);
}

/* The parent has logs and a device: a forked child shows the device as its own, and no
 * groups. */
static void uses_its_device(void)
{
    choir_device_sync(choir_device_find("cpu:0"));
}

static void test_fork(void **state)
{
    choir__flight_log *log = choir__flight_log_open("world", "shm", 0, 1);
    choir_device *device = choir_device_find("cpu:0");
    make_call(log, 1, 1);
    choir_device_set_limit(device, 123 << 20);
    pid_t pid = begin(uses_its_device);
    choir_device_set_limit(device, 0);
    make_call(log, 2, 1);
    choir__seen *child = choir__flight_read(pid), *own = choir__flight_read(getpid());
    assert_int_equal(child->who.pid, pid);
    assert_null(group_named(child, "world"));
    assert_int_equal(child->device_count, 1);
    assert_string_equal(child->devices[0].name, "cpu:0");
    assert_int_equal(child->devices[0].limit, 123 << 20);
    assert_int_equal(own->who.pid, getpid());
    assert_int_equal(own->devices[0].limit, 0);
    assert_int_equal(group_named(own, "world")->count, 2);
    choir__seen_free(child);
    choir__seen_free(own);
    finish(pid);
    choir__flight_log_close(log);
}

/* A program that closes descriptors it does not know, and forks, keeps its files. */
static void test_descriptor_taken(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        choir__flight_log *log = choir__flight_log_open("world", "shm", 0, 1);
        int fd, its_own;
        closefrom(3);
        its_own = open("/dev/null", O_WRONLY | O_CLOEXEC);
        for (int i = 0; i < 64; i++)
            its_own = dup(its_own);
        fd = fork();
        if (fd == 0) {
            make_call(log, 1, 1); /* there is memory still */
            _exit(write(its_own, "x", 1) != 1);
        }
        int status;
        waitpid(fd, &status, 0);
        _exit(status != 0 || write(its_own, "x", 1) != 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

/* Readers can neither change nor truncate the board. */
static void test_sealed(void **state)
{
    choir__flight_log *log = choir__flight_log_open("world", "shm", 0, 1);
    char path[64], target[64] = "";
    int fd = -1;
    for (int i = 3; i < 64 && fd < 0; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", i);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length > 0 && strstr(target, "choir-board"))
            fd = open(path, O_RDWR | O_CLOEXEC);
    }
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 0), -1);
    int seals = fcntl(fd, F_GET_SEALS);
    assert_true(seals & F_SEAL_SHRINK);
    if (seals & 0x10)
        assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    close(fd);
    choir__flight_log_close(log);
}

/* Dumps a process that exists, and one that does not. */
static void test_dump(void **state)
{
    char *text = NULL;
    size_t bytes;
    pid_t pid = begin(stuck_in_another_group);
    FILE *out = open_memstream(&text, &bytes);
    assert_true(choir__flight_dump(pid, out));
    fflush(out);
    assert_non_null(strstr(text, "stopped (SIGSTOP)"));
    assert_non_null(strstr(text, "group world/1 (shm), rank 0 of 2: 1 calls begun, 0 ended, "
                                 "0 queued"));
    assert_non_null(strstr(text, "barrier, running\n"));
    assert_non_null(strstr(text, "all_reduce of 3 f32\n"));
    finish(pid);
    assert_false(choir__flight_dump(pid, out));
    assert_says("shows nothing");
    fclose(out);
    free(text);
}

static void test_process_list(void **state)
{
    pid_t pid = begin(no_calls);
    int *pids, count = choir__board_processes(&pids), found = 0;
    for (int i = 0; i < count; i++)
        found += pids[i] == pid;
    assert_int_equal(found, 1);
    free(pids);
    finish(pid);
}

/* --- work on the host --- */

static void list(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count)
{
    *epoch = 0;
    for (int64_t i = 0; i < *count; i++)
        index[i] = position + i;
}

static choir_status get(void *arg, int64_t epoch, int64_t index, void *x, void *y)
{
    return CHOIR_OK;
}

/* A process that only reads data makes progress, by each sample. */
static void test_host_work(void **state)
{
    choir__prefetch_source source = {
        .list = list, .get = get, .samples = 5, .x_bytes = 4, .y_bytes = 4, .depth = 1};
    choir__prefetch *p;
    choir__prefetch_stage *stage;
    bool waits;
    assert_non_null(choir_device_find("cpu:0"));
    ok(choir__prefetch_new(&source, &p));
    uint64_t before = choir__seen_progress(getpid(), &waits);
    ok(choir__prefetch_take(p, 0, &stage));
    uint64_t after = choir__seen_progress(getpid(), &waits);
    assert_int_equal(after - before, 5);
    assert_false(waits);
    choir__prefetch_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_work), cmocka_unit_test(test_ring),
        cmocka_unit_test(test_last_seen), cmocka_unit_test(test_no_calls),
        cmocka_unit_test(test_batch), cmocka_unit_test(test_fork),
        cmocka_unit_test(test_descriptor_taken), cmocka_unit_test(test_sealed),
        cmocka_unit_test(test_dump), cmocka_unit_test(test_process_list),
        cmocka_unit_test(test_places), /* last: it leaves no place of another size */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
