/* A training job: its options from the command line, and the values derived from them. */
#ifndef CHOIR_JOB_JOB_H
#define CHOIR_JOB_JOB_H

#include <limits.h>
#include <string.h>

#include <choir/data_open.h>
#include <choir/evaluate.h>
#include <choir/models.h>
#include <choir/optim.h>
#include <choir/stream.h>
#include <choir/training.h>

#include "line/command.h"
#include "job/devices.h"
#include "job/strategy/strategy.h"
#include "launch/launchers.h"

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

/* The parts of a job. A reader gets only the part that it needs. Texts are the values of
 * options, as the command line or a file gives them; NULL: the option is not given. */

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

typedef struct choir__job {
    const char *command; /* command, "train" or "compare", for messages */
    choir__job_model model;
    choir__job_data data;
    choir__job_optim optim;
    choir__job_training training;
    choir__job_saves saves;
    choir__job_placement placement;
    choir__job_ranks ranks;
    choir__job_records records;
    struct choir__job_source {
        struct json_t *file;       /* job file; options point into its texts; NULL: none */
        const char *path, *sha256; /* path of the job file, hash of its data; NULL: unknown */
        const char *without;       /* names of options that are not taken, or NULL */
        uint64_t left_out[2];      /* bit i: row i of choir__job_options is one of them */
    } document;
    uint64_t given[2]; /* bit i: row i of choir__job_options was on the command line */
} choir__job;

/* The options of a job. */
extern const choir__line_option choir__job_options[];

/* Returns a job before any option has been read. */
choir__job choir__job_new(const char *command);

/* Checks whether the options fit one another, and fills in the derived values. *usage: whether
 * the error is wrong usage, of options, and not a fault of a file that they name. */
choir_status choir__job_check(choir__job *job, bool *usage);
/* Settles a job whose data is open once more, after its strategy_text, mesh and nproc have
 * changed; frees the composition that it had. Errors: as choir__job_check. */
choir_status choir__job_settle_place(choir__job *job);

/* Checks whether ranks can be replaced, if --max-restarts says so. Error: argument. */
choir_status choir__job_check_restarts(const choir__job *job);

/* --- the job's folders: job/folder.c --- */

/* Returns whether an agent of `choir run` has started the ranks again, after a loss or a change
 * of nodes. */
static inline bool choir__job_is_started_again(const choir__job *job)
{
    return job->ranks.launched && choir__launcher_generation() > 1;
}

/* Refuses folders of --save and --run that hold another run. Error: argument. */
choir_status choir__job_check_folders(const choir__job *job);

/* choir__job_take_folders makes the folders and keeps other jobs out of them until
 * choir__job_leave_folders; ended: the job is done or was interrupted, so that an agent will
 * not start it again. Errors: argument, state (another job is there), I/O. */
choir_status choir__job_take_folders(choir__job *job);
void choir__job_leave_folders(choir__job_saves *saves, bool ended);

/* Returns whether the ranks copy their state to memory of the agents of `choir run`, which
 * start the ranks again after a loss. True if agents started the job and all ranks have the
 * memory. */
bool choir__job_may_be_kept(const choir__job *job);

/* Returns a number that identifies the newest checkpoint of --save; 0: no checkpoint. */
uint64_t choir__job_checkpoint(const choir__job_saves *saves);

/* Refuses a job that names a device twice. Error: argument. */
choir_status choir__job_devices_once(const choir__job_placement *placement);
/* Writes the name of a device, of those beyond device_names, too, and returns it. */
const char *choir__job_device_name(
    const choir__job_placement *placement, int device, char name[CHOIR__JOB_DEVICE_NAME]);
/* Writes the devices as --devices takes them: names, or a range of many. */
void choir__job_devices_text(const choir__job_placement *placement, char *text, size_t bytes);

/* Chooses one M for all strategies that are compared, unless one is given: four micro-batches
 * per device, or the next fewer that divide the batch, or its samples where devices are more.
 * Error: argument. */
choir_status choir__job_common_cut(choir__job *job);

/* Notes that the command line gives an option, and adds one that is repeated to those before.
 * Error: argument. */
choir_status choir__job_took(void *job, const choir__line_option *option, const char *text);

/* Returns the option whose value is a member of choir__job: CHOIR__JOB_OPTION(optim.lr) is
 * --lr. */
#define CHOIR__JOB_OPTION(member) choir__job_option_at(offsetof(choir__job, member))
const choir__line_option *choir__job_option_at(size_t offset);

