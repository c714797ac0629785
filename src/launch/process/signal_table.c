/* The registry of signals that mean something to a training job. */
#include "launch/process/signal_table.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

const choir__signal_row choir__signal_table[] = {
    {.number = SIGTERM, .name = "SIGTERM", .does = CHOIR__SIGNAL_STOPS},
    {.number = SIGINT, .name = "SIGINT", .does = CHOIR__SIGNAL_STOPS, .again_ends = true},
    {.number = SIGHUP, .name = "SIGHUP", .does = CHOIR__SIGNAL_STOPS, .stays_ignored = true},
    {.number = SIGXCPU, .name = "SIGXCPU", .does = CHOIR__SIGNAL_STOPS},
    {.number = SIGUSR1, .name = "SIGUSR1", .does = CHOIR__SIGNAL_SAVES},
    {.number = SIGUSR2, .name = "SIGUSR2", .does = CHOIR__SIGNAL_SHOWS},
    {.number = SIGQUIT, .name = "SIGQUIT", .does = CHOIR__SIGNAL_ENDS},
    {0},
};

const choir__signal_row *choir__signal_find(int number)
{
    for (const choir__signal_row *r = choir__signal_table; r->number; r++)
        if (r->number == number)
            return r;
    return NULL;
}

const choir__signal_row *choir__signal_named(const char *name)
{
    size_t prefix = strncmp(name, "SIG", 3) ? 3 : 0; /* "TERM" is as good as "SIGTERM" */
    for (const choir__signal_row *r = choir__signal_table; r->number; r++)
        if (!strcmp(r->name + prefix, name))
            return r;
    return NULL;
}

choir__signal_does choir__signal_meaning(int number)
{
    const choir__signal_row *r = choir__signal_find(number);
    return r ? r->does : CHOIR__SIGNAL_NOTHING;
}

bool choir__signal_again(const choir__signal_row *row, double now, double *first_at)
{
    static const double same_s = 1;
    if (!row->again_ends)
        return false;
    if (!(*first_at > 0))
        *first_at = now;
    return now - *first_at > same_s;
}

void choir__signals_outlive(void)
{
    for (const choir__signal_row *r = choir__signal_table; r->number; r++)
        signal(r->number, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTSTP, SIG_IGN);
}

int choir__signals_that(choir__signal_does does, int numbers[CHOIR__SIGNALS_MOST])
{
    int count = 0;
    for (const choir__signal_row *r = choir__signal_table; r->number; r++)
        if (r->does == does)
            numbers[count++] = r->number;
    return count;
}
