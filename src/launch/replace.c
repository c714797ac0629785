/* The supervisor of ranks that are replaced: it notes deaths in the crew, starts new
 * processes, and kills ranks that stay stopped or silent, so that these are deaths, too.
 *
 * A job ends well if rank 0 has finished its work (choir__crew_finish). It fails with its
 * first cause when there are no restarts left, when no member is left that has the job's state,
 * or when it is interrupted. */
#include "launch/replace.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/board/board.h"

enum { LOOK_MS = 500 };

static const double STOPPED_MAX_S = 15; /* a stopped rank makes no progress */
static const double SILENT_MAX_S = 5;   /* for a rank that others have found silent */

/* Writes why a process is gone: why it was killed, or how it ended and its last words. */
static void describe_end(const choir__supervisor *w, int seat, char why[CHOIR__WHY_TEXT])
{
    const choir__seat *s = &w->spawning->crew->seats[seat];
    char end[96];
    choir__end_text(&w->family.children[seat], end);
    if (*s->killed)
        snprintf(why, CHOIR__WHY_TEXT, "%s", s->killed);
    else
        snprintf(why, CHOIR__WHY_TEXT, "%s%s%.*s", end, *s->words ? ": " : "",
            CHOIR__WHY_TEXT - 100, s->words);
}

/* --- deaths --- */

static void replace(choir__supervisor *w)
{
    choir__crew *r = w->spawning->crew;
    int seat = choir__crew_seat(r);
    if (seat >= 0 && choir__spawn_more(w, seat) != CHOIR_OK)
        (void)choir__crew_lost(r, seat, choir_error_message());
}

/* Returns whether the job can continue after a loss, with `more` new processes: there are
 * members that have its state, or, where the state is kept outside of them, as many processes
 * as a generation needs. A member that is not replaced ends the job, but for an interrupted
 * one, whose other members save and end. */
static bool can_go_on(const choir__crew *r, bool member, int more)
{
    int left = r->rebuild ? choir__crew_living(r) + more : choir__crew_alive(r);
    return left >= choir__max(r->least, 1) && (more || !member);
}

/* The caller may begin the job again, which is a restart, too. */
static void empty(choir__supervisor *w)
{
    w->restarts_left -= !w->emptied; /* the ends of the other processes are noted later */
    w->emptied = true;
    choir__family_signal(&w->family, SIGKILL); /* these were to become ranks, in vain */
}

/* The members end together, and none is replaced. */
static void note_common_end(choir__supervisor *w, int seat, bool member)
{
    if (member && w->failed < 0)
        w->failed = seat;
    if (choir__crew_alive(w->spawning->crew))
        return;
    choir__family_stop(&w->family);
    if (!w->interrupted && w->restarts_left)
        empty(w);
}

static void note_end(choir__supervisor *w, int seat)
{
    choir__crew *r = w->spawning->crew;
    const choir__child *c = &w->family.children[seat];
    char why[CHOIR__WHY_TEXT];
    describe_end(w, seat, why);
    bool member = choir__crew_lost(r, seat, why);
    bool exited = c->code == CLD_EXITED;
    w->done |= exited && !c->status; /* the other ranks then end, too */
    if (w->done) {
        bool kill_counts = !atomic_load(&r->over) && !*r->seats[seat].killed;
        if ((exited ? c->status : kill_counts) && w->failed < 0)
            w->failed = seat;
        return;
    }
    if (atomic_load(&r->anew)) {
        note_common_end(w, seat, member);
    } else if (!w->interrupted && w->restarts_left && can_go_on(r, member, 1)) {
        w->restarts_left--;
        replace(w);
    } else if (!can_go_on(r, member && !w->interrupted, 0)) {
        w->failed = w->interrupted ? seat : w->family.first;
        choir__family_stop(&w->family);
        if (!w->interrupted && w->restarts_left && !r->rebuild && !choir__crew_alive(r))
            empty(w);
    }
}

static void note_ends(choir__supervisor *w)
{
    const choir__crew *r = w->spawning->crew;
    w->done |= atomic_load(&r->over);
    for (int i = 0; i < r->seat_count; i++)
        if (w->family.children[i].code && atomic_load(&r->seats[i].state) != CHOIR__GONE)
            note_end(w, i);
}

/* Kills processes that wait to become a rank, or for another generation: none comes. */
static void dismiss(const choir__supervisor *w)
{
    choir__crew *r = w->spawning->crew;
    for (int i = 0; i < r->seat_count; i++) {
        uint32_t state = atomic_load(&r->seats[i].state);
        bool left = atomic_load(&r->seats[i].left) == r->newest.generation;
        if (state != CHOIR__STARTING && state != CHOIR__READY &&
            !(state == CHOIR__MEMBER && left))
            continue;
        snprintf(r->seats[i].killed, CHOIR__WHY_TEXT, "was not needed any more");
        kill(w->family.children[i].pid, SIGKILL);
    }
}

/* --- ranks that keep others waiting --- */

/* Adds up for how long processes have been stopped; time in which this process was stopped,
 * too, counts as one look. Returns the number of members that are stopped. */
static int look_at_states(choir__supervisor *w, double passed)
{
    const choir__crew *r = w->spawning->crew;
    int stopped = 0;
    for (int i = 0; i < r->seat_count; i++) {
        choir__child *c = &w->family.children[i];
        bool is = c->pid && !c->code && choir__process_state(c->pid) == 'T';
        c->stopped_s = is ? c->stopped_s + fmin(passed, 2e-3 * LOOK_MS) : 0;
        stopped += is && atomic_load(&r->seats[i].state) == CHOIR__MEMBER;
    }
    return stopped;
}

