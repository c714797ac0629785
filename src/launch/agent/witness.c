/* A witness: an agent without workers. Where the agents hold the ledger together, it has a
 * vote, so that either of two nodes outlives the other. It follows the ledger to the job's end.
 */
#include <stdio.h>
#include <stdlib.h>

#include "launch/agent/watcher.h"
#include "launch/process/process.h"
#include "launch/process/signal_table.h"

static const double wait_s = 0.5;

/* Returns a signal that has come; 0: none. */
static int interrupted(void)
{
    choir__signal s;
    while (choir__signals_next(&s))
        if (choir__signal_meaning(s.number) == CHOIR__SIGNAL_STOPS)
            return s.number;
    return 0;
}

static choir_status follow(choir__follower *f, choir__ledger *ledger, double timeout_s, int *by)
{
    bool none;
    choir__watcher w = {
        .follower = f, .ledger = ledger, .id = "", .patience.timeout_s = timeout_s};
    choir_status status = choir__follower_catch_up(f, ledger, &none);
    while (f->now.phase != CHOIR__OVER && !(*by = interrupted())) {
        if (status != CHOIR_OK && status != CHOIR_ERR_TIMEOUT)
            return status;
        if (ledger->silent_s > timeout_s)
            return choir__error(CHOIR_ERR_TIMEOUT,
                "a majority of the agents has not answered for %.0f s", ledger->silent_s);
        status = choir__follower_next(f, ledger, wait_s);
        if (status == CHOIR_ERR_TIMEOUT && ledger->silent_s <= 0) /* the entry may be gone */
            status = choir__follower_catch_up(f, ledger, &none);
        if (ledger->silent_s <= 0 && (status == CHOIR_OK || status == CHOIR_ERR_TIMEOUT))
            status = choir__watcher_report_lost(&w); /* if it leads, no other agent can */
        choir__follower_note_voters(f, ledger);
        if (f->news)
            fprintf(stderr, "%s\n", f->news);
        free(f->news);
        free(f->events);
        f->news = f->events = NULL;
    }
    return CHOIR_OK;
}

int choir__witness_run(const choir__agent_opts *opts)
{
    int taken[CHOIR__SIGNALS_MOST];
    choir__follower f;
    choir__ledger *ledger = NULL;
    int by = 0, result = 1;
    choir_status status = choir__follower_open(&f);
    if (status == CHOIR_OK)
        status = choir__ledger_open(opts, NULL, choir__now() + opts->timeout_s, &ledger);
    if (status == CHOIR_OK)
        status = choir__signals_take(taken, choir__signals_that(CHOIR__SIGNAL_STOPS, taken));
    if (status == CHOIR_OK)
        status = follow(&f, ledger, opts->timeout_s, &by);
    if (status != CHOIR_OK)
        fprintf(stderr, "choir run: witness: %s\n", choir_error_message());
    else
        result = by ? 128 + by : f.now.verdict.status;
    if (ledger)
        ledger->ops->close(ledger, f.now.phase == CHOIR__OVER);
    choir__follower_close(&f);
    return result;
}
