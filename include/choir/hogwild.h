/* Hogwild (Niu et al., 2011): processes that train one set of weights, without locks.
 *
 *     choir_check(choir_module_share_memory(net));
 *     choir_check(choir_spawn(4, train, net));    // torch.multiprocessing's way
 *     ...                                         // net holds the result of the four
 *
 * A module's parameters and buffers move to memory that several processes map, the *master*.
 * Each of these processes, a *worker*, computes on its own copies. When a step begins, and
 * after its optimizer has stepped, a worker exchanges word by word: first its changes since
 * the last exchange go out (master += change; a word that no other worker has changed since
 * then takes the worker's value, bit for bit), then the other workers' changes come in. A
 * worker does not write words that it has not changed.
 *
 * Words are read and written by relaxed 32-bit atomics. Numbers are never torn, but if two
 * workers update a word at the same moment, one update may be lost. So the resulting bits are
 * not determined, except with one worker, where they equal the bits of the same program without
 * sharing.
 *
 * As in PyTorch, only parameters and buffers are shared. Momentum and moments, the count of
 * steps, and gradients belong to each worker. As everywhere in Choir, only micro-batch 0, which
 * is worker 0's, updates batch norm's running statistics; the other workers receive them. (If
 * several workers write a buffer, the last value stays; counters are added up.) Memory: each
 * worker stores the weights twice, in addition to the one master.
 *
 * The memory is a sealed memfd: it is freed with the last process, however that process ends.
 * With choir/elastic.h the others continue when a worker dies.
 *
 * Threads: the run's thread. Workers may also be threads, each with its own run and module
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
 * In this process the module is the master itself: computing, saving and printing use the
 * current weights, including the workers' updates. Children of choir_spawn that inherit the
 * module become workers, and their copy of the module exchanges by itself. In a child, steps
 * without a choir_micro_open count as micro-batch `rank`, so that workers draw different
 * random numbers. Existing optimizers continue; recorded steps are recorded again. A second
 * call does nothing. Do not use the module in this process while workers run (choir_spawn
 * returns when they have ended).
 *
 * Errors: the run's, memory, device (a parameter on another device than the run), unsupported
 * (a parameter or buffer that is neither f32 nor i64).
 */
CHOIR_CHECKED choir_status choir_module_share_memory(choir_module *module);

typedef struct choir_hogwild_opts {
    choir_group *group; /* ranks of one machine; the master gets rank 0's weights */
    /* instead of group: a shared module of this process, in any run */
    choir_module *master;
} choir_hogwild_opts;

choir_hogwild_opts choir_hogwild_defaults(void); /* both NULL */

/**
 * Makes module a worker, whose weights become the master's; returns it. Without group and
 * master, the module must be a worker already, as after choir_spawn.
 *
 * Never NULL; errors stick to the run: argument (no master), mismatch (the master of another
 * model), as choir_module_share_memory, device (the group's engine shares no memory), peer
 * lost.
 */
choir_module *choir_hogwild(choir_scope *run, choir_module *module, choir_hogwild_opts opts);

/** Exchanges now, after the work that was issued to the device. A worker calls this to read
 * current weights between steps, or to send weights that it changed by other means than its
 * optimizer (otherwise the next exchange sends them). Does nothing on the master and on modules
 * that are not shared. */
CHOIR_CHECKED choir_status choir_hogwild_exchange(choir_module *module);

/** Returns the number of updates that the master has received from all workers; 0 for a module
 * that is not shared. */
int64_t choir_hogwild_updates(const choir_module *module);

/** Restarts from new weights: call it when all ranks of the group have changed all weights
 * alike, for example by loading a file. Rank 0's weights become the master's and every
 * worker's. Collective. */
CHOIR_CHECKED choir_status choir_hogwild_restart(choir_module *module, choir_group *group);

#ifdef __cplusplus
}
#endif
#endif
