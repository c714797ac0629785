/* Threads that wait for work.
 *
 * A round begins when its number is raised, and ends when no thread is left in it. Both sides
 * look for a while before they sleep: kernels follow each other within microseconds, and waking
 * a thread takes as long as a small kernel. They do not look for long, because a thread that
 * looks keeps the core that another process may need.
 *
 * Threads are not inherited by a child of fork(), which starts its own. */
#include "device/cpu/team.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/process/forks.h"
#include "base/futex.h"
#include "base/hold_signals.h"

enum { LOOKS = 4000, LONG = 1000000 }; /* LOOKS: looks in about 50 us; LONG: a sleep, in us */

struct choir__team {
    int threads; /* number of threads that the device wants */
    int started; /* number of threads that run, without the caller's */
    pthread_t *handles;
    atomic_uint round;    /* the number of rounds that have begun */
    atomic_uint left;     /* threads that have not ended this round */
    atomic_uint sleepers; /* threads that may sleep until `round` changes */
    atomic_uint waits;    /* nonzero: the caller may sleep until `left` is 0 */
    bool ends;
    choir__team_work *work;
    const void *arg;
    choir__forkable forkable;
};

typedef struct seat {
    choir__team *team;
    int thread;
    unsigned round; /* the last round before it */
} seat;

/* Sleeps until *word is not value, after having looked for a while. asleep: counts this thread
 * meanwhile, so that the other side knows that it must wake it. */
static void await_change(atomic_uint *word, unsigned value, atomic_uint *asleep)
{
    for (int i = 0; i < LOOKS; i++, choir__pause())
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return;
    atomic_fetch_add(asleep, 1);
    while (atomic_load(word) == value)
        choir__futex_wait(word, value, LONG);
    atomic_fetch_sub(asleep, 1);
}

static void *sit(void *arg)
{
    seat s = *(seat *)arg;
    choir__team *team = s.team;
    free(arg);
    for (;;) {
        await_change(&team->round, s.round, &team->sleepers);
        s.round++;
        if (team->ends)
            return NULL;
        team->work(team->arg, s.thread, team->started + 1);
        if (atomic_fetch_sub(&team->left, 1) == 1 && atomic_load(&team->waits))
            choir__futex_wake(&team->left);
    }
}

/* Starts the threads; fewer if the system refuses some. */
static void start(choir__team *team)
{
    const unsigned round = atomic_load(&team->round);
    team->handles = choir__calloc((size_t)team->threads, sizeof *team->handles);
    team->started = 0;
    for (int i = 1; i < team->threads; i++) {
        seat *s = choir__calloc(1, sizeof *s);
        *s = (seat){team, i, round};
        if (choir__thread_start(&team->handles[i - 1], sit, s)) {
            free(s);
            break;
        }
        team->started = i;
    }
}

static void in_child(void *self)
{
    choir__team *team = self;
    free(team->handles);
    team->handles = NULL;
    team->started = 0;
    atomic_store(&team->left, 0);
    atomic_store(&team->sleepers, 0);
    choir__forkable_add(&team->forkable);
}

static void begin_round(choir__team *team)
{
    atomic_store_explicit(&team->left, (unsigned)team->started, memory_order_relaxed);
    atomic_fetch_add(&team->round, 1);
    if (atomic_load(&team->sleepers))
        choir__futex_wake(&team->round);
}

choir__team *choir__team_new(int threads)
{
    choir__team *team = choir__calloc(1, sizeof *team);
    team->threads = threads;
    team->forkable = (choir__forkable){.in_child = in_child, .self = team};
    choir__forkable_add(&team->forkable);
    return team;
}

void choir__team_free(choir__team *team)
{
    if (!team)
        return;
    choir__forkable_remove(&team->forkable);
    team->ends = true;
    if (team->handles)
        begin_round(team);
    for (int i = 0; i < team->started; i++)
        pthread_join(team->handles[i], NULL);
    free(team->handles);
    free(team);
}

void choir__team_run(choir__team *team, choir__team_work *work, const void *arg)
{
    if (!team->handles)
        start(team);
    team->work = work;
    team->arg = arg;
    begin_round(team);
    work(arg, 0, team->started + 1);
    for (unsigned left; (left = atomic_load_explicit(&team->left, memory_order_acquire));)
        await_change(&team->left, left, &team->waits);
}
