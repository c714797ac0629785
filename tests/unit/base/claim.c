/* Claims of folders: one job at a time has a folder, on file systems with locks and without,
 * and a holder that is gone loses it. File systems of networks are played by flock and fstatfs
 * of this file, other users' processes by its kill; other machines by files of other contents.
 */

#include "folder_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

#include "base/base.h"
#include "base/files/claim.h"
#include "base/files/claim_holder.h"

/* --- file systems --- */

static enum { LOCAL, NETWORK, WITHOUT_LOCKS } kind;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    if (kind != WITHOUT_LOCKS)
        return __real_flock(fd, operation);
    errno = ENOLCK;
    return -1;
}

int __real_fstatfs(int fd, struct statfs *s);
int __wrap_fstatfs(int fd, struct statfs *s);
int __wrap_fstatfs(int fd, struct statfs *s)
{
    int result = __real_fstatfs(fd, s);
    s->f_type = kind == LOCAL ? 0xEF53 : 0x6969;
    return result;
}

static bool foreign; /* all processes are another user's */

int __real_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal)
{
    if (!foreign)
        return __real_kill(pid, signal);
    errno = EPERM;
    return -1;
}

/* --- helpers --- */

static char file[96];
static char told[1024];
static _Atomic int lost_count;

static void tell(void *arg, const char *sentence)
{
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", sentence);
}

static void lost(void *arg, const char *sentence)
{
    assert_non_null(strstr(sentence, "has taken over"));
    atomic_fetch_add(&lost_count, 1);
}

/* The times of waiting, renewing and watching are short; gone_s has its default. */
static choir__claim_opts quick(const char *job)
{
    choir__claim_opts opts = choir__claim_defaults();
    opts.job = job;
    opts.tell = tell;
    opts.lost = lost;
    opts.ending_s = 0.05;
    opts.renew_s = 0.03;
    opts.watch_s = 0.2;
    return opts;
}

static choir_status take(const char *job, choir__claim **claim)
{
    choir__claim_opts opts = quick(job);
    return choir__claim_take(folder, &opts, claim);
}

static choir__holder read_file(void)
{
    int fd = open(file, O_RDONLY);
    choir__holder h = fd < 0 ? (choir__holder){.known = false} : choir__holder_read(fd);
    close(fd);
    return h;
}

static void write_file(const choir__holder *h)
{
    int fd = open(file, O_RDWR | O_CREAT, 0666);
    assert_true(choir__holder_write(fd, h));
    close(fd);
}

/* A holder on a machine that is not this one. */
static choir__holder elsewhere(double seconds_ago)
{
    choir__holder h = choir__holder_of((int)getpid(), NULL);
    strcpy(h.host, "node7");
    strcpy(h.machine, "another machine");
    h.since = time(NULL) - 7200;
    h.renewed = time(NULL) - (int64_t)seconds_ago;
    return h;
}

static int set_up(void **state)
{
    kind = LOCAL;
    foreign = false;
    *told = '\0';
    lost_count = 0;
    int bad = make_folder(state);
    strcpy(file, at(".in-use"));
    return bad;
}

static int tear_down(void **state)
{
    unlink(file);
    return remove_folder(state);
}

/* Starts a process that claims the folder, and returns when it has; it holds it until it is
 * killed. */
