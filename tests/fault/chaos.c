/* Chaos: in each phase of a group's life, each rank is killed, stopped for good, or stopped for
 * a while. The others must end soon with an error that names it (or continue, if it continues),
 * and nothing may be left: no hung process, no descriptor, no mapping, no socket, no file.
 *
 * A run makes a few hundred trials, several at a time; with CHOIR_TEST_SAMPLE a third of them,
 * other ones for each sample. The moment of the blow is random, from a seed that is printed;
 * CHOIR_CHAOS_SEED repeats it. CHOIR_CHAOS_ROUNDS=10 makes ten times as many trials, and
 * CHOIR_CHAOS_PLACE=ucx selects one of the places. */
#include "fault/chaos.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "comm/plugin.h"
#include "sample.h"

enum { AT_A_TIME = 4, TRIALS_MAX = 20000 };

static const double hang_s = 15; /* beyond any timeout: for very busy machines */

typedef enum how { KILL, STOP, PAUSE } how;

static const char *const hows[] = {"SIGKILL", "SIGSTOP", "SIGSTOP and SIGCONT"};

/* The way in which the ranks of a trial meet and communicate. */
typedef struct place {
    const char *name, *backend;
    bool tcp;         /* they meet at a port; else by their job's name */
    double timeout_s; /* where that decides */
    bool asked;       /* taken only by name */
} place;

static const place places[] = {
    {.name = "shm", .backend = "shm", .timeout_s = 0.5},
    {.name = "shm, by tcp", .backend = "shm", .tcp = true, .timeout_s = 0.5},
    {.name = "ucx", .backend = "ucx", .tcp = true, .timeout_s = 1.5, .asked = true},
};

typedef struct trial {
    const place *at;
    const phase *phase;
    how how;
    int world, victim, number;
} trial;

typedef struct outcome {
    char fault[700]; /* "": none */
    bool hang, leak, repeated;
    double news_s; /* until the last of the others had ended */
} outcome;

static uint64_t seed;

/* --- one trial --- */

static void blame(outcome *o, const trial *t, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void blame(outcome *o, const trial *t, const char *format, ...)
{
    char text[600];
    va_list args;
    if (*o->fault)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(o->fault, sizeof o->fault, "trial %d, %s: %s of rank %d of %d, %s: %s", t->number,
        t->at->name, hows[t->how], t->victim, t->world, t->phase->name, text);
}

/* Whether text names the rank: by pid, as "rank 2", or in "ranks 1, 2". */
static bool names(const char *text, int rank, int pid)
{
    char by_pid[32];
    int length = snprintf(by_pid, sizeof by_pid, "(pid %d", pid);
    const char *found = strstr(text, by_pid);
    if (found && (found[length] == ')' || found[length] == ','))
        return true;
    for (const char *at = strstr(text, "rank"); at; at = strstr(at + 4, "rank")) {
        char *next = (char *)(uintptr_t)at + (at[4] == 's' ? 6 : 5);
        for (;;) {
            char *from = next;
            long number = strtol(from, &next, 10);
            if (next == from)
                break;
            if (number == rank)
                return true;
            if (at[4] != 's' || strncmp(next, ", ", 2) != 0)
                break;
            next += 2;
        }
    }
    return false;
}

/* Takes in the processes that have ended. */
static void reap(scene *s)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int r = 0; r < s->world; r++)
            if (s->ranks[r].pid == pid) {
                s->ranks[r].gone = true;
                s->ranks[r].wait_status = status;
            }
}

static bool others_gone(const scene *s)
{
    for (int r = 0; r < s->world; r++)
        if (r != s->victim && !s->ranks[r].gone)
            return false;
    return true;
}

static bool victim_reached(const scene *s)
{
    return s->ranks[s->victim].reached;
}

static bool victim_gone(const scene *s)
{
    return s->ranks[s->victim].gone;
}

static bool await(scene *s, bool (*done)(const scene *s), double deadline)
{
    for (;;) {
        reap(s);
        if (done(s) || choir__now() > deadline)
            return done(s);
        nap(0.001);
    }
}

