/* choir train: one process, or a supervisor of several ranks.
 *
 * Options, data and model are checked before any rank is started, so wrong input is one
 * sentence. Ranks report their first failure on a board in shared memory; the supervisor prints
 * it once. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/say.h"
#include "cli/trainer.h"
#include "base/base.h"

/* The first failure of the ranks' newest generation, in memory that all ranks share. Those of
 * generations before have been got over. */
typedef struct board {
    choir__job_shared shared;
    _Atomic uint64_t claimed, written; /* one more than the generation that it is of; 0: none */
    choir_status status;
    int by; /* a signal, where that ended the job */
    char message[1024];
} board;

typedef struct ranks {
    const choir__job *job;
    board *board;
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

/* by: the signal of an interruption; 0: unknown. */
static int exit_status(choir_status status, int by)
{
    return status == CHOIR_OK                ? CHOIR__EXIT_OK
           : status == CHOIR_ERR_INTERRUPTED ? 128 + (by ? by : SIGINT)
                                             : CHOIR__EXIT_FAILED;
}

static int run_rank(int rank, int world, void *arg)
{
    ranks *r = arg;
    (void)rank;
    (void)world;
    int by = 0;
    choir_status status = choir__train_rank(r->job, &by);
    if (status == CHOIR_OK)
        status = choir__cli_flush();
    if (status != CHOIR_OK)
        post(r->board, status, by);
    return exit_status(status, by);
}

static int run_ranks(const choir__job *job)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        choir__error(CHOIR_ERR_IO, "no memory for %d ranks", job->nproc);
        return choir__cli_fail();
    }
    choir__job shared = *job;
    shared.shared = job->max_restarts ? &b->shared : NULL;
    b->shared.old_checkpoint = choir__job_checkpoint(job);
    ranks r = {&shared, b};
    choir__recovery recovery = choir__cli_strategy_recovery(job);
    choir_spawn_opts opts = choir_spawn_defaults();
    int most = (int)choir__min(job->nproc, job->microbatches);
    opts.timeout_s = job->timeout;
    opts.max_restarts = (int)job->max_restarts;
    opts.rebuild = recovery >= CHOIR__REBUILT;
    opts.least = recovery == CHOIR__REBUILT_AS_MANY ? job->nproc : 0;
    opts.spares =
        opts.max_restarts && recovery < CHOIR__REBUILT_AS_MANY ? job->nproc - most : 0;
    choir_status status = choir_spawn_with(job->nproc - opts.spares, run_rank, &r, opts);
    /* A rank's own words are more precise than its exit status, except on a lost peer, whose
     * end the supervisor has seen. */
    if (status != CHOIR_OK && is_posted(b)) {
        status = b->status;
        choir__set_message(b->message);
    }
    int by = b->by;
    munmap(b, sizeof *b);
    if (status != CHOIR_OK)
        choir__cli_fail();
    return exit_status(status, by);
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    choir__job job = choir__job_new(command->name);
    choir__cli_operands operands;
    signal(SIGXFSZ, SIG_IGN); /* a full disk is an error of write(), not a death */
    int status = choir__cli_parse(command, &job, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    job.data = operands.count ? operands.words[0] : NULL;
    status = choir__job_check(&job);
    if (status != CHOIR__EXIT_OK) {
        /* the message is out */
    } else if (choir__job_prepare(&job) != CHOIR_OK) {
        status = choir__cli_fail();
    } else if ((status = choir__job_check_restarts(&job)) != CHOIR__EXIT_OK) {
        /* the message is out */
    } else if (job.nproc > 1 && !job.launched) {
        status = run_ranks(&job);
    } else {
        int by = 0;
        choir_status trained = choir__train_rank(&job, &by);
        if (trained != CHOIR_OK)
            choir__cli_fail();
        status = exit_status(trained, by);
    }
    choir__job_free(&job);
    return status;
}

const choir__cli_command choir__cli_train = {
    .name = "train",
    .summary = "train a model on a text, a folder of images or random data",
    .usage = "[OPTION]... [DATA]",
    .about =
        "Trains a model. DATA is a text file or a file of token ids (language models), a folder "
        "of images (IDX files, or train/CLASS/*.jpg and val/CLASS/*.jpg), for donut a folder of "
        "images and JSON (train/metadata.jsonl), for bert:classes=N labelled texts (.jsonl, "
        ".csv or .tsv, with the columns text and label), or 'random'. Without DATA, the model is "
        "trained on a text that comes with Choir.",
    .example_title = "on all cores, with checkpoints",
    .example = "  choir train --steps 500 --save runs/1 shakespeare.txt",
    .options = choir__job_options,
    .operand = "DATA",
    .most = 1,
    .run = run,
    .took = choir__job_took,
};
