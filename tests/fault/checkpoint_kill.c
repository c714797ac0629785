/* Processes killed while they save, at random moments and after each system call. Readers find
 * the previous checkpoint or the new one, whole, and the next save clears up. */
#include "checkpoint_fixture.h"

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static bool there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static void leftovers(void **state)
{
    job a = job_open(TOY, ADAMW), b = job_open(TOY, ADAMW);
    save(at("left"), &a, 1, false);
    /* Killed while the old step 1 was aside: readers find it, and the next save puts it
     * back. */
    assert_int_equal(rename(at("left/step-00000001"), at("left/.old-step-00000001")), 0);
    assert_int_equal(load(at("left"), &b), 1);
    assert_int_equal(load(at("left/latest"), &b), 1);
    /* Killed while writing, linking, removing. */
    assert_int_equal(mkdir(at("left/.new-1"), 0777), 0);
    touch(at("left/.new-1/model.safetensors.tmp.1"));
    assert_int_equal(symlink("nowhere", at("left/.link-1")), 0);
    assert_int_equal(mkdir(at("left/step-00000000"), 0777), 0);
    touch(at("left/step-00000000/model.safetensors"));
    /* Files of the user stay. */
    assert_int_equal(mkdir(at("left/step-00000099"), 0777), 0);
    touch(at("left/step-00000099/notes.txt"));
    assert_int_equal(mkdir(at("left/step-by-step"), 0777), 0);
    save(at("left"), &a, 2, false);
    assert_true(there(at("left/step-00000099/notes.txt")));
    assert_true(there(at("left/step-by-step")));
    assert_int_equal(entries(at("left")), 4); /* those, step-00000002, latest */
    assert_int_equal(load(at("left"), &b), 2);
    job_close(&a);
    job_close(&b);
}

/* Trains and saves until it is killed, continuing from the stored checkpoint; writes a dot
 * after each step. */
static int save_forever(void)
{
    job j = job_open(TOY, ADAMW);
    int step = there(at("kill/latest")) ? (int)load(at("kill"), &j) : 0;
    for (;; step++) {
        train(&j, step, step + 1);
        save(at("kill"), &j, step + 1, step % 4 == 0);
        save(at("kill"), &j, step + 1, false); /* saves again over the existing step */
        if (write(STDOUT_FILENO, ".", 1) != 1)
            return 0;
    }
}

static void killed_while_saving(void **state)
{
    enum { KILLS = 30 };
    int64_t step = 0;
    for (int k = 0; k < KILLS; k++) {
        int ends[2], status;
        char dot;
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t child = start("--save-forever", ends[1]);
        close(ends[1]);
        assert_int_equal(read(ends[0], &dot, 1), 1); /* it is up and saving */
        usleep((useconds_t)(choir__mix(3, (uint64_t)k) % 20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        close(ends[0]);

        job j = job_open(TOY, ADAMW);
        load(at("kill/best"), &j);
        int64_t now = load(at("kill"), &j);
        assert_true(now > step);
        assert_int_equal(choir_optim_steps(j.opt), now);
        step = now;
        if (k == KILLS - 1) { /* after all of them: the bits of an undisturbed training */
            job whole = job_open(TOY, ADAMW);
            train(&whole, 0, (int)step);
            assert_string_equal(sha(j.net), sha(whole.net));
            job_close(&whole);
        }
        job_close(&j);
    }
}

/* Goes on by a step, saving it twice, under the eyes of a tracer. */
static int save_traced(void)
{
    job j = job_open(TOY, ADAMW);
    int step = there(at("calls/latest")) ? (int)load(at("calls"), &j) : 0;
    train(&j, step, step + 1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(NOT_PERMITTED);
    raise(SIGSTOP);
    save(at("calls"), &j, step + 1, true);
    save(at("calls"), &j, step + 1, false);
    _exit(0);
}

/* True at the entry of a system call of a kind whose number does not depend on timing. */
static bool at_call(pid_t child)
{
    struct __ptrace_syscall_info info = {0};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info);
    return info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr != SYS_futex &&
           info.entry.nr != SYS_sched_yield;
}

/* Lets the child make `calls` system calls, then kills it. Returns its status from waitpid. */
static int kill_after(pid_t child, int calls)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSTOPPED(status)) /* lets PTRACE_GET_SYSCALL_INFO tell entry from exit */
        ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACESYSGOOD);
    while (WIFSTOPPED(status) && calls >= 0) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        calls -= WIFSTOPPED(status) && at_call(child);
    }
    if (WIFSTOPPED(status)) { /* at the entry of the next one, which is not made any more */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    return status;
}

/* Kills saves after their first system call, their second, and so on, which finds cases that
 * chance may miss. */
static void killed_after_every_call(void **state)
{
    int64_t step = 1;
    job j = job_open(TOY, ADAMW);
    for (int calls = 1, status = 0; !WIFEXITED(status) || calls == 1; calls++) {
        save(at("calls"), &j, step, true); /* clears up, so that every child does the same */
        status = kill_after(start("--save-traced", -1), calls);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_PERMITTED) {
            print_message("skipped: no permission to trace\n");
            skip();
        }
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        int64_t now = load(at("calls"), &j);
        assert_true(now == step || now == step + 1);
        assert_true(load(at("calls/best"), &j) <= step + 1); /* it moves before latest */
        assert_int_equal(load(at("calls"), &j), now);
        step = now;
        assert_true(calls < 5000 && (calls > 100 || WIFSIGNALED(status)));
    }
    save(at("calls"), &j, step + 1, true);
    assert_int_equal(entries(at("calls")), 3); /* nothing was left behind */
    job_close(&j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leftovers),
        cmocka_unit_test(killed_while_saving),
        cmocka_unit_test(killed_after_every_call),
    };
    if (started_for(argc, argv, "--save-forever"))
        return save_forever();
    if (started_for(argc, argv, "--save-traced"))
        return save_traced();
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