static void judge_rank(outcome *o, const trial *t, const scene *s, int rank)
{
    const word *w = &s->ranks[rank];
    int pid = s->ranks[t->victim].pid;
    if (!WIFEXITED(w->wait_status) || WEXITSTATUS(w->wait_status))
        blame(o, t, "rank %d ended with wait status %d", rank, w->wait_status);
    bool named = w->status && names(w->message, t->victim, pid);
    if (w->left_open > 0 || w->left_mapped > 0) {
        o->leak = true;
        blame(o, t, "rank %d left %d descriptors, %d mappings", rank, w->left_open,
            w->left_mapped);
    }
    if (rank == t->victim && t->how == STOP)
        return; /* it gets their verdict, or finds no peer */
    if (t->how == PAUSE ? w->status != CHOIR_OK : !w->status && !t->phase->may_pass)
        blame(o, t, "rank %d ended with %s: '%s'", rank, choir_status_name(w->status),
            w->message);
    if (w->status && t->how != PAUSE && !named)
        blame(o, t, "rank %d does not name it (pid %d): '%s'", rank, pid, w->message);
    choir_status want = t->how == KILL ? CHOIR_ERR_PEER_LOST : CHOIR_ERR_TIMEOUT;
    if (w->status && t->how != PAUSE && !t->phase->early && w->status != want)
        blame(o, t, "rank %d has %s: '%s'", rank, choir_status_name(w->status), w->message);
}

/* Strikes, and waits until all have ended. */
static void strike(outcome *o, const trial *t, scene *s)
{
    double delay = (double)(choir__mix(seed, (uint64_t)t->number) % 4000) * 1e-6;
    pid_t victim = s->ranks[t->victim].pid;
    if (!await(s, victim_reached, choir__now() + hang_s + s->timeout_s))
        blame(o, t, "the phase was not reached");
    nap(delay);
    kill(victim, t->how == KILL ? SIGKILL : SIGSTOP);
    double struck = choir__now();
    if (t->how == PAUSE) {
        nap(0.02 + 30 * delay);
        kill(victim, SIGCONT);
        nap(0.01);
        s->enough = 1;
    }
    await(s, others_gone, struck + hang_s + 2 * s->timeout_s);
    o->news_s = choir__now() - struck;
    if (t->how == STOP)
        kill(victim, SIGCONT);
    await(s, victim_gone, choir__now() + hang_s + 2 * s->timeout_s);
}

static outcome run_once(const trial *t, double timeout_s)
{
    outcome o = {0};
    scene *s = shared_memory(sizeof *s);
    if (t->at->tcp)
        snprintf(s->method, sizeof s->method, "tcp://127.0.0.1:%d", 20000 + t->number);
    s->backend = t->at->backend;
    s->world = t->world;
    s->victim = t->victim;
    s->timeout_s = timeout_s;
    snprintf(s->job, sizeof s->job, "chaos-%d-%d-%g", (int)getpid(), t->number, timeout_s);
    for (int r = 0; r < t->world; r++) {
        pid_t pid = fork();
        if (pid == 0)
            be_rank(s, t->phase, r);
        s->ranks[r].pid = pid;
    }
    strike(&o, t, s);
    for (int r = 0; r < t->world; r++)
        if (!s->ranks[r].gone) {
            o.hang = true;
            blame(&o, t, "rank %d hangs", r);
            kill(s->ranks[r].pid, SIGKILL);
            waitpid(s->ranks[r].pid, NULL, 0);
        } else if (r != t->victim || t->how != KILL) {
            judge_rank(&o, t, s, r);
        }
    errno = 0;
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        o.leak = true;
        blame(&o, t, "a process was left behind");
    }
    munmap(s, sizeof *s);
    return o;
}

/* Where a timeout decides, a healthy rank that is late on a busy machine may be blamed: such
 * trials are repeated with a longer timeout. */
static outcome run_trial(const trial *t)
{
    bool by_timeout = t->how == STOP || (t->how == KILL && t->phase->early);
    outcome o = run_once(t, by_timeout ? t->at->timeout_s : 60);
    for (int more = 10; more <= 20 && *o.fault && by_timeout && !o.leak; more += 10) {
        fprintf(stderr, "again: %s\n", o.fault);
        o = run_once(t, more * t->at->timeout_s);
        o.repeated = true;
    }
    return o;
}

/* --- all of them --- */

static int list_trials(trial *trials, const place *at, int rounds)
{
    static const int worlds[] = {2, 3, 5};
    int count = 0;
    for (int round = 0; round < rounds; round++)
        for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
            for (size_t p = 0; p < PHASES; p++)
                for (int v = 0; v < worlds[w]; v++)
                    for (how h = KILL; h <= PAUSE; h++) {
                        bool also = h == KILL || v == (int)(p + w + (size_t)h) % worlds[w];
                        if (also && count < TRIALS_MAX && sample_combination(3)) {
                            trials[count] = (trial){at, &phases[p], h, worlds[w], v, count};
                            count++;
                        }
                    }
    return count;
}

