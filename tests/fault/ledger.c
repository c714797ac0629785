/* The ledger under kills and pauses: several processes write and read it while others of them
 * are stopped, continued and killed. The calls, their times and their results are a history,
 * which must be one of a list that grows by one entry at a time (linearizable): an entry has
 * one text for all readers; and there are moments, in the order of the entries, each within the
 * call that wrote its entry, before the end of every call that saw it and after the begin of
 * every one that missed it.
 *
 *     test_fault_ledger                                        a few runs of each ledger
 *     test_fault_ledger store|raft|etcd RUNS SEED [HOST:PORT]  RUNS of one, for etcd at an
 * endpoint
 *
 * script/histories has many of each. A seed repeats a run, but for the machine's scheduler. */
#include "helpers.h"
#include "launch/agent/ledger.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"

enum { CLIENTS = 4, NOTES_MAX = 1 << 16, ENTRIES_MAX = 1 << 15, KEPT = 64 };

typedef enum asked { APPEND, READ, NEWEST } asked;
typedef enum outcome { UNKNOWN, YES, NO } outcome; /* UNKNOWN: no answer, or an error */

/* A call: told YES of APPEND is "mine", of READ "here is its text", of NEWEST "it is n". */
typedef struct note {
    asked asked;
    outcome told;
    int64_t n;
    uint64_t text; /* pid and number of the append */
    double begun, ended;
} note;

typedef struct history {
    _Atomic int count, ready;
    _Atomic bool stop;
    note notes[NOTES_MAX];
} history;

typedef struct setting {
    const char *backend, *host;
    int port;
    uint64_t seed;
    history *history;
} setting;

static void nap_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
    nanosleep(&t, NULL);
}

static uint32_t draw(uint64_t seed, uint64_t stream, uint32_t below)
{
    static uint64_t calls;
    uint32_t word[4];
    choir__philox(seed, stream, calls++, word);
    return word[0] % below;
}

/* --- a process that writes and reads --- */

static note *begin(history *h, asked what, int64_t n)
{
    int at = atomic_fetch_add(&h->count, 1);
    if (at >= NOTES_MAX)
        _exit(0);
    note *o = &h->notes[at];
    *o = (note){.asked = what, .n = n, .begun = choir__now(), .ended = INFINITY};
    return o;
}

static void end(note *o, outcome told)
{
    o->ended = choir__now();
    atomic_signal_fence(memory_order_seq_cst);
    o->told = told;
}

static bool try_append(choir__ledger *l, history *h, int64_t n)
{
    static uint32_t sequence;
    char text[40];
    bool mine = false;
    uint64_t id = (uint64_t)getpid() << 32 | ++sequence;
    snprintf(text, sizeof text, "%" PRIu64, id);
    note *o = begin(h, APPEND, n);
    o->text = id;
    choir_status status = l->ops->append(l, n, text, &mine);
    end(o, mine ? YES : status == CHOIR_OK ? NO : UNKNOWN);
    return mine;
}

static bool try_read(choir__ledger *l, history *h, int64_t n, double wait_s)
{
    char *text = NULL;
    note *o = begin(h, READ, n);
    choir_status status = l->ops->read(l, n, wait_s, &text);
    o->text = status == CHOIR_OK ? strtoull(text, NULL, 10) : 0;
    bool missing = status == CHOIR_ERR_TIMEOUT && !(l->silent_s > 0); /* not: no answer */
    end(o, status == CHOIR_OK ? YES : missing ? NO : UNKNOWN);
    free(text);
    return status == CHOIR_OK;
}

static int64_t try_newest(choir__ledger *l, history *h)
{
    int64_t n = 0;
    note *o = begin(h, NEWEST, 0);
    choir_status status = l->ops->newest(l, &n);
    o->n = n;
    end(o, status == CHOIR_OK ? YES : UNKNOWN);
    return status == CHOIR_OK ? n : 0;
}

static choir__ledger *open_one(const setting *s, int client)
{
    choir__agent_opts opts = {.nodes_min = 1,
        .nodes_max = CLIENTS,
        .node = client == 0 ? 0 : client,
        .endpoint_port = s->port,
        .run_id = "history",
        .timeout_s = 20,
        .raft = !strcmp(s->backend, "raft")};
    char run_id[64];
    snprintf(run_id, sizeof run_id, "history-%d-%" PRIu64, s->port, s->seed);
    opts.etcd.is_used = !strcmp(s->backend, "etcd");
    opts.run_id = run_id;
    snprintf(opts.endpoint, sizeof opts.endpoint, "%s", s->host);
    choir__ledger *l = NULL;
    if (choir__ledger_open(&opts, NULL, choir__now() + 20, &l) != CHOIR_OK) {
        fprintf(stderr, "client %d: %s\n", client, choir_error_message());
        _exit(1);
    }
    return l;
}

