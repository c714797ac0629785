/* Reading copies: each rank maps those of all ranks and takes its boxes; no rank sends
 * anything. */
#include "parallel/elastic/copies_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/base.h"

/* A copy, mapped. */
typedef struct copy {
    const char *at;
    size_t bytes;
    const choir__copy_head *head;
    const choir__copy_box *boxes; /* (head->boxes) ascending by item */
} copy;

typedef struct source {
    copy copies[CHOIR__MEMBERS_MAX]; /* (world) */
    int world, mine; /* mine: the copy of this rank; -1: the world was another */
} source;

/* --- mapping --- */

static choir_status map_copy(copy *c, int fd)
{
    struct stat file;
    void *at = MAP_FAILED;
    if (fstat(fd, &file) == 0)
        at = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return choir__error(
            CHOIR_ERR_MEMORY, "cannot map a copy of a rank's state: %s", choir__why(errno));
    *c = (copy){.at = at,
        .bytes = (size_t)file.st_size,
        .head = at,
        .boxes = (const choir__copy_box *)((const char *)at + sizeof(choir__copy_head))};
    return CHOIR_OK;
}

static choir_status map_all(source *s, const choir_elastic *e)
{
    const choir__crew *crew = choir__crew_mine();
    choir__copy_set set;
    choir_status status = CHOIR_OK;
    *s = (source){.mine = -1};
    if (!choir__copies_find(&set))
        return choir__error(CHOIR_ERR_STATE, "there is no copy of the training's state");
    for (; s->world < set.world && status == CHOIR_OK; s->world += status == CHOIR_OK)
        status = map_copy(&s->copies[s->world], crew->copies[s->world][set.at[s->world]]);
    if (set.world == e->env->world)
        s->mine = e->env->rank;
    return status;
}

static void unmap_all(source *s)
{
    for (int r = 0; r < s->world; r++)
        munmap((void *)s->copies[r].at, s->copies[r].bytes);
}

/* --- tensors --- */

typedef struct run_copy {
    char *to;
    const char *from;
    size_t each;
} run_copy;

static void copy_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    const run_copy *c = arg;
    memcpy(c->to + (size_t)to * c->each, c->from + (size_t)from * c->each, (size_t)n * c->each);
}

/* Returns the first box of an item, or the place after all boxes of those before. */
static int first_box(const copy *c, int item)
{
    int lo = 0, hi = c->head->boxes;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if (c->boxes[middle].item < item)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* Copies what c has of the wanted region into the block `to`. Returns whether that is all. */
static bool take(const copy *c, int number, const choir__item *item,
    const choir__box_region *wanted, const choir__block_of *to, char *host)
{
    int ndim = item->whole.ndim;
    bool all = false;
    for (int i = first_box(c, number); i < c->head->boxes && c->boxes[i].item == number; i++) {
        choir__box_region both = {{0}, {0}};
        const choir__copy_box *b = &c->boxes[i];
        choir__block_of from = choir__block_of_region(&b->region);
        run_copy run = {host, c->at + b->at, choir_dtype_size(item->dtype)};
        if (!choir__box_region_meet(wanted, &b->region, ndim, &both))
            continue;
        choir__box_region_runs(&both, ndim, to, &from, copy_run, &run);
        all |= choir__box_region_same(&both, wanted, ndim);
    }
    return all;
}

/* Returns whether the copies cover the whole item. Replicas have equal boxes, which count once.
 */
static bool covers(const source *s, int number, const choir__item *item)
{
    choir__box_region *regions = NULL;
    int count = 0;
    int64_t covered = 0;
    for (int r = 0; r < s->world; r++) {
        const copy *c = &s->copies[r];
        for (int i = first_box(c, number); i < c->head->boxes && c->boxes[i].item == number;
             i++) {
            const choir__box_region *region = &c->boxes[i].region;
            bool known = false;
            for (int k = 0; k < count && !known; k++)
                known = choir__box_region_same(&regions[k], region, item->whole.ndim);
            if (known)
                continue;
            regions = choir__realloc(regions, (size_t)(count + 1) * sizeof *regions);
            regions[count++] = *region;
            covered += choir__box_region_count(region, item->whole.ndim);
        }
    }
    free(regions);
    return covered >= choir__shape_count(item->whole);
}

/* The lowest rank's values count where several ranks have some; but a rank that was there, with
 * as many ranks, takes its own: strategies may give each rank other values. */
static choir_status restore_item(
    const source *s, int number, const choir__item *item, char *host)
{
    size_t bytes = (size_t)item->tensor->count * choir_dtype_size(item->dtype);
    if (!covers(s, number, item))
        return choir__error(CHOIR_ERR_STATE,
            "the copies of the ranks' state lack a part of '%.200s': no rank is left that has "
            "it",
            item->name);
    for (int b = 0; b < item->box_count; b++) {
        choir__box_region wanted = choir__box_region_of(&item->boxes[b]);
        choir__block_of to = choir__block_of_local(&item->boxes[b], item->tensor->shape);
        bool all = s->mine >= 0 && take(&s->copies[s->mine], number, item, &wanted, &to, host);
        for (int r = s->world - 1; r >= 0 && !all; r--)
            (void)take(&s->copies[r], number, item, &wanted, &to, host);
    }
    return choir_write(item->tensor, host, bytes);
}

static choir_status restore_items(const source *s, const choir__items *items)
{
    choir_status status = CHOIR_OK;
    size_t most = 0;
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        most = choir__max(most, (size_t)item->tensor->count * choir_dtype_size(item->dtype));
    }
    char *host = malloc(most + 1);
    if (!host)
        return choir__error(
            CHOIR_ERR_MEMORY, "no %zu bytes of host memory, to restore a rank's state", most);
    for (int i = 0; i < items->count && status == CHOIR_OK; i++)
        if (items->list[i].box_count)
            status = restore_item(s, i, &items->list[i], host);
    free(host);
    return status;
}

/* --- everything --- */

static choir_status check(const source *s, const choir_elastic *e, const choir__items *items)
{
    const choir__copy_head *head = s->copies[0].head;
    if (head->items == items->count && head->own_bytes == e->opts.state_bytes)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "the copies have %d tensors and %zu bytes of the program's state, this rank %d and %zu: "
        "expected the same objects in each generation of the ranks",
        head->items, head->own_bytes, items->count, e->opts.state_bytes);
}

static void restore_own(const source *s, const choir_elastic *e)
{
    const copy *c = &s->copies[0];
    if (e->opts.state_bytes)
        memcpy(e->opts.state, c->at + choir__copy_own(c->head->boxes), e->opts.state_bytes);
}

choir_status choir__copies_restore(choir_elastic *e, choir__copied *numbers)
{
    source s;
    choir__items items;
    choir_status status = map_all(&s, e);
    if (status == CHOIR_OK) {
        status = choir__items_collect(&items, e->t.module, e->t.optim);
        if (status == CHOIR_OK)
            status = check(&s, e, &items);
        if (status == CHOIR_OK)
            status = restore_items(&s, &items);
        if (status == CHOIR_OK) /* collective if ranks have copies of others' parts */
            status = choir__items_restored(&items, e->t.module);
        choir__items_free(&items);
    }
    if (status == CHOIR_OK) {
        restore_own(&s, e);
        *numbers = s.copies[0].head->numbers;
    }
    unmap_all(&s);
    return status;
}
