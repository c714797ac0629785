/* Inside DDP: the module, and its state on each device.
 *
 *    ddp.c        construction, forward
 *    handle.c     checks of handles, and what DDP lends to a pipeline around it
 *    reduce.c     the reducer: plans of steps, buckets in order, ends of steps
 *    agree.c      what ranks exchange about their backwards: uses, order, unused parameters
 *    join.c       ranks without data take part in the steps of the others
 *    regroup.c    ranks leave and join
 *    hook.c       hooks, bf16 and f16;  powersgd.c  PowerSGD
 *
 * All ranks issue the messages of a step in one order, which does not depend on what each
 * rank's backward does or when. A rank that ended early sends these messages as well:
 *
 *      before it        [choir_loss_divisor: counts of targets]
 *      first forward    [which ranks are active: join]  buffers
 *      first backward   [uses: first step]  [order: second step]  memory for new buckets
 *      first bucket     [which parameters were used: find_unused]  buckets, by index
 *      end of the step  rows of lookup tables, by parameter */
#ifndef CHOIR_DDP_PRIVATE_H
#define CHOIR_DDP_PRIVATE_H

#include <choir/ddp_hook.h>
#include "parallel/group_memory.h"
#include "parallel/ranks.h"

typedef struct choir__ddp choir__ddp;

/* The parameters of one device: the reducer of their book. */
typedef struct choir__ddp_part {
    choir__ddp *ddp;
    choir__book *book;
    choir__group_memory levels; /* memory of the book's levels */
    /* (mirror_bytes) host copy of a bucket for hooks, if the device's memory is far */
    float *mirror;
    size_t mirror_bytes;
    /* parameters have been assigned to buckets in the order of rank 0's backward */
    bool stepped; /* a step has ended: its order is known */
    bool rebuilt;
    /* --- by bucket of the current layout --- */
    bool *filled; /* (bucket_count) complete in this step */
    int next;     /* the next bucket to reduce */
    choir_ddp_entry *entries;
    int *entry_from;     /* (bucket_count + 1) into entries */
    int64_t *row_counts; /* (row_room) kept: a recorded step reads it at each replay */
    int64_t row_room;
    /* --- by parameter (book->count) --- */
    uint8_t *used;    /* used by this rank in this step */
    uint8_t *first;   /* used by this rank in the first step: static_graph */
    uint8_t *used_by; /* used by any rank; valid once `answer` is complete */
    choir_work answer;
    bool asked; /* used_by has been requested in this step */
    bool known; /* static_graph: first and used_by are final */
} choir__ddp_part;

struct choir__ddp {
    choir_module base;
    choir__strategy strategy;
    choir_module *module;
    choir_group *group;
    choir_ddp_opts opts;
    bool lent; /* a pipeline reduces the gradients and broadcasts the buffers, stage by stage */
    choir__algorithm algorithm; /* algorithm of reductions */
    choir__ddp_part *parts;
    int part_count;
    /* micro-batches, while no_sync is off: this rank's first, this rank's count, the job's
     * count */
    int64_t first, planned, total;
    bool no_sync;
    choir_ddp_hook *hook;
    void *hook_arg;
    uint64_t synced; /* one more than the step whose buffers have been broadcast */
    /* --- ranks that may leave and join: regroup.c --- */
    bool elastic;
    choir__kept_buffers *kept; /* the buffers before the step */
    uint64_t settled; /* the value of `synced` at the latest broadcast after backward */
    /* --- join --- */
    bool joins, shadows; /* a join is under way; this rank has ended */
    choir_ddp_join_opts join;
    int32_t flags[2]; /* {0, 1}: the values that a rank sends about itself */
    int32_t *active;  /* (world) the flags of the last step in which a rank was active */
    bool stepped;     /* at least one step has run in this join */
};

/* DDP's operations as a strategy. */
extern const choir__strategy_ops choir__ddp_ops;
/* Returns the group and the options with which the gradients are reduced. */
struct choir__replication choir__ddp_replication(const choir__ddp *d);

/* Sets *ddp to the struct of a module that choir_ddp made. Errors: argument, state; their
 * messages begin with `who`. */
choir_status choir__ddp_of(choir_module *module, const char *who, choir__ddp **ddp);
/* Checks that no step is half done and nothing is being recorded. Error: state; its message
 * begins with `who`. */
choir_status choir__ddp_between_steps(const choir__ddp *d, const char *who);
/* Returns how the reductions of its group add. */
choir__sums choir__ddp_sums(const choir__ddp *d);
/* Returns true if ranks may use different parameters in a backward. */
bool choir__ddp_agrees(const choir__ddp *d);

static inline choir__queue *choir__ddp_queue(const choir__ddp *d)
{
    return choir__group_queue(d->group);
}

extern const choir__reducer_ops choir__ddp_reducer;

/* --- agree.c --- */

/* Makes all ranks agree how often each parameter is used, before the layout is made. */
choir_status choir__ddp_agree_uses(choir__ddp_part *part);
/* After the first step: assigns parameters to buckets in the order of rank 0's backward. */
choir_status choir__ddp_rebuild(choir__ddp_part *part);
/* choir__ddp_note_used notes the uses of this backward. choir__ddp_ask_used, before the first
 * bucket is reduced, requests which parameters were used by any rank. */
choir_status choir__ddp_note_used(choir__ddp_part *part, bool last);
choir_status choir__ddp_ask_used(choir__ddp_part *part);
/* Gives a gradient to parameters that another rank used. */
choir_status choir__ddp_settle_used(choir__ddp_part *part);
/* Fails on all ranks if parameters have no gradient in this backward, and names them. */
choir_status choir__ddp_name_unused(choir__ddp_part *part);

/* --- regroup.c --- */

/* Plans this rank's micro-batches: the same number in all, over the group as it is. */
void choir__ddp_plan(choir__ddp *d, int64_t total);
choir_status choir__ddp_ranks_changed(choir__strategy *s, choir_group *group, uint64_t undone);

/* --- join.c --- */

/* The first forward of a step in a join: tells the other ranks that this one is active. */
choir_status choir__ddp_notice(choir__ddp *d);

#endif
