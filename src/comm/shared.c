/* Memory regions per rank; engines that cannot share memory provide private regions. */
#include "comm/shared.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group.h"

choir__shared *choir__shared_make(choir__engine *engine, const int *holders, int count)
{
    const size_t n = (size_t)(holders ? count : engine->world);
    choir__shared *s = choir__calloc(1, sizeof *s + n * sizeof *s->regions);
    s->count = (int)n;
    if (holders) {
        s->holders = choir__alloc(n * sizeof *s->holders);
        memcpy(s->holders, holders, n * sizeof *s->holders);
    }
    s->engine = engine;
    s->rank = engine->rank;
    s->world = engine->world;
    return s;
}

static void free_private(choir__shared *shared)
{
    free(shared->regions[0].at);
}

choir_status choir__shared_private(choir__engine *engine, size_t bytes, choir__shared **made)
{
    choir__shared *s = choir__shared_make(engine, &engine->rank, 1);
    void *p = NULL;
    s->unmap = free_private;
    if (bytes && posix_memalign(&p, 64, bytes)) {
        free(s->holders);
        free(s);
        return choir__error(
            CHOIR_ERR_MEMORY, "out of memory: cannot share %zu bytes in a group", bytes);
    }
    if (bytes)
        memset(p, 0, bytes);
    s->regions[0] = (struct choir__shared_region){p, bytes};
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
    free(shared->holders);
    free(shared);
}

/* Returns the rank's region, or NULL. */
static const struct choir__shared_region *region_of(const choir__shared *s, int rank)
{
    int i = s->holders ? 0 : rank;
    while (s->holders && i < s->count && s->holders[i] != rank)
        i++;
    return i < s->count ? &s->regions[i] : NULL;
}

void *choir__shared_at(const choir__shared *shared, int rank)
{
    const struct choir__shared_region *region = region_of(shared, rank);
    return region ? region->at : NULL;
}

size_t choir__shared_bytes(const choir__shared *shared, int rank)
{
    const struct choir__shared_region *region = region_of(shared, rank);
    return region ? region->bytes : 0;
}
