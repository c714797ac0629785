/* Reads the boards of all processes of this user once, sorted by job and rank. Two looks give
 * the use of devices, the current call of each rank, and the slowest rank: the one that waits
 * least in collectives. */
#include "cli/snapshot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_job(const void *a, const void *b)
{
    const choir__seen *x = *(choir__seen *const *)a, *y = *(choir__seen *const *)b;
    if (x->who.job != y->who.job)
        return x->who.job < y->who.job ? -1 : 1;
    if (x->who.rank != y->who.rank)
        return x->who.rank < y->who.rank ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

void choir__snapshot_sort(choir__snapshot *l)
{
    if (l->count)
        qsort(l->seen, (size_t)l->count, sizeof *l->seen, by_job);
}

void choir__snapshot_add(choir__snapshot *l, choir__seen *seen)
{
    CHOIR__GROW(l->seen, l->count);
    l->seen[l->count++] = seen;
}

void choir__snapshot_move(choir__snapshot *to, choir__snapshot *from)
{
    for (int i = 0; i < from->count; i++)
        choir__snapshot_add(to, from->seen[i]);
    free(from->seen);
    *from = (choir__snapshot){0};
}

choir__snapshot choir__snapshot_read(const int *pids, int pid_count)
{
    choir__snapshot l = {0};
    int *all = NULL, count = pid_count ? pid_count : choir__board_processes(&all);
    for (int i = 0; i < count; i++) {
        choir__seen *seen = choir__flight_read(pid_count ? pids[i] : all[i]);
        if (seen)
            choir__snapshot_add(&l, seen);
    }
    choir__snapshot_sort(&l);
    free(all);
    return l;
}

void choir__snapshot_free(choir__snapshot *l)
{
    for (int i = 0; i < l->count; i++)
        choir__seen_free(l->seen[i]);
    free(l->seen);
    *l = (choir__snapshot){0};
}

const choir__seen *choir__snapshot_earlier(
    const choir__snapshot *before, const choir__seen *seen)
{
    for (int i = 0; i < before->count; i++)
        if (before->seen[i]->pid == seen->pid &&
            before->seen[i]->who.started == seen->who.started &&
            !strcmp(before->seen[i]->who.host, seen->who.host))
            return before->seen[i];
    return NULL;
}

void choir__snapshot_doing(const choir__seen *seen, char *text, size_t room)
{
    const choir__seen_group *at = NULL;
    const choir__seen_call *call = NULL;
    char what[CHOIR__CALL_TEXT], time[24];
    for (int i = 0; i < seen->group_count; i++) {
        const choir__seen_call *c = choir__seen_current(&seen->groups[i]);
        bool better = c && (!call || (call->ended && !c->ended) ||
                               (call->ended && c->ended > call->ended) ||
                               (!call->ended && !c->ended && c->begun < call->begun));
        if (better) {
            at = &seen->groups[i];
            call = c;
        }
    }
    const char *state = choir__state_text(seen->state);
    int used = snprintf(text, room, "%s", state);
    if (!call)
        return;
    bool named = strcmp(at->name, "world") != 0;
    choir__duration_text(seen->at - (call->ended ? call->ended : call->begun), time);
    snprintf(text + used, room - (size_t)used, "%s%s%s%s%s%s%s", *state ? ", " : "",
        call->ended ? "idle since " : "", choir__call_text(&call->stamp, what),
        named ? " of " : "", named ? at->name : "", call->ended ? ", " : " for ", time);
}

choir__slow_rank choir__snapshot_slow(
    const choir__snapshot *l, int from, const choir__snapshot *before)
{
    static const double share_least = 0.2; /* share of the time */
    choir__slow_rank slow = {.rank = -1};
    double least = INFINITY, most = 0, per_step = 0;
    int slowest = -1, ranks = 0;
    for (int i = from; i < l->count && l->seen[i]->who.job == l->seen[from]->who.job; i++) {
        const choir__seen *now = l->seen[i], *then = choir__snapshot_earlier(before, now);
        if (!then || now->who.rank < 0 || !(now->at > then->at))
            continue;
        double share =
            (choir__seen_waited(now) - choir__seen_waited(then)) / (now->at - then->at);
        uint64_t steps = now->who.steps - then->who.steps;
        ranks++;
        most = fmax(most, share);
        if (share >= least)
            continue;
        least = share;
        slowest = now->who.rank;
        per_step = steps ? (now->at - then->at) / (double)steps : 0;
    }
    if (ranks < 2 || !l->seen[from]->who.job || most - least < share_least)
        return slow;
    slow.rank = slowest;
    slow.share = fmin(most - least, 1);
    slow.per_step = (most - least) * per_step;
    return slow;
}
