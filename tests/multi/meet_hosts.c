/* Ranks on several machines meet. Network namespaces joined by a bridge act as the machines.
 * They have no names and belong to processes of the test, so they always disappear with these
 * processes.
 *
 *     host h   eth0 10.78.0.(h+1)/24  === veth ===  a port of the bridge in the hub */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include "helpers.h"
#include "multi/meeters.h"

enum { HOSTS = 3, HUB = HOSTS };

static pid_t namespaces[HOSTS + 1]; /* a process in each; the last is the hub */
static char key_file[64], folder[] = "/tmp/choir-hosts-XXXXXX";

/* Starts a process with its own network, which stops itself when that exists. Returns its pid;
 * 0: not permitted. */
static pid_t new_namespace(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET))
            _exit(77);
        raise(SIGSTOP);
        _exit(0);
    }
    waitpid(pid, &status, WUNTRACED);
    return WIFSTOPPED(status) ? pid : 0;
}

static bool make_hosts(void)
{
    for (int i = 0; i <= HUB; i++)
        if (!(namespaces[i] = new_namespace()))
            return false;
    int hub = namespaces[HUB];
    if (shell("nsenter -t %d -n ip link add hub type bridge 2>/dev/null && "
              "nsenter -t %d -n ip link set hub up",
            hub, hub))
        return false;
    for (int h = 0; h < HOSTS; h++) {
        int pid = namespaces[h];
        if (shell("ip link add h%d netns %d type veth peer name eth0 netns %d && "
                  "nsenter -t %d -n ip link set h%d master hub up && "
                  "nsenter -t %d -n ip addr add 10.78.0.%d/24 dev eth0 && "
                  "nsenter -t %d -n ip link set lo up && nsenter -t %d -n ip link set eth0 up",
                h, hub, pid, hub, h, pid, h + 1, pid, pid))
            return false;
    }
    return true;
}

static void remove_hosts(void)
{
    for (int i = 0; i <= HUB; i++)
        if (namespaces[i] > 0) {
            kill(namespaces[i], SIGKILL);
            waitpid(namespaces[i], NULL, 0);
        }
}

/* Rank r of the meeting at hand is on host hosts[r]. */
static const int *hosts;
static const char *master;

static void enter_host(const meeter *self)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)namespaces[hosts[self->opts.rank]]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET))
        _exit(3);
    close(fd);
    if (master)
        setenv("MASTER_ADDR", master, 1);
    else
        unsetenv("MASTER_ADDR");
}

static meeters *run(const char *method, const int *where, int world, const char *key)
{
    meeters *all = meeters_new(method, world, 10);
    hosts = where;
    for (int r = 0; r < world; r++) {
        all->each[r].prepare = enter_host;
        all->each[r].opts.key_file = key;
    }
    meeters_start(all);
    meeters_wait(all);
    return all;
}

static const int mixed[] = {1, 0, 1, 2, 0, 1}, nodes[] = {0, 1, 0, 2, 1, 0},
                 locals[] = {0, 0, 1, 0, 1, 2};

static void assert_met(meeters *all)
{
    for (int r = 0; r < all->count; r++) {
        meeter *m = &all->each[r];
        if (m->status)
            fail_msg("rank %d by %s: %s", r, m->method, m->message);
        assert_int_equal(m->nodes, 3);
        assert_string_equal(m->job, all->each[0].job);
        for (int k = 0; k < all->count; k++) {
            assert_int_equal(m->members[k].node, nodes[k]);
            assert_int_equal(m->members[k].local_rank, locals[k]);
            assert_int_equal(strcmp(m->members[k].machine, m->members[r].machine) == 0,
                hosts[k] == hosts[r]);
        }
    }
    meeters_free(all);
}

static void by_tcp(void **state)
{
    assert_met(run("tcp://10.78.0.2:29411", mixed, 6, key_file));
}

static void without_a_key(void **state)
{
    meeters *all = run("tcp://10.78.0.2:29411", mixed, 6, NULL);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(all->each[r].status, CHOIR_ERR_ARGUMENT);
        assert_non_null(strstr(all->each[r].message, "key"));
    }
    meeters_free(all);
}

static void by_file_with_master(void **state)
{
    char method[128];
    master = "10.78.0.2";
    snprintf(method, sizeof method, "file://%s/job", folder);
    assert_met(run(method, mixed, 6, NULL));
    master = NULL;
    assert_int_equal(access(method + 7, F_OK), -1);
}

/* If the file system may be shared with other machines, the file contains all addresses, and
 * rank 0 listens on all of them. ramfs stands in for a network file system. */
static void by_shared_file(void **state)
{
    char method[128];
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "ramfs", 0, NULL)) {
        print_message("skipped: not permitted to mount\n");
        skip();
    }
    snprintf(method, sizeof method, "file://%s/job", folder);
    assert_met(run(method, mixed, 6, NULL));
    assert_int_equal(access(method + 7, F_OK), -1);
    assert_int_equal(umount(folder), 0);
}

static void missing(void **state)
{
    meeters *all = meeters_new("tcp://10.78.0.2:29412", 6, 2);
    all->count = 4;
    hosts = mixed;
    for (int r = 0; r < 4; r++) {
        all->each[r].prepare = enter_host;
        all->each[r].opts.key_file = key_file;
    }
    meeters_start(all);
    meeters_wait(all);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(all->each[r].status, CHOIR_ERR_TIMEOUT);
        assert_non_null(strstr(all->each[r].message, "ranks 4, 5 of 6 never came"));
        assert_string_equal(all->each[r].message, all->each[0].message);
    }
    meeters_free(all);
}

static int start(void **state)
{
    if (!mkdtemp(folder))
        return 1;
    snprintf(key_file, sizeof key_file, "%s.key", folder);
    int fd = open(key_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int wrong = write(fd, "0123456789abcdef0123456789abcdef", 32) != 32;
    return close(fd) || wrong;
}

static int finish(void **state)
{
    unlink(key_file);
    return rmdir(folder);
}

int main(void)
{
    unsetenv("CHOIR_KEY_FILE");
    unsetenv("CHOIR_JOB");
    if (!make_hosts()) {
        printf(
            "skipped: %s\n", shell("command -v ip >/dev/null && command -v nsenter >/dev/null")
                                 ? "there is no ip or no nsenter (install iproute2 util-linux)"
                                 : "network namespaces need CAP_NET_ADMIN");
        remove_hosts();
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_tcp),
        cmocka_unit_test(without_a_key),
        cmocka_unit_test(by_file_with_master),
        cmocka_unit_test(missing),
        cmocka_unit_test(by_shared_file),
    };
    int failed = cmocka_run_group_tests(tests, start, finish);
    remove_hosts();
    return failed;
}
