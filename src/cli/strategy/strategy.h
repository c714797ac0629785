/* Strategies as the command knows them: an entry for each name, in a file of its own.
 *
 * An entry defines its keys, the devices and ranks it uses, the number of micro-batches unless
 * specified, how it wraps the model, and what one step is. All else (data, optimizer,
 * evaluation, checkpoints, reports) is the same under every strategy.
 *
 * Several make a composition, "ddp+pipeline", on a mesh (mesh.c): each has a dimension
 * of it, and the ranks along that are its group, part->along. The innermost wraps the model
 * first, the next one what that gave. An entry that names its dimension can take part, by
 * itself: build wraps part->model and asks part->along, not the job, who its ranks are. */
#ifndef CHOIR_CLI_STRATEGY_H
#define CHOIR_CLI_STRATEGY_H

#include <choir/amp.h>
#include <choir/data.h>
#include <choir/env.h>
#include <choir/mesh.h>
#include <choir/optim.h>

#include "cli/command.h"

enum { CHOIR__MAX_DEVICES = 64 };

struct choir__job;

/* A process's part of a job, as far as a strategy sees it. */
typedef struct choir__cli_part {
    const struct choir__job *job;
    choir_env env;
    choir_mesh *mesh;  /* of a composition; else NULL */
    choir_env dealt;   /* the ranks that micro-batches are dealt to, as env tells of all; alone,
                          group may be NULL */
    choir_group *also; /* dealt's, if it is a group of its own */
    /* For a strategy's functions, which are called for one dimension at a time: */
    const struct choir__dimension *at;
    choir_group *along;                        /* the ranks along it, in order */
    choir_device *devices[CHOIR__MAX_DEVICES]; /* that this process uses; the first is home */
    int device_count;
    choir_scope *run;
    choir_module *net, *model; /* bare, and as the strategies have wrapped it so far */
    choir_module *evaluated;   /* which of them runs outside of steps */
    choir_optim *optim;
    choir_scaler *scaler;  /* of --amp fp16, O1, O2; else NULL */
    choir_group *subgroup; /* a strategy's own; NULL: it has none */
    choir_loader *loader;  /* of micro-batches [micro_first, micro_first + micro_count) */
    int64_t micro_first, micro_count;
    /* Their losses, in memory that stays: tensors with micro_count values together, in order.
     * There is room for micro_count of them. */
    choir_tensor **losses;
    int64_t loss_count;
    double started, busy_before[CHOIR__MAX_DEVICES]; /* where the devices' figures begin */
} choir__cli_part;

typedef enum choir__spread {
    CHOIR__ONE_DEVICE,     /* one process with the first device */
    CHOIR__ALL_DEVICES,    /* one process with all of them */
    CHOIR__DEVICE_A_RANK,  /* a process a device, each with micro-batches of its own */
    CHOIR__RANKS_TOGETHER, /* a process a device, all with a part in each micro-batch */
    CHOIR__ON_A_MESH,      /* each of several as it says */
} choir__spread;

typedef struct choir__cli_strategy choir__cli_strategy;
struct choir__cli_strategy {
    const char *name;
    const char *help; /* one line */
    /* What "ddp:bucket_cap_mb=25" may say: rows whose values lie in a struct of the strategy's
     * own, of keys_bytes, which build finds in part->at->keys. NULL: there are no keys. */
    const choir__cli_option *keys;
    size_t keys_bytes;
    /* Checks the struct and may complete it. Error: argument. NULL: every value is fine. */
    choir_status (*check)(void *keys);
    /* Of a mesh that it works along, as "data"; NULL: it takes no part in compositions. */
    const char *dimension;
    choir__spread spread;
    bool shards; /* weights, too: wraps the model before they are read from a file */
    /* Texts that `choir compare` runs, ended by NULL; NULL: the name alone. */
    const char *const *variants;
    int64_t micro_each; /* micro-batches a device or rank, unless told; 0: one in all */
    /* Wraps part->model, before there is an optimizer or a loader. What is evaluated is net
     * unless it says otherwise. */
    choir_status (*build)(choir__cli_part *part);
    /* Forward and backward of this process's micro-batches; fills in part->losses. Of a
     * composition one may have its own, the others choir__cli_strategy_plain_step. */
    choir_status (*step)(choir_scope *step, choir__cli_part *part);
    /* The strategy's form over several ranks; NULL: it always runs in one process. */
    const choir__cli_strategy *over_ranks;
    /* NULL: ranks step together. Otherwise each rank steps by itself, on the mean of its own
     * losses, and the ranks meet only before validation, a checkpoint, and the end: all call
     * this then, and it makes net the same on all. */
    choir_status (*meet)(choir__cli_part *part);
    /* True right after the strategy synchronised the ranks on its own schedule. Validation and
     * checkpoints that fell due in between happen only then. NULL: never. */
    bool (*together)(const choir__cli_part *part);
    /* Called when all ranks have read weights from a checkpoint. NULL: nothing is left to do.
     */
    choir_status (*resumed)(choir__cli_part *part);
};

