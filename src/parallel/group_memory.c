/* Memory for gradients of a group: shared memory that peers read in place, a block of the pool
 * on devices that are far, or a piece outside the pool. If one rank gets none, it aborts the
 * group, because its peers allocate together with it. */
#include "parallel/group_memory.h"

bool choir__ranks_share(const choir_group *group, const choir_device *device)
{
    return choir__group_shares(group) && !device->far;
}

static choir_status refused(
    const choir__group_memory *m, size_t bytes, choir__group_memory_words words)
{
    choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for %s, %zu bytes%s",
        choir_device_name(m->device), words.what, bytes, words.advice);
    choir__group_abort(m->group, CHOIR_ERR_MEMORY, choir__message());
    return CHOIR_ERR_MEMORY; /* the peers allocate together with this rank */
}

static choir_status from_pool(
    choir__group_memory *m, size_t bytes, choir__group_memory_words words)
{
    m->storage = choir__storage_new(m->device, bytes);
    if (!m->storage)
        return refused(m, bytes, words);
    choir__storage_holds(m->storage, CHOIR__MEMORY_GRADIENTS);
    choir__storage_tell(m->storage, CHOIR__FOR_WORK, words.holder);
    m->at = m->storage->data;
    choir__k_fill zero = {
        .y = m->at, .n = (int64_t)(bytes / sizeof(float)), .dtype = CHOIR_F32};
    choir__launch(m->device, CHOIR_F32, fill, &zero);
    return CHOIR_OK;
}

choir_status choir__group_memory_new(choir__group_memory *m, choir_group *group,
    choir_device *device, size_t bytes, choir__group_memory_words words)
{
    *m = (choir__group_memory){.group = group, .device = device, .holder = words.holder};
    if (device->far)
        return from_pool(m, bytes, words);
    if (!choir__pool_charge(device, (ptrdiff_t)bytes, CHOIR__MEMORY_GRADIENTS, m->holder))
        return refused(m, bytes, words);
    choir_status status = choir__shared_new(group, bytes, &m->shared);
    if (status != CHOIR_OK) {
        choir__pool_charge(device, -(ptrdiff_t)bytes, CHOIR__MEMORY_GRADIENTS, m->holder);
        m->shared = NULL;
        return status;
    }
    m->charged = bytes;
    m->at = choir__shared_at(m->shared, choir_group_rank(group));
    return CHOIR_OK;
}

choir_status choir__group_memory_outside(choir__group_memory *m, choir_group *group,
    choir_device *device, choir__offload_store *outside, size_t bytes, const char *what)
{
    *m = (choir__group_memory){.group = group, .device = device};
    choir_status status = choir__offload_store_get(outside, device, bytes, what, &m->at);
    if (status == CHOIR_OK)
        m->outside = choir__offload_store_ref(outside);
    return status;
}

void choir__group_memory_free(choir__group_memory *m)
{
    if (m->storage || m->outside)
        choir__queue_wait(choir__group_queue(m->group));
    if (m->outside) {
        (void)!choir_device_sync(m->device);
        choir__offload_store_put(m->outside, m->at);
        choir__offload_store_unref(m->outside);
    }
    choir__storage_unref(m->storage);
    choir__shared_free(m->shared);
    if (m->charged)
        choir__pool_charge(
            m->device, -(ptrdiff_t)m->charged, CHOIR__MEMORY_GRADIENTS, m->holder);
    *m = (choir__group_memory){0};
}

choir_status choir__group_memory_renew(choir__group_memory *m, choir_group *group,
    choir_device *device, size_t bytes, choir__group_memory_words words)
{
    (void)!choir_device_sync(device);
    choir__group_memory_free(m);
    return choir__group_memory_new(m, group, device, bytes, words);
}
