/* A training job: its options from the command line, and the values derived from them. */
#ifndef CHOIR_JOB_JOB_H
#define CHOIR_JOB_JOB_H

#include <string.h>

#include "job/parts.h"
#include "launch/launchers.h"
#include "line/command.h"

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
/* Treats the option as one that was not given: nothing is said of it. Its value stays. */
void choir__job_unsay(choir__job *job, const choir__line_option *option);
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

/* Passes on the status of a search for a checkpoint. If the folder has the records of a run
 * alone (--run), the error names the folder of its checkpoints (--save). */
choir_status choir__job_name_saves(const char *path, choir_status status);

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