/* The registry, ended by NULL. */
extern const choir__cli_strategy *const choir__cli_strategies[];

/* Finds the strategy that text names before its colon. Error: argument, with the names. */
choir_status choir__cli_strategy_find(const char *text, const choir__cli_strategy **strategy);

/* --- keys: keys.c --- */

/* Allocates the strategy's keys and fills them in from "ddp:bucket_cap_mb=25"; *keys is NULL if
 * the strategy has none. Error: argument; *keys is the caller's to free all the same. */
choir_status choir__cli_strategy_read(
    const choir__cli_strategy *s, const char *text, void **keys);

/* Writes "[:bucket_cap_mb=25,...]", or "" without keys, into text and returns it. */
const char *choir__cli_strategy_keys_text(
    const choir__cli_strategy *s, char *text, size_t bytes);

/* --- compositions: mesh.c --- */

typedef struct choir__dimension {
    const choir__cli_strategy *strategy;
    void *keys; /* of the strategy, as --strategy gives them */
    int size;   /* ranks along it, or devices of a process */
} choir__dimension;

/* What --strategy names: one strategy, or several, the outermost first. */
typedef struct choir__composition {
    choir__dimension dims[CHOIR_MESH_MAX_DIMS];
    int count;
    choir__cli_strategy whole; /* of several: that does what all of them do */
    char name[96];
} choir__composition;

/* Reads "ddp:...+pipeline:...". The caller frees the composition, also after an error. Error:
 * argument, also if the strategies do not compose. */
choir_status choir__composition_parse(const char *text, choir__composition *c);
void choir__composition_free(choir__composition *c);
/* The one strategy, or the one that does what all do. */
const choir__cli_strategy *choir__composition_strategy(choir__composition *c);
/* "2x4" into the sizes; a dimension a strategy. */
choir_status choir__composition_mesh(choir__composition *c, const char *text);
/* Whether the innermost strategy is of one process, with its dimension's devices. */
bool choir__composition_inside(const choir__composition *c);

/* A group a dimension, and the ranks that micro-batches are dealt to. Collective. */
choir_status choir__cli_part_mesh(choir__cli_part *part);

/* --- step.c --- */

/* Whether the strategy has several processes. */
bool choir__cli_strategy_has_ranks(const choir__cli_strategy *s);

/* Devices or ranks that a job's work is dealt to. */
int choir__cli_strategy_workers(const struct choir__job *job);
/* Runs that its micro-batches are dealt in: ranks that have some of their own. */
int choir__cli_strategy_dealt(const struct choir__job *job);
/* Unless told: the cut of the global batch. */
int64_t choir__cli_strategy_microbatches(const struct choir__job *job);

/* A device that a strategy uses besides those it was given; NULL, or one of them: nothing. */
void choir__cli_part_add_device(choir__cli_part *part, choir_device *device);

/* Whether a process's device holds all of the model and of its micro-batches. */
bool choir__cli_strategy_is_whole(const struct choir__job *job);

/* Where backward starts: the loss, scaled if gradients are. */
choir_tensor *choir__cli_part_scaled(const choir__cli_part *part, choir_tensor *loss);

/* What a step is where each micro-batch is plain code: forward and backward, one by one. */
choir_status choir__cli_strategy_plain_step(choir_scope *step, choir__cli_part *part);

#endif
