/* Dumps: the tensors of a step as a safetensors file, whole on rank 0, whatever the strategy.
 */
#include "audit/dump.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/folders.h"
#include "checkpoint/agree.h"
#include "record/lines.h"
#include "tensor/launch.h"
#include "tensor/run.h"

char *choir__audit_dump_path(const char *folder, int64_t step)
{
    return choir__format("%s/audit/step-%08lld.safetensors", folder, (long long)step);
}

/* --- gradients --- */

/* Returns the item of a weight's gradient, with boxes if this rank has it. */
static choir__item gradient_of(const choir__item *weight, bool has, choir_scope *scope)
{
    void *data = has && weight->box_count ? choir__param_grad_data(weight->param) : NULL;
    choir__item item = *weight;
    item.name = choir__format(CHOIR__AUDIT_GRAD "%s", weight->name);
    item.dtype = data ? weight->param->book->dtype : CHOIR_F32;
    item.param = NULL;
    item.box_count = data ? weight->box_count : 0;
    item.boxes = choir__calloc((size_t)item.box_count + 1, sizeof *item.boxes);
    if (!data)
        return item;
    memcpy(item.boxes, weight->boxes, (size_t)item.box_count * sizeof *item.boxes);
    item.tensor = choir__tensor_wrap(
        scope, choir__device_of(weight->tensor), item.dtype, weight->tensor->shape, data);
    memcpy(item.tensor->stride, weight->tensor->stride, sizeof item.tensor->stride);
    return item;
}

static void add(choir__items *items, choir__item item)
{
    CHOIR__GROW(items->list, items->count);
    items->list[items->count++] = item;
}

/* Sets each byte (count) to 1 if it is 1 on some rank. */
static choir_status on_some_rank(choir_group *group, unsigned char *has, int64_t count)
{
    return group ? choir_group_all_reduce(group, has, count, CHOIR_U8, CHOIR_MAX, NULL)
                 : CHOIR_OK;
}

/* Adds the gradients that some rank has. */
static choir_status add_gradients(
    choir__items *items, const choir__audit_dumped *what, choir_scope *scope)
{
    int count = items->count;
    unsigned char *has = choir__calloc((size_t)count + 1, 1);
    for (int i = 0; i < count; i++)
        has[i] = items->list[i].param && what->gradients && items->list[i].box_count &&
                 choir__param_grad_data(items->list[i].param);
    choir_status status = on_some_rank(what->group, has, count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        if (has[i])
            add(items, gradient_of(&items->list[i], what->gradients, scope));
    free(has);
    return status;
}

/* --- the batch --- */

/* Returns x or y of this rank's micro-batches as a part of the batch, whose rows are samples.
 */
static choir__item batch_of(const choir__seen_step *seen, int which, choir_scope *scope)
{
    static const char *const names[] = {CHOIR__AUDIT_BATCHES "x", CHOIR__AUDIT_BATCHES "y"};
    int64_t rows = seen->shape[which].dim[0], own = 0;
    choir_shape part = seen->shape[which];
    choir__item item = {.name = choir__strdup(names[which]),
        .dtype = seen->dtype[which],
        .whole = part,
        .boxes = choir__calloc((size_t)seen->count + 1, sizeof *item.boxes),
        .moment = true};
    item.whole.dim[0] *= seen->count;
    size_t bytes = (size_t)choir__shape_count(part) * choir_dtype_size(item.dtype);
    for (int64_t m = 0; m < seen->count; m++)
        own += seen->list[m].data[which] != NULL;
    part.dim[0] *= own;
    item.tensor = choir__tensor_new(scope, scope->device, item.dtype, part);
    if (which == 0 && seen->images)
        choir__set_channels_last(item.tensor);
    char *to = item.tensor->poisoned ? NULL : choir__data(item.tensor);
    for (int64_t m = 0; to && m < seen->count; m++) {
        if (!seen->list[m].data[which])
            continue;
        choir__box *box = &item.boxes[item.box_count];
        memcpy(box->size, seen->shape[which].dim, sizeof box->size);
        box->from[0] = m * rows;
        box->at[0] = item.box_count++ * rows;
        choir__launch_upload(scope->device, to, seen->list[m].data[which], bytes);
        to += bytes;
    }
    return item;
}

/* Adds the batch, if each of its micro-batches is on some rank. A rank that has joined since
 * the step has seen no batch. */
static choir_status add_batch(
    choir__items *items, const choir__audit_dumped *what, choir_scope *scope)
{
    const choir__seen_step *seen = what->seen;
    unsigned char lacks = !seen;
    choir_status status = on_some_rank(what->group, &lacks, 1);
    if (status != CHOIR_OK || lacks)
        return status;
    unsigned char *has = choir__calloc((size_t)seen->count + 1, 1);
    for (int64_t m = 0; m < seen->count; m++)
        has[m] = seen->list[m].data[0] != NULL;
    status = on_some_rank(what->group, has, seen->count);
    bool all = status == CHOIR_OK && !memchr(has, 0, (size_t)seen->count);
    for (int which = 0; all && which < 2; which++)
        add(items, batch_of(seen, which, scope));
    free(has);
    return status == CHOIR_OK ? choir_scope_status(scope) : status;
}

/* --- the file --- */

choir_status choir__audit_dump(
    choir_scope *run, choir__items *items, const choir__audit_dumped *what)
{
    char *path = choir__audit_dump_path(what->folder, what->step);
    char *inside = choir__format("%s/audit", what->folder);
    int error = choir__rank_of(what->group) == 0 ? choir__folders_make(inside) : 0;
    choir_scope *scope = choir_no_grad(run);
    choir_status status = error ? choir__record_failed(inside, error) : what->status;
    status = choir__agree(what->group, status);
    if (status == CHOIR_OK)
        status = add_gradients(items, what, scope);
    if (status == CHOIR_OK)
        status = add_batch(items, what, scope);
    if (status == CHOIR_OK)
        status = choir__items_save(items, what->group, path);
    choir_status closed = choir_scope_close(scope);
    free(inside);
    free(path);
    return status == CHOIR_OK ? closed : status;
}
