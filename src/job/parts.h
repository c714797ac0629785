/* The parts of a training job: the values of its options, by subject, and what its processes
 * share. A reader gets only the part that it needs. */
#ifndef CHOIR_JOB_PARTS_H
#define CHOIR_JOB_PARTS_H

#include <limits.h>

#include <choir/data_open.h>
#include <choir/evaluate.h>
#include <choir/models.h>
#include <choir/optim.h>
#include <choir/stream.h>
#include <choir/training.h>

#include "job/devices.h"
#include "job/strategy/strategy.h"

/* Progress that outlives a lost rank, in shared memory: the work that the job's ranks have done
 * and shown so far. */
typedef enum choir__shown_kind {
    CHOIR__SHOWN_STEP,
    CHOIR__SHOWN_EPOCH,
    CHOIR__SHOWN_EVAL,
    CHOIR__SHOWN_SAVED,
    CHOIR__SHOWN_STOP,
    CHOIR__SHOWN_KINDS
} choir__shown_kind;

typedef struct choir__job_shared {
    _Atomic int64_t stepped;                  /* last step that was recorded */
    _Atomic int64_t news[CHOIR__SHOWN_KINDS]; /* per kind: step of the last line shown */
    _Atomic uint64_t generation;              /* newest generation of ranks so far */
    _Atomic int32_t started;                  /* the first line is printed */
    /* checkpoint (choir__job_checkpoint) that --save held before the job began; 0: none */
    uint64_t old_checkpoint;
} choir__job_shared;

/* The requests of a program to its job, and the results that its rank 0 states; in shared
 * memory. */
typedef struct choir__job_told {
    _Atomic int32_t stop; /* one of CHOIR__STOP_... */
    int64_t steps;        /* done */
    double loss, eval_loss, eval_accuracy;
    char weights_sha256[65];
    char ended_by[16]; /* as in choir__progress */
} choir__job_told;

/* LOST: another job has the folder, so this one ends and saves no more. */
enum { CHOIR__STOP_NOT, CHOIR__STOP_ASKED, CHOIR__STOP_LOST };

/* --- the parts: texts are as the command line or a file gives them; NULL: the option is not
 * given --- */

/* The model and the source of its initial weights. */
typedef struct choir__job_model {
    const char *name;      /* --model: a name of the registry, a config.json, or a folder */
    const char *given;     /* text of --model, if it is a path */
    const char *weights;   /* initial weights: a file or a folder */
    const char *adapter;   /* folder of an adapter to begin with; NULL: new adapters */
    char *adapter_lora;    /* what --lora says of it, once it is read */
    const char *published; /* folder that the model was read from */
    char published_model[CHOIR_MODEL_TEXT]; /* text from its config.json */
    char published_path[PATH_MAX];          /* path of --model, without options */
    const char *tokenizer_file;             /* NULL: characters or bytes are the tokens */
    bool bytes;                             /* each byte is a token */
    const char *init;     /* NULL or choir: Choir's initial values; torch: PyTorch's */
    choir_beside *beside; /* other files of the published or resumed model; or NULL */
    choir_head head;      /* says whether a new head replaces the weights' head */
    choir_model_info info;
    choir_tokenizer *tokenizer;
    choir_class_names classes; /* names from the model or the data */
} choir__job_model;

/* The data, as samples for training and for validation. */
typedef struct choir__job_data {
    const char *path;     /* NULL: the text that comes with Choir; "-": standard input */
    const char *augment;  /* see choir_augment_parse; NULL: no augmentation */
    bool pack;            /* documents of a sample do not see one another */
    bool balance;         /* all classes are drawn equally often */
    double val_split;     /* see choir_data_opts.held_out; 0: a tenth */
    const char *columns;  /* see choir_corpus_opts.columns; NULL: the usual names */
    int64_t workers;      /* threads per rank that read ahead */
    choir_stream *stream; /* stream of standard input; else NULL */
    choir_dataset *train, *validation; /* owned by the stream, else by the job */
    double *weights_of_samples;        /* weights for --balance, or NULL */
    const char *skip; /* batches that are left out, "412:416,500"; NULL: none (job/edit.h) */
    char *skips;      /* the text of `skip`, once it is checked */
    char sha256[65];  /* "": unknown, or random data */
} choir__job_data;

/* Updates of the parameters, and the precision of the numbers. */
typedef struct choir__job_optim {
    const char *optimizer, *schedule; /* NAME[:key=value,...] */
    double lr, clip;
    double weight_decay;    /* < 0: the optimizer's own */
    const char *lr_for;     /* rates by pattern, "a=1e-5,b=0"; NULL: one for all */
    const char *freeze;     /* patterns of names, "a,b"; NULL: all are trained */
    const char *lora;       /* adapters (job/model/lora.h); NULL: none */
    const char *base;       /* type of frozen weights (job/model/base.h); NULL: --amp's */
    double ema;             /* decay of the weights' average; 0: none */
    int64_t swa, swa_every; /* first step of the weights' mean, 0: none; interval */
    const char *amp;        /* name of a level (job/model/amp.h); NULL: off */
    const char *bits; /* class of bits of the products (job/bits.h); auto: the ranks' choice */
    bool recompute;   /* choir_module_recompute_blocks */
    const char *offload; /* see choir__job_offload; NULL: memory */
} choir__job_optim;

