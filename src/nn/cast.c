/* Changes the dtype of a module's parameters: the handles stay, their memory is new.
 *
 * Training 16-bit parameters without an f32 copy is Apex's O3. Their gradients (the book) and
 * the optimizer's state are f32 nevertheless; each update is rounded. With f64 parameters all
 * of these are f64. */
#include <stdlib.h>

#include "nn/module.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"

static choir_status cast_param(choir__param *p, choir_dtype dtype)
{
    choir_tensor *t = p->tensor, old = *t;
    if (t->dtype == dtype || t->held)
        return CHOIR_OK;
    if (!choir__is_dense(t) || t->offset || p->boxes || p->local != t)
        return choir__error(CHOIR_ERR_STATE,
            "parameter '%s' is sharded over ranks, or a view: cast a module before it is wrapped",
            p->name);
    choir_status status = choir__param_can_move(p);
    if (status != CHOIR_OK)
        return status;
    if (p->companions && (dtype == CHOIR_F64 || t->dtype == CHOIR_F64))
        return choir__error(CHOIR_ERR_STATE,
            "an optimizer has stepped with '%s' as %s, and its state has that type: cast the "
            "module before",
            p->name, choir_dtype_name(t->dtype));
    if (p->book)
        choir__book_free(p->book);
    choir__step_forget(t->scope); /* the recording's list names the old memory */
    t->dtype = dtype;
    if (!choir__tensor_allocate(t, choir__device_of(&old))) {
        t->dtype = old.dtype;
        t->storage = old.storage;
        t->poisoned = old.poisoned;
        return choir__scope_status(t->scope);
    }
    t->storage->version = old.storage->version + 1;
    choir__storage_holds_as(t->storage, old.storage);
    choir__launch_copy(t, &old);
    choir__storage_unref(old.storage);
    return CHOIR_OK;
}

static choir_status cast_tree(choir_module *m, choir_dtype dtype)
{
    choir_status status = CHOIR_OK;
    if (m->inside->pinned_by)
        return choir__error(CHOIR_ERR_STATE, "%s as they are", m->inside->pinned_by->ops->pins);
    for (const choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK;
         e = e->next) {
        if (e->kind == CHOIR__CHILD)
            status = cast_tree(e->child, dtype);
        if (e->kind == CHOIR__PARAM)
            status = cast_param(e->tensor->param, dtype);
    }
    return status;
}

choir_status choir__module_refuse_f64(choir_module *m, const char *strategy)
{
    int count;
    choir__param **params = choir__module_named_params(m, &count);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        if (params[i]->tensor->dtype == CHOIR_F64)
            status = choir__error(CHOIR_ERR_DTYPE,
                "%s: parameter '%s' is of f64, which ddp and fsdp train, and one device",
                strategy, params[i]->name);
    free(params);
    return status;
}

choir_status choir_module_cast(choir_module *m, choir_dtype dtype)
{
    choir_status use = choir__use_module(m, __func__);
    if (use != CHOIR_OK)
        return use;
    if (dtype != CHOIR_F32 && dtype != CHOIR_F64 && !choir__is_half(dtype))
        return choir__scope_fail(
            m->run, choir__error(CHOIR_ERR_DTYPE,
                        "choir_module_cast: expected f32, f64, bf16 or f16, got %s",
                        choir_dtype_name(dtype)));
    choir__module_ready(m);
    choir_status status = choir__scope_status(m->run);
    if (status == CHOIR_OK)
        status = cast_tree(m, dtype);
    if (status == CHOIR_OK)
        return CHOIR_OK;
    char *why = choir__strdup(choir__message());
    choir__error(status, "choir_module_cast: module '%s' (%s) to %s: %s",
        *m->path ? m->path : m->name, m->type->name, choir_dtype_name(dtype), why);
    free(why);
    return choir__scope_fail(m->run, status);
}
