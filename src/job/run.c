/* A job's run: one process, or a supervisor of several ranks.
 *
 * Options, data and model are checked before any rank is started, so wrong input is one
 * sentence. Ranks report their first failure on a board in shared memory; the supervisor
 * returns it once. */
#include "job/run.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "job/report/own.h"
#include "job/report/run_log.h"
#include "job/trainer/trainer.h"
#include "line/say.h"

/* The first failure of the ranks' newest generation, in memory that all ranks share. Those of
 * generations before have been got over. */
typedef struct board {
    choir__job_shared shared;
    _Atomic int32_t unrecorded;        /* a record could not be written */
    _Atomic int32_t recorded;          /* rank 0 has recorded how the job ended */
    _Atomic int64_t reached;           /* the last step that rank 0 has recorded */
    _Atomic int64_t gate;              /* choir__job.ranks.gate */
    _Atomic uint64_t claimed, written; /* one more than the generation that it is of; 0: none */
    choir_status status;
    int by; /* a signal, where that ended the job */
    char message[1024];
} board;

typedef struct ranks {
    choir__job *job;
    board *board;
    choir__relay *relay; /* brings calls to the program's recorder; may be NULL */
} ranks;

static void post(board *b, choir_status status, int by)
{
    uint64_t now = atomic_load(&b->shared.generation) + 1, before = atomic_load(&b->claimed);
    if (status == CHOIR_ERR_PEER_LOST) /* a consequence of the peer's failure */
        return;
    if (before == now || !atomic_compare_exchange_strong(&b->claimed, &before, now))
        return;
    b->status = status;
    b->by = by;
    snprintf(b->message, sizeof b->message, "%s", choir_error_message());
    atomic_store(&b->written, now);
}

/* Returns whether a rank of the newest generation has left its own words. */
static bool is_posted(const board *b)
{
    return atomic_load(&b->written) == atomic_load(&b->shared.generation) + 1;
}

static int run_rank(int rank, int world, void *arg)
{
    ranks *r = arg;
    (void)world;
    int by = 0;
    r->job->records.relay = r->relay;
    choir__train_signals(NULL, rank == 0 && !r->job->records.silent);
    choir_status status = choir__train_rank(r->job, &by);
    if (status == CHOIR_OK)
        status = choir__job_report_written(&r->job->records);
    if (status != CHOIR_OK)
        post(r->board, status, by);
    return choir__job_exit_status(status, by);
}

/* Begins to read the stream for the ranks, which find the errors. */
static void read_stream(void *arg)
{
    const ranks *r = arg;
    if (r->job->data.stream && choir_stream_read(r->job->data.stream) != CHOIR_OK)
        (void)choir_error_message();
}

/* After a loss of all ranks at once: prepares the job to continue from its own checkpoint, or
 * from the checkpoint that it began with. Returns false without a checkpoint, or if a
 * checkpoint lacks a part of the job's state. */
static bool goes_back(choir__job *job, board *b)
{
    choir_train_state s;
    char *why = choir__strdup(choir_error_message());
    const char *from = choir__trainer_has_saved(job) ? job->saves.dir : job->saves.resume;
    bool can = from && !choir__job_strategy_forgets(&job->placement) &&
               choir_training_read(from, &s) == CHOIR_OK;
    choir__set_message(why);
    if (can) {
        choir__run_log_loss(job);
        choir__job_tell(
            job, "%s: the job continues from step %lld of %s", why, (long long)s.step, from);
        job->saves.resume = from;
        atomic_store(&b->shared.generation, 0);
        atomic_store(&b->claimed, 0);
        atomic_store(&b->written, 0);
    } else if (!from) {
        choir__error(CHOIR_ERR_PEER_LOST,
            "%s; with --save and --save-every it continues from its checkpoint", why);
    }
    free(why);
    return can;
}

/* Returns how many of the ranks begin as spares: those without a micro-batch or a worker, where
 * others can continue without them. */
static int spares_of(const choir__job *job)
{
    const bool may_shrink = choir__job_strategy_recovery(job) < CHOIR__REBUILT_AS_MANY;
    return job->ranks.max_restarts && may_shrink
               ? job->placement.nproc -
                     (int)choir__min(job->placement.nproc, choir__job_strategy_units(job))
               : 0;
}

