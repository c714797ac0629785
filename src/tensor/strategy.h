/* The seam between strategies and the floors below them.
 *
 * A strategy (src/parallel/) wraps a module; it decides which micro-batch runs where, and when
 * gradients and parameters move. Tensors, autograd, modules, optimizers and checkpoints know no
 * strategy by name: they call a strategy only through this table. A run lists its strategies,
 * newest first, and a step calls them in this order:
 *
 *     step_begins                 before anything of the step is queued or recorded
 *     gather                      numbers of micro-batches, such as counts of targets
 *     place, bring, parts         for each op: where it runs, and where its operands are
 *     reducer                     during backward: see autograd/book.h
 *     sum                         in the optimizer: norms of parameters that ranks share
 *     helper                      in the update: devices that take a share of it
 *     step_updated                after the update has been queued
 *     scale_updated               after a scaler has judged the gradients
 *
 * A strategy embeds a choir__strategy and recovers itself from it with CHOIR__STRATEGY_OF. */
#ifndef CHOIR_STRATEGY_INTERNAL_H
#define CHOIR_STRATEGY_INTERNAL_H

#include <stddef.h>

#include "tensor/run.h"

typedef struct choir__strategy choir__strategy;
typedef struct choir__placement choir__placement;
struct choir_group;
struct choir_optim;
struct choir__reducer_ops;
struct choir__book;
struct choir__replication; /* parallel/replication.h */
struct choir__linear_of;   /* op.h */

/* Visits a tensor that a checkpoint stores; param: the parameter it belongs to, or NULL. */
typedef void choir__state_visit_fn(
    const char *name, choir_tensor *t, const choir__param *param, void *to);

#define CHOIR__NO_STEP UINT64_MAX /* no step has this number */

/* Ops that accept tensors in slices: a parameter, or scores whose classes are cut. They pass
 * such operands to these functions; other ops refuse them where this rank has a part only. */
