/* Internals of `choir plan`: the strategies that it compares, and the time and memory that each
 * would take.
 *
 *     plan.c        the command
 *     parse.c       its options
 *     candidates.c  strategies, compositions and their meshes
 *     foresee.c     rehearses one strategy, and judges whether it fits
 *     calibrate.c   measures this machine
 *     remedies.c    changes of the job that would make it fit
 *     table.c       the table and the JSON; times.c: the table of times
 *     holders.c     holders of the memory, by name
 *     plot.c        the picture of a step
 *     other_cut.c   another cut that would be faster
 *     size.c        bytes as people read them
 *     advice.c      the choice, in a sentence and as a command line */
#ifndef CHOIR_CLI_PLAN_H
#define CHOIR_CLI_PLAN_H

#include "job/job.h"
#include "job/rehearsal/price.h"

/* A strategy of the plan. */
typedef struct choir__plan_entry {
    char text[320]; /* as --strategy takes it */
    char mesh[64];  /* as --mesh takes it; "": no composition */
    bool planned;   /* false: it cannot run, as `error` says */
    char error[600];
    int64_t microbatches;
    int ranks; /* processes that run it; 1 for strategies of one process */
    choir__rehearsal rehearsal;
    double bytes; /* peaks of its devices together, where they share one memory */
    bool apart;   /* a result with other bits than a single device's */
    bool fits;
    char lacks[800];           /* the reason why it does not fit */
    choir__step_price price;   /* the time of its step */
    double items;              /* tokens or samples of a step */
    bool tokens;               /* items are tokens */
    int64_t steps, save_every; /* steps of the training, and between saves */
    int64_t eval_every, eval_batches, eval_at_end; /* validations; eval_at_end: 0 or 1 */
    /* a remedy's change of the job before the rehearsal, by `times`; NULL: no change */
    void (*change)(const struct choir__plan_entry *entry, choir__job *job);
    int64_t times;
    const struct choir__plan_change *with; /* the remedy's kind of change */
    choir__forecast *when; /* receives the time of each recorded entry; NULL: not requested */
} choir__plan_entry;

/* A change that makes the job fit. */
typedef struct choir__plan_remedy {
    char *words, *command;
    double bytes; /* as choir__plan_entry.bytes */
} choir__plan_remedy;

typedef struct choir__planning {
    choir__job job; /* first: the options of train point into it */
    const char *strategies;
    int64_t memory; /* bytes of the machine, or of a node (choir__plan_has_nodes) */
    char devices[CHOIR__MAX_DEVICES *
                 (CHOIR__JOB_DEVICE_NAME + 1)]; /* --devices of all entries */
    const char *cluster;                        /* path of its file; NULL: this machine */
    bool calibrate;
    const char *plot; /* picture; NULL: none */
    double items;     /* items of the training that is priced; 0: the job's */
    double price;     /* per device and hour; 0: the cluster's */
    char *other;      /* the sentence about another cut; NULL: none is faster */
    char *other_command;
    int64_t other_cut; /* micro-batches of the other cut; 0: none is faster */
    double other_ms;
    choir__machine machine; /* the place of the replays */
    const choir__line_command *command;
    int argc;
    char **argv; /* the command line, from which the job of each entry is made */
    char **args; /* (arg_count) options and operands that the advised command repeats */
    int arg_count;
    choir__plan_entry *entries;
    int count;
    const choir__plan_entry *nearest; /* if nothing fits: the entry that lacks least, */
    choir__plan_remedy *remedies;     /* and changes with which it fits, the mildest first */
    int remedy_count;
} choir__planning;

extern const choir__line_option choir__plan_options[];

/* Takes an option: see choir__line_command.took. */
int choir__plan_took(void *plan, const choir__line_option *option, const char *text);
/* Reads the command line. Returns an exit status. */
int choir__plan_parse(
    const choir__line_command *command, choir__planning *p, int argc, char **argv);
/* Reads the command line again into a copy, whose job the caller frees. Returns an exit status.
 */
int choir__plan_parse_again(const choir__planning *p, choir__planning *copy);

/* Lists the strategies to compare. Without --microbatches, all of them get the same M
 * (choir__job_common_cut). Error: argument. */
choir_status choir__plan_list(choir__planning *p);

/* Rehearses an entry's job, and fills in the entry's results. */
void choir__plan_foresee(choir__planning *p, choir__plan_entry *e);
/* Returns whether the job's CPU devices belong to nodes of a described cluster, with a memory
 * per node. */
bool choir__plan_has_nodes(const choir__planning *p);

/* Measures this machine, and stores its table. Returns an exit status. */
int choir__plan_calibrate(choir__planning *p);
/* If no entry fits, finds changes with which the nearest one would. */
void choir__plan_mend(choir__planning *p);
void choir__plan_print_remedies(const choir__planning *p);

/* times.c: the table of times; the seconds and the cost of a training. */
void choir__plan_times(const choir__planning *p);
double choir__plan_seconds(const choir__planning *p, const choir__plan_entry *e);
double choir__plan_cost(const choir__planning *p, const choir__plan_entry *e);
bool choir__plan_has_price(const choir__planning *p);

/* plot.c: draws a step of the entry. Errors: as choir__plan_foresee, I/O. */
choir_status choir__plan_plot(choir__planning *p, const choir__plan_entry *entry);

/* other_cut.c: rehearses the best entry with other numbers of micro-batches, which have other
 * bits, and notes a clearly faster one. */
void choir__plan_other_cut(choir__planning *p);

/* holders.c: what holds the memory of the fullest device (holders.h). Writes "most of it is
 * activations, above all of blocks.*.attn". */
void choir__plan_say_holder(const choir__rehearsal *r, char *text, size_t bytes);
void choir__plan_print_holders(const choir__plan_entry *e);

void choir__plan_table(const choir__planning *p);
void choir__plan_json(const choir__planning *p);

/* Returns the entry that the plan advises, or NULL if no entry fits. */
const choir__plan_entry *choir__plan_best(const choir__planning *p);
/* Returns the sentence that advises `best`; the caller frees it. */
char *choir__plan_sentence(const choir__planning *p, const choir__plan_entry *best);
/* Returns the `choir train` command line of an entry, with `more` options (" --recompute"); the
 * caller frees it. */
char *choir__plan_command(
    const choir__planning *p, const choir__plan_entry *e, const char *more);
/* Appends p->args, the words that `choir train` takes over from this command line, to `line`.
 * Frees `line`, and returns the longer line, which the caller frees. */
char *choir__plan_with_args(const choir__planning *p, char *line);

/* Writes bytes as people read them, such as "1.5 GiB", and returns text. */
const char *choir__plan_size(double bytes, char text[32]);
/* Writes milliseconds as people read them, such as "228 s", and returns text. */
const char *choir__plan_time(double ms, char text[32]);

#endif