/* Starts the ranks, again if all were lost at once and the job can continue from a checkpoint.
 * *by: the signal of an interruption. */
static choir_status start_ranks(ranks *r, int *by)
{
    choir__job *job = r->job;
    choir__recovery recovery = choir__job_strategy_recovery(job);
    choir_spawn_opts opts = choir_spawn_defaults();
    int left = (int)job->ranks.max_restarts, spares = spares_of(job);
    opts.interrupted_by = by;
    opts.timeout_s = job->ranks.timeout;
    opts.grace_s = choir__job_seconds(job->saves.grace);
    opts.started = read_stream;
    opts.restarts_left = &left;
    opts.rebuild = recovery >= CHOIR__REBUILT;
    opts.least = recovery == CHOIR__REBUILT_AS_MANY ? job->placement.nproc : 0;
    choir_status status;
    do { /* the last time, with no restart left, the ranks are an ordinary job's */
        job->ranks.max_restarts = opts.max_restarts = left;
        opts.spares = left ? spares : 0;
        status = choir_spawn_with(job->placement.nproc - spares, run_rank, r, opts);
        choir__relay_deliver(r->relay);
    } while (status != CHOIR_OK && left >= 0 && !*by && goes_back(job, r->board));
    return status;
}

static choir_status run_ranks(const choir__job *job, choir__job_end *end)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return choir__error(CHOIR_ERR_IO, "no memory for %d ranks", job->placement.nproc);
    choir__job shared = *job;
    shared.ranks.shared = job->ranks.max_restarts ? &b->shared : NULL;
    shared.records.unrecorded = &b->unrecorded;
    shared.records.recorded = &b->recorded;
    shared.records.reached = &b->reached;
    shared.ranks.gate = &b->gate;
    b->shared.old_checkpoint = choir__job_checkpoint(&job->saves);
    ranks r = {&shared, b, NULL};
    choir__train_signals_supervise();
    choir_status status =
        job->records.own ? choir__relay_open(job->records.own, &r.relay) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = start_ranks(&r, &end->by);
    /* A rank's own words are more precise than its exit status, except on a lost peer, whose
     * end the supervisor has seen, and where a rank crashed instead of ending at the signal. */
    bool crashed = status == CHOIR_ERR_PEER_LOST && end->by;
    if (status != CHOIR_OK && is_posted(b) && !crashed) {
        status = b->status;
        choir__set_message(b->message);
    }
    end->by = b->by ? b->by : end->by;
    end->unrecorded = atomic_load(&b->unrecorded);
    if (status != CHOIR_OK && !atomic_load(&b->recorded))
        choir__run_log_loss(&shared);
    choir__relay_close(r.relay);
    munmap(b, sizeof *b);
    return status;
}

static choir_status run_alone(choir__job *job, choir__job_end *end)
{
    _Atomic int32_t unrecorded = 0;
    job->records.unrecorded = &unrecorded;
    choir_status status = choir__train_rank(job, &end->by);
    job->records.unrecorded = NULL;
    end->unrecorded = atomic_load(&unrecorded);
    return status;
}

int choir__job_exit_status(choir_status status, int by)
{
    return status == CHOIR_OK                ? CHOIR__EXIT_OK
           : status == CHOIR_ERR_INTERRUPTED ? 128 + by
                                             : CHOIR__EXIT_FAILED;
}

choir_status choir__job_run(choir__job *job, choir__job_end *end)
{
    *end = (choir__job_end){0};
    return job->placement.nproc > 1 && !job->ranks.launched ? run_ranks(job, end)
                                                            : run_alone(job, end);
}

choir_status choir__job_make_ready(choir__job *job, bool *usage)
{
    choir_status status = choir__job_check(job, usage);
    if (status == CHOIR_OK)
        status = choir__job_prepare(job);
    if (status == CHOIR_OK) {
        status = choir__job_check_restarts(job);
        *usage = status != CHOIR_OK;
    }
    return status;
}
