/* Strategies as the command knows them: a table with an entry a name.
 *
 * An entry says what its options are, which devices and ranks it wants, how many micro-batches
 * there are unless told, how it wraps the model, and what one step is. All else (data,
 * optimizer, evaluation, checkpoints, reports) is the same under every strategy. */
#ifndef CHOIR_CLI_STRATEGY_H
#define CHOIR_CLI_STRATEGY_H

#include <choir/amp.h>
#include <choir/data.h>
#include <choir/ddp.h>
#include <choir/env.h>
#include <choir/fsdp.h>
#include <choir/optim.h>

enum { CHOIR__MAX_DEVICES = 64 };

struct choir__job;

/* What "ddp:bucket_cap_mb=25" says. Each strategy reads its own part of it. */
typedef struct choir__strategy_options {
    choir_ddp_opts ddp;
    char algorithm[64];
    choir_fsdp_opts fsdp;
    char unit_class[64];    /* of fsdp */
    char output_device[64]; /* of dp */
    char schedule[64];      /* of pipelines, with all below */
    char cuts[256];
    int64_t chunks;
} choir__strategy_options;

/* A process's part of a job, as far as a strategy sees it. */
typedef struct choir__part {
    const struct choir__job *job;
    choir_env env;
    choir_device *devices[CHOIR__MAX_DEVICES]; /* that this process uses; the first is home */
    int device_count;
    choir_scope *run;
    choir_module *net, *model; /* bare, and as the strategy wrapped it */
    choir_module *evaluated;   /* which of them runs outside of steps */
    choir_optim *optim;
    choir_scaler *scaler; /* of --amp fp16, O1, O2; else NULL */
    choir_loader *loader; /* of micro-batches [micro_first, micro_first + micro_count) */
    int64_t micro_first, micro_count;
    /* Their losses, in memory that stays: tensors with micro_count values together, in order.
     * There is room for micro_count of them. */
    choir_tensor **losses;
    int64_t loss_count;
    double started, busy_before[CHOIR__MAX_DEVICES]; /* where the devices' figures begin */
} choir__part;

typedef enum choir__spread {
    CHOIR__ONE_DEVICE,     /* one process with the first device */
    CHOIR__ALL_DEVICES,    /* one process with all of them */
    CHOIR__DEVICE_A_RANK,  /* a process a device, each with micro-batches of its own */
    CHOIR__RANKS_TOGETHER, /* a process a device, all with a part in each micro-batch */
} choir__spread;

typedef struct choir__strategy choir__strategy;
struct choir__strategy {
    const char *name;
    const char *options; /* ":key=value,..." as the help shows them; "" */
    const char *help;    /* one line */
    choir__spread spread;
    bool shards; /* weights, too: wraps the model before they are read from a file */
    /* Texts that `choir compare` runs, ended by NULL; NULL: the name alone. */
    const char *const *variants;
    /* Reads text's options and checks them. Error: argument. */
    choir_status (*parse)(const char *text, choir__strategy_options *options);
    int64_t micro_each; /* micro-batches a device or rank, unless told; 0: one in all */
    /* part->model out of part->net, before there is an optimizer or a loader. What is evaluated
     * is net unless it says otherwise. */
    choir_status (*build)(choir__part *part);
    /* Forward and backward of this process's micro-batches; fills in part->losses. */
    choir_status (*step)(choir_scope *step, choir__part *part);
    /* The same where there are several ranks; NULL: it is of one process alone. */
    const choir__strategy *over_ranks;
    /* NULL: ranks step together. Else each steps by itself, on the mean of its own losses, and
     * waits for the others only where they meet: before validation, a checkpoint, and the end.
     * All are here; makes net the same on all. */
    choir_status (*meet)(choir__part *part);
    /* All ranks have read weights from a checkpoint; NULL: nothing to be done. */
    choir_status (*resumed)(choir__part *part);
};

/* The registry, ended by NULL. */
extern const choir__strategy *const choir__strategies[];
extern const choir__strategy choir__strategy_single, choir__strategy_dp,
    choir__strategy_dp_balanced, choir__strategy_ddp, choir__strategy_fsdp, choir__strategy_tp,
    choir__strategy_mp, choir__strategy_pipeline, choir__strategy_hogwild;

/* The one named before the colon; an error lists the names there are. */
choir_status choir__strategy_find(const char *text, const choir__strategy **strategy);

/* Devices or ranks that a job's work is dealt to. */
int choir__strategy_workers(const struct choir__job *job);

/* A device that a strategy uses besides those it was given; NULL, or one of them: nothing. */
void choir__part_add_device(choir__part *part, choir_device *device);

/* Whether a process's device holds all of the model and of its micro-batches. */
bool choir__strategy_is_whole(const choir__strategy *strategy);

/* Where backward starts: the loss, scaled if gradients are. */
choir_tensor *choir__part_scaled(const choir__part *part, choir_tensor *loss);

/* What a step is where each micro-batch is plain code: forward and backward, one by one. */
choir_status choir__strategy_plain_step(choir_scope *step, choir__part *part);

#endif
