/* choir audit: comparing chains of hashes, and the tensors behind them. */
#ifndef CHOIR_CLI_AUDIT_H
#define CHOIR_CLI_AUDIT_H

#include <limits.h>

#include "audit/chain.h"
#include "base/files/map.h"
#include "checkpoint/stored.h"
#include "line/command.h"

/* The first place at which two sides part. Members that are not known are NULL, or -1. */
typedef struct choir__parting {
    bool found;
    int64_t step;
    const char *kind; /* "weight", "state", "gradient", "batch", "key" or "loss" */
    bool read;        /* the value that the step read, not the value after it */
    bool checkpoint;  /* the step was not audited: the weights of its checkpoints differ */
    char *module;     /* path of the module, or number of the micro-batch */
    int more;         /* further modules that differ in the kind */
    int64_t microbatch;
    /* the step at which both sides part, if both could be asked again: it need not be audited
     * in the first run; tensor, index and values are of that step then */
    int64_t exact_step;
    const char *exact_kind;
    /* the first op that differs, of a module (its path), in "forward" or "backward", and there
     * the operand whose gradient it is */
    char *op, *op_module;
    const char *pass;
    int64_t operand;
    char *tensor;
    int64_t index; /* position of the first element that differs, row-major */
    double value[2];
    uint64_t bits[2];
    int bytes;  /* size of an element; 0: values are not known */
    char *note; /* why no values are known; NULL: they are, or nothing differs */
} choir__parting;

/* A parting at which nothing is known. */
choir__parting choir__parting_none(void);
void choir__parting_free(choir__parting *p);

/* Notes the tensor and the element that differ, and both its values. */
void choir__parting_element(choir__parting *p, const char *tensor, int64_t index,
    choir_dtype dtype, const void *x, const void *y);

/* --- chains: lines.c --- */

/* Compares two lines of one step, in the order in which a step's numbers depend on each other.
 * Hashes that one side does not know are passed over. modules: names, of the first side. */
void choir__lines_compare(
    const json_t *a, const json_t *b, const json_t *modules, choir__parting *p);

/* Error: argument, if the chains have other modules. */
choir_status choir__lines_same_modules(
    const char *path_a, const choir__chain *a, const char *path_b, const choir__chain *b);

/* --- tensors: tensors.c --- */

/* Opens the tensors of a step in a run's folder: the step's dump, or else its checkpoint.
 * Returns false if neither exists and can be read. */
bool choir__tensors_open(choir__stored *stored, const char *folder, int64_t step);

/* Finds, in what p->step has left in two folders, the first tensor of p->module and p->kind, or
 * of all (module NULL), that differs, and in it the first element. *found: set to whether it
 * found one. Returns whether both folders have such tensors. */
bool choir__left_compare(const char *a, const char *b, choir__parting *p, bool *found);

/* Compares a step's ops in two folders, and then its tensors. Returns whether both have them,
 * and an element differs. */
bool choir__tensors_of_folders(const char *a, const char *b, choir__parting *p);

/* Steps of the checkpoints in a run's folder, ascending, on the heap. */
int64_t *choir__checkpoint_steps(const char *folder, int *count);

/* --- ops: ops.c --- */

typedef struct choir__op_entry {
    const choir__st_tensor *tensor;
    int64_t micro, when;
    int64_t same_name; /* position of another one; -1: none */
} choir__op_entry;

/* The results of a step's ops (src/audit/ops.h), in program order. */
typedef struct choir__op_files {
    choir__st_file **files; /* (file_count) */
    choir__op_entry *list;  /* (count) */
    int file_count, count;
    choir__map names; /* positions in the list */
} choir__op_files;

/* Opens the ops of a step that a run's folder has. Returns false if it has no such
 * file. */
bool choir__ops_open(choir__op_files *ops, const char *folder, int64_t step);
void choir__ops_close(choir__op_files *ops);

/* Finds the first op of p->step that differs in two folders, and the element. Returns whether
 * it found one. If both have ops and all are equal, p->op says what follows them. */
bool choir__ops_of_folders(const char *a, const char *b, choir__parting *p);

/* Returns the output of a module over all micro-batches, "output.PATH", or the gradient of the
 * step's loss by it, "output_grad.PATH"; NULL: the step has none. The caller frees it. */
float *choir__ops_output(const choir__op_files *ops, const char *name, int64_t *count);
/* Returns the place of such a tensor in program order, of the first micro-batch; INT64_MAX: the
 * step has none. */
int64_t choir__ops_place(const choir__op_files *ops, const char *name);

/* --- running again: again.c --- */

/* A span of a training for choir__again_run. */
typedef struct choir__again {
    const char *run;            /* the folder of the run, for messages */
    const char *job;            /* the job file */
    const char *build;          /* the command, or its folder; NULL: this one */
    const char *const *options; /* (option_count) options of choir train, such as "--nproc=2" */
    int option_count;
    const char *start; /* the checkpoint's folder, or NULL: the beginning */
    int64_t until;     /* step of the last line that is asked for */
    int64_t every;     /* steps between lines */
    bool dump;
    const char *folder; /* receives the records */
    int *signal;        /* receives the signal that has stopped the command */
} choir__again;

