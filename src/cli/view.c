/* The processes in view: the latest look and the one before, of this machine and of others.
 * Processes that two looks share are shown once, since a machine may be named that is this one.
 */
#include "cli/machines.h"

#include <stdlib.h>
#include <string.h>

/* Adds what `to` does not have yet: a machine may be named that is this one. */
static void borrow(choir__snapshot *to, const choir__snapshot *from)
{
    for (int i = 0; i < from->count; i++)
        if (!choir__snapshot_earlier(to, from->seen[i]))
            choir__snapshot_add(to, from->seen[i]);
}

static void give_back(choir__snapshot *borrowed)
{
    free(borrowed->seen);
    *borrowed = (choir__snapshot){0};
}

void choir__view_look(choir__ranks_view *v, const int *pids, int pid_count)
{
    choir__snapshot *both[] = {&v->now, &v->before};
    choir__snapshot_free(&v->here[1]);
    v->here[1] = v->here[0];
    v->here[0] = choir__snapshot_read(pids, pid_count);
    for (int k = 0; k < 2; k++)
        choir__snapshot_free(&v->far[k]);
    if (v->machines)
        choir__machines_look(v->machines, &v->here[0], &v->far[0], &v->far[1]);
    for (int k = 0; k < 2; k++) {
        give_back(both[k]);
        borrow(both[k], &v->here[k]);
        borrow(both[k], &v->far[k]);
        choir__snapshot_sort(both[k]);
    }
}

void choir__view_free(choir__ranks_view *v)
{
    give_back(&v->now);
    give_back(&v->before);
    for (int k = 0; k < 2; k++) {
        choir__snapshot_free(&v->here[k]);
        choir__snapshot_free(&v->far[k]);
    }
    choir__machines_close(v->machines);
    *v = (choir__ranks_view){0};
}

int choir__view_machines(const choir__ranks_view *v, int from)
{
    const choir__snapshot *l = &v->now;
    uint64_t job = l->seen[from]->who.job;
    int count = 0;
    for (int i = from; i < l->count && (i == from || (job && l->seen[i]->who.job == job));
         i++) {
        bool known = false;
        for (int k = from; k < i && !known; k++)
            known = !strcmp(l->seen[k]->who.host, l->seen[i]->who.host);
        count += !known;
    }
    return count;
}
