/* Ranks gather each other's status and message. Each takes the first error in the order of the
 * ranks, so all of them fail with one sentence, or none. */
#include "checkpoint/agree.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

typedef struct verdict {
    int32_t status;
    char message[1020];
} verdict;

int choir__rank_of(const choir_group *group)
{
    return group ? choir_group_rank(group) : 0;
}

int choir__world_of(const choir_group *group)
{
    return group ? choir_group_world(group) : 1;
}

choir_status choir__agree(choir_group *group, choir_status mine)
{
    int world = choir__world_of(group);
    if (world == 1)
        return mine;
    verdict own = {.status = mine};
    if (mine != CHOIR_OK)
        snprintf(own.message, sizeof own.message, "%s", choir__message());
    verdict *all = choir__calloc((size_t)world, sizeof *all);
    choir_status status =
        choir_group_all_gather(group, &own, all, (int64_t)sizeof own, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (all[r].status != CHOIR_OK) {
            status = (choir_status)all[r].status;
            choir__set_message(all[r].message);
        }
    free(all);
    return status;
}
