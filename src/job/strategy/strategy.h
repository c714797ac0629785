/* The strategies that the command offers: one entry per name, each in its own file.
 *
 * An entry defines its keys, the devices and ranks it uses, the number of micro-batches unless
 * specified, how it wraps the model, and how one step runs. Everything else (data, optimizer,
 * evaluation, checkpoints, reports) is the same under every strategy.
 *
 * Several strategies form a composition, such as "ddp+pipeline", on a mesh (mesh.c). Each has
 * one dimension of the mesh, and the ranks along it are its group, part->along. Strategies
 * that change or cut the model come first; of the others the innermost one wraps the model, and
 * the next one wraps the result. An entry that names its
 * dimension can take part without further code: its build wraps part->model and takes its
 * ranks from part->along, not from the job. */
#ifndef CHOIR_JOB_STRATEGY_STRATEGY_H
#define CHOIR_JOB_STRATEGY_STRATEGY_H

#include <choir/amp.h>
#include <choir/data.h>
#include <choir/env.h>
#include <choir/mesh.h>
#include <choir/optim.h>

#include "line/command.h"

enum {
    CHOIR__MAX_DEVICES = 64,    /* limit for one machine */
    CHOIR__MOST_RANKS = 1 << 20 /* limit for plans and launchers */
};

struct choir__job;
struct choir__job_placement;

/* A process's part of a job, as far as a strategy sees it. */
typedef struct choir__job_rank {
    const struct choir__job *job;
    choir_env env;
    const char *bits; /* class of bits of the products; "" until the ranks have met */
    bool holds_bits;  /* the process computes in it for this part */
    bool one_onednn;  /* all ranks have oneDNN, with the same bits */
    choir_mesh *mesh; /* mesh of a composition; else NULL */
    /* Like env, for the ranks that micro-batches are distributed to; group may be NULL if this
     * rank is the only one. */
    choir_env dealt;
    choir_group *also; /* dealt.group, if it is a separate group */
    /* The dimension for which a strategy's function is called. */
    const struct choir__dimension *at;
    choir_group *along;                        /* the ranks along the dimension, in order */
    choir_device *devices[CHOIR__MAX_DEVICES]; /* devices of this process; the first is home */
    int device_count;
    choir_scope *run;
    choir_module *net, *model; /* net: bare; model: as wrapped so far */
    choir_module *evaluated;   /* net or model, for runs outside of steps */
    choir_optim *optim;
    choir_scaler *scaler;  /* scaler for --amp fp16, O1, O2; else NULL */
    choir_group *subgroup; /* a strategy's own group, or NULL */
    choir_loader *loader; /* loader of micro-batches [micro_first, micro_first + micro_count) */
    int64_t micro_first, micro_count;
    /* A step has a turn for each of this rank's workers, or one turn (choir__job_rank_turn).
     * Turn `turn` of `turns` has the rank's micro-batches [turn_from, turn_until); a worker has
     * `each` of them. */
    int64_t turn, turns, turn_from, turn_until, each;
    /* Where targets are ignored: this step's batches (micro_count), which a turn reads before
     * its first forward; the number of batches taken so far; and the divisor of the losses. */
    choir_batch *batches;
    int64_t taken;
    choir_tensor *divisor; /* NULL: all targets count */
    /* (micro_count) number of each turn's targets that count, in memory that persists */
    choir_tensor **counted;
    /* Losses of these micro-batches, in memory that persists: loss_count tensors with
     * micro_count values together, in order. The array has micro_count entries. */
    choir_tensor **losses;
    int64_t loss_count;
    double started, busy_before[CHOIR__MAX_DEVICES]; /* start of the measurement */
} choir__job_rank;

typedef enum choir__spread {
    CHOIR__ONE_DEVICE,     /* one process with the first device */
    CHOIR__ALL_DEVICES,    /* one process with all devices */
    CHOIR__DEVICE_A_RANK,  /* one process per device, each with its own micro-batches */
    CHOIR__RANKS_TOGETHER, /* one process per device, all share in each micro-batch */
    CHOIR__ON_A_MESH,      /* a composition: each strategy has its own spread */
} choir__spread;