static pid_t other_process(const char *job)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        choir__claim *claim;
        if (take(job, &claim) == CHOIR_OK)
            (void)!write(ready[1], "", 1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* --- the tests --- */

/* Two at once: one has it, by each kind of file system, and the other names it. */
static void one_of_two(void **state)
{
    for (kind = LOCAL; kind <= WITHOUT_LOCKS; kind++) {
        choir__claim *a, *b;
        ok(take(NULL, &a));
        assert_int_equal(take(NULL, &b), CHOIR_ERR_STATE);
        char *pid = choir__format("pid %d on ", (int)getpid());
        assert_says(pid);
        free(pid);
        choir__claim_free(a, false);
        assert_int_equal(entries(folder), 0);
        ok(take(NULL, &b));
        choir__claim_free(b, false);
    }
    assert_string_equal(told, "");
}

/* Many start at the same moment: one wins. */
static void race(void **state)
{
    enum { RUNNERS = 8 };
    for (kind = LOCAL; kind <= WITHOUT_LOCKS; kind++) {
        int go[2], verdicts[2], end[2], won = 0;
        assert_int_equal(pipe(go) | pipe(verdicts) | pipe(end), 0);
        for (int i = 0; i < RUNNERS; i++)
            if (fork() == 0) {
                choir__claim *claim;
                char byte;
                close(go[1]);
                close(end[1]);
                (void)!read(go[0], &byte, 1); /* until the pipe is closed */
                choir__claim_opts opts = quick(NULL);
                opts.watch_s = 5; /* ends early, once the winner has written */
                bool mine = choir__claim_take(folder, &opts, &claim) == CHOIR_OK;
                (void)!write(verdicts[1], &mine, 1);
                (void)!read(end[0], &byte, 1); /* none ends before the others have looked */
                _exit(0);
            }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < RUNNERS; i++) {
            bool mine;
            assert_int_equal(read(verdicts[0], &mine, 1), 1);
            won += mine;
        }
        close(end[1]);
        while (wait(NULL) > 0)
            ;
        assert_int_equal(won, 1);
        close(end[0]);
        close(verdicts[0]);
        close(verdicts[1]);
        unlink(file);
    }
}

/* A killed holder on this machine is gone at once, though its file says it is fresh. */
static void killed_here(void **state)
{
    for (kind = LOCAL; kind <= WITHOUT_LOCKS; kind++) {
        choir__claim *claim;
        pid_t pid = other_process(NULL);
        assert_int_equal(take(NULL, &claim), CHOIR_ERR_STATE);
        (void)choir_error_message();
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(read_file().known);
        ok(take(NULL, &claim));
        choir__claim_free(claim, false);
    }
    assert_string_equal(told, "");
}

/* Another machine: heard of within 5 minutes, it has the folder; later it is watched, and gone
 * if it does not move. */
static void other_machine(void **state)
{
    static const double ages[] = {3600, -3600}; /* the other clock may be ahead of ours */
    choir__claim *claim;
    kind = NETWORK;
    choir__holder h = elsewhere(200);
    write_file(&h);
    assert_fails(take(NULL, &claim), CHOIR_ERR_STATE, "on node7, since ");
    assert_says("for 5 minutes from then on");
    for (int i = 0; i < 2; i++) {
        h = elsewhere(ages[i]);
        write_file(&h);
        *told = '\0';
        ok(take(NULL, &claim));
        assert_non_null(strstr(told, "is watched for"));
        assert_non_null(strstr(told, "takes over "));
        choir__claim_free(claim, false);
    }
}

/* Renews the holder's time, and then no more, each time when it begins to be watched. */
static int moves, watched;
static void move_on(void *arg, const char *sentence)
{
    choir__holder *h = arg;
    if (!strstr(sentence, "is watched for"))
        return;
    watched++;
    h->renewed += moves-- > 0;
    write_file(h);
}

/* A machine whose clock is an hour behind is alive while its time moves. */
static void slow_clock(void **state)
{
    choir__claim *claim;
    choir__claim_opts opts = quick(NULL);
    choir__holder h = elsewhere(3600);
    kind = NETWORK;
    write_file(&h);
    opts.tell = move_on;
    opts.arg = &h;
    moves = 5;
    watched = 0;
    ok(choir__claim_take(folder, &opts, &claim));
    assert_int_equal(watched, 6);
    choir__claim_free(claim, false);
}

static void end_process(void *arg, const char *sentence)
{
    const pid_t *pid = arg;
    tell(NULL, sentence);
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
}

/* A job on this machine may be about to end: it is waited for, in a sentence. */
static void waited_for(void **state)
{
    choir__claim *claim;
    pid_t pid = other_process(NULL);
    choir__claim_opts opts = quick(NULL);
    opts.ending_s = 600;
    opts.tell = end_process;
    opts.arg = &pid;
    ok(choir__claim_take(folder, &opts, &claim));
    choir__claim_free(claim, false);
    char *sentence =
        choir__format("waits 600 s for the end of the job of pid %d on ", (int)pid);
    assert_non_null(strstr(told, sentence));
    assert_ptr_equal(strchr(told, '\n'), strrchr(told, '\n')); /* once */
    free(sentence);
}

