/* Audits, as the trainer has them: a step may have losses, and ranks may be lost in it. */
#ifndef CHOIR_AUDIT_INTERNAL_H
#define CHOIR_AUDIT_INTERNAL_H

#include <choir/audit.h>

/* A step that is done. */
typedef struct choir__audit_step {
    int64_t step;
    bool made;     /* this process has not received the result from another rank */
    bool has_loss; /* a target counted */
    float loss;    /* mean over all micro-batches */
    const float
        *losses; /* (count) of this rank's micro-batches, from `first` on; may be NULL */
    int64_t first, count;
} choir__audit_step;

/* Like choir_audit_open, but not collective. After an error *audit may be there, and is closed
 * by the caller. */
choir_status choir__audit_open(const char *folder, choir_module *module, choir_optim *optim,
    choir_audit_opts opts, choir_audit **audit);

/* Like choir_audit_step, for a step that may be repeated: a line that is there stays. */
choir_status choir__audit_line(choir_audit *audit, const choir__audit_step *step);

/* Returns, on rank 0, a sentence if the last line's step did not read the weights and the state
 * that the step before it had left, as its own line says; NULL: it did, or that step has no
 * line. It is valid until the next line. */
const char *choir__audit_changed(const choir_audit *audit);

#endif
