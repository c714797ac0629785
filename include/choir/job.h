/* Jobs: a program trains what `choir train` trains, with its recorder.
 *
 *     static void step(void *arg, const choir_job_step *s)
 *     {
 *         printf("step %lld: loss %g\n", (long long)s->step, s->loss);
 *     }
 *
 *     choir_job *job;
 *     choir_job_result done;
 *     choir_job_recorder mine = {.step = step};
 *     choir_check(choir_job_open("job.json", &job));
 *     choir_check(choir_job_set(job, "steps", "500"));     (options have their names there)
 *     choir_check(choir_job_train(job, &mine, &done));
 *     choir_job_free(job);
 *
 * A document is what `choir train --print-job` prints, and job.json in a run's folder:
 * docs/job.schema.json. The command and a program share the options, their checks and their
 * defaults, and all that a training does: checkpoints and records in folders, --resume, the
 * best checkpoint, strategies and their compositions. A job has the bits that the command gives
 * it.
 *
 * Ranks: a job of several ranks (nproc, devices, mesh) starts them as forks of the program, as
 * choir_spawn does, so the program must not have used a GPU before. The recorder is called in
 * the program's process alone. Under `choir run`, mpirun or srun each process of the program is
 * a rank of the job, all call choir_job_train, and the recorder is called in rank 0's process.
 *
 * Signals act as in `choir train` while a job trains: SIGTERM and SIGINT stop it after a step,
 * SIGUSR1 saves. A job of one process leaves a signal to the
 * program that handles it; ranks are started by choir_spawn (group.h), which passes signals on
 * to them.
 *
 * Nothing is printed, unless choir_job_recorder.prints asks for it, and no failure ends the
 * program. A job does not copy standard error into the run's folder, as the command does.
 *
 * Threads: a job belongs to one thread at a time, but choir_job_stop may be called anywhere.
 * One job at a time trains in a process. Collective: choir_job_train, where a launcher has
 * started several ranks; the others are not. */
#ifndef CHOIR_JOB_H
#define CHOIR_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_job choir_job;

/** Makes a job with the defaults of `choir train`. The caller frees it. */
CHOIR_CHECKED choir_status choir_job_new(choir_job **job);
/** Reads a document from a file. Relative paths in it begin in the present folder. Where a run
 * has left its results (save, run, log) is that run's, and is not taken from its job.json.
 * Errors: argument (malformed, an unknown option, a wrong value), I/O. */
CHOIR_CHECKED choir_status choir_job_open(const char *path, choir_job **job);
/** Reads a document from a text. Errors: argument. */
CHOIR_CHECKED choir_status choir_job_parse(const char *json, choir_job **job);
/** Frees a job; NULL is fine. */
void choir_job_free(choir_job *job);

/**
 * Gives a value to an option, which takes precedence over the document's.
 *
 * @param option  its name without dashes, such as "lr", "strategy", "save" or "resume"; "data"
 *                is the data. "log" may be set several times, and the job has all of them
 * @param value   as the command line has it; of a flag "true" or NULL, or "false"
 * Errors: argument, with the option's range or choices.
 */
CHOIR_CHECKED choir_status choir_job_set(choir_job *job, const char *option, const char *value);

/* A number of a step. */
typedef struct choir_job_number {
    const char *name; /* "loss", "lr", "grad_norm", "step_s", "device/0/cpu:0/bytes": a key of
                         metrics.jsonl (docs/events.md) */
    double value;     /* a float has the value that its 9 digits read as */
} choir_job_number;

/* A step that is done. */
typedef struct choir_job_step {
    int64_t step; /* from 1 */
    double time;  /* seconds since 1970 */
    double loss;  /* as in `numbers`; NaN: no target of the step counted */
    int count;
    const choir_job_number *numbers; /* (count) */
} choir_job_step;

/* The recorder: functions of the program; each may be NULL. They get arg. Texts and numbers are
 * valid until a function returns. The thread that has called choir_job_train calls them, in
 * order. They should return soon, because the job may wait for them. */
typedef struct choir_job_recorder {
    void *arg;
    void (*step)(void *arg, const choir_job_step *step);
    /* An event of docs/events.md that a run's folder gets, too ("begin", "eval", "checkpoint",
     * "epoch", "membership", "failure", "end", ...). json: its fields as an object, without
     * step and time, such as {"loss":2.5,"accuracy":null,"best":true}. */
    void (*event)(void *arg, int64_t step, const char *name, const char *json);
    /* A text, such as the sample that a language model writes at the end. NULL: it is an event,
     * which is called "text". */
    void (*text)(void *arg, int64_t step, const char *name, const char *text);
    /* A sentence for people: a warning, or a note on an unlikely option. */
    void (*note)(void *arg, const char *sentence);
    bool prints; /* standard output and standard error get what `choir train` writes there */
} choir_job_recorder;

/* The end of a training. Texts belong to the job, until it trains again or is freed. */
typedef struct choir_job_result {
    int64_t steps; /* done, with those before a resumed checkpoint */
    double loss;   /* the last step's; NaN: unknown */
    double eval_loss,
        eval_accuracy;         /* the last validation's; NaN: no validation, or no accuracy */
    char weights_sha256[65];   /* final weights; "": the training did not end */
    const char *ended_by;      /* "patience" or "max-time"; NULL: the last step */
    const char *folder;        /* the run's; NULL: the job has no such folder */
    const char *latest, *best; /* paths of checkpoints; NULL: not saved */
    int rank;        /* this process's; ranks other than 0 may know no texts and hashes */
    int signal;      /* the first signal to stop the job, also if it came too late; 0: none */
    bool unrecorded; /* a record could not be written, as a note has said */
} choir_job_result;

/**
 * Trains a job, and may be called again, also with other options.
 *
 * @param recorder  NULL: the program gets no numbers, and nothing is printed
 * @param result    receives the end, also of a job that fails; may be NULL
 * Errors: argument (options that do not go together, or that train nothing: summary, find-lr),
 * state (another job has the folder, or trains in this process), interrupted (by a signal or by
 * choir_job_stop; the step is saved if the job has a folder), and all that a training can have.
 */
CHOIR_CHECKED choir_status choir_job_train(
    choir_job *job, const choir_job_recorder *recorder, choir_job_result *result);

/** Ends the training of the job after the present step, as SIGTERM does, or the next training
 * of it after its first step. It may be called by the recorder, by another thread, or by a
 * handler of signals. NULL is fine. */
void choir_job_stop(choir_job *job);

#ifdef __cplusplus
}
#endif
#endif
