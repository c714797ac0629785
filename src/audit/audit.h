/* Audits, as the trainer has them: a step may have losses, and ranks may be lost in it. */
#ifndef CHOIR_AUDIT_INTERNAL_H
#define CHOIR_AUDIT_INTERNAL_H

#include <choir/audit.h>

#include "audit/vote.h"

struct choir__item;
struct choir__box_region;
struct choir__proof;

/* A step that is done. */
typedef struct choir__audit_step {
    int64_t step;
    bool made;     /* this process has not received the result from another rank */
    bool has_loss; /* a target counted */
    float loss;    /* mean over all micro-batches */
    const float
        /* (count) losses of this rank's micro-batches, from number `first` on; may be NULL */
        *losses;
    int64_t first, count;
} choir__audit_step;

/* Like choir_audit_open, but not collective. After an error *audit may be there, and is closed
 * by the caller. */
choir_status choir__audit_open(const char *folder, choir_module *module, choir_optim *optim,
    choir_audit_opts opts, choir_audit **audit);

/* Lets the optimizer's update take hashes as it reads and writes (optim/hashes.c), where ranks
 * compare none before the update. Nothing else changes weights or state between the beginning
 * of a step and its line. Call it before the first step. */
void choir__audit_let_ride(choir_audit *audit);

/* Like choir_audit_step, for a step that may be repeated: a line that the file already has
 * stays unchanged. */
choir_status choir__audit_line(choir_audit *audit, const choir__audit_step *step);

/* Says what a tensor must be after the last step, if its hashes were taken: a
 * choir__proof_fn's `know` (checkpoint/checkpoint.h). */
void choir__audit_prove(const choir_audit *audit, const struct choir__item *item,
    const struct choir__box_region *region, struct choir__proof *proof);

/* --- what ranks compare --- */

/* Lets ranks compare the hashes of each step that is a multiple of `every`, beside steps with
 * lines; 0: of no other. */
void choir__audit_set_recheck(choir_audit *audit, int64_t every);

/* Returns the vote on the ranks' hashes of the last step. It is equal on all ranks. */
const choir__judgement *choir__audit_verdict(const choir_audit *audit);
/* Returns whether the last step's hashes were compared. */
bool choir__audit_compared(const choir_audit *audit);
/* Returns what differs on the ranks that a verdict names, as "the new weights of module
 * 'fc1'"; valid until the next line. */
const char *choir__audit_accused(const choir_audit *audit);

/* Returns whether the accused tensor went wrong in the step itself: the values that the step
 * read were right. */
bool choir__audit_is_new(const choir_audit *audit);

/* Begins to hash the gradients of `count` micro-batches, and ends it: choir__audit_leaves_end
 * stores this rank's testimonies: its weights and state, the sums of gradients, and the
 * gradient and loss of each micro-batch, from number `first` on, in the order of their
 * questions. to: (CHOIR__AUDIT_TOLD + count), without ranks. Waits for the devices. Errors: the
 * run's. */
enum { CHOIR__AUDIT_TOLD_STATE, CHOIR__AUDIT_TOLD_SUMS, CHOIR__AUDIT_TOLD };
/* choir__audit_asked returns the question about one subject of the list, or about micro-batch m
 * as TOLD + m, of the boxes with a hash; choir__audit_asked_about returns its subject. */
static inline uint64_t choir__audit_asked(int64_t about, uint64_t boxes)
{
    return (uint64_t)about << 32 | boxes >> 32;
}
static inline int64_t choir__audit_asked_about(uint64_t question)
{
    return (int64_t)(question >> 32);
}
choir_status choir__audit_leaves_begin(choir_audit *audit, int64_t count);
choir_status choir__audit_leaves_end(
    choir_audit *audit, int64_t first, const float *losses, choir__testimony *to);
/* Ends the hashing of micro-batches after an error, without testimonies. */
void choir__audit_leaves_drop(choir_audit *audit);

/* Stores this rank's testimonies about the weights and the state that the step reads: as it
 * read them, and as the step before left them, if that is known. Returns their number, 1 or 2;
 * 0: the step's hashes were not taken. */
int choir__audit_read_told(const choir_audit *audit, choir__testimony to[2]);

#endif
