#ifndef CHOIR_STRATEGY_INTERNAL_H
#define CHOIR_STRATEGY_INTERNAL_H

#include "tensor/run.h"

/* Who says where ops of a scope run: it is shown the operands of each op before they are looked
 * at, and may replace them by copies on another device. false: the scope has an error. */
struct choir__placer {
    bool (*place)(choir__placer *placer, choir_scope *scope, const char *op, choir_tensor **in,
        int count);
};

/* Ranks that have parts of the run's parameters, or of its batch: sums numbers of all of them,
 * in the order of the device's queue. */
struct choir__sharer {
    choir_status (*sum)(void *arg, choir_device *device, double *numbers, int64_t count);
    void *arg;
    struct choir__sharer *next;
};

/* What a checkpoint of a run's optimizer is to hold besides the optimizer's own state: visits
 * those tensors, the same on all ranks, whose names begin with CHOIR__KEPT. They are 0 after a
 * checkpoint that has none of them, and passed over where nobody keeps them: it was another
 * strategy's. */
#define CHOIR__KEPT "outer_"
struct choir__state_keeper {
    void (*visit)(void *arg,
        void (*visit)(const char *name, choir_tensor *t, const choir__param *param, void *to),
        void *to);
    void *arg;
    struct choir__state_keeper *next;
};

/* Who takes part in a run's steps from outside (hogwild, DiLoCo, FSDP). */
struct choir__step_watcher {
    void (*begins)(void *arg);  /* a step begins: nothing of it is queued yet, nor recorded */
    void (*updated)(void *arg); /* the optimizer's update has been queued; may be recorded */
    void *arg;
    struct choir__step_watcher *next;
};

/* What ops do with a tensor of which each rank of a group has a part
 * (parallel/tensor_parallel): a parameter, or scores whose classes are dealt out. These four
 * know of it, and pass such operands on to the functions here; all others refuse them. */
struct choir__partition {
    choir_tensor *(*linear)(
        choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
    choir_tensor *(*embedding)(choir_tensor *table, choir_tensor *ids);
    choir_tensor *(*cross_entropy)(
        choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
    choir_tensor *(*argmax)(choir_tensor *x);
};

#endif