typedef struct choir__part_ops {
    choir_tensor *(*linear)(choir_tensor *x, choir_tensor *weight, choir_tensor *bias,
        struct choir__linear_of how); /* how: without slices */
    choir_tensor *(*embedding)(choir_tensor *table, choir_tensor *ids);
    choir_tensor *(*cross_entropy)(
        choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
    choir_tensor *(*argmax)(choir_tensor *x);
    /* Adds up the nodes (count, ...) that the slices of each rank complete, in the fixed tree
     * over all slices, or those that share a unit; the sum replaces node 0. Collective. */
    choir_status (*join)(const choir__partition *part, choir_tensor *nodes, bool sharing);

    /* --- tokens that ranks share (tokens.h); tensors without tape entries --- */

    /* Return the tokens of all ranks of x (..., own tokens, C), or this rank's tokens of x
     * (..., tokens, C). */
    choir_tensor *(*all_tokens)(
        const choir__partition *tokens, choir_scope *scope, choir_tensor *x);
    choir_tensor *(*own_tokens)(
        const choir__partition *tokens, choir_scope *scope, choir_tensor *x);
    /* Returns this rank's tokens of the sum that `join` computes of nodes (count, B, L, C). */
    choir_tensor *(*join_tokens)(
        const choir__partition *part, const choir__partition *tokens, choir_tensor *nodes);
} choir__part_ops;

/* Work of the ranks that have the leaves of one sequence (sequence.h). */
typedef struct choir__chunk_ops {
    /* Returns the sum of the ranks' x; each x has the gradient of the sum. */
    choir_tensor *(*sum)(choir__strategy *s, choir_tensor *x);
    /* Returns the ranks' tokens of x, along dim, in the order of the leaves. */
    choir_tensor *(*whole)(choir__strategy *s, choir_scope *scope, choir_tensor *x, int dim);
    /* Attention of this rank's queries, with the ranks' keys and values. The call's operands
     * have this rank's tokens, a bias the keys of all ranks. lse has a layout of the strategy's
     * own. Backward: delta is given. */
    void (*attention)(choir__strategy *s, choir_scope *scope, choir_device *device,
        const struct choir__k_attention *k);
    void (*attention_backward)(choir__strategy *s, choir_scope *scope, choir_device *device,
        const struct choir__k_attention *k);
    /* Replaces node 0 of nodes (count, ...) by the sum of all ranks' nodes in the tree over
     * leaves; nodes are those that this rank's leaves complete. */
    choir_status (*join)(choir__strategy *s, choir_tensor *nodes);
    /* Adds up what each rank has counted among its own tokens. Collective; waits. */
    choir_status (*count)(choir__strategy *s, int64_t *numbers, int64_t count);
    /* Sums gradients of a micro-batch over the ranks, in the order of the device's queue,
     * unless ops have joined them. */
    choir_status (*leaf)(choir__strategy *s, choir_device *device, choir_dtype dtype,
        void *numbers, int64_t count);
} choir__chunk_ops;

/* Marks a tensor with a dimension that is cut into slices (choir_tensor.split): this rank has
 * `own` of them. The strategy embeds this struct in its own data about the part. See
 * ops/sliced/sliced.h. */
struct choir__partition {
    choir__strategy *by;
    bool whole;         /* this rank has all slices */
    int dim;            /* the dimension of the weight */
    choir__cut cut;     /* matrices side by side along it; T, the number of slices of each */
    int64_t first, own; /* the first of this rank's slices, and their number */
    int64_t at, size;   /* the part's first element along the dimension; its whole size */
    /* columns of a layer's result, which functions of single elements pass on, and which every
     * op takes */
    bool passes;
    bool among; /* with passes: a view has the columns among other dimensions (heads) */
    /* the tokens of samples, dimension 1 of (B, L, C), are shared by the ranks: tokens.h */
    bool tokens;
    /* 0; else slices that have the same unit, a head of keys and values */
    int64_t shared;
};

/* Returns true if t is one rank's part of a larger tensor. */
static inline bool choir__is_part(const choir_tensor *t)
{
    return t->split && !t->split->whole && !t->split->passes && !t->split->tokens;
}

/* Returns the mark of t's columns if they are this rank's, side by side; or NULL. */
static inline const choir__partition *choir__columns_of(const choir_tensor *t)
{
    return t->split && t->split->passes && !t->split->among ? t->split : NULL;
}

/* Every entry except the name may be NULL. */
typedef struct choir__strategy_ops {
    const char *name; /* for messages */
    const char *pins; /* reason why a pinned module can neither move nor change dtype */

    /* --- steps --- */

    void (*step_begins)(choir__strategy *s);
    /* Backward has completed a bucket of a micro-batch's gradients, which is in the book's
     * highest level until this returns. May be recorded. */
    void (*leaf_done)(choir__strategy *s, struct choir__book *book, int bucket);
    /* The optimizer's update has been queued, or a checkpoint has set parameters like an
     * update. May be recorded. */
    void (*step_updated)(choir__strategy *s);
    /* A scaler has judged the gradients of the update. May be recorded. */
    void (*scale_updated)(choir__strategy *s);

    /* --- ops and values --- */

    /* Returns whether the next step moves parameters to other memory. NULL: never. */
    bool (*moves)(const choir__strategy *s);
    /* Replaces the operands of an op by copies on the device where the op runs. Called
     * for the ops of scopes with a placement of this strategy. Returns false if the scope has
     * an error. */
    bool (*place)(
        choir__placement *p, choir_scope *scope, const char *op, choir_tensor **in, int count);
    /* Makes the values of a storage available; the strategy is the storage's holder. */
    void (*bring)(choir__strategy *s, void *held);
    const choir__part_ops *parts;
    const choir__chunk_ops *chunks;

    /* --- sums over ranks --- */

    /* The reduction of a book's gradients. */
    const struct choir__reducer_ops *reducer;
    /* Adds up numbers (count) of all ranks that share parameters or a batch, in the order of
     * the device's queue. */
    choir_status (*sum)(
        choir__strategy *s, choir_device *device, double *numbers, int64_t count);

    /* Gathers one number per micro-batch of the step, in the order of the device's queue: takes
     * the numbers of this rank's micro-batches, (n) f64, and returns the numbers of all
     * micro-batches in order. May return its argument. */
    choir_tensor *(*gather)(choir__strategy *s, choir_tensor *numbers);

    /* Ranks that compute the same micro-batches together take the bytes of the first of them,
     * so that what each has measured leads all to the same decisions. Collective; waits. NULL:
     * this rank computes its micro-batches alone. */
    choir_status (*take_first)(choir__strategy *s, void *bytes, size_t count);

    /* Returns helper number `index` of device `home`: another device that can reach home's
     * memory and would only wait for the update there, so that it may do a share of it. NULL:
     * no more helpers. */
    choir_device *(*helper)(const choir__strategy *s, const choir_device *home, int index);

    /* --- checkpoints --- */

    /* Visits tensors that a checkpoint stores in addition to the optimizer's own state. They
     * are equal on all ranks, and their names begin with CHOIR__KEPT. Restoring a checkpoint
     * without them sets them to 0; restoring skips tensors of a strategy that the run lacks. */
    void (*visit_state)(choir__strategy *s, choir__state_visit_fn *visit, void *to);
    /* Visits the state of an optimizer instead of the optimizer, because the strategy keeps
     * several sets of it. All ranks visit the same names; a tensor that another rank has comes
     * with a parameter as choir__is_elsewhere expects it. Returns false if it keeps none. */
    bool (*visit_optim)(
        choir__strategy *s, struct choir_optim *optim, choir__state_visit_fn *visit, void *to);

    /* --- composition --- */

    /* The strategy becomes one of several replicas, whose gradients it reduces itself over
     * how->group; the strategy around it only forwards. Collective. */
    choir_status (*replicate)(choir__strategy *s, const struct choir__replication *how);
    /* Leaves gradients and buffers to the strategy around this one; *how receives the ranks and
     * the way in which they are to be reduced. */
    void (*lend)(choir__strategy *s, struct choir__replication *how);

    /* --- membership --- */

    /* The ranks have changed, or can change from now on: the strategy distributes micro-batches
     * over `group`, the group of all remaining and new ranks, in which this rank's number may
     * be another one. It no longer uses the old group, which may have failed. undone: a step in
     * which ranks were lost before its update, so that the strategy undoes the step's changes;
     * CHOIR__NO_STEP: no such step. The strategy sends nothing, so it cannot fail because of
     * other ranks. Error: unsupported, if its options do not allow other ranks. NULL: the
     * strategy cannot continue with other ranks. */
    choir_status (*ranks_changed)(
        choir__strategy *s, struct choir_group *group, uint64_t undone);
    /* The ranks take each other's micro-batches, and nothing else: rank r takes the share of
     * rank (r + by) % world, which is its number in `group`; by 0: its own share again. undone
     * and errors: as above. NULL: ranks_changed does it, since ranks have nothing of their own.
     */
    choir_status (*ranks_turned)(
        choir__strategy *s, struct choir_group *group, int by, uint64_t undone);
    /* Called after ranks_changed, when the group's ranks have received the state of rank
     * `source`. Collective over the group. Errors: memory, errors of collectives. NULL: nothing
     * to do. */
    choir_status (*ranks_settled)(choir__strategy *s, int source);
    /* Returns whether ranks step by themselves at the moment, so that their numbers of steps,
     * and their states, may differ. NULL: never. */
    bool (*apart)(const choir__strategy *s);
    /* All tensors have been set to the values that they had after `steps` steps, when ranks
     * were not apart. */
    void (*went_to)(choir__strategy *s, int64_t steps);
} choir__strategy_ops;

#define CHOIR__KEPT "outer_"

struct choir__strategy {
    const choir__strategy_ops *ops;
    choir__strategy *next; /* next strategy of the run */
    /* places the work of its module, which then no other strategy may clone */
    bool places;
    bool collective; /* forward is collective in evaluation, too */
    bool waits;      /* ranks share a sample: in a forward they wait for one another's parts */
    int64_t slices;  /* sums over the tokens of samples have as many leaves; 0: one */
};

/* Returns the struct of `type` that embeds *pointer as `member`. */
#define CHOIR__STRATEGY_OF(pointer, type, member)                                              \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Add the strategy to the run's list, or remove it. */
void choir__strategy_join(choir__strategy *s, choir_scope *run);
void choir__strategy_leave(choir__strategy *s, choir_scope *run);

/* Call step_begins, step_updated, scale_updated or visit_state of all strategies of the run. */
void choir__strategies_begin(const choir_scope *run);
void choir__strategies_updated(const choir_scope *run);
void choir__strategies_scaled(const choir_scope *run);
void choir__strategies_visit_state(
    const choir_scope *run, choir__state_visit_fn *visit, void *to);
/* Calls visit_optim of the run's strategies until one visits the optimizer's state. */
bool choir__strategies_visit_optim(
    const choir_scope *run, struct choir_optim *optim, choir__state_visit_fn *visit, void *to);
/* Calls sum of all strategies of the run, one after another. */
choir_status choir__strategies_sum(
    const choir_scope *run, choir_device *device, double *numbers, int64_t count);
/* Returns whether a strategy of the run lets ranks wait for one another within a forward. A
 * forward that fails is then known to its rank alone, and the others wait for it. */
bool choir__strategies_wait(const choir_scope *run);
/* Returns whether a strategy of the run moves parameters to other memory in the next step. */
bool choir__strategies_move(const choir_scope *run);
/* Calls leaf_done of all strategies of the run. */
void choir__strategies_leaf_done(const choir_scope *run, struct choir__book *book, int bucket);
/* Calls take_first of all strategies of the run, one after another. */
choir_status choir__strategies_take_first(const choir_scope *run, void *bytes, size_t count);
/* Calls gather of all strategies of the run, one after another. */
choir_tensor *choir__strategies_gather(const choir_scope *run, choir_tensor *numbers);
/* Calls helper of the run's strategies until one knows a device. */
choir_device *choir__strategies_helper(
    const choir_scope *run, const choir_device *home, int index);
/* True if any strategy of the run has `sum`: ranks share parameters. */
bool choir__strategies_share(const choir_scope *run);
/* Calls ranks_changed of all strategies; the next step makes a new recording. Error:
 * unsupported, naming a strategy that cannot continue. */
choir_status choir__strategies_ranks_changed(
    choir_scope *run, struct choir_group *group, uint64_t undone);
/* Calls ranks_turned of all strategies, or ranks_changed. Errors: likewise. */
choir_status choir__strategies_ranks_turned(
    choir_scope *run, struct choir_group *group, int by, uint64_t undone);
/* Calls ranks_settled of all strategies. */
choir_status choir__strategies_ranks_settled(const choir_scope *run, int source);

/* Returns whether any strategy's ranks are apart. */
bool choir__strategies_apart(const choir_scope *run);
/* Returns whether ranks may step apart in some steps. */
bool choir__strategies_may_part(const choir_scope *run);
/* Returns whether any strategy's ranks always step by themselves, so that no common state
 * exists to copy or to restore. */
bool choir__strategies_never_meet(const choir_scope *run);
/* Calls went_to of all strategies. */
void choir__strategies_went_to(const choir_scope *run, int64_t steps);

/* --- placement --- */

/* The placement of the ops of a scope and of the scopes in it. The strategy's `place` keeps it
 * up to date; tape entries and tensors note its numbers. */
struct choir__placement {
    choir__strategy *by;
    int stage;      /* the stage of a pipeline to which the current op belongs */
    int op;         /* number of the current op in its micro-batch */
    bool paused;    /* true in custom ops and backward: ops run where their operands are */
    bool epilogues; /* all devices have choir_device.epilogues, so ops may rely on them */
};

/* The copies of a tensor on the devices of a pipeline. */
typedef struct choir__route {
    int stage;          /* the stage in which the tensor was made */
    choir_tensor *copy; /* the latest copy, on a later stage's device */
} choir__route;

/* Returns t's route; a new route begins in stage 0. */
choir__route *choir__route_of(choir_tensor *t);

static inline int choir__stage_of(const choir_tensor *t)
{
    return t->route ? t->route->stage : 0;
}

/* Passes an op's operands to the scope's placement, if it has one that is not paused. */
static inline bool choir__placed(
    choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    choir__placement *p = scope->placement;
    return !p || p->paused || p->by->ops->place(p, scope, op, in, count);
}

/* Pauses or resumes the scope's placement; returns whether it was paused before. */
static inline bool choir__placement_pause(const choir_scope *scope, bool paused)
{
    bool was = scope->placement && scope->placement->paused;
    if (scope->placement)
        scope->placement->paused = paused;
    return was;
}

#endif