/* Whether a strategy trains on sequences that are cut into chunks (chunks.c). */
typedef enum choir__chunked {
    CHOIR__NO_CHUNKS,
    CHOIR__CHUNKS_BELOW,    /* a rank has all chunks of its samples */
    CHOIR__CHUNKS_OF_RANKS, /* ranks share the chunks */
} choir__chunked;

/* The parts of a job's cut that a strategy's ranks divide among themselves without changing a
 * bit, where --strategy auto may place it on any number of ranks. */
typedef enum choir__divided {
    CHOIR__NOT_PLACED,
    CHOIR__MICRO_BATCHES,
    CHOIR__CHUNKS,
    CHOIR__SLICES,
    CHOIR__LAYERS,
    CHOIR__DIVIDED /* number of kinds of parts */
} choir__divided;

/* A comparison sets the fastest strategy of each family side by side. */
typedef enum choir__strategy_family {
    CHOIR__OTHER_FAMILY,
    CHOIR__UNDIVIDED, /* one device alone */
    CHOIR__DATA_PARALLEL,
    CHOIR__MODEL_PARALLEL,
    CHOIR__PIPELINED,
} choir__strategy_family;

/* How a job continues when ranks are lost or join (choir/elastic.h). */
typedef enum choir__recovery {
    CHOIR__NO_RECOVERY,
    CHOIR__IN_PLACE,       /* the remaining ranks keep their objects */
    CHOIR__REBUILT,        /* any number of ranks rebuilds the objects */
    CHOIR__REBUILT_AS_MANY /* the same number of ranks rebuilds: results or parts depend on it
                            */
} choir__recovery;

/* A cut of the work that a key declares: see declared_cut.c. */
typedef struct choir__declared_cut {
    const char *name; /* the key, "workers"; NULL: these keys declare no cut */
    int64_t *number;  /* 0: unspecified */
    /* true: workers, which ranks share, by default one per rank; false: groups, by default as
     * many as a rank has micro-batches */
    bool of_ranks;
} choir__declared_cut;

