/* The sums of gradients with which an optimizer steps.
 *
 * There is no zero_grad in a program with one optimizer: the first backward after its step
 * begins new sums. With two, the loss of one network may be computed through the other, as that
 * of a GAN's generator is, and its backward leaves gradients there, which the other's own would
 * be added to. A sum that began before another optimizer's step, and continued after it, is
 * therefore an error, unless the program has begun it by choir_optim_zero. Gradients of one
 * backward, or of several between two steps, are used by any number of optimizers. */
#include "optim/optim.h"
#include "tensor/handle.h"

choir_status choir__optim_check_sums(const choir_optim *o)
{
    for (int i = 0; i < o->count; i++) {
        const choir__param *p = o->states[i].param;
        if (p->mixed)
            return choir__error(CHOIR_ERR_STATE,
                "optimizer: parameter %s %s of module '%s' has gradients from before and from "
                "after another optimizer's step: choir_optim_zero, ahead of the backward that "
                "this optimizer steps with, drops the ones before; choir_module_freeze, around the "
                "other backward, keeps them out",
                p->name, choir__shape_text(p->whole), p->of);
    }
    return CHOIR_OK;
}

/* Ends the sums of a parameter, and of its replicas on other stages of a pipeline. */
static void end_sums(choir__param *p, bool dropped)
{
    p->began = 0;
    p->mixed = false;
    p->dropped = dropped;
    p->taken = p->book && p->book->leaves > 0;
    p->has_grad &= !dropped;
    for (choir__param *q = p->replicas; q; q = q->sibling)
        end_sums(q, dropped);
}

void choir__optim_take_sums(choir_optim *o)
{
    for (int i = 0; i < o->count; i++) {
        end_sums(o->states[i].param, false);
        if (o->states[i].param->book)
            choir__book_consume(o->states[i].param->book);
    }
    choir__run_of(o->run)->updates++;
    o->unscaled = false;
}

/* --- choir_optim_zero --- */

/* Returns an error if the book is in the middle of a step and has parameters that are not the
 * optimizer's, which would lose their gradients, too. */
static choir_status whole_book(const choir_optim *o, const choir__book *book)
{
    int own = 0;
    for (int i = 0; i < o->count; i++)
        own += o->states[i].param->book == book;
    if (own == book->count || book->leaves == 0 || book->finished)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "choir_optim_zero: the gradients of this optimizer's parameters are added up together "
        "with the gradients of %d others: call it after their optimizer's step, or wrap each "
        "network by itself",
        book->count - own);
}

static choir_status drop(const choir_optim *o, const choir__param *p)
{
    choir_status status = whole_book(o, p->book);
    if (status == CHOIR_OK)
        status = choir__book_drop(p->book);
    for (choir__param *q = p->replicas; q && status == CHOIR_OK; q = q->sibling)
        status = choir__book_drop(q->book);
    return status;
}

choir_status choir_optim_zero(choir_optim *o)
{
    choir_status status = choir__use_optim(o, __func__);
    if (status != CHOIR_OK)
        return status;
    status = choir__scope_status(o->run);
    const choir__book *last = NULL;
    for (int i = 0; i < o->count && status == CHOIR_OK; i++)
        if (o->states[i].param->book && o->states[i].param->book != last) {
            last = o->states[i].param->book;
            status = drop(o, o->states[i].param);
        }
    if (status != CHOIR_OK)
        return choir__scope_fail(o->run, status);
    for (int i = 0; i < o->count; i++)
        end_sums(o->states[i].param, true);
    o->unscaled = false;
    return CHOIR_OK;
}