/* Returns whether the command line gives the option. */
bool choir__job_was_given(const choir__job *job, const choir__line_option *option);
/* Returns whether the command line says that a document's value of the option is not taken. */
bool choir__job_leaves_out(const choir__job *job, const choir__line_option *option);

/* Returns a destination of --log with the absolute path of its file or folder, if it has one.
 * The caller frees it. */
char *choir__job_destination(const char *dest);
/* Adds a destination of --log. Error: argument. */
choir_status choir__job_add_log(choir__job_records *records, const char *destination);

/* --- the job as JSON: job/document/document.c --- */

/* Returns the prepared job as JSON, with all options; id: id of the run that it begins, or
 * NULL. The caller frees it. */
char *choir__job_text(const choir__job *job, const char *id);

/* --- words of a record: job/document/words.c --- */

/* Returns a path, with its :options if any, as an absolute path if the file or folder exists,
 * else unchanged; the caller frees it. */
char *choir__job_path(const char *text);
/* Returns whether two texts are equal before the colon: adamw and adamw:beta2=0.99. */
bool choir__job_same_kind(const char *a, const char *b);
/* Returns DATA with absolute paths, so that it is found from any folder; the caller frees it.
 */
char *choir__job_data_path(const char *data);

/* --- --strategy auto: job/auto/auto.c --- */

/* Replaces auto by what the options alone decide, or by single until choir__job_auto_end, which
 * needs the data and the model. Error: argument. */
choir_status choir__job_auto_begin(choir__job *job);
choir_status choir__job_auto_end(choir__job *job);
/* Returns a sentence about the choice; the caller frees it. */
char *choir__job_auto_text(const choir__job *job);

/* --- --offload: job/model/offload.c --- */

/* Returns true if --offload is "params" or "params:FOLDER", which off-loads fsdp's shards. Sets
 * *folder to the folder of the shards or, if it returns false, of the optimizer's state; NULL:
 * no folder. */
bool choir__job_offload(const choir__job_optim *optim, const char **folder);

/* --- --resume: job/document/resume.c --- */

/* With --resume: takes the options that the command line leaves open from the checkpoint, and
 * refuses options that differ and cannot. Errors: argument, errors of reading a checkpoint. */
choir_status choir__job_recall(choir__job *job);

/* Refuses a job that differs from the checkpoint's, or that has nothing left to do. Error:
 * argument. */
choir_status choir__job_check_resumed(const choir__job *job);

/* Adds a line to the notes, which are printed once all checks have passed. Frees the line. */
void choir__job_add_note(choir__job_saves *saves, char *line);

/* --- what --resume changes: job/document/changes.c --- */

/* Adds a note for each option that changes the numbers of the checkpoint's job or their
 * judgement, and for everything that does not continue as in that job. */
void choir__job_note_changes(choir__job *job);
/* Refuses another cut of the work than the checkpoint's, unless --recut is given. */
choir_status choir__job_check_cut(const choir__job *job);
/* Prints, for each option and each key of a strategy, whether numbers depend on it, as the
 * tables state. */
void choir__job_print_numbers(void);

/* --- where the records go: job/logs.c --- */

/* Returns whether --save is the folder of --resume's checkpoint. */
bool choir__job_goes_on_in_place(const choir__job_saves *saves);

/* The keys of --audit. */
typedef struct choir__job_audit {
    int64_t every;   /* steps between lines; 0: there is no audit */
    int64_t recheck; /* from one step that is computed again to the next; 0: none */
    bool dump;
} choir__job_audit;

/* Reads the keys of --audit: job/audited.c. Error: argument. */
choir_status choir__job_audited(const choir__job_records *records, choir__job_audit *audit);
/* Refuses wrong keys, and an audit of ranks that have no state in common. Error: argument. */
choir_status choir__job_check_audit(choir__job *job);
/* Returns whether a rank may have other micro-batches for a while, so that it needs room for
 * all of them. */
bool choir__job_deals_again(const choir__job *job);

/* Returns whether one of the job's logs takes histograms. */
bool choir__job_has_histograms(const choir__job_records *records);

/* Fails if two records would have the same place, or a record would replace a file that is not
 * a record. Error: argument. */
choir_status choir__job_check_logs(const choir__job *job);

/* Returns whether the job is recorded anywhere: in a folder, by --log, or by a program. */
static inline bool choir__job_is_logged(const choir__job *job)
{
    return job->records.run || job->saves.dir || job->records.logs || job->records.own;
}

