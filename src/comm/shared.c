/* Memory regions per rank; engines that cannot share memory provide private regions. */
#include "comm/shared.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group.h"

choir__shared *choir__shared_make(choir__engine *engine)
{
    choir__shared *s = choir__calloc(1, sizeof *s + (size_t)engine->world * sizeof *s->regions);
    s->engine = engine;
    s->rank = engine->rank;
    s->world = engine->world;
    return s;
}

static void free_private(choir__shared *shared)
{
    free(shared->regions[shared->rank].at);
}

choir_status choir__shared_private(choir__engine *engine, size_t bytes, choir__shared **made)
{
    choir__shared *s = choir__shared_make(engine);
    void *p = NULL;
    s->unmap = free_private;
    if (bytes && posix_memalign(&p, 64, bytes)) {
        free(s);
        return choir__error(
            CHOIR_ERR_MEMORY, "out of memory: cannot share %zu bytes in a group", bytes);
    }
    if (bytes)
        memset(p, 0, bytes);
    s->regions[s->rank] = (struct choir__shared_region){p, bytes};
    *made = s;
    return CHOIR_OK;
}

void choir__shared_free(choir__shared *shared)
{
    if (!shared)
        return;
    if (shared->group) {
        choir__shared **at = &shared->group->shareds;
        choir__queue_wait(shared->group->queue);
        while (*at != shared)
            at = &(*at)->other;
        *at = shared->other;
    }
    shared->unmap(shared);
    free(shared);
}

void *choir__shared_at(const choir__shared *shared, int rank)
{
    return shared->regions[rank].at;
}

size_t choir__shared_bytes(const choir__shared *shared, int rank)
{
    return shared->regions[rank].bytes;
}
