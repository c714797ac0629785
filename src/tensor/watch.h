/* A watch over a run's ops: it sees what each one has computed, in program order, and the
 * gradients that its backward gives. An audit that keeps tensors has one during the steps that
 * are due (src/audit/ops.c). A recorded step has no ops, so a watched one is never recorded.
 *
 * Reading a tensor waits for its device and changes nothing: a watched step has the bits of one
 * that is not. */
#ifndef CHOIR_WATCH_H
#define CHOIR_WATCH_H

#include "tensor/op.h"

typedef struct choir__op_watch choir__op_watch;

struct choir__op_watch {
    /* An op has computed its result. Views, which compute nothing, are passed over. */
    void (*computed)(choir__op_watch *w, const choir__op *op, const choir_tensor *out);
    /* A module's forward has ended. */
    void (*forward)(choir__op_watch *w, const struct choir_module *m, const choir_tensor *out);
    /* Backward has come to an entry, whose result has the gradient gy. */
    void (*reached)(choir__op_watch *w, const choir__tape_entry *r, const choir_tensor *gy);
    /* An entry gives the gradient of its input, or a part of it (-1: all). May be called twice
     * for one gradient, which is computed early and put in its place later. */
    void (*given)(choir__op_watch *w, const choir__tape_entry *r, int input, int64_t part,
        const choir_tensor *g);
};

static inline void choir__op_watch_computed(const choir__op *op, const choir_tensor *out)
{
    choir__op_watch *w = out->scope->run->watch;
    if (w && !out->poisoned && !op->view)
        w->computed(w, op, out);
}

static inline void choir__op_watch_given(
    const choir__tape_entry *r, int input, int64_t part, const choir_tensor *g)
{
    choir__op_watch *w = r->scope->run->watch;
    if (w && !g->poisoned)
        w->given(w, r, input, part, g);
}

#endif