typedef struct choir__job_strategy choir__job_strategy;
struct choir__job_strategy {
    const char *name;
    const char *help; /* one line */
    /* Keys of a text such as "ddp:bucket_cap_mb=25". Their values are stored in the strategy's
     * own struct of keys_bytes bytes, which build finds in part->at->keys. NULL: no keys. Each
     * key says whether the strategy's numbers depend on it: FREE or TAKES. */
    const choir__line_option *keys;
    size_t keys_bytes;
    /* Checks the struct and may complete it. Error: argument. NULL: accepts every value. */
    choir_status (*check)(void *keys);
    /* Dimension of a mesh that the strategy works along, such as "data". NULL: the strategy
     * cannot be part of a composition. */
    const char *dimension;
    choir__strategy_family family;
    choir__spread spread;
    /* A device holds a part of the model: the strategy wraps it before its weights are drawn or
     * read from a file, so that no device ever holds all weights. */
    bool parts;
    bool shards; /* the parts are rows of f32 weights */
    /* Returns the number of ranks, of `ranks` in all, that share the rows of one model. NULL:
     * each has a whole one. */
    int (*sharers)(const void *keys, int ranks);
    /* Returns G where ranks have unequal numbers of micro-batches of each group m modulo G, and
     * meet by these groups; else 1. May be NULL: 1. */
    int64_t (*meet_by)(const void *keys, int ranks, int64_t microbatches);
    choir__chunked chunks;
    /* The registry's first strategy with a division is auto's first choice for it. */
    choir__divided divides;
    bool slices; /* the ranks share the slices of large weights (choir/tensor_parallel.h) */
    /* Returns the recovery for these keys. May be NULL: `recovery` holds for all keys. */
    choir__recovery (*recovers)(const void *keys);
    /* Returns the cut that the keys declare beside the micro-batches, on which the numbers
     * depend then. NULL: none. */
    choir__declared_cut (*cut)(void *keys);
    /* Returns whether the numbers depend on the number of ranks all the same. NULL: they do
     * where own_numbers says that they are the strategy's own. */
    bool (*by_ranks)(const void *keys, int ranks, int64_t microbatches);
    /* Forms that are tried unasked (choir__job_strategy_form), ended by NULL. NULL: the name
     * alone. */
    const char *const *variants;
    int64_t micro_each; /* default micro-batches per device or rank; 0: one in all */
    /* Wraps part->model, before the optimizer and the loader exist. Evaluation runs net unless
     * build sets part->evaluated. */
    choir_status (*build)(choir__job_rank *part);
    /* Runs forward and backward of this process's micro-batches and fills in part->losses. In a
     * composition one strategy may have its own step; the others have
     * choir__job_strategy_plain_step. */
    choir_status (*step)(choir_scope *step, choir__job_rank *part);
    /* turns returns the number of turns of the next step; turn begins one of them. Each has its
     * own call of step and of the optimizer. NULL: one turn. */
    int64_t (*turns)(const choir__job_rank *part);
    choir_status (*turn)(choir__job_rank *part, int64_t turn);
    /* Called when the optimizer and the scaler exist. May be NULL. */
    choir_status (*optimizer)(choir__job_rank *part);
    /* The strategy's form over several ranks; NULL: it always runs in one process. */
    const choir__job_strategy *over_ranks;
    /* For strategies whose ranks step by themselves, each on the mean of its own losses: makes
     * net equal on all ranks. All ranks call it before validation, before a checkpoint, and at
     * the end. NULL: the ranks step together. */
    choir_status (*meet)(choir__job_rank *part);
    /* True right after the strategy synchronised the ranks on its own schedule. Validation and
     * checkpoints that fell due in between happen only then. NULL: never. */
    bool (*together)(const choir__job_rank *part);
    /* Called after all ranks have read weights from a checkpoint. May be NULL. */
    choir_status (*resumed)(choir__job_rank *part);
    /* Returns whether ranks can compute each other's micro-batches, or share them, where the
     * recovery is not in place. NULL: no. */
    bool (*turns_ranks)(const void *keys);
    choir__recovery recovery; /* used when ranks are lost or join */
    /* Returns whether the strategy's numbers differ from `single` with these keys and ranks,
     * and so depend on the keys and on the number of ranks. NULL: it has the bits of `single`.
     */
    bool (*own_numbers)(const void *keys, int ranks, int64_t microbatches);
    /* Returns whether the ranks along its dimension share the tokens between layers. May be
     * NULL.
     */
    bool (*shares_tokens)(const void *keys);
    /* Names the state that checkpoints lack, so that a resumed job has other numbers
     * than an uninterrupted one; returns NULL if nothing is lacking. May itself be NULL. */
    const char *(*forgets)(const void *keys, int ranks);
};

/* Returns whether ranks along the strategy's dimension have micro-batches of their own, and, in
 * an evaluation, batches of their own. */
static inline bool choir__job_strategy_deals(const choir__job_strategy *s)
{
    return s->spread == CHOIR__DEVICE_A_RANK;
}

/* The registry, ended by NULL. */
extern const choir__job_strategy *const choir__job_strategies[];

/* Returns strategy number i, from 0, that divides this part of the cut, or NULL. */
const choir__job_strategy *choir__job_strategy_dividing(choir__divided what, int i);

/* Returns form i, from 0, that `choir compare` and `choir plan` try unless --strategies names
 * others: the forms of each strategy, then compositions of two. Returns NULL after the last
 * one. *strategy: the form's strategy, or NULL for a composition. */
const char *choir__job_strategy_form(int i, const choir__job_strategy **strategy);

/* Finds the strategy that text names before its colon. Error: argument, with the names. */
choir_status choir__job_strategy_find(const char *text, const choir__job_strategy **strategy);

/* --- keys: keys.c --- */

/* Allocates the strategy's keys and fills them in from "ddp:bucket_cap_mb=25"; *keys is NULL if
 * the strategy has none. Error: argument; the caller frees *keys also after an error. */
choir_status choir__job_strategy_read(
    const choir__job_strategy *s, const char *text, void **keys);

/* Writes "[:bucket_cap_mb=25,...]", or "" without keys, into text and returns it. */
const char *choir__job_strategy_keys_text(
    const choir__job_strategy *s, char *text, size_t bytes);

