/* Memory of calls that are on a group's queue: it lives until the call has run. If a recorded
 * step will run the call again, the memory lives as long as the group. */
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "comm/issue.h"

typedef struct choir__group_block {
    struct choir__group_block *before, *next;
    bool for_good; /* a recorded step will run it again */
    alignas(16) char data[];
} choir__group_block;

void *choir__group_keep(choir_group *group, const void *data, size_t bytes)
{
    choir__group_block *block = choir__alloc(sizeof *block + bytes);
    memcpy(block->data, data, bytes);
    block->for_good = choir__recording_active();
    block->before = NULL;
    pthread_mutex_lock(&group->kept_lock);
    block->next = group->kept;
    if (block->next)
        block->next->before = block;
    group->kept = block;
    pthread_mutex_unlock(&group->kept_lock);
    return block->data;
}

static choir__group_block *block_of(const void *kept)
{
    return (choir__group_block *)(uintptr_t)((const char *)kept -
                                             offsetof(choir__group_block, data));
}

void choir__group_let_go(choir_group *group, const void *kept)
{
    if (!block_of(kept)->for_good)
        choir__group_drop(group, kept);
}

void choir__group_drop(choir_group *group, const void *kept)
{
    choir__group_block *block = block_of(kept);
    pthread_mutex_lock(&group->kept_lock);
    if (block->next)
        block->next->before = block->before;
    *(block->before ? &block->before->next : &group->kept) = block->next;
    pthread_mutex_unlock(&group->kept_lock);
    free(block);
}

void choir__group_drop_all(choir_group *group)
{
    while (group->kept)
        choir__group_drop(group, group->kept->data);
}
