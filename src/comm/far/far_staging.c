/* The host memory through which a device's data travel, and the copies into and out of it. */
#include "comm/far/far_staging.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = CHOIR__STAGING_ALIGN };

/* --- memory --- */

static void drop(choir__staging *s)
{
    if (s->at && s->from)
        s->from->unpin(s->at);
    else
        free(s->at);
    *s = (choir__staging){0};
}

void choir__staging_free(choir__staging *staging)
{
    if (staging)
        drop(staging);
    free(staging);
}

/* Grows by at least half, so that calls of all sizes settle on one allocation. */
char *choir__staging_get(choir__engine *engine, const choir__far *far, size_t bytes)
{
    if (!engine->staging)
        engine->staging = choir__calloc(1, sizeof *engine->staging);
    choir__staging *s = engine->staging;
    if (s->at && bytes <= s->bytes)
        return s->at;
    size_t want = choir__max(bytes, s->bytes + s->bytes / 2) + ALIGN;
    drop(s);
    s->from = far && far->pinned ? far : NULL;
    s->at = s->from ? s->from->pinned(want) : aligned_alloc(ALIGN, (want + 63) / 64 * 64);
    if (!s->at && want > bytes + ALIGN) {
        want = bytes + ALIGN;
        s->at = s->from ? s->from->pinned(want) : aligned_alloc(ALIGN, (want + 63) / 64 * 64);
    }
    if (!s->at) {
        choir__engine_spread(engine, CHOIR_ERR_MEMORY,
            "rank %d cannot have %zu bytes of %smemory, through which a device's data go to "
            "other ranks",
            engine->rank, want, s->from ? "pinned " : "");
        *s = (choir__staging){0};
        return NULL;
    }
    s->bytes = want;
    return s->at;
}

/* --- copies --- */

choir_status choir__far_copy(void *to, const void *from, size_t bytes)
{
    const choir__far *there = bytes ? choir__far_of(to) : NULL;
    const choir__far *here = bytes ? choir__far_of(from) : NULL;
    if (!bytes)
        return CHOIR_OK;
    if (there && here)
        return there->move(to, from, bytes);
    if (there)
        return there->put(to, from, bytes);
    if (here)
        return here->get(to, from, bytes);
    memcpy(to, from, bytes);
    return CHOIR_OK;
}

choir_status choir__far_fail(choir__engine *engine, choir_status status)
{
    if (status == CHOIR_OK || engine->failed != CHOIR_OK)
        return engine->failed;
    char *why = choir__strdup(choir__message());
    choir__engine_spread(engine, status, "rank %d: %s", engine->rank, why);
    free(why);
    return engine->failed;
}
