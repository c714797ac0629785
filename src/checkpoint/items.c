/* The list of a job's tensors, made by visiting the module and the optimizer, and sorted by
 * name: weights first, then moments. An item has this rank's boxes of the tensor, without empty
 * ones. */
#include "checkpoint/items.h"

#include <stdlib.h>
#include <string.h>

#include "base/nan.h"
#include "optim/optim.h"
#include "tensor/held.h"
#include "tensor/strategy.h"

static bool is_here(const choir_tensor *t)
{
    return t->count && (!t->storage || !choir__device_of(t)->away);
}

/* Weights that are held in few bits are words, which files have as 16-bit numbers or as bytes.
 */
static choir_tensor *as_stored(choir_tensor *t)
{
    choir_tensor *seen = choir__alloc(sizeof *seen);
    choir__held_as_stored(seen, t);
    return seen;
}

/* Counts the elements of rows in the item's dtype instead of words. */
static void scale_rows(choir__item *item)
{
    const int64_t ratio = 4 / (int64_t)choir_dtype_size(item->dtype);
    item->whole.dim[1] *= ratio;
    for (int i = 0; i < item->box_count; i++) {
        item->boxes[i].from[1] *= ratio;
        item->boxes[i].at[1] *= ratio;
        item->boxes[i].size[1] *= ratio;
    }
}

/* Adds an item. tensor has the layout of param->local, if there is a param. */
static void add(choir__items *items, const char *name, choir_tensor *tensor,
    const choir__param *param, bool moment)
{
    const bool held = tensor->held;
    const choir_shape words = tensor->shape;
    choir_tensor *seen = held ? as_stored(tensor) : NULL;
    tensor = held ? seen : tensor;
    CHOIR__GROW(items->list, items->count);
    choir__item *item = &items->list[items->count++];
    bool parted = param && param->boxes;
    items->parted |= parted && !moment;
    int boxes = !is_here(tensor) ? 0 : parted ? param->box_count : 1;
    *item = (choir__item){.name = choir__strdup(name),
        .tensor = tensor,
        .seen = seen,
        .dtype = tensor->dtype,
        .whole = parted ? param->whole : words,
        .boxes = choir__calloc((size_t)boxes + 1, sizeof *item->boxes),
        .moment = moment,
        .buffer = !param};
    for (int i = 0; i < boxes; i++)
        if (parted)
            item->boxes[item->box_count++] = param->boxes[i];
        else
            memcpy(item->boxes[item->box_count++].size, words.dim, sizeof item->boxes->size);
    if (held)
        scale_rows(item);
    for (int i = item->box_count; i-- > 0;) { /* removes empty boxes */
        choir__box_region r = choir__box_region_of(&item->boxes[i]);
        if (!choir__box_region_count(&r, item->whole.ndim))
            item->boxes[i] = item->boxes[--item->box_count];
    }
}

static void add_weight(const char *name, choir_tensor *t, void *arg)
{
    choir__items *items = arg;
    add(items, name, t->param ? t->param->local : t, t->param, false);
    items->list[items->count - 1].param = t->param;
}

static void add_moment(const char *name, choir_tensor *t, const choir__param *param, void *arg)
{
    add(arg, name, t, param, true);
}

static int by_name(const void *a, const void *b)
{
    const choir__item *x = a, *y = b;
    return x->moment != y->moment ? x->moment - y->moment : strcmp(x->name, y->name);
}

choir_status choir__items_collect(choir__items *items, choir_module *module, choir_optim *optim)
{
    *items = (choir__items){0};
    choir_module_visit(module, true, add_weight, items);
    if (optim)
        choir__optim_visit_params(optim, add_moment, items);
    if (items->count)
        qsort(items->list, (size_t)items->count, sizeof *items->list, by_name);
    return choir__scope_status(module->run);
}

static void free_item(choir__item *item)
{
    free(item->name);
    free(item->boxes);
    free(item->seen);
}

void choir__items_keep(choir__items *items, bool (*keep)(const choir__item *item))
{
    int kept = 0;
    for (int i = 0; i < items->count; i++)
        if (keep(&items->list[i]))
            items->list[kept++] = items->list[i];
        else
            free_item(&items->list[i]);
    items->count = kept;
}

void choir__items_free(choir__items *items)
{
    for (int i = 0; i < items->count; i++)
        free_item(&items->list[i]);
    free(items->list);
    *items = (choir__items){0};
}

/* Restoring looks like a step of the optimizer to the strategy. */
choir_status choir__items_restored(const choir__items *items, choir_module *module)
{
    choir_status status = choir__scope_status(module->run);
    if (!items->parted || status != CHOIR_OK)
        return status;
    choir__strategies_updated(module->run);
    return choir_device_sync(module->run->device);
}

/* --- reading --- */

/* Returns whether a box is everything that this rank holds of the tensor. */
static bool is_all_here(const choir__item *item, const choir__box *box)
{
    for (int d = 0; d < item->whole.ndim; d++)
        if (box->at[d] || box->size[d] != item->tensor->shape.dim[d])
            return false;
    return true;
}

static choir_status read_box(const choir__item *item, int index, void *data)
{
    const choir__box *box = &item->boxes[index];
    size_t each = choir_dtype_size(item->dtype), bytes = (size_t)item->tensor->count * each;
    if (is_all_here(item, box))
        return choir_read(item->tensor, data, bytes);
    void *local = malloc(bytes + 1);
    if (!local)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot read the %zu bytes of '%.200s'", bytes, item->name);
    choir_status status = choir_read(item->tensor, local, bytes);
    choir__box_region region = choir__box_region_of(box);
    choir__block_of to = choir__block_of_region(&region);
    choir__block_of from = choir__block_of_local(box, item->tensor->shape);
    if (status == CHOIR_OK)
        choir__box_region_copy(&region, item->whole.ndim, &to, data, &from, local, each);
    free(local);
    return status;
}

choir_status choir__item_read(const choir__item *item, int index, void *data)
{
    choir_status status = read_box(item, index, data);
    choir__box_region read = choir__box_region_of(&item->boxes[index]);
    if (status == CHOIR_OK)
        choir__one_nan(
            data, item->dtype, (size_t)choir__box_region_count(&read, item->whole.ndim));
    return status;
}
