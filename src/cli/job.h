/* A training job: its options as the command line gives them, and what follows from them. */
#ifndef CHOIR_CLI_JOB_H
#define CHOIR_CLI_JOB_H

#include <choir/data_open.h>
#include <choir/evaluate.h>
#include <choir/models.h>
#include <choir/optim.h>
#include <choir/training.h>
#include "cli/command.h"
#include "cli/strategy/strategy.h"

typedef struct choir__job {
    const char *command; /* the command it belongs to, "train" or "compare", for messages */
    const char *data;    /* NULL: the text that comes with Choir */
    const char *model, *strategy_text, *optimizer, *schedule, *devices;
    const char *save, *resume, *trace;
    const char *offload;                         /* folder of optimizer state; NULL: memory */
    const char *backend, *rendezvous, *key_file; /* NULL: what the environment says */
    const char *mesh;                            /* NULL: a composition wants one */
    const char *tokenizer_file;                  /* NULL: characters, or bytes */
    const char *amp;                             /* NULL: off; or a level's name, see amp.h */
    const char *init; /* NULL or choir: Choir's initial values; torch: PyTorch's */
    int nproc;        /* ranks; 1 for strategies of one process */
    int64_t batch_size, microbatches, steps, epochs;
    int64_t eval_every, eval_batches, save_every, log_every, mem_cap, threads, workers;
    double lr, weight_decay, clip, timeout; /* weight_decay < 0: the optimizer's own */
    uint64_t seed;
    bool json, quiet, bytes;
    bool no_eval;   /* no validation at the end */
    bool recompute; /* choir_module_recompute_blocks */
    choir__composition composition;
    const choir__cli_strategy *strategy; /* of it */
    char resumed_model[512];             /* the model of --resume, where none is named */
    const char *weights;                 /* to start from: a file or a folder */
    const char *published;               /* the folder that the model was read from */
    char published_model[512];           /* and the text of its config.json */
    bool launched;                       /* by choir run, mpirun, srun...: join */
    int rank, world;                     /* as the launcher says; 0 of 1 without one */

    /* The data and the model, opened before any rank starts: wrong input ends here, once. */
    choir_model_info info;
    choir_dataset *train, *validation;
    choir_tokenizer *tokenizer;
    char device_names[CHOIR__MAX_DEVICES][32];
    int device_count;
} choir__job;

/* The options of a job, and a job before any of them is read. */
extern const choir__cli_option choir__job_options[];
choir__job choir__job_new(const char *command);

/* Checks whether the options fit one another, and fills in what follows from them. Returns
 * CHOIR__EXIT_OK, or the status to exit with. */
int choir__job_check(choir__job *job);

/* Refuses a job that names a device twice, in the same way. */
int choir__job_devices_once(const choir__job *job);

/* Opens data and model description, and checks that all sizes fit one another. */
choir_status choir__job_prepare(choir__job *job);
void choir__job_free(choir__job *job);

/* --model and --weights where they name published files: the model becomes text. What the files
 * say that does not hold here goes to standard error. */
choir_status choir__job_published(choir__job *job);
/* The weights the job starts from, into net; the first rank notes what starts anew. */
choir_status choir__job_load_weights(const choir__job *job, choir_module *net, int rank);

/* The optimizer and schedule the job names. */
choir_status choir__job_optimizer(
    const choir__job *job, choir_scope *run, choir_module *net, choir_optim **optim);
choir_status choir__job_check_optimizer(const choir__job *job);

#endif
