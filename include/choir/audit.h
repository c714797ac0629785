/* An audit of a training: hashes of a step's inputs and results, every K steps, so that two
 * runs can be compared without keeping their numbers.
 *
 *     choir_audit_opts opts = choir_audit_defaults();
 *     opts.loader = data;
 *     choir_check(choir_audit_open("run", net, opt, opts, &audit));
 *     for (int64_t step = 1; step <= steps; step++) {
 *         ...                                          a step, with choir_optim_step
 *         choir_check(choir_audit_step(audit, step));
 *     }
 *     choir_check(choir_audit_close(audit));
 *
 * The file audit.jsonl in the folder gets a line for each step that is due: hashes per module
 * of the weights and the optimizer's state that the step read, of its gradients as the
 * optimizer read them, and of the weights and the state after it; of the batch; and of the line
 * before, so that the lines are a chain, which no line can leave unnoticed. `choir audit diff`
 * compares two such folders.
 *
 * Ranks compare the hashes of what several of them hold, and of what each of them has left and
 * read: if one rank's memory or arithmetic is at fault, all get an error. If no other rank
 * decides who is wrong, choir run does not start the program again once it has ended.
 *
 * A hash is a sum over all elements of a tensor, of its bits and its place in the whole. It
 * does not depend on the strategy, the number of ranks or the devices. It finds faults, and it
 * is no signature.
 *
 * Threads: the run's thread. Collective over the options' group: choir_audit_open and
 * choir_audit_step. */
#ifndef CHOIR_AUDIT_H
#define CHOIR_AUDIT_H

#include <choir/data.h>
#include <choir/group.h>
#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_audit choir_audit;

typedef struct choir_audit_opts {
    int64_t every; /* steps between lines; default 50 */
    /* Each line leaves a file of all tensors beside it, FOLDER/audit/step-00000050.safetensors,
     * with gradients as "grad.NAME" and the batch as "batch.x" and "batch.y", and a file per
     * rank of what each op computed: `choir audit` then names ops, elements and values. Such a
     * step waits for each op. */
    bool dump;
    int64_t resumed;    /* the step that is done; lines of later steps are dropped; default 0 */
    choir_group *group; /* the ranks of the training; NULL: this process alone */
    choir_loader *loader; /* the step's samples; NULL: batches are not hashed */
    const char *job;      /* a JSON object that describes the training, or NULL */
} choir_audit_opts;

choir_audit_opts choir_audit_defaults(void);

/** Begins an audit of a module that is trained by an optimizer. Call it after the module and
 * the optimizer have been loaded. Rank 0 writes the file. Errors: argument, I/O, format (the
 * lines already in the file are no chain). */
CHOIR_CHECKED choir_status choir_audit_open(const char *folder, choir_module *module,
    choir_optim *optim, choir_audit_opts opts, choir_audit **audit);

/** Writes the step's line, if it is due. Call it after each step, before the next one begins.
 * step: the number of steps done. Waits for the devices if a line is due. Errors: I/O, memory,
 * mismatch (the line has been written), errors of collectives. After an I/O error the audit
 * writes no further lines, or dumps. */
CHOIR_CHECKED choir_status choir_audit_step(choir_audit *audit, int64_t step);

/** Ends the audit; the run is still open. NULL is fine. Error: I/O. */
CHOIR_CHECKED choir_status choir_audit_close(choir_audit *audit);

#ifdef __cplusplus
}
#endif
#endif