/* Returns whether the next steps are needed; called after lines were added. */
typedef bool choir__again_look(void *arg, const json_t *line);

/* Runs a span, and calls look for each line of its audit. The run is stopped when look returns
 * false or the last line has come. Errors: argument (the run cannot be run again), I/O, state
 * (it failed, with its message), interrupted. */
choir_status choir__again_run(const choir__again *again, choir__again_look *look, void *arg);

/* --- choir audit RUN: audit.c, values.c --- */

/* The command line, and the span that it asks for. */
typedef struct choir__audit_request {
    const char *steps, *against, *bits, *strategy, *mesh, *devices, *backend;
    int64_t nproc, threads, step;
    double tolerance;
    bool json;
    int64_t from, until; /* steps [from, until) */
    const char *run;
    char *job;          /* the job file of the present piece */
    char *start;        /* folder of the checkpoint with which it begins; NULL: the start */
    int64_t start_step; /* step of that checkpoint; 0: the start */
    int64_t begun;      /* start_step of the first piece; -1: before it */
    int64_t compared;   /* steps so far */
    int signal;         /* the signal that stops the audit; 0: none */
    char *folder;       /* temporary */
    char *note;         /* lines that precede the result, or NULL */
    /* (option_count) options of choir train for the second run, which differ from the first
     * run's */
    char *options[8];
    int option_count;
    const choir__line_option *given[16]; /* (given_count) the command line's options */
    int given_count;
} choir__audit_request;

/* Audited steps that can be run again in one go: pieces.c. */
typedef struct choir__audit_piece {
    /* lines of beginnings: the last one before `last`, and the first one since which no option
     * has changed the numbers */
    const json_t *begin, *era;
    int64_t
        before; /* the audited step before the first one, or the step that a chain begins at */
    int64_t first, last, count, every; /* audited steps */
} choir__audit_piece;

/* Returns the pieces of a span, on the heap. */
choir__audit_piece *choir__audit_pieces(
    const choir__chain *chain, int64_t from, int64_t until, int *count);
/* Finds the job and the nearest state of a piece, until choir__audit_end_piece. Errors:
 * argument, I/O. */
choir_status choir__audit_begin_piece(
    choir__audit_request *request, const choir__audit_piece *piece);
void choir__audit_end_piece(choir__audit_request *request);
/* Notes the steps that are asked for and that came before the chain's beginning. */
void choir__audit_note_begin(choir__audit_request *request, const choir__chain *chain);

/* A comparison of a chain with the lines of a second run, within a span. */
typedef struct choir__audit_comparison {
    const choir__audit_request *request;
    const choir__chain *chain;
    choir__parting *parting;
    int64_t compared;
} choir__audit_comparison;

/* Functions for choir__again_run: the first one's arg is a choir__audit_comparison. */
bool choir__audit_compare_line(void *arg, const json_t *line);
bool choir__audit_any_line(void *arg, const json_t *line);

/* Returns a second run of the request, without a dump. */
choir__again choir__audit_again(
    choir__audit_request *request, const char *folder, int64_t until, int64_t every);
/* Adds a line to the request's note, which takes it; NULL: adds none. */
void choir__audit_note(choir__audit_request *request, char *line);
/* Makes a folder in the temporary one; the caller frees its path. */
char *choir__audit_folder(const choir__audit_request *request, const char *name);

/* Names the element and the values at a parting, where both sides can be asked, or notes why
 * not. */
void choir__audit_values(
    choir__audit_request *request, const choir__chain *chain, choir__parting *p);

/* --- output: report.c --- */

/* Prints a result as JSON or as sentences. what: "RUN, steps 50 to 100"; note: lines that
 * precede it, or NULL; other: the name of the second side; from: the step after which the
 * second side was run again, or -1. */
void choir__audit_report(bool json, const char *what, const char *note, const char *other,
    int64_t from, const choir__parting *p);

/* Returns a note with one more line; takes both, and each may be NULL. */
char *choir__note_add(char *note, char *line);

/* --- beside the audit: run_facts.c --- */

/* Error: I/O, argument: there is no run's folder. or_file: the message names the other thing
 * that is expected in this place, a file of weights. */
choir_status choir__audit_find(const char *run, bool or_file);

/* Returns how the last process of a run has failed by the run's folder, as "failed at step 7:
 * ...", also where its record has no end; NULL: it has not. The caller frees it. */
char *choir__audit_failure(const char *folder);
/* Returns that a run has no audit data, or no line of a step; the caller frees it. */
char *choir__audit_lacks(const char *run, const choir__chain *chain);
/* Returns how the last process of a run has ended; the caller frees it. */
char *choir__audit_end(const char *folder);
/* Returns a note if the run has done steps before `until` that its chain lacks, or NULL; the
 * caller frees it. */
char *choir__audit_cut(const char *run, const choir__chain *chain, int64_t until);

/* --- choir audit diff: diff.c, file.c --- */

/* Prints what differs between two runs. *equal: whether nothing does. */
choir_status choir__audit_diff(const char *a, const char *b, bool json, bool *equal);
/* Compares tensors of a run's dump with a file of another program. step: -1: the newest. */
choir_status choir__audit_diff_file(
    const char *run, const char *file, int64_t step, double tolerance, bool json, bool *equal);

#endif
