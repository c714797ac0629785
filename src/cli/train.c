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

#include "job/document/document.h"
#include "job/report/record.h"
#include "line/say.h"
#include "cli/summary.h"
#include "line/tee.h"
#include "job/trainer/trainer.h"
#include "cli/watch/beside.h"
#include "base/base.h"
#include "base/files/folders.h"

/* The first failure of the ranks' newest generation, in memory that all ranks share. Those of
 * generations before have been got over. */
typedef struct board {
    choir__job_shared shared;
    _Atomic int32_t unrecorded;        /* a record could not be written */
    _Atomic int32_t recorded;          /* rank 0 has recorded how the job ended */
    _Atomic int64_t reached;           /* the last step that rank 0 has recorded */
    _Atomic int64_t gate;              /* choir__job.placement.gate */
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

/* The job is done, but its record has gaps. */
enum { EXIT_UNRECORDED = 3 };

/* by: signal of the interruption. */
static int exit_status(choir_status status, int by)
{
    return status == CHOIR_OK                ? CHOIR__EXIT_OK
           : status == CHOIR_ERR_INTERRUPTED ? 128 + by
                                             : CHOIR__EXIT_FAILED;
}

static bool is_interruption(int status)
{
    return status > 128;
}

static int run_rank(int rank, int world, void *arg)
{
    ranks *r = arg;
    (void)world;
    int by = 0;
    choir__train_signals(NULL, rank == 0);
    choir_status status = choir__train_rank(r->job, &by);
    if (status == CHOIR_OK)
        status = choir__cli_flush();
    if (status != CHOIR_OK)
        post(r->board, status, by);
    return exit_status(status, by);
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
    bool can =
        from && !choir__cli_strategy_forgets(job) && choir_training_read(from, &s) == CHOIR_OK;
    choir__set_message(why);
    if (can) {
        choir__cli_record_loss(job);
        choir__cli_tell(job->command, "%s: the job goes on from step %lld of %s", why,
            (long long)s.step, from);
        job->saves.resume = from;
        atomic_store(&b->shared.generation, 0);
        atomic_store(&b->claimed, 0);
        atomic_store(&b->written, 0);
    } else if (!from) {
        choir__error(CHOIR_ERR_PEER_LOST,
            "%s; with --save and --save-every it goes on from its checkpoint", why);
    }
    free(why);
    return can;
}

static int run_ranks(const choir__job *job)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        choir__error(CHOIR_ERR_IO, "no memory for %d ranks", job->placement.nproc);
        return choir__cli_fail();
    }
    choir__job shared = *job;
    shared.placement.shared = job->placement.max_restarts ? &b->shared : NULL;
    shared.records.unrecorded = &b->unrecorded;
    shared.records.recorded = &b->recorded;
    shared.records.reached = &b->reached;
    shared.placement.gate = &b->gate;
    b->shared.old_checkpoint = choir__job_checkpoint(&job->saves);
    ranks r = {&shared, b};
    choir__recovery recovery = choir__cli_strategy_recovery(job);
    choir_spawn_opts opts = choir_spawn_defaults();
    int left = (int)job->placement.max_restarts, interrupted_by = 0, spares = 0;
    if (left && recovery < CHOIR__REBUILT_AS_MANY)
        spares = job->placement.nproc -
                 (int)choir__min(job->placement.nproc, job->training.microbatches);
    opts.interrupted_by = &interrupted_by;
    opts.timeout_s = job->placement.timeout;
    opts.started = read_stream;
    opts.restarts_left = &left;
    opts.rebuild = recovery >= CHOIR__REBUILT;
    opts.least = recovery == CHOIR__REBUILT_AS_MANY ? job->placement.nproc : 0;
    signal(SIGUSR2, SIG_DFL); /* the supervisor shows what ranks do, also those that hang */
    choir_status status;
    do { /* the last time, with no restart left, the ranks are an ordinary job's */
        shared.placement.max_restarts = opts.max_restarts = left;
        opts.spares = left ? spares : 0;
        status = choir_spawn_with(job->placement.nproc - spares, run_rank, &r, opts);
    } while (status != CHOIR_OK && left >= 0 && !interrupted_by && goes_back(&shared, b));
    /* A rank's own words are more precise than its exit status, except on a lost peer, whose
     * end the supervisor has seen. */
    if (status != CHOIR_OK && is_posted(b)) {
        status = b->status;
        choir__set_message(b->message);
    }
    int by = b->by ? b->by : interrupted_by;
    bool unrecorded = atomic_load(&b->unrecorded);
    if (status != CHOIR_OK && !atomic_load(&b->recorded))
        choir__cli_record_loss(&shared);
    munmap(b, sizeof *b);
    if (status != CHOIR_OK)
        choir__cli_fail();
    return status == CHOIR_OK && unrecorded ? EXIT_UNRECORDED : exit_status(status, by);
}

/* Trains in this process. A launcher would take another exit status than 0 for a failure of the
 * job, and begin it again. */