/* The length of the training, its batches and its validations. */
typedef struct choir__job_training {
    uint64_t seed;
    int64_t batch_size,
        microbatches; /* number of samples in the global batch; number of its parts */
    int64_t chunks;   /* chunks that each sequence is cut into (strategy/chunks.c); 0: one */
    int64_t slices;   /* T, see choir/tensor_parallel.h; 0: not known yet */
    int64_t steps, epochs;
    int64_t epoch_steps; /* steps per epoch; 0: not known yet */
    int64_t eval_every, eval_epochs, eval_batches;
    bool no_eval;         /* skips the validation at the end */
    const char *metric;   /* "NAME=COMMAND" (job/trainer/metric.h); NULL: none of the user's */
    const char *best;     /* "METRIC[:min|max]"; NULL: the validation loss */
    int64_t patience;     /* evaluations without progress that end the training; 0: no limit */
    const char *max_time; /* see choir__job_seconds; NULL: no limit */
    const char *on_spike; /* "FACTOR[:key=value,...]" (job/trainer/spike.h); NULL: nothing */
    const char *find_lr;  /* draws losses over learning rates, instead of training */
    bool summary;         /* prints the module tree and ends */
    bool debug_nan;       /* names the first module with non-finite numbers */
} choir__job_training;

enum { CHOIR__MOST_SLICES = 1024, CHOIR__MOST_CHUNKS = 1 << 20 };

/* Checkpoints: the job's own, and the one that it resumes. */
typedef struct choir__job_saves {
    const char *dir;        /* --save */
    int64_t every;          /* steps between saves; 0: only at the end */
    int64_t keep;           /* number of newest checkpoints kept */
    bool warn;              /* a failed save during training is only a warning */
    bool recut;             /* --resume may change a declared cut, and the numbers */
    const char *grace;      /* see choir__job_seconds; NULL: the launcher's */
    const char *resume;     /* --resume */
    int64_t rewind;         /* --rewind, a step; 0: not given */
    char *rewound;          /* checkpoint that --rewind has chosen for `resume`, or NULL */
    int64_t rewound_from;   /* step of the run's newest checkpoint before */
    struct json_t *resumed; /* record of the resumed checkpoint; options point into its texts */
    int64_t resumed_step;
    bool resumed_validates; /* only a validation of the resumed step is still to be done */
    char *notes;            /* one line per option that --resume changes, or NULL */
    char *record;           /* job as text, saved with checkpoints; NULL: not saved */
    struct choir__claim *claims[2]; /* claims on the folders of --save and --run; NULL: none */
} choir__job_saves;

/* The strategy, and the devices that its ranks have. */
typedef struct choir__job_placement {
    const char *strategy_text, *devices; /* as the command line or a document gives them */
    const char *mesh;                    /* NULL: not given; a composition needs a mesh */
    int nproc;                           /* ranks; 1 for strategies of one process */
    int64_t threads;                     /* cores per CPU device */
    int64_t mem_cap;                     /* bytes per device; 0: no limit */
    choir__composition composition;
    const choir__job_strategy *strategy; /* strategy of the composition */
    bool automatic;  /* --strategy auto; strategy_text is its choice (auto.c) */
    bool undecided;  /* the choice waits for the data */
    int asked_ranks; /* --nproc of auto; 0: it chooses their number */
    struct choir__auto_choice *choice; /* job/auto/auto.h; the job owns it; NULL: none yet */
    char device_names[CHOIR__MAX_DEVICES][CHOIR__JOB_DEVICE_NAME];
    /* a plan may have more than names (choir__job_device_name); a training has not */
    int device_count;
    bool imagined; /* the devices need not be here: nothing will run on them */
    bool all_live; /* in a rehearsal no rank stands for others: slower, and equal */
    struct choir__rehearsal
        *rehearsal; /* the ranks are dry (job/rehearsal); NULL: they are not */
} choir__job_placement;

/* The ranks as processes: how they are started, meet, share memory and are replaced. */
typedef struct choir__job_ranks {
    const char *backend, *rendezvous, *key_file; /* NULL: from the environment */
    double timeout;                   /* seconds after which a silent rank is given up */
    double slow_after;                /* seconds until a slow rank is named; 0: never */
    int64_t max_restarts;             /* lost ranks that are replaced, at most */
    bool no_copy;                     /* --max-restarts continues from the last checkpoint */
    bool launched;                    /* started by choir run, mpirun, srun...: joins a group */
    bool nameless;                    /* launched by hand, and no CHOIR_JOB names the job */
    bool relayed;                     /* mpirun relays the output, perhaps to a file */
    int rank, world;                  /* the launcher's; 0 and 1 without one */
    struct choir__job_shared *shared; /* NULL: lost ranks are not replaced */
    _Atomic int64_t *gate; /* meeting point of ranks that step apart; NULL: no shared memory */
} choir__job_ranks;

/* The output of the training: lines, logs, traces. */
typedef struct choir__job_records {
    const char *run;        /* folder of records without checkpoints; NULL: --save's, or none */
    const char *log;        /* the last --log */
    char *logs;             /* all --log, one per line; NULL: none */
    int64_t log_every;      /* steps between lines */
    int64_t log_histograms; /* steps between histograms; 0: none */
    const char *trace;
    const char *audit; /* keys of --audit; NULL: none */
    bool json, quiet, print_job;
    bool page;                            /* a live page is served while the job runs */
    bool silent;                          /* nothing is printed */
    const struct choir_job_recorder *own; /* a program's recorder; NULL: none */
    struct choir__relay *relay;           /* to its process; NULL: this is it */
    struct choir__job_told *told;         /* shared with the program; NULL: no program */
    /* unrecorded: set to 1 when a record could not be written; recorded: set to 1 when rank 0
     * has recorded a failure of the job. May be NULL. */
    _Atomic int32_t *unrecorded, *recorded;
    _Atomic int64_t *reached; /* last step that was recorded; NULL: one process */
} choir__job_records;

#endif
