/* A rank's side of the crew: leaving a generation, and waiting for the next one. */
#include "launch/crew/crew.h"

#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    choir__crew *crew; /* NULL: this process's job has none */
    int seat;
    uint64_t generation; /* joined last; 0: none yet */
    bool is_new;         /* the rank has not received the job's state yet */
} mine;

void choir__crew_sit(choir__crew *crew, int seat)
{
    bool member = atomic_load(&crew->seats[seat].state) == CHOIR__MEMBER;
    mine.crew = crew;
    mine.seat = seat;
    mine.is_new = !member;
    crew->seats[seat].pid = getpid();
}

choir__crew *choir__crew_mine(void)
{
    return mine.crew;
}

int choir__crew_local(void)
{
    return mine.crew->seats[mine.seat].local;
}

bool choir__crew_is_new(void)
{
    return mine.is_new;
}

void choir__crew_settled(void)
{
    mine.is_new = false;
}

const choir_membership *choir__crew_membership(void)
{
    return &mine.crew->newest;
}

int choir__crew_rank(void)
{
    return mine.crew->seats[mine.seat].rank;
}

choir_membership choir__crew_report(int64_t step, double resumed_at)
{
    choir_membership m = mine.crew->newest;
    m.step = step;
    m.resumed_s = resumed_at - mine.crew->began_at;
    if (choir__crew_rank() == 0)
        atomic_store(&mine.crew->reported, m.generation);
    return m;
}

bool choir__crew_enter(void)
{
    if (mine.generation)
        choir__crew_leave(CHOIR_OK);
    if (mine.is_new || mine.generation)
        return false;
    mine.generation = mine.crew->newest.generation;
    return true;
}

bool choir__crew_begin(void)
{
    if (!mine.generation)
        return choir__crew_enter();
    if (atomic_load(&mine.crew->seats[mine.seat].left) != mine.generation)
        choir__crew_fail(CHOIR_ERR_PEER_LOST);
    return false;
}

static void ring(const choir__crew *r)
{
    uint64_t one = 1;
    if (write(r->bell, &one, sizeof one) < 0) {
        /* full: the supervisor is awake */
    }
}

/* Sleeps until the crew has changed since `turn`; it may wake early. */
static void sleep_on(choir__crew *r, uint32_t turn)
{
    syscall(SYS_futex, &r->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
}

void choir__crew_leave(choir_status why)
{
    choir__seat *s = &mine.crew->seats[mine.seat];
    if (atomic_load(&s->left) == mine.generation)
        return;
    atomic_store(&s->left_at, (int64_t)(1e9 * choir__now()));
    atomic_store(&s->left_why, why);
    atomic_store(&s->left, mine.generation);
    ring(mine.crew);
}

void choir__crew_fail(choir_status why)
{
    choir__crew *r = mine.crew;
    atomic_store(&r->failed, mine.generation); /* no member works in a later one yet */
    choir__crew_leave(why);
    atomic_fetch_add(&r->turn, 1);
    syscall(SYS_futex, &r->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void choir__crew_next(choir_status why)
{
    choir__crew *r = mine.crew;
    choir__seat *s = &r->seats[mine.seat];
    uint64_t after = mine.generation ? mine.generation : atomic_load(&r->generation);
    if (mine.generation)
        choir__crew_leave(why);
    else
        atomic_store(&s->state, CHOIR__READY);
    ring(r);
    for (;;) {
        uint32_t turn = atomic_load(&r->turn);
        if (atomic_load(&s->state) == CHOIR__MEMBER && atomic_load(&r->generation) > after) {
            mine.generation = r->newest.generation;
            return;
        }
        sleep_on(r, turn);
    }
}

bool choir__crew_parts(int rank, int64_t step, bool next)
{
    choir__crew *r = mine.crew;
    if (!r || atomic_load_explicit(&r->due, memory_order_acquire) != mine.generation)
        return false;
    int64_t at = atomic_load(&r->leave_at);
    if (at < 0 && rank == 0 && next)
        atomic_store(&r->leave_at, step + 1);
    return at >= 0 && (step < 0 || step >= at);
}

void choir__crew_took(double seconds)
{
    choir__crew *r = mine.crew;
    atomic_store(&r->took_s[atomic_load(&r->took) % CHOIR__TOOK], (float)seconds);
    atomic_fetch_add(&r->took, 1);
}

bool choir__crew_stale(void)
{
    return mine.generation && (atomic_load(&mine.crew->broken) >= mine.generation ||
                                  atomic_load(&mine.crew->failed) >= mine.generation);
}

bool choir__crew_void(void)
{
    const choir__crew *r = mine.crew;
    return r && r->rebuild && !atomic_load(&r->over) && !atomic_load(&r->anew) &&
           choir__crew_stale();
}

void choir__crew_name(uint64_t generation, char name[CHOIR__GENERATION_TEXT])
{
    if (generation == 1)
        snprintf(name, CHOIR__GENERATION_TEXT, "%s", mine.crew->job);
    else
        snprintf(name, CHOIR__GENERATION_TEXT, "%s.%llu", mine.crew->job,
            (unsigned long long)generation);
}

void choir__crew_finish(void)
{
    choir__crew *r = mine.crew;
    atomic_store(&r->over, 1);
    atomic_fetch_add(&r->turn, 1);
    syscall(SYS_futex, &r->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    ring(r);
}

void choir__crew_give_up(void)
{
    if (mine.crew)
        choir__crew_finish();
}

void choir__crew_begin_anew(void)
{
    if (mine.crew)
        atomic_store(&mine.crew->anew, 1);
}

bool choir__crew_wait_over(void)
{
    choir__crew *r = mine.crew;
    for (;;) {
        uint32_t turn = atomic_load(&r->turn);
        if (atomic_load(&r->over))
            return true;
        if (choir__crew_stale())
            return false;
        sleep_on(r, turn);
    }
}

void choir__crew_say(const char *words)
{
    if (mine.crew)
        snprintf(mine.crew->seats[mine.seat].words, sizeof mine.crew->seats[mine.seat].words,
            "%s", words);
}
