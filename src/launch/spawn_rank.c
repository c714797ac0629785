/* One process of a spawn: its start, its place in the job, and the signals that it is passed.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "launch/keeper.h"
#include "launch/process/signal_table.h"
#include "launch/replace.h"

/* Ranks of several nodes meet by method; a job name made up by one node would keep them
 * apart. */
static void set_meeting(const choir__spawning *r)
{
    if (r->opts->method)
        setenv("CHOIR_INIT", r->opts->method, 1);
    if (r->opts->key_file)
        setenv("CHOIR_KEY_FILE", r->opts->key_file, 1);
    if (r->opts->nodes == 1)
        setenv("CHOIR_JOB", r->job, 1);
    else
        unsetenv("CHOIR_JOB");
}

/* A process that is not a rank yet works alone until it is one. */
static void take_seat(choir__spawning *r)
{
    choir__crew_sit(r->crew, r->seat);
    if (!choir__crew_is_new())
        return;
    r->place.rank = 0;
    r->place.world = r->place.local_world = 1;
    r->place.local_rank = choir__crew_local();
}

static int be_rank(void *arg)
{
    choir__spawning *r = arg;
    if (r->crew)
        take_seat(r);
    choir__job_place_export(&r->place);
    choir__keeper_forget(); /* drops the keeper inherited from the parent worker */
    set_meeting(r);
    choir__set_rank_label(r->place.rank);
    int number = r->crew ? r->seat : r->place.rank;
    choir__watch_child(number);
    int status = r->fn(r->place.rank, r->place.world, r->arg);
    if (status && r->crew)
        choir__crew_say(choir_error_message());
    r->host->quiesce();
    choir__watch_leaving(number);
    return status;
}

/* Writes what the ranks are doing. */
static void show_ranks(const choir__supervisor *w)
{
    const choir__family *f = &w->family;
    for (int i = 0; i < f->count; i++)
        if (f->children[i].pidfd >= 0)
            w->spawning->host->show((int)f->children[i].pid, stderr);
}

/* A rank that is stopped gets its signal when it is woken. The last words of ranks that are
 * overdue must come before the end of the time, when someone else kills all. */
static void interrupt(choir__supervisor *w, int number)
{
    const double share = 0.9, last = 0.05, grace_s = w->spawning->opts->grace_s;
    w->interrupted = number;
    choir__family_signal(&w->family, SIGCONT);
    if (!(grace_s > 0))
        return;
    w->overdue_at = choir__now() + share * grace_s;
    w->family.patience_s = last * grace_s;
}

int choir__spawn_sleep(const choir__supervisor *w, int ms)
{
    double left_ms = 1e3 * (w->overdue_at - choir__now());
    if (!w->overdue_at || w->family.stopping_at || left_ms > INT_MAX - 1)
        return ms;
    int until = left_ms > 0 ? (int)left_ms + 1 : 0;
    return ms < 0 || until < ms ? until : ms;
}

const char *choir__spawn_late(const choir__supervisor *w, char text[64])
{
    *text = '\0';
    if (w->overdue_at && w->family.pressed == SIGKILL)
        snprintf(text, 64, ": it had not ended after %.3g s", w->spawning->opts->grace_s);
    return text;
}

void choir__spawn_signals(choir__supervisor *w)
{
    choir__signal s;
    if (w->overdue_at && choir__now() >= w->overdue_at && !w->family.stopping_at) {
        w->family.grace_s = 0;
        choir__family_stop(&w->family);
    }
    while (choir__signals_next(&s)) {
        choir__signal_does does = choir__signal_meaning(s.number);
        if (does == CHOIR__SIGNAL_SHOWS || (does == CHOIR__SIGNAL_SAVES && !w->saves)) {
            show_ranks(w);
            continue;
        }
        if (does != CHOIR__SIGNAL_SAVES && !w->interrupted)
            interrupt(w, s.number);
        if (!s.typed)
            choir__family_signal(&w->family, s.number);
    }
}

choir_status choir__spawn_seat(choir__family *f, choir__spawning *r, int seat)
{
    r->seat = seat;
    choir_status status = choir__family_start(f, seat, be_rank, r);
    if (status == CHOIR_OK && r->crew)
        r->crew->seats[seat].pid = f->children[seat].pid;
    return status;
}

choir_status choir__spawn_more(choir__supervisor *s, int seat)
{
    choir__watch_before(seat, 1);
    choir_status status = choir__spawn_seat(&s->family, s->spawning, seat);
    choir__watch_forked();
    return status;
}
