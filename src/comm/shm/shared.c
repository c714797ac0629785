/* Memory that every rank of a group can read and write.
 *
 * Each rank makes a memfd of its size (base/files/mapping.h), and all ranks map all of them;
 * then the descriptors are closed, and the memory is released with the last process that maps
 * it. If a rank cannot allocate its memory, the call fails on all ranks. */
#include "comm/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files/mapping.h"

struct placement {
    const choir__shm *shm;
    choir__shm_placement *place;
};

static void place(void *arg, char *at)
{
    const struct placement *p = arg;
    p->place(p->shm, at);
}

int choir__shm_memory(
    const choir__shm *shm, size_t bytes, choir__shm_placement *placement, char why[200])
{
    return choir__memfd_new(
        bytes, bytes, placement ? place : NULL, &(struct placement){shm, placement}, why);
}

/* --- the collective --- */

static void unmap(choir__shared *shared)
{
    choir__shm *shm = (choir__shm *)shared->engine;
    if (shm && shared->id) {
        pthread_mutex_lock(&shm->lock);
        choir__shared **p = &shm->shareds;
        while (*p != shared)
            p = &(*p)->next;
        *p = shared->next;
        pthread_mutex_unlock(&shm->lock);
    }
    for (int r = 0; r < shared->world; r++)
        if (shared->regions[r].at)
            munmap(shared->regions[r].at, shared->regions[r].bytes);
}

static choir_status map_all(
    choir__shm *shm, choir__shared *shared, choir__offer *offers, int *fds, choir__offer *mine)
{
    for (int r = 0; r < shm->base.world; r++) {
        struct choir__shared_region *region = &shared->regions[r];
        region->bytes = offers[r].bytes;
        if (!offers[r].bytes || mine->status)
            continue;
        region->at = choir__memfd_map(fds[r], offers[r].bytes);
        if (!region->at) {
            mine->status = CHOIR_ERR_MEMORY;
            snprintf(mine->text, sizeof mine->text, "mapping %zu bytes: %s", region->bytes,
                choir__why(errno));
        }
    }
    for (int r = 0; r < shm->base.world; r++)
        if (fds[r] >= 0)
            close(fds[r]);
    return mine->status;
}

/* Reports an error of any rank on all ranks; the group remains usable. */
static choir_status anyone_failed(choir__shm *shm, const choir__offer *offers)
{
    for (int r = 0; r < shm->base.world; r++)
        if (offers[r].status) {
            snprintf(shm->base.message, sizeof shm->base.message,
                "rank %d has no memory to share: %.199s", choir__engine_number(&shm->base, r),
                offers[r].text);
            return (choir_status)offers[r].status;
        }
    return CHOIR_OK;
}

static choir_status trade(choir__shm *shm, choir__offer *mine, choir__shared *shared)
{
    choir__offer offers[CHOIR__MAX_WORLD];
    int fds[CHOIR__MAX_WORLD];
    int fd = mine->bytes ? choir__shm_memory(shm, mine->bytes, NULL, mine->text) : -1;
    if (mine->bytes && fd < 0)
        mine->status = CHOIR_ERR_MEMORY;
    choir_status status = choir__shm_exchange(shm, mine, fd, offers, fds);
    if (fd >= 0)
        close(fd);
    if (status != CHOIR_OK)
        return status;
    status = anyone_failed(shm, offers);
    if (status != CHOIR_OK) {
        for (int r = 0; r < shm->base.world; r++)
            if (fds[r] >= 0)
                close(fds[r]);
        return status;
    }
    map_all(shm, shared, offers, fds, mine);
    if (choir__shm_exchange(shm, mine, -1, offers, fds) !=
        CHOIR_OK) /* checks that it worked on all ranks */
        return shm->base.failed;
    return anyone_failed(shm, offers);
}

choir_status choir__shm_share(choir__engine *engine, size_t bytes, choir__shared **made)
{
    choir__shm *shm = (choir__shm *)engine;
    const choir__stamp call = {.kind = CHOIR__SHARE, .seq = engine->seq};
    shm->stepped++;
    if (choir__shm_enter(shm, &call) != CHOIR_OK)
        return shm->base.failed;
    choir__offer mine = {.bytes = bytes};
    choir__shared *shared = choir__shared_make(engine, NULL, 0);
    shared->unmap = unmap;
    choir_status status = trade(shm, &mine, shared);
    if (status != CHOIR_OK) {
        unmap(shared);
        free(shared);
        return status;
    }
    shared->id = ++shm->shared_count;
    pthread_mutex_lock(&shm->lock);
    shared->next = shm->shareds;
    shm->shareds = shared;
    pthread_mutex_unlock(&shm->lock);
    *made = shared;
    return CHOIR_OK;
}

void choir__shm_orphan(choir__shm *shm)
{
    for (choir__shared *s = shm->shareds; s; s = s->next)
        s->engine = NULL;
}

static bool holds(const struct choir__shared_region *region, const void *data, size_t bytes)
{
    uintptr_t at = (uintptr_t)region->at, d = (uintptr_t)data;
    return at && d >= at && d - at <= region->bytes && bytes <= region->bytes - (d - at);
}

choir__shm_place choir__shm_find(choir__shm *shm, const void *data, size_t bytes)
{
    choir__shm_place place = {0};
    pthread_mutex_lock(&shm->lock);
    for (const choir__shared *s = shm->shareds; s && !place.shared; s = s->next)
        for (int i = 0; i < s->world && !place.shared; i++) {
            /* This rank's region first, where data usually are. */
            int r = (s->rank + i) % s->world;
            if (holds(&s->regions[r], data, bytes))
                place = (choir__shm_place){
                    (uint32_t)s->id, r, (uint64_t)((const char *)data - s->regions[r].at)};
        }
    pthread_mutex_unlock(&shm->lock);
    return place;
}

static choir__shared *shared_of(choir__shm *shm, uint64_t id)
{
    pthread_mutex_lock(&shm->lock);
    choir__shared *s = shm->shareds;
    while (s && s->id != id)
        s = s->next;
    pthread_mutex_unlock(&shm->lock);
    return s;
}

char *choir__shm_at(choir__shm *shm, choir__shm_place place, size_t bytes)
{
    const choir__shared *shared = place.shared ? shared_of(shm, place.shared) : NULL;
    if (!shared)
        return NULL;
    char *at = shared->regions[place.region].at + place.offset;
    return holds(&shared->regions[place.region], at, bytes) ? at : NULL;
}
