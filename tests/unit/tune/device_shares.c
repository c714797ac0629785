/* Devices of trials: how they are divided, what a trial's processes see of them, and the memory
 * of process groups. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helpers.h"
#include "tune/trials/memory.h"
#include "tune/trials/device_shares.h"

static char names[][CHOIR__DEVICE_NAME] = {
    "cuda:0", "cuda:1", "cuda:3", "cuda:2", "cpu:0", "cuda:0", "cpu:1"};

/* GPUs are entries of the list that this process has itself. */
static void gpus(void **state)
{
    static const char *const lists[] = {"5,7,GPU-1a,1", "", NULL};
    static const char *const first[] = {"5,7", "0,1", "0,1"}, *const second[] = {
                                                                  "1,GPU-1a", "3,2", "3,2"};
    for (int i = 0; i < 3; i++) {
        if (lists[i])
            setenv("CUDA_VISIBLE_DEVICES", lists[i], 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        choir__device_share *p = choir__device_shares_new(names, 5, 2);
        assert_string_equal(p[0].gpus, first[i]);
        assert_string_equal(p[1].gpus, second[i]);
        assert_string_equal(p[1].devices, "cuda:0,cuda:1"); /* counted from 0 on again */
        assert_false(p[0].has_cores);
        choir__device_shares_free(p, 2);
    }
}

static void cores(void **state)
{
    choir__device_share *p = choir__device_shares_new(names + 4, 3, 3);
    assert_string_equal(p->devices, "cpu:0,cuda:0,cpu:1");
    assert_true(p->has_cores && p->count == 3);
    pid_t pid = fork();
    if (pid == 0) {
        cpu_set_t set;
        setenv("CHOIR_CPU_DEVICES", "8", 1);
        choir__device_share_enter(p);
        bool bound = !sched_getaffinity(0, sizeof set, &set) && CPU_EQUAL(&set, &p->cores);
        bool told = !strcmp(getenv("CHOIR_TRIAL_DEVICES"), p->devices) &&
                    !strcmp(getenv("CUDA_VISIBLE_DEVICES"), p->gpus) &&
                    !strcmp(getenv("CHOIR_CPU_DEVICES"), "3");
        _exit(bound && told ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    choir__device_shares_free(p, 1);
}

/* Pages that two processes share count once, also where each leads a group, as ranks do. */
static void memory(void **state)
{
    enum { MIB = 1 << 20, BYTES = 64 * MIB };
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        char *pages = shared_memory(BYTES);
        memset(pages, 1, BYTES);
        if (fork() == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int i = 0; i < BYTES; i += 4096)
                *(volatile char *)(pages + i) += 1;
        }
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(ready[0], &byte, 1), 1);
    int64_t bytes = choir__memory_beyond(pid, 48 * MIB); /* each of them has 32 */
    assert_true(bytes >= BYTES && bytes < 2 * (int64_t)BYTES);
    assert_int_equal(choir__memory_beyond(pid, 120 * MIB), 0);
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus), cmocka_unit_test(cores), cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
