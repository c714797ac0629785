/* Ranks in processes of their own over the engine "ucx": all on one machine, or each in a
 * network namespace of its own, as if on different machines.
 *
 * The namespaces have no names: they belong to the processes and vanish with the last of them,
 * also after SIGKILL. One more process is the switch: a bridge in its namespace joins the
 * hosts.
 *
 *     rank r   eth0 10.77.0.(r+1)/24  === veth ===  hR, a port of the bridge in the switch
 *
 * Each rank reports its outcome (status, message) in memory that it shares with the test.
 *
 * The test's process starts the store after the ranks, because it must have one thread whenever
 * it forks. AddressSanitizer's heap has locks that a fork copies as they are: if another thread
 * held one, the child would wait for ever at its next allocation. */
#ifndef CHOIR_TEST_UCX_FIXTURE_H
#define CHOIR_TEST_UCX_FIXTURE_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <choir/store.h>

#include "comm/engine.h"
#include "helpers.h"
#include "over_ucx.h"

enum { MAX_RANKS = 8, ENDED = 1000, REAPED, HOST_PORT = 29400 };

typedef struct report {
    choir_status status;
    char message[512];
    double seconds;    /* from start to end of its work */
    _Atomic int stage; /* its progress */
} report;

/* Memory that all processes of a test share. */
typedef struct stage {
    report ranks[MAX_RANKS];
    _Atomic int go;
    pid_t pids[MAX_RANKS], hub;
    bool apart; /* each rank in a namespace of its own */
    int world, port, errors;
    double timeout_s;
    char key_file[64];
} stage;

typedef void rank_fn(choir__engine *engine, stage *s);

/* Called by a rank after it has met the others and before it opens the engine. */
static void (*before_opening)(choir__meeting *meeting, stage *s);

static choir_store_server *server; /* in the test's process, if ranks are together */

/* --- progress --- */

static inline void in_stage(stage *s, int rank, int at)
{
    atomic_store(&s->ranks[rank].stage, at);
}

/* Waits until the rank reaches the stage `at`; 90 s at most, as the machine may be busy. */
static inline void await_stage(stage *s, int rank, int at)
{
    for (int i = 0; i < 90000 && atomic_load(&s->ranks[rank].stage) < at; i++)
        usleep(1000);
    assert_true(atomic_load(&s->ranks[rank].stage) >= at);
}

static inline void await_all(stage *s, int at)
{
    for (int r = 0; r < s->world; r++)
        await_stage(s, r, at);
}

/* --- hosts --- */

static inline void lead_a_hub(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET))
        _exit(77);
    if (shell("ip link add hub type bridge && ip link set hub up"))
        _exit(77);
    raise(SIGSTOP); /* ready */
    for (;;)
        pause();
}

/* Returns NULL, or why hosts cannot be created here. */
static inline const char *no_hosts(void)
{
    int status;
    pid_t hub = fork();
    if (hub == 0)
        lead_a_hub();
    waitpid(hub, &status, WUNTRACED);
    if (!WIFSTOPPED(status))
        return system("command -v ip >/dev/null")
                   ? "there is no ip (install iproute2)"
                   : "network namespaces with a bridge need CAP_NET_ADMIN";
    kill(hub, SIGKILL);
    waitpid(hub, &status, 0);
    return NULL;
}

static inline void connect_hosts(stage *s)
{
    int status;
    pid_t hub = fork();
    if (hub == 0)
        lead_a_hub();
    s->hub = hub;
    waitpid(s->hub, &status, WUNTRACED);
    assert_true(WIFSTOPPED(status));
    for (int r = 0; r < s->world; r++) {
        pid_t pid = s->pids[r];
        assert_int_equal(
            shell("ip link add h%d netns %d type veth peer name eth0 netns %d && "
                  "nsenter -t %d -n ip link set h%d master hub up && "
                  "nsenter -t %d -n ip addr add 10.77.0.%d/24 dev eth0 && "
                  "nsenter -t %d -n ip link set lo up && nsenter -t %d -n ip link set eth0 up",
                r, (int)s->hub, (int)pid, (int)s->hub, r, (int)pid, r + 1, (int)pid, (int)pid),
            0);
    }
    /* The kernel reports a carrier up to a second later, and UCX uses no link before. */
    for (int r = 0; r < s->world; r++)
        assert_int_equal(
            shell("for i in $(seq 1000); do nsenter -t %d -n ip -o link show eth0 | "
                  "grep -q 'state UP' && exit 0; sleep 0.01; done; exit 1",
                (int)s->pids[r]),
            0);
}

static inline void cut_off(stage *s, int rank)
{
    assert_int_equal(shell("nsenter -t %d -n ip link set h%d down", (int)s->hub, rank), 0);
}

/* --- a rank's life --- */

static inline choir_store_opts store_opts(const stage *s)
{
    choir_store_opts opts = choir_store_defaults();
    opts.timeout_s = 20;
    if (s->apart) {
        opts.bind = "10.77.0.1";
        opts.key_file = s->key_file;
    }
    return opts;
}

