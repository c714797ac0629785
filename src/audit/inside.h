/* The inside of an audit: the object, which these files share.
 *
 *     audit.c    the chain: when hashes are taken, and its lines
 *     live.c     what ranks compare: tensors that several have, gradients of micro-batches */
#ifndef CHOIR_AUDIT_INSIDE_H
#define CHOIR_AUDIT_INSIDE_H

#include "audit/audit.h"
#include "audit/chain.h"
#include "audit/ops.h"
#include "audit/parts.h"
#include "audit/vote.h"
#include "optim/optim.h"
#include "tensor/strategy.h"

/* Hashes of the gradients of micro-batches, as backward completes them. */
typedef struct choir__audit_leaves {
    choir_scope *scope; /* NULL: none are hashed */
    choir_tensor *sums; /* (count) i64 */
    int64_t count;
} choir__audit_leaves;

struct choir_audit {
    choir__strategy strategy;
    choir_scope *run;
    choir_module *module;
    choir_optim *optim;
    choir_audit_opts opts;
    char *folder, *job;         /* the run's folder; its job, or NULL */
    choir__chain_writer *chain; /* rank 0; NULL: another rank writes */
    bool broken;                /* a line could not be written: no more follow */
    choir__audit_names names;
    int64_t done,
        read; /* steps done; the step whose weights and state are hashed; 0: no step */
    choir__audit_parts parts; /* hashes for that step's line, */
    int read_count;           /* the first ones, of its inputs */
    bool may_ride, rides;     /* the update may take hashes; it takes them in this step */
    /* In steps that are compared before the update: its inputs once more, as the update reads
     * them, and the gradients as the last computation has left them. */
    choir__audit_parts again, summed;
    choir__audit_ride ride;
    choir_status status;        /* first failure of its hashes */
    choir__ops *ops;            /* keeps the step's ops for a dump; NULL: it is not due */
    int64_t recheck;            /* steps between those that are compared, too; 0: none */
    choir__audit_parts own;     /* this rank's weights and state after step own_at */
    int64_t own_at;             /* 0: no step */
    choir__audit_leaves leaves; /* gradients of micro-batches under way */
    choir__judgement verdict;   /* on the last step whose hashes ranks have compared */
    char *accused;              /* see choir__audit_accused */
};

/* Lists the tensors; the optimizer has no state before its first step. Collective where
 * choir__items_collect is. */
static inline choir_status choir__audit_collect(const choir_audit *a, choir__items *items)
{
    return choir__items_collect(
        items, a->module, choir_optim_steps(a->optim) > 0 ? a->optim : NULL);
}

/* --- live.c --- */

/* Notes what this rank's step has left in memory. */
void choir__audit_note_own(choir_audit *a);
/* Adds parts where the step has read other numbers than the step before has left, or its update
 * others than its forward or its sums. Call it when the step's hashes are complete. */
void choir__audit_add_left(choir_audit *a);
/* Compares what several ranks have, and what each has found before: sets a->verdict and
 * a->accused. */
void choir__audit_compare(choir_audit *a, const choir__audit_parts *all);
/* A bucket of a micro-batch's gradients is complete. */
void choir__audit_leaf_done(choir__strategy *s, choir__book *book, int bucket);

#endif
