/* Dumps: the tensors of a step as a safetensors file, whole on rank 0, whatever the strategy. */
#include "audit/dump.h"

#include <stdlib.h>
#include <string.h>

#include "audit/chain.h"
#include "base/files/folders.h"
#include "checkpoint/agree.h"
#include "record/lines.h"
#include "tensor/tensor.h"

char *choir__audit_dump_path(const char *folder, int64_t step)
{
    return choir__format("%s/audit/step-%08lld.safetensors", folder, (long long)step);
}

/* Returns the item of a weight's gradient, with boxes if this rank has it. */
static choir__item gradient_of(const choir__item *weight, bool ran, choir_scope *scope)
{
    float *data = ran && weight->box_count ? choir__param_grad_data(weight->param) : NULL;
    choir__item item = *weight;
    item.name = choir__format(CHOIR__AUDIT_GRAD "%s", weight->name);
    item.dtype = CHOIR_F32;
    item.param = NULL;
    item.box_count = data ? weight->box_count : 0;
    item.boxes = choir__calloc((size_t)item.box_count + 1, sizeof *item.boxes);
    if (!data)
        return item;
    memcpy(item.boxes, weight->boxes, (size_t)item.box_count * sizeof *item.boxes);
    item.tensor = choir__tensor_wrap(
        scope, choir__device_of(weight->tensor), CHOIR_F32, weight->tensor->shape, data);
    memcpy(item.tensor->stride, weight->tensor->stride, sizeof item.tensor->stride);
    return item;
}

/* Adds the gradients that some rank has. */
static choir_status add_gradients(
    choir__items *items, choir_group *group, bool ran, choir_scope *scope)
{
    int count = items->count;
    unsigned char *has = choir__calloc((size_t)count + 1, 1);
    for (int i = 0; i < count; i++)
        has[i] = items->list[i].param && ran && items->list[i].box_count &&
                 choir__param_grad_data(items->list[i].param);
    choir_status status =
        group ? choir_group_all_reduce(group, has, count, CHOIR_U8, CHOIR_MAX, NULL) : CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        if (!has[i])
            continue;
        CHOIR__GROW(items->list, items->count);
        items->list[items->count++] = gradient_of(&items->list[i], ran, scope);
    }
    free(has);
    return status;
}

choir_status choir__audit_dump(choir_scope *run, const char *folder, int64_t step,
    choir__items *items, choir_group *group, bool ran)
{
    char *path = choir__audit_dump_path(folder, step);
    char *inside = choir__format("%s/audit", folder);
    int error = choir__rank_of(group) == 0 ? choir__folders_make(inside) : 0;
    choir_scope *scope = choir_no_grad(run);
    choir_status status = error ? choir__record_failed(inside, error) : CHOIR_OK;
    status = choir__agree(group, status);
    if (status == CHOIR_OK)
        status = add_gradients(items, group, ran, scope);
    if (status == CHOIR_OK)
        status = choir__items_save(items, group, path);
    choir_status closed = choir_scope_close(scope);
    free(inside);
    free(path);
    return status == CHOIR_OK ? closed : status;
}