static void work(const setting *s, int client)
{
    history *h = s->history;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    choir__ledger *l = open_one(s, client);
    int64_t at = try_newest(l, h);
    atomic_fetch_add(&h->ready, 1);
    while (!atomic_load(&h->stop)) {
        uint32_t die = draw(s->seed, (uint64_t)getpid(), 8);
        bool here = die < 5   ? try_append(l, h, at + 1)
                    : die < 7 ? try_read(l, h, at + 1, die == 5 ? 0 : 0.02)
                              : false;
        if (!here && die < 5)
            here = try_read(l, h, at + 1, 0.2);
        int64_t newest = here ? 0 : try_newest(l, h);
        at = here ? at + 1 : newest > at ? newest : at;
        nap_ms(draw(s->seed, 1, 3));
    }
    _exit(0);
}

/* --- chaos --- */

static pid_t start(const setting *s, int client)
{
    pid_t pid = fork();
    if (!pid)
        work(s, client);
    return pid;
}

/* The client at the endpoint serves the store, so that is only paused; of Raft's agents one may
 * be killed for good, or one that is not at the endpoint comes again as a new one. */
static void disturb(const setting *s, pid_t pids[CLIENTS], bool *killed)
{
    bool raft = !strcmp(s->backend, "raft");
    int victim = (int)draw(s->seed, 2, CLIENTS);
    if (!pids[victim])
        return;
    if (draw(s->seed, 3, 6) == 0 && (victim || (raft && !*killed))) {
        kill(pids[victim], SIGKILL);
        waitpid(pids[victim], NULL, 0);
        *killed |= !victim;
        pids[victim] = victim && !*killed ? start(s, victim) : 0;
        if (raft) /* until the others have voted for one in its place */
            nap_ms(1000);
        return;
    }
    kill(pids[victim], SIGSTOP);
    nap_ms(draw(s->seed, 4, raft ? 1100 : 120));
    kill(pids[victim], SIGCONT);
}

static void run(const setting *s)
{
    pid_t pids[CLIENTS];
    bool killed = false;
    double seconds = !strcmp(s->backend, "raft") ? 3 : 1;
    for (int i = 0; i < CLIENTS; i++) {
        pids[i] = start(s, i);
        for (int ms = 0; atomic_load(&s->history->ready) <= i && ms < 20000; ms += 5)
            nap_ms(5);
    }
    double until = choir__now() + seconds;
    while (choir__now() < until && s->history->count < NOTES_MAX - 64) {
        nap_ms(draw(s->seed, 5, 60));
        disturb(s, pids, &killed);
    }
    atomic_store(&s->history->stop, true);
    for (int ms = 0; ms < 3000; ms += 20, nap_ms(20))
        for (int i = 0; i < CLIENTS; i++)
            if (pids[i] && waitpid(pids[i], NULL, WNOHANG) == pids[i])
                pids[i] = 0;
    for (int i = 0; i < CLIENTS; i++)
        if (pids[i]) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
        }
}

/* --- the check --- */

typedef struct entry {
    uint64_t text;           /* 0: unseen */
    double earliest, latest; /* the moment at which it was written lies between */
    const note *by;
} entry;

static const char *fault(char text[200], const char *what, int64_t n)
{
    snprintf(text, 200, "entry %" PRId64 ": %s", n, what);
    return text;
}

/* Finds each entry's text, and the call that wrote it. Returns a sentence, or NULL. */
static const char *find_writers(const history *h, int count, entry *e, char said[200])
{
    for (int i = 0; i < count; i++) {
        const note *o = &h->notes[i];
        if (o->asked == NEWEST || o->told != YES)
            continue;
        if (e[o->n].text && e[o->n].text != o->text)
            return fault(said, "two texts", o->n);
        e[o->n].text = o->text;
    }
    for (int i = 0; i < count; i++) {
        const note *o = &h->notes[i];
        if (o->asked != APPEND || o->told == NO || e[o->n].text != o->text)
            continue;
        e[o->n].by = o;
        e[o->n].earliest = o->begun;
        e[o->n].latest = o->told == YES ? o->ended : INFINITY;
    }
    return NULL;
}

/* A call that saw entry n was over after it was written, and one that saw it missing had begun
 * before. */
static void narrow(const char *backend, const note *o, entry *e)
{
    bool lists = strcmp(backend, "store") != 0, looks = strcmp(backend, "raft") != 0;
    bool saw = (o->asked == READ && o->told == YES) || (o->asked == APPEND && o->told == NO) ||
               (o->asked == NEWEST && o->told == YES && o->n);
    if (saw)
        e[o->n].latest = fmin(e[o->n].latest, o->ended);
    if (o->asked == NEWEST && o->told == YES && lists) /* the store's may be one before */
        e[o->n + 1].earliest = fmax(e[o->n + 1].earliest, o->begun);
    /* a follower of Raft may be late, and an old text may have been removed */
    bool removed = e[o->n + KEPT].by && e[o->n + KEPT].earliest < o->ended;
    if (o->asked == READ && o->told == NO && looks && !removed)
        e[o->n].earliest = fmax(e[o->n].earliest, o->begun);
}