static int run_alone(choir__job *job)
{
    _Atomic int32_t unrecorded = 0;
    int by = 0;
    job->records.unrecorded = &unrecorded;
    choir_status status = choir__train_rank(job, &by);
    if (status != CHOIR_OK)
        choir__cli_fail();
    return status == CHOIR_OK && atomic_load(&unrecorded) && !job->placement.launched
               ? EXIT_UNRECORDED
               : exit_status(status, by);
}

/* Begins the copy of standard error in the folder of the job's records, which also has what
 * came before in a job that continues. */
static choir__tee *copy_errors(const choir__job *job)
{
    const char *folder = choir__cli_record_folder(job);
    if (!folder || job->placement.rank > 0 || job->training.find_lr ||
        choir__folders_make(folder))
        return NULL;
    char *path = choir__format("%s/stderr.log", folder);
    if (!job->saves.resume && !choir__job_is_started_again(job))
        unlink(path);
    choir__tee *tee = choir__tee_open(path);
    free(path);
    return tee;
}

/* Runs the job, with the page of its run if any. */
static int train(choir__job *job)
{
    const char *folder = choir__cli_record_folder(job);
    choir__watch_beside *page = NULL;
    if (job->records.page && !folder)
        return choir__cli_usage(
            job->command, "--page shows a recorded run: name its folder with --run DIR");
    if (job->records.page && job->placement.rank == 0 &&
        choir__watch_beside_open(folder, &page) != CHOIR_OK)
        return choir__cli_fail();
    choir__tee *tee = copy_errors(job);
    choir__train_signals(tee, job->placement.rank <= 0);
    int status =
        job->placement.nproc > 1 && !job->placement.launched ? run_ranks(job) : run_alone(job);
    choir__train_signals(NULL, job->placement.rank <= 0);
    choir__tee_close(tee);
    choir__watch_beside_close(page);
    return status;
}

static int print_job(const choir__job *job)
{
    char *text = choir__job_text(job, NULL);
    printf("%s\n", text);
    free(text);
    return CHOIR__EXIT_OK;
}

/* Takes DATA, or a job file, behind which other data may be named. */
static int take_operands(choir__job *job, const choir__cli_operands *given)
{
    bool file = given->count && choir__job_is_file(given->words[0]);
    if (given->count > 1 && !file)
        return choir__cli_usage(job->command, "unexpected argument '%s'", given->words[1]);
    job->data.path = given->count > file ? given->words[file] : NULL;
    return file ? choir__job_read_file(job, given->words[0]) : CHOIR__EXIT_OK;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    choir__job job = choir__job_new(command->name);
    choir__cli_operands operands;
    signal(SIGXFSZ, SIG_IGN); /* a full disk is an error of write(), not a death */
    choir__train_signals(NULL, true);
    int status = choir__cli_parse(command, &job, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    status = take_operands(&job, &operands);
    if (status == CHOIR__EXIT_OK)
        status = choir__job_check(&job);
    if (status != CHOIR__EXIT_OK) {
        /* the message is out */
    } else if (choir__job_prepare(&job) != CHOIR_OK) {
        status = choir__cli_fail();
    } else if ((status = choir__job_check_restarts(&job)) != CHOIR__EXIT_OK) {
        /* the message is out */
    } else if (job.records.print_job) {
        status = print_job(&job);
    } else if (job.training.summary) {
        status = choir__summary(&job) == CHOIR_OK ? CHOIR__EXIT_OK : choir__cli_fail();
    } else {
        status = train(&job);
    }
    choir__job_leave_folders(&job, status == CHOIR__EXIT_OK || is_interruption(status));
    choir__job_free(&job);
    return status;
}

const choir__cli_command choir__cli_train = {
    .name = "train",
    .summary = "train a model on a text, a folder of images or random data",
    .usage = "[OPTION]... [DATA]\n[OPTION]... JOB.json [DATA]",
    .about =
        "Trains a model. DATA is a text file, documents (.jsonl, .csv, .tsv or .parquet, with the "
        "column text, prompt and completion, or messages) or a file of token ids (language "
        "models), "
        "images with classes (a folder of IDX files or of train/CLASS/*.jpg and val/CLASS/*.jpg, "
        "or tars of WebDataset's form), for donut a folder of images and JSON "
        "(train/metadata.jsonl), for bert:classes=N labelled texts (.jsonl, .csv, .tsv or "
        ".parquet, with the columns text and label), - for standard input, or 'random'. Several "
        "are joined by +, as in a.jsonl:weight=0.7+b.txt:weight=0.3. Without DATA, the model is "
        "trained on a text that comes with Choir. JOB.json is a job that --print-job or a "
        "run's folder wrote down; options on the command line go before its own.",
    .example_title = "on all cores, with checkpoints",
    .example = "  choir train --steps 500 --save runs/1 shakespeare.txt",
    .options = choir__job_options,
    .operand = "DATA",
    .most = 2,
    .run = run,
    .took = choir__job_took,
};