/* Returns the strategy's text with the keys that affect its numbers and differ from their
 * defaults; the caller frees it. */
char *choir__job_strategy_own_text(const choir__job_strategy *s, void *keys);

/* --- compositions: mesh.c --- */

typedef struct choir__dimension {
    const choir__job_strategy *strategy;
    void *keys;    /* the strategy's keys, as --strategy gives them */
    int size;      /* ranks along the dimension, or devices of a process */
    bool declares; /* --strategy, or the job that is resumed, declares the strategy's cut */
    bool settled;  /* the cut is known */
} choir__dimension;

/* The value of --strategy: one strategy, or several, the outermost first. */
typedef struct choir__composition {
    choir__dimension dims[CHOIR_MESH_MAX_DIMS];
    int count;
    /* for several strategies: a combined strategy that calls each of them */
    choir__job_strategy whole;
    char name[96];
} choir__composition;

/* Reads "ddp:...+pipeline:...". The caller frees the composition, also after an error. Error:
 * argument, also if the strategies do not compose. */
choir_status choir__composition_parse(const char *text, choir__composition *c);
/* Returns the end of the first strategy in a list. Commas separate strategies, but also the
 * keys of one. */
const char *choir__strategy_end(const char *list);
void choir__composition_free(choir__composition *c);
/* Returns the only strategy, or the combined strategy. */
const choir__job_strategy *choir__composition_strategy(choir__composition *c);
/* Reads "2x4" into the sizes, with one dimension per strategy. */
choir_status choir__composition_mesh(choir__composition *c, const char *text);
/* Returns whether the innermost strategy works within one process, over as many devices as its
 * dimension has. */
bool choir__composition_inside(const choir__composition *c);

/* The strategy of a composition of several. */
choir_status choir__composition_build(choir__job_rank *part);
choir_status choir__composition_resumed(choir__job_rank *part);

/* Returns the number of ranks along dimension d of a job with `ranks`. */
static inline int choir__composition_ranks(const choir__composition *c, int d, int ranks)
{
    return c->count > 1 ? c->dims[d].size : ranks;
}
/* Returns the number of ranks that share each sequence, of `ranks` in all (chunks.c). */
int choir__composition_sharers(const choir__composition *c, int ranks);

/* Returns the number of ranks that share the slices of large weights, of a job with `ranks`. */
static inline int choir__composition_slicers(const choir__composition *c, int ranks)
{
    int product = 1;
    for (int d = 0; d < c->count; d++)
        if (c->dims[d].strategy->slices)
            product *= choir__composition_ranks(c, d, ranks);
    return product;
}

/* Returns the part of the composition that affects the numbers of a job with `ranks`, such as
 * "tp of 2 ranks": equal texts mean equal numbers; "" means the numbers of `single`. The caller
 * frees it. */
char *choir__composition_numbers(const choir__composition *c, int ranks, int64_t microbatches);

/* Makes one group per dimension, and finds the ranks that micro-batches are distributed to.
 * Collective. */
choir_status choir__job_rank_mesh(choir__job_rank *part);

/* Returns the ranks among which micro-batches are distributed, as they are when none of them is
 * turned. */
choir_group *choir__job_rank_dealers(const choir__job_rank *part);
/* Returns this rank's number among those that share its micro-batches. */
int choir__job_rank_share(const choir__job_rank *part);

/* Returns the ranks that share the batches of an evaluation: those that micro-batches are
 * distributed to. */
choir_group *choir__job_rank_evaluates(const choir__job_rank *part);

/* --- declared_cut.c --- */

/* Returns the declared number of workers; 0: the strategy has none, or they are not settled. */
int64_t choir__composition_workers(const choir__composition *c);
/* Sets the cut that --strategy leaves open: as in `before`, a composition that is continued, or
 * NULL; else by the number of ranks. microbatches 0: not known yet. */
void choir__composition_settle(
    choir__composition *c, const choir__composition *before, int ranks, int64_t microbatches);
/* Returns the number of workers that ranks share; 0: the strategy has no workers, or each rank
 * is one whose share of the micro-batches may differ. */