/* A process of another user counts as alive where /proc hides it. */
static void hidden_process(void **state)
{
    choir__holder h = choir__holder_of((int)getpid(), NULL);
    foreign = true;
    assert_true(choir__holder_lives(&h));
    h.began++; /* the pid is used again */
    assert_false(choir__holder_lives(&h));
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    h.pid = (int)pid;
    assert_true(choir__holder_lives(&h));
    foreign = false;
    assert_false(choir__holder_lives(&h));
}

/* Everybody may read who has a folder. Where that is denied, the folder is not free. */
static void unreadable(void **state)
{
    struct stat s;
    int status;
    choir__claim *claim;
    mode_t before = umask(077);
    ok(take(NULL, &claim));
    umask(before);
    assert_int_equal(stat(file, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0644);
    assert_int_equal(chmod(file, 0) | chmod(folder, 0777), 0);
    if (fork() == 0) {
        choir__claim *other;
        bool good = geteuid() != 0 || setuid(65534) == 0;
        good &= take(NULL, &other) == CHOIR_ERR_STATE;
        _exit(!(good && strstr(choir_error_message(), "job may have the folder")));
    }
    wait(&status);
    assert_int_equal(status, 0);
    choir__claim_free(claim, false);
}

/* A local disk of a machine that has started again: its lock is free, and that is enough. */
static void started_again(void **state)
{
    choir__claim *claim;
    choir__holder h = elsewhere(1);
    write_file(&h);
    ok(take(NULL, &claim));
    choir__claim_free(claim, false);
}

/* A copy of a folder whose job lives is free. */
static void copied(void **state)
{
    choir__claim *claim;
    char command[300], copy[64];
    pid_t pid = other_process(NULL);
    snprintf(copy, sizeof copy, "%s/copy", folder);
    snprintf(command, sizeof command, "mkdir %s && cp -a %s %s", copy, file, copy);
    assert_int_equal(system(command), 0);
    choir__claim_opts opts = quick(NULL);
    ok(choir__claim_take(copy, &opts, &claim));
    choir__claim_free(claim, false);
    assert_int_equal(rmdir(copy), 0);
    assert_int_equal(take(NULL, &claim), CHOIR_ERR_STATE);
    (void)choir_error_message();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A process of the same job replaces another; others are kept out between the two while the
 * job's own process lives. */
static void same_job(void **state)
{
    for (kind = LOCAL; kind <= WITHOUT_LOCKS; kind++) {
        choir__claim *claim;
        choir__claim_opts opts = quick("job a");
        opts.pid = (int)getpid();
        if (fork() == 0) { /* a rank, whose agent is its parent */
            bool good = choir__claim_take(folder, &opts, &claim) == CHOIR_OK;
            choir__claim_free(claim, true);
            _exit(!good);
        }
        int status;
        wait(&status);
        assert_int_equal(status, 0);
        assert_int_equal(take("job b", &claim), CHOIR_ERR_STATE);
        (void)choir_error_message();
        ok(choir__claim_take(folder, &opts, &claim));
        choir__claim_free(claim, false);
        assert_int_equal(entries(folder), 0);
    }
}

/* Processes that share a folder keep others out until the last has left it. */
static void shared(void **state)
{
    choir__claim *a, *b, *other;
    choir__claim_opts opts = quick("a search");
    opts.shared = true;
    for (kind = LOCAL; kind <= WITHOUT_LOCKS; kind++) {
        ok(choir__claim_take(folder, &opts, &a));
        ok(choir__claim_take(folder, &opts, &b));
        assert_int_equal(take(NULL, &other), CHOIR_ERR_STATE);
        (void)choir_error_message();
        choir__claim_free(a, false);
        while (!read_file().known)
            poll(NULL, 0, 10); /* without locks the file comes back when it is renewed */
        assert_int_equal(take(NULL, &other), CHOIR_ERR_STATE);
        (void)choir_error_message();
        choir__claim_free(b, false);
        assert_int_equal(entries(folder), 0);
    }
}

/* The time is renewed; a file that is removed comes back; a job that finds another one in its
 * folder learns of it, and leaves the other's file. */
static void renewed(void **state)
{
    choir__claim *claim;
    ok(take(NULL, &claim));
    unlink(file);
    while (!read_file().known)
        poll(NULL, 0, 10);
    choir__holder h = read_file();
    assert_true(h.known);
    h.renewed = 7;
    write_file(&h);
    while (read_file().renewed == 7)
        poll(NULL, 0, 10);
    assert_true(time(NULL) - read_file().renewed < 60);
    unlink(file);
    h = elsewhere(0);
    write_file(&h);
    while (!lost_count)
        poll(NULL, 0, 10);
    assert_int_equal(lost_count, 1);
    choir__claim_free(claim, false);
    assert_string_equal(read_file().host, "node7");
}

/* A FIFO, a link, and a file with other contents. */
static void strange_files(void **state)
{
    choir__claim *claim;
    assert_int_equal(mkfifo(file, 0666), 0);
    assert_fails(take(NULL, &claim), CHOIR_ERR_IO, "it is no file");
    unlink(file);
    assert_int_equal(symlink("/etc/passwd", file), 0);
    assert_int_equal(take(NULL, &claim), CHOIR_ERR_IO);
    (void)choir_error_message();
    unlink(file);
    FILE *f = fopen(file, "w");
    for (int i = 0; i < 100000; i++)
        fputs("host \x1b[31m nothing\n", f);
    fclose(f);
    ok(take(NULL, &claim));
    choir__claim_free(claim, false);
    assert_int_equal(entries(folder), 0);
}

static int threads(void)
{
    return entries("/proc/self/task");
}

static int threads_without_claims /* 0: not asked for */, threads_at_fork;

/* Waits a little, as the kernel may still list a thread that was joined. */
static void count_at_fork(void)
{
    double end = choir__now() + 5;
    while (threads_without_claims && threads() > threads_without_claims && choir__now() < end)
        poll(NULL, 0, 1);
    threads_at_fork = threads();
}

/* No thread of a claim runs while the process forks: the child would keep the locks that it
 * holds, those of the allocator under sanitizers among them. Behind it the time is renewed. */
static void forks(void **state)
{
    choir__claim *claim;
    threads_without_claims = threads();
    ok(take(NULL, &claim));
    pid_t child = fork();
    if (child == 0) {
        choir__claim_free(claim, false); /* does nothing */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(threads_at_fork, threads_without_claims);
    threads_without_claims = 0;
    choir__holder h = read_file();
    h.renewed = 7;
    write_file(&h);
    while (read_file().renewed == 7)
        poll(NULL, 0, 5);
    choir__claim_free(claim, false);
    assert_int_equal(entries(folder), 0);
}

/* A folder that cannot be written needs no claim; one that is missing is an error. */
static void no_folder(void **state)
{
    choir__claim *claim;
    choir__claim_opts opts = quick(NULL);
    assert_int_equal(
        choir__claim_take("/tmp/choir-claim-missing", &opts, &claim), CHOIR_ERR_IO);
    (void)choir_error_message();
    if (geteuid() == 0) { /* which may write anywhere but there */
        ok(choir__claim_take("/sys", &opts, &claim));
    } else {
        chmod(folder, 0555);
        ok(take(NULL, &claim));
        chmod(folder, 0755);
    }
    assert_null(claim);
}

int main(void)
{
    /* Such handlers are called in reverse order: this one after the claims' own. */
    pthread_atfork(count_at_fork, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_of_two, set_up, tear_down),
        cmocka_unit_test_setup_teardown(race, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_clock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hidden_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unreadable, set_up, tear_down),
        cmocka_unit_test_setup_teardown(started_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_job, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(renewed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(strange_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_folder, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