/* Adds up for how long members have finished nothing, without waiting for others. Returns a
 * member that has done so for `limit` seconds while another one waits, or, after a loss, a new
 * process; -1: none. */
static int find_live_locked(const choir__supervisor *w, double passed, double limit)
{
    choir__crew *r = w->spawning->crew;
    bool broken = atomic_load(&r->broken) == r->newest.generation;
    int found = -1, waiting = 0;
    for (int i = 0; i < r->seat_count; i++) {
        choir__seat *s = &r->seats[i];
        bool waits = false, left = atomic_load(&s->left) == r->newest.generation;
        uint32_t state = atomic_load(&s->state);
        waiting += broken && state == CHOIR__READY;
        if (state != CHOIR__MEMBER)
            continue;
        int pid = (int)w->family.children[i].pid;
        uint64_t now = w->spawning->host->progress(pid, &waits);
        bool stopped = w->family.children[i].stopped_s > 0;
        bool is_idle = now == s->progress && !waits && !left && !stopped;
        s->idle_s = is_idle ? s->idle_s + fmin(passed, 2e-3 * LOOK_MS) : 0;
        s->progress = now;
        waiting += waits || left;
        if (s->idle_s > limit && !*s->killed)
            found = i;
    }
    return waiting ? found : -1;
}

static void give_up(const choir__supervisor *w, int seat)
{
    kill(w->family.children[seat].pid, SIGKILL);
}

/* If all members are stopped, a user has stopped the job; unless one of them is gone, so that
 * the others are not all there were. */
static void look_for_late(choir__supervisor *w)
{
    choir__crew *r = w->spawning->crew;
    double now = choir__now(), passed = now - w->looked_at, timeout = w->family.stopped_max_s;
    double stopped_max = fmin(timeout, STOPPED_MAX_S);
    if (passed < 1e-3 * LOOK_MS)
        return;
    w->looked_at = now;
    bool all = look_at_states(w, passed) == choir__crew_alive(r) &&
               atomic_load(&r->broken) < r->newest.generation;
    for (int i = 0; i < r->seat_count && !all; i++) {
        const choir__child *c = &w->family.children[i];
        char *why = r->seats[i].killed;
        if (c->stopped_s < stopped_max || *why)
            continue;
        snprintf(why, CHOIR__WHY_TEXT, "was stopped (SIGSTOP) for %.3g s", c->stopped_s);
        give_up(w, i);
    }
    double patience = choir__crew_patience(r, timeout);
    int locked = all ? -1 : find_live_locked(w, passed, patience);
    if (locked >= 0) {
        snprintf(r->seats[locked].killed, CHOIR__WHY_TEXT,
            "finished nothing for %.3g s while others waited for it", r->seats[locked].idle_s);
        give_up(w, locked);
    }
    int late = choir__crew_late(r, fmin(timeout, SILENT_MAX_S), timeout);
    if (late >= 0)
        give_up(w, late);
}

/* --- the job --- */

static choir_status verdict(const choir__supervisor *w)
{
    const choir__crew *r = w->spawning->crew;
    const choir__family *f = &w->family;
    char after[64] = "", late[64];
    int first = w->failed, used = w->spawning->opts->max_restarts - w->restarts_left;
    if (first < 0)
        return CHOIR_OK;
    if (w->emptied)
        snprintf(after, sizeof after, "; no rank is left, and none has the job's state");
    else if (used)
        snprintf(after, sizeof after, "; %d restart%s did not help", used, used > 1 ? "s" : "");
    bool ended = w->interrupted && !choir__end_crashed(&f->children[first]);
    return choir__error(ended ? CHOIR_ERR_INTERRUPTED : CHOIR_ERR_PEER_LOST,
        "%srank %d (pid %d) %s%s%s", w->interrupted ? "interrupted; " : "",
        r->seats[first].rank, (int)f->children[first].pid, r->seats[first].end,
        choir__spawn_late(w, late), after);
}

choir_status choir__spawn_replace(choir__supervisor *w)
{
    choir__family *f = &w->family;
    choir__crew *r = w->spawning->crew;
    struct pollfd *polled =
        choir__calloc((size_t)f->count + 2 + CHOIR__WATCHED_MOST, sizeof *polled);
    uint64_t rings;
    w->looked_at = choir__now();
    w->failed = -1;
    while (f->alive) {
        int n = choir__family_poll(f, polled);
        polled[n] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        polled[n + 1] = (struct pollfd){.fd = r->bell, .events = POLLIN};
        int ms = f->stopping_at ? choir__family_press(f) : LOOK_MS;
        int heard = choir__watch_poll(polled + n + 2);
        if (poll(polled, (nfds_t)(n + 2 + heard), choir__spawn_sleep(w, ms)) < 0)
            continue; /* EINTR: the pipe holds the signal */
        choir__watch_heard(polled + n + 2, heard);
        if (polled[n + 1].revents && read(r->bell, &rings, sizeof rings) < 0) {
            /* another look has emptied it */
        }
        choir__spawn_signals(w);
        choir__family_reap(f, polled);
        note_ends(w);
        if (w->done || atomic_load(&r->anew))
            dismiss(w);
        else if (!f->stopping_at)
            choir__crew_form(r);
        if (!f->stopping_at)
            look_for_late(w);
    }
    free(polled);
    return verdict(w);
}