int64_t choir__job_strategy_workers_shared(const struct choir__job *job);
/* Returns the number of parts of the work that are distributed to ranks, each to one: workers,
 * or micro-batches. */
int64_t choir__job_strategy_units(const struct choir__job *job);
/* Checks that workers, micro-batches and the ranks that get work fit one another. */
choir_status choir__job_strategy_check_workers(const struct choir__job *job, int ranks);
/* Refuses to continue a job of another cut, unless --recut is given. */
choir_status choir__job_strategy_check_recut(
    const struct choir__job *job, const choir__composition *before);
/* Returns the value of --strategy with its cut, or NULL: it says all. The caller frees it. */
char *choir__job_strategy_whole_text(const struct choir__job *job);

/* --- chunks.c --- */

/* Sets the number of chunks that the job leaves open, and checks that it fits the model and the
 * ranks. */
choir_status choir__job_strategy_check_chunks(struct choir__job *job);
/* Returns a note for ranks whose work under a causal mask differs, or NULL; the caller frees
 * it. */
char *choir__job_strategy_chunks_note(const struct choir__job *job);
/* Wraps part->model so that one rank trains on all chunks of a sequence; does nothing with one
 * chunk, or if a strategy's ranks share them. */
void choir__job_strategy_cut_sequences(choir__job_rank *part);

/* --- step.c --- */

/* Returns whether the strategy uses several processes. */
bool choir__job_strategy_has_ranks(const choir__job_strategy *s);

/* Returns the number of devices or ranks that a job's work is distributed to. */
int choir__job_strategy_workers(const struct choir__job_placement *placement);
/* Returns the number of devices of each process. */
int choir__job_strategy_devices(const struct choir__job_placement *placement);
/* Returns the number of ranks that have their own micro-batches, each a contiguous run. */
int choir__job_strategy_dealt(const struct choir__job_placement *placement);
/* Returns the number of ranks that share the slices of large weights. */
int choir__job_strategy_slicers(const struct choir__job_placement *placement);
/* Sets the number of slices, unless it is given. Error: argument. */
choir_status choir__job_strategy_settle_slices(struct choir__job *job);
/* Returns the default number of micro-batches in the global batch. */
int64_t choir__job_strategy_microbatches(const struct choir__job_placement *placement);

/* Adds a device that a strategy uses in addition to the part's. Does nothing if device is NULL
 * or the part has it already. */
void choir__job_rank_add_device(choir__job_rank *part, choir_device *device);

/* Returns how the job continues when ranks are lost. */
choir__recovery choir__job_strategy_recovery(const struct choir__job *job);

/* Returns whether ranks never have a state in common, so that rank 0 saves its own. */
bool choir__job_strategy_alone(const struct choir__job_placement *placement);

/* Names the state that checkpoints of the job lack, for the first strategy with such state;
 * NULL: none. */
const char *choir__job_strategy_forgets(const struct choir__job_placement *placement);

/* Returns whether a process's device holds the whole model, and computes it by itself in
 * evaluation. */
bool choir__job_strategy_is_whole(const struct choir__job_placement *placement);

/* Returns the number of turns of the next step. */
int64_t choir__job_rank_turns(const choir__job_rank *part);
/* Begins a turn of a step. */
choir_status choir__job_rank_turn(choir__job_rank *part, int64_t turn);

/* Begins a turn's work. If targets of the model are ignored, reads the batches of all of its
 * micro-batches and makes the divisor of their losses, which depends on all of them. */
choir_status choir__job_rank_begin(choir__job_rank *part, choir_scope *step);
/* Stores the batch of the next micro-batch, in the micro-batch's scope. */
choir_status choir__job_rank_next(choir__job_rank *part, choir_scope *micro, choir_batch *b);

/* Returns the tensor at which backward starts: the loss, scaled if gradients are scaled. */
choir_tensor *choir__job_rank_scaled(const choir__job_rank *part, choir_tensor *loss);

/* Runs forward and backward of the micro-batches one by one, for strategies whose micro-batches
 * are plain code. */
choir_status choir__job_strategy_plain_step(choir_scope *step, choir__job_rank *part);

#endif
