/* Reads a ledger entry by entry and keeps the newest membership under a lock. A change is tried
 * on a copy and written as the next entry; if another agent was first, its entry is read, and
 * the change is tried again on that. Readers are woken by an eventfd. */
#include "launch/agent/follower.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static const double answer_s = 5; /* for an entry that exists */

choir_status choir__follower_open(choir__follower *f)
{
    *f = (choir__follower){.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    pthread_mutex_init(&f->lock, NULL);
    return f->event < 0 ? choir__error(CHOIR_ERR_IO, "no eventfd: %s", choir__why(errno))
                        : CHOIR_OK;
}

void choir__follower_close(choir__follower *f)
{
    if (f->event >= 0)
        close(f->event);
    choir__agent_state_free(&f->now);
    free(f->news);
    free(f->events);
    pthread_mutex_destroy(&f->lock);
}

void choir__follower_wake(choir__follower *f)
{
    uint64_t one = 1;
    if (write(f->event, &one, sizeof one) < 0) {
        /* the counter is full, so it is readable anyway */
    }
}

static void add_line(char **lines, const char *line)
{
    char *all = *lines ? choir__format("%s\n%s", *lines, line) : choir__strdup(line);
    free(*lines);
    *lines = all;
}

static bool is_at_work(const choir__agent_state *m)
{
    bool any = false;
    for (int i = 0; i < m->count; i++)
        any |= m->nodes[i].stage == CHOIR__BUSY;
    return any;
}

/* Notes what an entry tells programs: a change of membership, once its generation runs. An
 * agent that comes back may begin in the middle of a gathering, or have missed one as a whole:
 * it tells the times that it has seen. */
static void note_event(choir__follower *f, const choir__agent_state *m, double now)
{
    if (!f->gathers)
        f->gathering_at = f->gathered_at = now;
    if (m->phase == CHOIR__GATHERING && is_at_work(&f->now))
        f->gathered_at = now;
    f->gathers = m->phase == CHOIR__GATHERING;
    bool seen_before = f->now.generation > 0;
    if (m->phase != CHOIR__RUNNING || !seen_before || m->generation == f->now.generation)
        return;
    char *event =
        choir__agent_state_event(m, f->gathered_at - f->gathering_at, now - f->gathering_at);
    add_line(&f->events, event);
    free(event);
}

/* Makes entry n the newest, and owns *m then; any: also if others lie between. */
static void take(choir__follower *f, int64_t n, choir__agent_state *m, bool any)
{
    pthread_mutex_lock(&f->lock);
    if (n == f->at + 1 || (any && n > f->at)) {
        double now = choir__now();
        if (!f->at || m->round != f->now.round)
            f->round_at = now;
        f->entry_at = now;
        note_event(f, m, now);
        if (m->news)
            add_line(&f->news, m->news);
        choir__agent_state_free(&f->now);
        f->now = *m;
        f->at = n;
        *m = (choir__agent_state){0};
    }
    pthread_mutex_unlock(&f->lock);
    choir__agent_state_free(m);
    choir__follower_wake(f);
}

static int64_t place(choir__follower *f)
{
    pthread_mutex_lock(&f->lock);
    int64_t at = f->at;
    pthread_mutex_unlock(&f->lock);
    return at;
}

static choir_status read_entry(
    choir__follower *f, choir__ledger *ledger, int64_t n, double wait_s, bool any)
{
    choir__agent_state m;
    char *text = NULL;
    choir_status status = ledger->ops->read(ledger, n, wait_s, &text);
    if (status == CHOIR_OK)
        status = choir__agent_state_read(text, &m);
    free(text);
    if (status == CHOIR_OK)
        take(f, n, &m, any);
    return status;
}

choir_status choir__follower_next(choir__follower *f, choir__ledger *ledger, double wait_s)
{
    return read_entry(f, ledger, place(f) + 1, wait_s, false);
}

/* The ledger is empty: the job that this agent has read of is over, and was removed. */
static void forget(choir__follower *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->at) {
        choir__agent_state_free(&f->now);
        f->at = 0;
    }
    pthread_mutex_unlock(&f->lock);
}

choir_status choir__follower_catch_up(choir__follower *f, choir__ledger *ledger, bool *none)
{
    int64_t newest = 0;
    choir_status status = ledger->ops->newest(ledger, &newest);
    *none = !newest;
    if (status == CHOIR_OK && *none)
        forget(f);
    while (status == CHOIR_OK && newest && place(f)) /* no existing entry is missed */
        status = choir__follower_next(f, ledger, 0);
    if (status == CHOIR_ERR_TIMEOUT && ledger->silent_s <= 0)
        status = CHOIR_OK;
    if (status == CHOIR_OK && newest > place(f))
        status = read_entry(f, ledger, newest, answer_s, true);
    while (status == CHOIR_OK && newest)
        status = choir__follower_next(f, ledger, 0);
    return status == CHOIR_ERR_TIMEOUT && ledger->silent_s <= 0 ? CHOIR_OK : status;
}

void choir__follower_note_voters(choir__follower *f, const choir__ledger *ledger)
{
    char line[128];
    int voters = ledger->voters, spare = (voters - 1) / 2;
    pthread_mutex_lock(&f->lock);
    bool told = voters && voters != f->voters && (f->voters || voters > 1);
    if (voters)
        f->voters = voters;
    if (told && !spare)
        snprintf(line, sizeof line, "choir run: 1 agent votes: the job ends with it");
    else if (told)
        snprintf(line, sizeof line,
            "choir run: %d agents vote: the job outlives any %d of them", voters, spare);
    if (told)
        add_line(&f->news, line);
    pthread_mutex_unlock(&f->lock);
    if (told)
        choir__follower_wake(f);
}

/* Another agent's entry came first: many may try again, so not all at a time. */
static choir_status give_way(choir__follower *f, choir__ledger *ledger)
{
    bool none;
    struct timespec moment = {.tv_nsec = (rand() % 10) * 1000000};
    choir_status status = choir__follower_next(f, ledger, answer_s);
    if (status == CHOIR_ERR_TIMEOUT)
        status = choir__follower_catch_up(f, ledger, &none);
    nanosleep(&moment, NULL);
    return status;
}

choir_status choir__follower_change(
    choir__follower *f, choir__ledger *ledger, choir__change_fn *fn, void *arg)
{
    for (;;) {
        bool mine = false;
        pthread_mutex_lock(&f->lock);
        choir__agent_state next = choir__agent_state_copy(&f->now);
        int64_t n = f->at + 1;
        pthread_mutex_unlock(&f->lock);
        free(next.news);
        next.news = NULL;
        if (!fn(&next, arg)) {
            choir__agent_state_free(&next);
            return CHOIR_OK;
        }
        char *text = choir__agent_state_text(&next);
        choir_status status = ledger->ops->append(ledger, n, text, &mine);
        free(text);
        if (mine)
            take(f, n, &next, false);
        else
            choir__agent_state_free(&next);
        if (status == CHOIR_OK && !mine)
            status = give_way(f, ledger);
        if (status != CHOIR_OK || mine)
            return status;
    }
}