/* Returns the text of an option in the record of --resume's checkpoint, or NULL. */
const char *choir__job_recorded(const choir__job_saves *saves, const char *name);

/* After the data and the model are open: refuses other data than the checkpoint's, and writes
 * the job's record if it will be saved. */
choir_status choir__job_note(choir__job *job);

/* Reads the names of the classes from a record, {"classes": ["down", "up"], ...}; stores no
 * names if it has no classes. The caller frees them. Error: format. */
choir_status choir__classes_of_record(const struct json_t *record, choir_class_names *classes);
/* Reads the names from a checkpoint or a published model; stores no names if its classes have
 * no names. */
choir_status choir__classes_of_saved(const char *path, choir_class_names *classes);
/* Returns the note that says which number means which class, if the data have numbers where the
 * model has names; else NULL. The caller frees it. */
char *choir__classes_note(const choir_dataset *data, const choir_class_names *classes);
/* Adds the names to a record, if the classes have names. */
void choir__job_record_classes(struct json_t *record, const choir_class_names *classes);

/* Compares the data, the build, and all options that decide the numbers, with the other ranks.
 * Collective over group. Error: mismatch, with the option and the ranks. */
choir_status choir__job_agree(const choir__job *job, choir_group *group);

/* Returns whether the data is standard input. */
bool choir__job_is_stream(const choir__job_data *data);

/* Opens the data, describes the model, and checks that all sizes fit one another. */
choir_status choir__job_prepare(choir__job *job);
/* Checks the sizes of the batch, the ranks and the cut of a job whose data is open, and sets
 * the number of micro-batches, steps and epochs that are not given. Error: argument. */
choir_status choir__job_check_sizes(choir__job *job);
void choir__job_free(choir__job *job);

/* Reads the published files that --model and --weights name, and turns the model into text.
 * Notes tell which settings of the files Choir does not support. */
choir_status choir__job_published(choir__job *job);
/* Loads the job's initial weights into net. Rank 0 tells notes about weights that keep new
 * values. */
choir_status choir__job_load_weights(const choir__job *job, choir_module *net, int rank);

/* Checks the forms of --lr-for and --lora. */
choir_status choir__job_check_groups(const choir__job_optim *optim);
/* Adds the adapters of --lora, and freezes the parameters that --freeze names, in the whole
 * model, before a strategy wraps it; checks that the patterns of --freeze and --lr-for match
 * parameters. */
choir_status choir__job_freeze(const choir__job *job, choir_module *net);
/* Freezes the parameters that a list of --freeze names, which may be NULL. Error: argument. */
choir_status choir__freeze_all(const char *patterns, choir_module *net);
/* Makes the groups of --lr-for. weight_decay: decay of the other parameters; matrices: biases
 * and norms get no decay. */
choir_status choir__job_groups(
    const choir__job_optim *options, choir_optim *optim, double weight_decay, bool matrices);

/* Makes the optimizer, with the schedule, that the job names. */
choir_status choir__job_optimizer(
    const choir__job *job, choir_scope *run, choir_module *net, choir_optim **optim);

/* Returns the steps of the schedule's warm-up; the schedule has been checked. */
int64_t choir__job_warmup(const choir__job *job);

/* Returns the number of steps in a pass over the data. */
int64_t choir__job_epoch_steps(const choir__job *job);

/* Returns whether --schedule is plateau, and its options. */
bool choir__job_plateau(const choir__job *job, choir_plateau *plateau);
/* Returns the schedule with all of its options, except `steps` if it follows the job's; the
 * caller frees it. NULL: not a schedule of the library. */
char *choir__job_schedule_text(const choir__job *job);
/* Returns whether the schedule ends with the job's last step. */
bool choir__job_is_stretched(const choir__job *job);

/* Returns the seconds of --max-time: "90", "90s", "15m", "2h" or "1d"; 0: no limit; below 0:
 * malformed text. */
double choir__job_seconds(const char *text);

/* --- sentences for people: job/report/tell.c --- */

/* Tells a sentence, or notes, a line each (NULL: none), on standard error and to a program's
 * recorder. */
void choir__job_tell(const choir__job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void choir__job_tell_notes(const choir__job *job, const char *notes);
/* Tells notes on a published folder that was read, which --quiet leaves out. */
void choir__job_tell_read(const choir__job *job, const char *notes);

/* Tells notes on options that are unlikely to be meant. */
void choir__job_notes(const choir__job *job);

/* Checks the names and options of the optimizer and the schedule. */
choir_status choir__job_check_optimizer(const choir__job *job);

#endif
