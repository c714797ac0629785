/* Hogwild (Niu et al., 2011): processes that train one set of weights, without locks.
 *
 *     choir_check(choir_module_share_memory(net));
 *     choir_check(choir_spawn(4, train, net));    // torch.multiprocessing's way
 *     ...                                         // net holds what the four have learned
 *
 * A module's parameters and buffers move to memory that several processes map, the *master*.
 * Each of the processes, a *worker*, computes on copies of its own. When a step begins, and
 * once its optimizer has stepped, a worker exchanges word by word: what it has changed since
 * the last exchange goes out (master += change; a word that nobody else has changed meanwhile
 * becomes the worker's, bit for bit), then what the others have changed comes in. Words that a
 * worker has not changed it does not write.
 *
 * Words are read and written by relaxed atomics of their own 32 bits and by nothing wider:
 * numbers are never torn, but of two workers that update a word at the same moment one may be
 * lost. So which bits come out is not determined, except with one worker: then they are those
 * of the same program without sharing.
 *
 * As in PyTorch, the weights are shared and nothing else. Momentum and moments, the count of
 * steps, and gradients are each worker's own. Buffers: batch norm's running statistics are
 * updated by micro-batch 0 alone, as everywhere in Choir, which is worker 0's; the others take
 * what it wrote (of several writers the last; counters are added up). Memory: a worker holds
 * the weights twice more than the master, which is there once.
 *
 * The memory is a sealed memfd: when the last process is gone, however it ended, so is it.
 *
 * Threads: those of the run. Workers may also be threads, each with a run and module of its own
 * (opts.master). Collective: choir_hogwild with a group. */
#ifndef CHOIR_HOGWILD_H
#define CHOIR_HOGWILD_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Moves a module's parameters and buffers to shared memory (torch's module.share_memory()).
 *
 * In this process the module is the master itself: what it computes, saves or prints are the
 * weights as they are, with what workers have done to them. Children of choir_spawn that
 * inherit the module become workers: their copy of the module exchanges by itself. There, steps
 * without a choir_micro_open count as micro-batch `rank`, so that workers draw different random
 * numbers. Optimizers that are there already go on; recorded steps are recorded anew. Again:
 * nothing happens. While workers are at work, leave the module alone here (choir_spawn returns
 * when they are done).
 *
 * Errors: the run's, memory, device (a parameter on another device than the run),
 * unsupported (a parameter or buffer that is neither f32 nor i64).
 */
choir_status choir_module_share_memory(choir_module *module);

typedef struct choir_hogwild_opts {
    choir_group *group;   /* ranks of one machine: the master is made of rank 0's weights */
    choir_module *master; /* or: a module of this process, of any run, which has been shared */
} choir_hogwild_opts;

choir_hogwild_opts choir_hogwild_defaults(void); /* neither */

/**
 * Makes module a worker, whose weights become the master's; returns it. Neither group nor
 * master: module is one already, since choir_spawn.
 *
 * Never NULL; errors stick to the run: argument (no master), mismatch (another model's), those
 * of choir_module_share_memory, device (the group's engine shares no memory), peer lost.
 */
choir_module *choir_hogwild(choir_scope *run, choir_module *module, choir_hogwild_opts opts);

/** Exchanges now, behind what the device was given so far: for a worker that looks at weights
 * between steps, or has changed them by other means than its optimizer (which would go out
 * with the next exchange anyway, as a change). On the master, and on modules that are not
 * shared, nothing is to be done. */
choir_status choir_hogwild_exchange(choir_module *module);

/** How many updates the master has had, of all workers; 0 for a module that is not shared. */
int64_t choir_hogwild_updates(const choir_module *module);

#ifdef __cplusplus
}
#endif
#endif
