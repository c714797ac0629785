/* Inside DDP: the module, and what it has on each device.
 *
 *   ddp.c          construction, forward
 *   ddp_reduce.c   the reducer: plans of steps, buckets in order, ends of steps
 *   ddp_agree.c    what ranks tell each other of their backwards: uses, order, unused ones
 *   ddp_join.c     ranks that ended in the others' steps
 *   ddp_hook.c     hooks, bf16 and f16;  ddp_powersgd.c  PowerSGD
 *
 * Everything that ranks send each other in a step, they send in one order, whatever each one's
 * backward did and when; a rank that ended early sends the same:
 *
 *     first forward    [who is active: join]  buffers
 *     first backward   [uses: first step]  [order: second step]  memory for new buckets
 *     first bucket     [which parameters were used: find_unused]  buckets, by index
 *     end of the step  rows of lookup tables, by parameter
 */
#ifndef CHOIR_DDP_PRIVATE_H
#define CHOIR_DDP_PRIVATE_H

#include <choir/ddp_hook.h>
#include "parallel/group_memory.h"
#include "parallel/ranks.h"

typedef struct choir__ddp choir__ddp;

/* A device's parameters: the reducer of their book. */
typedef struct choir__ddp_part {
    choir__ddp *ddp;
    choir__book *book;
    choir__group_memory levels; /* the book's */
    float *mirror;              /* (mirror_bytes) host memory for hooks, where levels are far */
    size_t mirror_bytes;
    bool rebuilt; /* parameters have been dealt to buckets anew */
    /* Of the layout at hand: */
    bool *filled; /* (bucket_count) in this step */
    int next;     /* bucket to be reduced */
    choir_ddp_entry *entries;
    int *entry_from;     /* (bucket_count + 1) into entries */
    int64_t *row_counts; /* (row_room) what a recorded step still asks: kept */
    int64_t row_room;
    /* Of parameters, (book->count): */
    uint8_t *used;    /* by this rank in this step */
    uint8_t *first;   /* the same in the first step: static_graph */
    uint8_t *used_by; /* by any rank, once `answer` is there */
    choir_work answer;
    bool asked; /* in this step */
    bool known; /* first and used_by hold for good */
} choir__ddp_part;

struct choir__ddp {
    choir_module base;
    choir__strategy strategy;
    choir_module *module;
    choir_group *group;
    choir_ddp_opts opts;
    bool lent; /* a pipeline reduces gradients and syncs buffers, stage by stage */
    choir__algorithm algorithm; /* of reductions */
    choir__ddp_part *parts;
    int part_count;
    int64_t first, planned, total; /* leaves, when no_sync does not say otherwise */
    bool no_sync;
    choir_ddp_hook *hook;
    void *hook_arg;
    uint64_t synced; /* one more than the step whose first forward has been */
    /* join */
    bool joins, shadows; /* under way; and this rank has ended */
    choir_ddp_join_opts join;
    int32_t flags[2]; /* {0, 1}: what a rank says of itself */
    int32_t *active;  /* (world) what they said last, in a step of ours */
    bool stepped;     /* there was one */
};

/* The struct of a module that choir_ddp made, or an error that begins with `who`. */
extern const choir__strategy_ops choir__ddp_ops;
/* Over which ranks, and how, the gradients are reduced. */
struct choir__replication choir__ddp_replication(const choir__ddp *d);

choir_status choir__ddp_of(choir_module *module, const char *who, choir__ddp **ddp);
/* No step is half done, nothing is being recorded; or an error. */
choir_status choir__ddp_between_steps(const choir__ddp *d, const char *who);
bool choir__ddp_agrees(const choir__ddp *d); /* backwards may use different parameters */

static inline choir__queue *choir__ddp_queue(const choir__ddp *d)
{
    return choir__group_queue(d->group);
}

extern const choir__reducer_ops choir__ddp_reducer;

/* --- ddp_agree.c --- */

/* Before a layout: what other ranks use that this one does not. */
choir_status choir__ddp_agree_uses(choir__ddp_part *part);
/* After the first step: buckets in the order of rank 0's backward. */
choir_status choir__ddp_rebuild(choir__ddp_part *part);
/* This backward's uses; and before the first bucket, which parameters were used by any. */
choir_status choir__ddp_note_used(choir__ddp_part *part, bool last);
choir_status choir__ddp_ask_used(choir__ddp_part *part);
/* Gives a gradient to parameters that another rank used. */
choir_status choir__ddp_settle_used(choir__ddp_part *part);
/* An error that names parameters without a gradient, on all ranks. */
choir_status choir__ddp_name_unused(choir__ddp_part *part);

/* --- ddp_join.c --- */

/* The first forward of a step under a join. */
choir_status choir__ddp_notice(choir__ddp *d);

#endif