static inline choir_status meet(stage *s, int rank, choir__meeting *m)
{
    choir_store_opts opts = store_opts(s);
    *m = (choir__meeting){.rank = rank,
        .world = s->world,
        .timeout_s = s->timeout_s,
        .nodes = s->apart ? s->world : 1};
    m->members = choir__calloc((size_t)s->world, sizeof *m->members);
    for (int r = 0; r < s->world; r++) {
        choir__member *member = &m->members[r];
        *member = (choir__member){.pid = s->pids[r],
            .node = s->apart ? r : 0,
            .local_rank = s->apart ? 0 : r,
            .job_rank = r};
        snprintf(member->host, sizeof member->host, "host%d", member->node);
        snprintf(member->machine, sizeof member->machine, "machine %d", member->node);
    }
    opts.port = HOST_PORT;
    if (s->apart && rank == 0) {
        choir_status status = choir_store_serve(opts, &server);
        if (status)
            return status;
    }
    return choir_store_connect(
        s->apart ? "10.77.0.1" : "127.0.0.1", s->apart ? HOST_PORT : s->port, opts, &m->store);
}

static inline void work(stage *s, int rank, rank_fn *fn)
{
    choir__meeting meeting;
    choir__engine *engine = NULL;
    report *mine = &s->ranks[rank];
    mine->status = meet(s, rank, &meeting);
    if (!mine->status && before_opening)
        before_opening(&meeting, s);
    if (!mine->status)
        mine->status = choir__plugin_engine("ucx", "libucx-dev", &meeting, &engine);
    if (mine->status) {
        snprintf(mine->message, sizeof mine->message, "%s", choir_error_message());
        return;
    }
    engine->name = "world";
    in_stage(s, rank, 1);
    double since = choir__now();
    fn(engine, s);
    mine->seconds = choir__now() - since;
    mine->status = engine->failed;
    snprintf(mine->message, sizeof mine->message, "%s", engine->message);
    engine->ops->close(engine);
    in_stage(s, rank, ENDED);
    if (s->apart && rank == 0) /* rank 0 keeps the store for the others, as `choir run` would */
        for (int r = 0; r < s->world; r++)
            while (atomic_load(&s->ranks[r].stage) < ENDED)
                usleep(1000);
    choir_store_free(meeting.store);
    choir_store_server_free(server);
    free(meeting.members);
}

static inline void live(stage *s, int rank, rank_fn *fn)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(s->errors, STDERR_FILENO);
    if (s->apart && unshare(CLONE_NEWNET))
        _exit(9);
    in_stage(s, rank, -1);
    while (!atomic_load(&s->go))
        usleep(1000);
    work(s, rank, fn);
    fflush(NULL);
    _exit(s->ranks[rank].status ? 3 : 0);
}

/* --- a test --- */

/* Starts ranks that run fn and end. */
static inline stage *start(int world, bool apart, double timeout_s, rank_fn *fn)
{
    stage *s = shared_memory(sizeof *s);
    s->world = world;
    s->apart = apart;
    s->timeout_s = timeout_s;
    s->errors = memfd_create("errors", MFD_CLOEXEC);
    if (apart) {
        snprintf(s->key_file, sizeof s->key_file, "/tmp/choir-test-key-XXXXXX");
        int fd = mkstemp(s->key_file);
        assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
        close(fd);
    }
    choir_store_server_free(server); /* left by a test that failed */
    server = NULL;
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            live(s, r, fn);
        s->pids[r] = pid;
    }
    for (int r = 0; r < world; r++)
        while (atomic_load(&s->ranks[r].stage) != -1)
            usleep(1000);
    if (apart) {
        connect_hosts(s);
    } else {
        ok(choir_store_serve(choir_store_defaults(), &server));
        s->port = choir_store_port(server);
    }
    atomic_store(&s->go, 1);
    return s;
}

/* Waits for all ranks. UCX must not have printed anything. */
static inline void finish(stage *s)
{
    char errors[4096];
    for (int left = s->world, r = 0; left > 0; r = (r + 1) % s->world) {
        if (s->ranks[r].stage != REAPED && waitpid(s->pids[r], NULL, WNOHANG) == s->pids[r]) {
            in_stage(s, r, REAPED);
            left--;
        }
        usleep(500);
    }
    ssize_t n = pread(s->errors, errors, sizeof errors - 1, 0);
    errors[n > 0 ? n : 0] = '\0';
    assert_string_equal(errors, "");
    close(s->errors);
    if (s->apart) {
        kill(s->hub, SIGKILL);
        waitpid(s->hub, NULL, 0);
        unlink(s->key_file);
    }
    choir_store_server_free(server);
    server = NULL;
}

/* Asserts that all ranks except `without` (-1: none) report the same failure, whose message
 * contains this text. */
static inline void assert_all_failed(
    stage *s, int without, choir_status status, const char *part)
{
    int first = without == 0;
    for (int r = 0; r < s->world; r++) {
        if (r == without)
            continue;
        if (s->ranks[r].status != status || !strstr(s->ranks[r].message, part) ||
            strcmp(s->ranks[r].message, s->ranks[first].message) != 0)
            for (int i = 0; i < s->world; i++)
                print_message("rank %d: %s: %s\n", i, choir_status_name(s->ranks[i].status),
                    s->ranks[i].message);
        assert_int_equal(s->ranks[r].status, status);
        assert_non_null(strstr(s->ranks[r].message, part));
        assert_string_equal(s->ranks[r].message, s->ranks[first].message);
    }
}

static inline void assert_all_well(stage *s)
{
    assert_all_failed(s, -1, CHOIR_OK, "");
}
#endif
