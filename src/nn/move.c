/* The device of a module: moving its parameters and buffers to another device.
 *
 * A move is a copy on the new device's queue after the work of the old one. Handles stay, so
 * every holder of a parameter sees the new memory. The old memory returns to its pool, which
 * reuses it only after the copy has read it. State that depends on the old device is discarded:
 * the book of the parameter's gradients is closed (the next backward or optimizer creates
 * another), and recorded steps are recorded again. A forward pass whose backward has not run
 * yet treats the move as a change in place. */
#include <stdlib.h>

#include "nn/module.h"
#include "tensor/launch.h"

/* Returns an error while the parameter must stay on its device. */
choir_status choir__param_can_move(const choir__param *p)
{
    const choir__book *book = p->book;
    if (p->replicas)
        return choir__error(CHOIR_ERR_STATE,
            "parameter '%s' has replicas on other devices: place a module before it is wrapped",
            p->name);
    if (!book)
        return CHOIR_OK;
    if (book->leaves > 0 && !book->finished)
        return choir__error(CHOIR_ERR_STATE,
            "parameter '%s' holds gradients of %lld micro-batches: choir_optim_step comes first",
            p->name, (long long)book->leaves);
    if (book->reducer)
        return choir__error(CHOIR_ERR_STATE,
            "parameter '%s' is reduced over a group: place a module before it is wrapped",
            p->name);
    return CHOIR_OK;
}

choir_status choir__tensor_move(choir_tensor *t, choir_device *device, bool copied)
{
    if (!t->storage || choir__device_of(t) == device)
        return CHOIR_OK;
    if (choir__recording_active())
        return choir__error(CHOIR_ERR_STATE, "a recorded step cannot move a tensor to %s",
            choir_device_name(device));
    if (!choir__is_dense(t) || t->offset)
        return choir__error(CHOIR_ERR_STATE, "a view cannot be moved to %s by itself",
            choir_device_name(device));
    choir__step_forget(t->scope); /* the recording's list names the old memory */
    choir_tensor old = *t;
    if (!choir__tensor_allocate(t, device)) {
        t->storage = old.storage;
        t->poisoned = old.poisoned;
        return choir__scope_status(t->scope);
    }
    t->storage->version = old.storage->version + 1;
    choir__storage_holds_as(t->storage, old.storage);
    if (copied)
        choir__copy_across(t, &old);
    choir__storage_unref(old.storage);
    return CHOIR_OK;
}

choir_status choir__param_move(choir__param *p, choir_device *device)
{
    if (choir__device_of(p->tensor) == device || p->tensor->poisoned)
        return CHOIR_OK;
    if (!p->tensor->storage) { /* no values yet, or only the values of this rank's rows */
        p->tensor->device = device;
        return p->local == p->tensor ? CHOIR_OK : choir__tensor_move(p->local, device, true);
    }
    choir_status status = choir__param_can_move(p);
    if (status == CHOIR_OK && p->book)
        choir__book_free(p->book);
    if (status == CHOIR_OK)
        status = choir__tensor_move(p->tensor, device, p->initialised);
    choir__storage_tell(p->tensor->storage, CHOIR__FOR_WORK, p->name);
    return status;
}

choir_status choir__param_move_companions(choir__param *p, choir_device *device)
{
    choir_status status = CHOIR_OK;
    for (choir__companion *c = p->companions; c && status == CHOIR_OK; c = c->next)
        if ((*c->tensor)->storage && !(*c->tensor)->storage->outside) {
            status = choir__tensor_move(*c->tensor, device, true);
            choir__storage_tell((*c->tensor)->storage, CHOIR__FOR_WORK, p->name);
        }
    return status;
}

static choir_status pinned(const choir_module *m)
{
    const choir__strategy *s = m->inside->pinned_by;
    return s ? choir__error(
                   CHOIR_ERR_STATE, "%s: place a module before it is shared", s->ops->pins)
             : CHOIR_OK;
}

static choir_status can_move(const choir_module *m)
{
    choir_status status = pinned(m);
    for (const choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK;
         e = e->next) {
        if (e->kind == CHOIR__CHILD)
            status = can_move(e->child);
        if (e->kind == CHOIR__PARAM)
            status = choir__param_can_move(e->tensor->param);
    }
    return status;
}

static choir_status move(choir_module *m, choir_device *device)
{
    choir_status status = CHOIR_OK;
    for (choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK; e = e->next)
        switch (e->kind) {
        case CHOIR__CHILD: status = move(e->child, device); break;
        case CHOIR__PARAM: status = choir__param_move(e->tensor->param, device); break;
        case CHOIR__BUFFER:
        case CHOIR__CONSTANT: status = choir__tensor_move(e->tensor, device, true); break;
        case CHOIR__TIED: break; /* moves with its parameter */
        }
    return status;
}

choir_status choir_module_to(choir_module *m, choir_device *device)
{
    choir_status use = choir__use_module(m, __func__);
    if (use != CHOIR_OK)
        return use;
    choir_status status = CHOIR_OK;
    for (const choir_module *whole = m->parent; whole && status == CHOIR_OK;
         whole = whole->parent)
        status = pinned(whole);
    if (!device)
        status = choir__error(CHOIR_ERR_DEVICE, "%s", choir__missing_device());
    else if (status == CHOIR_OK && (status = can_move(m)) == CHOIR_OK)
        status = move(m, device);
    if (status == CHOIR_OK)
        return CHOIR_OK;
    char *why = choir__strdup(choir__message());
    choir__error(status, "choir_module_to: module '%s' (%s) to %s: %s",
        *m->path ? m->path : m->name, m->type->name,
        device ? choir_device_name(device) : "no device", why);
    free(why);
    return choir__scope_fail(m->run, status);
}
