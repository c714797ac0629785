/* choir train: from a command line to a job, which job/run.h trains. What a command has beside
 * a job is here: its messages and exit status, a copy of standard error, a live page. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "job/document/document.h"
#include "job/report/run_log.h"
#include "job/run.h"
#include "line/say.h"
#include "cli/summary.h"
#include "line/tee.h"
#include "job/trainer/metric.h"
#include "job/trainer/trainer.h"
#include "cli/watch/page.h"
#include "base/base.h"
#include "base/files/folders.h"

/* Begins the copy of standard error in the folder of the job's records, which also has what
 * came before in a job that continues. */
static choir__tee *copy_errors(const choir__job *job)
{
    const char *folder = choir__run_log_folder(job);
    if (!folder || job->ranks.rank > 0 || job->training.find_lr || choir__folders_make(folder))
        return NULL;
    char *path = choir__format("%s/stderr.log", folder);
    if (!job->saves.resume && !choir__job_is_started_again(job))
        unlink(path);
    choir__tee *tee = choir__tee_open(path);
    free(path);
    return tee;
}

/* The job is done, but its record has gaps. A launcher would take that status for a failure of
 * the job, and begin it again. */
enum { EXIT_UNRECORDED = 3 };

static bool is_interruption(int status)
{
    return status > 128;
}

/* Runs the job, with the page of its run if any. */
static int train(choir__job *job)
{
    const char *folder = choir__run_log_folder(job);
    choir__page_process *page = NULL;
    if (job->records.page && !folder)
        return choir__line_usage(
            job->command, "--page shows a recorded run: name its folder with --run DIR");
    if (job->records.page && job->ranks.rank == 0 &&
        choir__page_process_open(folder, &page) != CHOIR_OK)
        return choir__line_fail();
    choir__tee *tee = copy_errors(job);
    choir__train_signals(tee, job->ranks.rank <= 0);
    choir__job_end end;
    choir_status status = choir__job_run(job, &end);
    if (status != CHOIR_OK)
        choir__line_fail();
    choir__train_signals(NULL, job->ranks.rank <= 0);
    choir__tee_close(tee);
    choir__page_process_close(page);
    return status == CHOIR_OK && end.unrecorded && !job->ranks.launched
               ? EXIT_UNRECORDED
               : choir__job_exit_status(status, end.by);
}

static int print_job(const choir__job *job)
{
    char *text = choir__job_text(job, NULL);
    printf("%s\n", text);
    free(text);
    return CHOIR__EXIT_OK;
}

/* Takes DATA, or a job file, behind which other data may be named. */
static int take_operands(choir__job *job, const choir__line_operands *given)
{
    bool file = given->count && choir__job_is_file(given->words[0]);
    if (given->count > 1 && !file)
        return choir__line_usage(job->command, "unexpected argument '%s'", given->words[1]);
    job->data.path = given->count > file ? given->words[file] : NULL;
    return file && choir__job_read_file(job, given->words[0]) != CHOIR_OK
               ? choir__line_refuse(job->command, true)
               : CHOIR__EXIT_OK;
}

static int took(void *job, const choir__line_option *option, const char *text)
{
    return choir__job_took(job, option, text) == CHOIR_OK
               ? CHOIR__EXIT_OK
               : choir__line_refuse(((const choir__job *)job)->command, true);
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__job job = choir__job_new(command->name);
    choir__line_operands operands;
    signal(SIGXFSZ, SIG_IGN); /* a full disk is an error of write(), not a death */
    choir__train_signals(NULL, true);
    int status = choir__line_parse(command, &job, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    bool usage = false;
    status = take_operands(&job, &operands);
    if (status != CHOIR__EXIT_OK) {
        /* the message is out */
    } else if (choir__job_make_ready(&job, &usage) != CHOIR_OK) {
        status = choir__line_refuse(job.command, usage);
    } else if (job.records.print_job) {
        status = print_job(&job);
    } else if (job.training.summary) {
        status = choir__summary(&job) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
    } else if (choir__metric_check_command(&job) != CHOIR_OK) {
        status = choir__line_refuse(job.command, true);
    } else {
        status = train(&job);
    }
    choir__job_leave_folders(&job.saves, status == CHOIR__EXIT_OK || is_interruption(status));
    choir__job_free(&job);
    return status;
}

const choir__line_command choir__cli_train = {
    .name = "train",
    .summary = "train a model on a text, a folder of images or random data",
    .usage = "[OPTION]... [DATA]\n[OPTION]... JOB.json [DATA]",
    .about =
        "Trains a model. DATA is a text file, documents (.jsonl, .json, .csv, .tsv or .parquet, "
        "with the column text, prompt and completion, or messages) or a file of token ids "
        "(language models), "
        "images with classes (a folder of IDX files or of train/CLASS/*.jpg and val/CLASS/*.jpg, "
        "or tars of WebDataset's form), for donut a folder of images and JSON "
        "(train/metadata.jsonl), for bert:classes=N labelled texts (.jsonl, .csv, .tsv or "
        ".parquet, with the columns text and label), - for standard input, or 'random'. Several "
        "are joined by +, as in a.jsonl:weight=0.7+b.txt:weight=0.3. Without DATA, the model is "
        "trained on a text that comes with Choir. JOB.json is a job that --print-job or a "
        "run's folder wrote down; options on the command line take precedence over its own.",
    .example_title = "on all cores, with checkpoints",
    .example = "  choir train --steps 500 --save runs/1 shakespeare.txt",
    .options = choir__job_options,
    .operand = "DATA",
    .operand_elsewhere = "train_file dataset dataset_name dataset_path data_path",
    .most = 2,
    .run = run,
    .took = took,
};