/* Each lane is a process. It runs every AT_A_TIME-th trial, and reaps any child left behind. */
static void run_lane(const trial *trials, outcome *outcomes, int count, int lane)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int n = 1; n < 32; n++) /* cmocka's handlers would go on as if this were the test */
        signal(n, SIG_DFL);
    for (int i = lane; i < count; i += AT_A_TIME) {
        outcomes[i] = run_trial(&trials[i]);
        if (*outcomes[i].fault)
            fprintf(stderr, "%s\n", outcomes[i].fault);
    }
    _exit(0);
}

/* Lines of a file of /proc/net that have a text in them; of TCP: sockets that listen. */
static int lines_with(const char *path, const char *text)
{
    char line[512];
    int found = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        found += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return found;
}

static int left_in_shm(void)
{
    int found = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        found += strstr(e->d_name, "choir") || strstr(e->d_name, "ucx");
    if (d)
        closedir(d);
    return found;
}

/* Gives the test its own network, so that it can count the sockets that are left there. */
static bool own_network(void)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNET))
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
    close(fd);
    return up;
}

static void summary(const place *at, const outcome *outcomes, int count)
{
    int hangs = 0, leaks = 0, faults = 0, repeated = 0;
    double slowest = 0;
    for (int i = 0; i < count; i++) {
        hangs += outcomes[i].hang;
        leaks += outcomes[i].leak;
        faults += *outcomes[i].fault != '\0';
        repeated += outcomes[i].repeated;
        slowest = outcomes[i].news_s > slowest ? outcomes[i].news_s : slowest;
    }
    printf("%s, seed %llu: %d trials, %d hangs, %d leaks, %d other faults, %d repeated; the "
           "slowest news took %.1f s\n",
        at->name, (unsigned long long)seed, count, hangs, leaks, faults, repeated, slowest);
    assert_int_equal(hangs, 0);
    assert_int_equal(leaks, 0);
    assert_int_equal(faults, 0);
}

static void all_trials(const place *at, bool alone)
{
    const char *wanted = getenv("CHOIR_CHAOS_ROUNDS");
    trial *trials = calloc(TRIALS_MAX, sizeof *trials);
    int count = list_trials(trials, at, wanted ? atoi(wanted) : 1);
    int files = open_files();
    int shm = left_in_shm();
    outcome *outcomes = shared_memory((size_t)count * sizeof *outcomes);
    fflush(NULL);
    for (int lane = 0; lane < AT_A_TIME; lane++)
        if (fork() == 0)
            run_lane(trials, outcomes, count, lane);
    for (int lane = 0; lane < AT_A_TIME; lane++) {
        int status = -1;
        wait(&status);
        assert_int_equal(status, 0);
    }
    summary(at, outcomes, count);
    assert_int_equal(open_files(), files);
    assert_int_equal(mapped_memfds(), 0);
    if (alone) {
        assert_int_equal(lines_with("/proc/net/unix", "@"), 0);
        assert_int_equal(lines_with("/proc/net/tcp", " 0A "), 0);
        assert_int_equal(left_in_shm() - shm, 0);
    }
    munmap(outcomes, (size_t)count * sizeof *outcomes);
    free(trials);
}

static bool is_there(const place *at)
{
    char *looked = NULL, *path = NULL;
    if (strcmp(at->backend, "shm") != 0)
        path = choir__plugin_find(at->backend, &looked);
    bool found = !strcmp(at->backend, "shm") || path;
    free(path);
    free(looked);
    return found;
}

static void test_chaos(void **state)
{
    const char *wanted = getenv("CHOIR_CHAOS_SEED"), *only = getenv("CHOIR_CHAOS_PLACE");
    seed = wanted ? strtoull(wanted, NULL, 10) : (uint64_t)(choir__now() * 1e6);
    bool alone = own_network();
    if (!alone)
        printf("no network namespace to be had: sockets and ports are not counted\n");
    for (size_t i = 0; i < CHOIR_COUNT(places); i++) {
        const place *at = &places[i];
        if (only ? !strstr(at->name, only) : at->asked)
            continue;
        if (at->tcp && !alone)
            printf("%s: skipped: the ports may be taken\n", at->name);
        else if (!is_there(at))
            printf("%s: skipped: it is not built in\n", at->name);
        else
            all_trials(at, alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chaos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
