/* Shared by all engines: releasing the base struct, and the members of a sub-group. */
#include "comm/engine.h"

#include <stdlib.h>

#include "comm/far/far.h"
#include "comm/message/message.h"

void choir__engine_free(choir__engine *engine)
{
    free(engine->members);
    choir__executor_free(engine->executor);
    choir__staging_free(engine->staging);
    free(engine);
}

choir__member *choir__members_of(
    const choir__member *members, const int *ranks, int count, int *nodes)
{
    *nodes = 1;
    if (!members)
        return NULL;
    choir__member *mine = choir__calloc((size_t)count, sizeof *mine);
    *nodes = 0;
    for (int i = 0; i < count; i++) {
        int before = i - 1;
        mine[i] = members[ranks[i]];
        while (before >= 0 && members[ranks[before]].node != members[ranks[i]].node)
            before--;
        mine[i].node = before < 0 ? (*nodes)++ : mine[before].node;
        mine[i].local_rank = before < 0 ? 0 : mine[before].local_rank + 1;
    }
    return mine;
}
