/* Frozen weights become held in few bits: see choir/hold.h and tensor/held.h.
 *
 * A weight may be held if products alone read it, or lookups. Other ops could not read its
 * words: so only weights of linear layers and of embeddings are chosen. */
#include "nn/hold.h"

#include <stdlib.h>

#include "nn/linear.h"
#include "tensor/handle.h"
#include "tensor/held.h"
#include "tensor/strategy.h"

/* A call that holds weights, and its first error. */
typedef struct holding {
    choir__quant type;
    bool tables, rest;          /* rest: only weights that are not held yet */
    choir__hold_choice *choice; /* NULL: all in that type */
    void *arg;
    choir_status status;
} holding;

static const choir__quant types[CHOIR_HOLD_COUNT] = {
#define X(name, text) [CHOIR_HOLD_##name] = CHOIR__##name,
    CHOIR_HOLD_LIST(X)
#undef X
};

/* Returns the type for rows of cols values; F32: none. 16-bit rows are whole words. */
static choir__quant type_for(choir__quant type, int64_t cols)
{
    if (type == CHOIR__Q4_K && cols % 256)
        type = CHOIR__Q5_0;
    if (type > CHOIR__BF16 && cols % 32)
        type = CHOIR__BF16;
    return type <= CHOIR__BF16 && cols % 2 ? CHOIR__F32 : type;
}

static choir__quant type_for_table(choir__quant type, int64_t cols)
{
    return type_for(type > CHOIR__Q8_0 ? CHOIR__Q8_0 : type, cols);
}

static choir_status can_hold(const choir__param *p, choir__quant type)
{
    if (p->tensor->held)
        return p->tensor->held->type == type
                   ? CHOIR_OK
                   : choir__error(CHOIR_ERR_STATE, "parameter '%s' is held as %s, not as %s",
                         p->name, choir__quant_types[p->tensor->held->type].name,
                         choir__quant_types[type].name);
    if (p->companions || p->has_grad || p->boxes || p->replicas || p->local != p->tensor ||
        (p->book && p->book->reducer))
        return choir__error(CHOIR_ERR_STATE,
            "parameter '%s' has an optimizer or a strategy already: weights are held before that",
            p->name);
    return CHOIR_OK;
}

/* Makes the handle one of words, without memory. */
static void become(choir__param *p, choir__quant type)
{
    choir_tensor *t = p->tensor;
    choir__step_forget(t->scope); /* the recording's list names the old memory */
    if (p->book)
        choir__book_free(p->book);
    t->storage = NULL;
    p->cols = t->shape.dim[1];
    choir__hold_as(t, type, p->cols);
    p->whole = t->shape;
}

/* Rounds the present values. Later draws and loads round theirs, and another rank its own. */
static choir_status hold(choir__param *p, choir__quant type)
{
    choir_tensor *t = p->tensor, values = *t;
    const int64_t rows = t->shape.dim[0], cols = t->shape.dim[1];
    const int64_t most = CHOIR__HELD_SLAB / choir__max(1, cols) + 1;
    choir_device *device = values.storage ? choir__device_of(t) : t->device;
    become(p, type);
    if (!values.storage)
        return CHOIR_OK;
    float *room = malloc((size_t)(most * cols) * sizeof *room + 1);
    choir_status status = room ? CHOIR_OK : choir__held_no_room(most * cols);
    if (status == CHOIR_OK && !choir__tensor_allocate(t, device))
        status = choir__scope_status(t->scope);
    choir__storage_holds(t->storage, CHOIR__MEMORY_WEIGHTS);
    choir__storage_tell(t->storage, CHOIR__FOR_WORK, p->name);
    for (int64_t r = 0; r < rows && !device->away && status == CHOIR_OK; r += most) {
        const int64_t n = choir__min(most, rows - r);
        choir_tensor some = choir__rows_view(&values, r, n);
        status = choir__held_round_rows(t, r, &some, n, room);
    }
    choir__storage_unref(values.storage);
    free(room);
    return status;
}

static void hold_one(holding *h, choir_tensor *t, choir__quant type)
{
    choir__param *p = t->param;
    if (h->status != CHOIR_OK || type == CHOIR__F32 || t->requires_grad || t->poisoned ||
        (t->dtype != CHOIR_F32 && !t->held))
        return;
    h->status = can_hold(p, type);
    if (h->status == CHOIR_OK && !t->held)
        h->status = hold(p, type);
}

/* Returns the type for a weight. */
static choir__quant type_of(const holding *h, const choir_tensor *t, bool table)
{
    const int64_t cols = choir__values_shape(t).dim[1];
    if (h->rest && t->held)
        return CHOIR__F32;
    if (h->choice) {
        const choir__quant type = h->choice(t->param->name, h->arg);
        return type <= CHOIR__BF16 && cols % 2 ? CHOIR__F32
               : choir__held_words(type, cols) ? type
                                               : CHOIR__F32;
    }
    return !table      ? type_for(h->type, cols)
           : h->tables ? type_for_table(h->type, cols)
                       : CHOIR__F32;
}

static void hold_layer(choir_module *m, void *arg)
{
    holding *h = arg;
    bool in_out;
    const choir__linear *l = choir__linear_of_module(m, &in_out);
    if (l && l->weight->param)
        hold_one(h, l->weight, type_of(h, l->weight, false));
    choir_tensor *table = choir__is_embedding(m) ? choir__embedding_table(m) : NULL;
    if (table && table->param)
        hold_one(h, table, type_of(h, table, true));
}

static choir_status hold_layers(choir_module *module, holding h)
{
    choir__module_name(module);
    choir_module_each(module, hold_layer, &h);
    return h.status;
}

choir_status choir_module_hold(choir_module *module, choir_hold type, bool tables)
{
    choir_status status = choir__use_module(module, __func__);
    if (status == CHOIR_OK && ((int)type < 0 || type >= CHOIR_HOLD_COUNT))
        status = choir__error(CHOIR_ERR_ARGUMENT, "choir_module_hold: unknown type %d", type);
    return status == CHOIR_OK
               ? hold_layers(module, (holding){.type = types[type], .tables = tables})
               : status;
}

choir_status choir__module_hold_rest(choir_module *module, choir_hold type, bool tables)
{
    return hold_layers(module, (holding){.type = types[type], .tables = tables, .rest = true});
}

choir_status choir__module_hold_each(
    choir_module *module, choir__hold_choice *choice, void *arg)
{
    return hold_layers(module, (holding){.choice = choice, .arg = arg});
}

static void add_bytes(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    if (t->held && t->param)
        *(int64_t *)arg += t->param->local->count * (int64_t)choir_dtype_size(t->dtype);
}

int64_t choir_module_held_bytes(choir_module *module)
{
    int64_t bytes = 0;
    if (choir__use_module(module, __func__) == CHOIR_OK)
        choir__module_visit_named(module, false, add_bytes, &bytes);
    return bytes;
}