/* Returns the fault of the history, or NULL. */
static const char *judge(const char *backend, const history *h, int *entries, char said[200])
{
    static entry e[ENTRIES_MAX + KEPT + 2];
    int count = h->count < NOTES_MAX ? h->count : NOTES_MAX;
    int64_t last = 0;
    for (int i = 0; i < ENTRIES_MAX + KEPT + 2; i++)
        e[i] = (entry){.earliest = -INFINITY, .latest = INFINITY};
    for (int i = 0; i < count; i++)
        if (h->notes[i].n < 0 || h->notes[i].n >= ENTRIES_MAX)
            return fault(said, "no such number", h->notes[i].n);
    const char *wrong = find_writers(h, count, e, said);
    for (int i = 0; i < count && !wrong; i++)
        narrow(backend, &h->notes[i], e);
    for (int64_t n = 1; n < ENTRIES_MAX; n++)
        last = e[n].text ? n : last;
    for (int64_t n = 1; n <= last && !wrong; n++) {
        e[n].earliest = fmax(e[n].earliest, e[n - 1].earliest);
        if (!e[n].text)
            continue; /* no call had its text; its place is between the others
                       */
        if (!e[n].by)
            wrong = fault(said, "a text that no call wrote", n);
    }
    for (int64_t n = last; n >= 1 && !wrong; n--) {
        e[n].latest = fmin(e[n].latest, e[n + 1].latest);
        if (e[n].earliest > e[n].latest)
            wrong = fault(said, "seen before it was written, or missed after it was", n);
    }
    *entries = (int)last;
    return wrong;
}

/* --- runs --- */

static history *new_history(void)
{
    history *h = shared_memory(sizeof *h);
    return h;
}

/* Returns the number of histories that are wrong. */
static int explore(const char *backend, int runs, uint64_t seed, const char *host, int port)
{
    int wrong = 0, entries = 0, calls = 0;
    for (int i = 0; i < runs; i++) {
        char said[200];
        int count = 0;
        setting s = {
            .backend = backend, .host = host, .port = port, .seed = seed + (uint64_t)i};
        s.history = new_history();
        if (!port)
            s.port = 20000 + (int)((unsigned)(getpid() * 7 + i * 13) % 12000);
        run(&s);
        const char *fault = judge(backend, s.history, &count, said);
        if (!fault && count < 20)
            fault = "fewer than 20 entries: the ledger stands still";
        if (fault)
            printf("%s, seed %" PRIu64 ": %s\n", backend, s.seed, fault);
        wrong += fault != NULL;
        entries += count;
        calls += s.history->count;
        munmap(s.history, sizeof *s.history);
    }
    printf("%s: %d histories, %d calls, %d entries, %d not linearizable\n", backend, runs,
        calls, entries, wrong);
    fflush(stdout);
    return wrong;
}

/* The check itself must find faults. */
static int check_the_check(void)
{
    static const note wrongs[][3] = {
        {{APPEND, YES, 1, 7, 1, 2}, {READ, YES, 1, 8, 3, 4}},   /* other text */
        {{APPEND, YES, 1, 7, 1, 2}, {APPEND, YES, 1, 8, 3, 4}}, /* written twice */
        {{APPEND, YES, 1, 7, 5, 6}, {READ, YES, 1, 7, 1, 2}},   /* too early */
        {{APPEND, YES, 1, 7, 1, 2}, {READ, NO, 1, 0, 3, 4}},    /* missed */
        {{APPEND, YES, 2, 7, 1, 2}, {APPEND, YES, 1, 8, 3, 4}}, /* wrong order */
        {{APPEND, UNKNOWN, 1, 7, 1, INFINITY}, {READ, YES, 1, 7, 2, 3},
            {NEWEST, YES, 0, 0, 4, 5}},
    };
    int blind = 0, entries;
    char said[200];
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        history *h = new_history();
        memcpy(h->notes, wrongs[i], sizeof wrongs[i]);
        h->count = i + 1 < sizeof wrongs / sizeof *wrongs ? 2 : 3;
        blind += judge("etcd", h, &entries, said) == NULL;
        munmap(h, sizeof *h);
    }
    if (blind)
        printf("the check does not see %d of the wrong histories\n", blind);
    return blind;
}

static bool have_raft(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    path[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2; up++)
        *strrchr(path, '/') = '\0';
    strcat(path, "/plugins");
    setenv("CHOIR_PLUGIN_PATH", path, 0);
    strcat(path, "/choir_raft.so");
    return access(path, R_OK) == 0;
}

int main(int argc, char **argv)
{
    bool raft = have_raft();
    uint64_t seed = (uint64_t)time(NULL);
    int wrong = check_the_check(), port = 0;
    char host[CHOIR__HOST_TEXT] = "127.0.0.1";
    if (argc > 3) {
        if (argc > 4 && choir__host_port(argv[4], host, &port) != CHOIR_OK)
            return 2;
        return explore(argv[1], atoi(argv[2]), strtoull(argv[3], NULL, 10), host, port) +
                   wrong >
               0;
    }
    printf("seed %" PRIu64 "\n", seed);
    wrong += explore("store", 2, seed, host, 0);
    wrong += raft ? explore("raft", 1, seed, host, 0) : 0;
    return wrong > 0;
}
