/* Reading copies: each rank takes its boxes from the copies of all ranks. It maps the copies
 * that are on its machine. A copy that some machine lacks is broadcast, box after box as the
 * tensors come, so that a rank needs memory for the boxes of one tensor.
 *
 * All ranks go through the same tensors and boxes in one order. The tables of all copies, which
 * they exchange first, say which boxes are broadcast. */
#include "parallel/elastic/copies_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/board/board.h"

/* A rank's copy. */
typedef struct copy {
    const char *map; /* on this machine; NULL: it is on others */
    size_t map_bytes;
    int there;              /* boxes whose values the map has */
    choir__copy_head head;  /* head of the holder's copy, which all ranks use */
    choir__copy_box *boxes; /* (head.boxes) the parts by item, then the common ones by item */
    void *own;              /* (head.own_bytes) the program's state */
    const choir__copy_place *place;
    char **fetched; /* (head.boxes) values that were sent, of the present item; NULL: none */
} copy;

typedef struct source {
    choir__copies *copies;
    copy *list;      /* (world) */
    int world, mine; /* mine: the copy of this rank; -1: the world was another */
} source;

/* --- tables --- */

static choir_status map_copy(copy *c, int fd)
{
    struct stat file;
    void *at = MAP_FAILED;
    if (fstat(fd, &file) == 0)
        at = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return choir__error(
            CHOIR_ERR_MEMORY, "cannot map a copy of a rank's state: %s", choir__why(errno));
    c->map = at;
    c->map_bytes = (size_t)file.st_size;
    c->head = *(const choir__copy_head *)at;
    c->there = c->head.boxes;
    return CHOIR_OK;
}

static choir_status send(source *s, const copy *c, void *data, size_t bytes)
{
    return bytes ? choir_group_broadcast(s->copies->elastic->env->group, data, (int64_t)bytes,
                       CHOIR_U8, c->place->holder, NULL)
                 : CHOIR_OK;
}

/* Reads the tables of a copy; all ranks read its holder's. */
static choir_status read_tables(source *s, copy *c)
{
    choir_status status = CHOIR_OK;
    bool shared = s->copies->kept;
    if (shared)
        status = send(s, c, &c->head, sizeof c->head);
    if (status != CHOIR_OK)
        return status;
    size_t bytes = (size_t)c->head.boxes * sizeof *c->boxes;
    c->boxes = choir__alloc(bytes + 1);
    c->own = choir__alloc(c->head.own_bytes + 1);
    c->fetched = choir__calloc((size_t)c->head.boxes + 1, sizeof *c->fetched);
    bool holds = c->map && (!shared || s->copies->elastic->env->rank == c->place->holder);
    if (holds) {
        memcpy(c->boxes, c->map + sizeof c->head, bytes);
        memcpy(c->own, c->map + c->head.own_at, c->head.own_bytes);
    }
    if (shared)
        status = send(s, c, c->boxes, bytes);
    return status == CHOIR_OK && shared ? send(s, c, c->own, c->head.own_bytes) : status;
}

static choir_status open_all(source *s, choir__copies *c)
{
    const choir__copy_set *set = &c->set;
    choir_status status = CHOIR_OK;
    *s = (source){.copies = c, .mine = -1};
    if (!set->world)
        return choir__error(CHOIR_ERR_STATE, "there is no copy of the training's state");
    s->list = choir__calloc((size_t)set->world, sizeof *s->list);
    s->world = set->world;
    for (int r = 0; r < set->world && status == CHOIR_OK; r++) {
        copy *n = &s->list[r];
        n->place = &set->places[r];
        if (n->place->slot >= 0)
            status = map_copy(n, c->fds[n->place->slot][n->place->half]);
    }
    for (int r = 0; r < set->world && status == CHOIR_OK; r++)
        status = read_tables(s, &s->list[r]);
    if (set->world == c->elastic->env->world)
        s->mine = c->elastic->env->rank;
    return status;
}

static void close_all(source *s)
{
    for (int r = 0; r < s->world; r++) {
        copy *c = &s->list[r];
        if (c->map)
            munmap((void *)c->map, c->map_bytes);
        free(c->boxes);
        free(c->own);
        free(c->fetched);
    }
    free(s->list);
}

/* --- boxes --- */

/* Returns the first of the boxes [lo, hi) that is of an item, or the place after those before.
 */
static int first_box(const copy *c, int lo, int hi, int item)
{
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if (c->boxes[middle].item < item)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* The boxes of an item are [from, to): the boxes of the rank's parts, or a common one. */
typedef struct range {
    int from, to;
} range;

static range boxes_of(const copy *c, int item, bool common)
{
    int lo = common ? c->head.parts : 0, hi = common ? c->head.boxes : c->head.parts;
    range r = {.from = first_box(c, lo, hi, item)};
    r.to = first_box(c, r.from, hi, item + 1);
    return r;
}

static const char *values_of(const copy *c, int box)
{
    if (c->fetched[box])
        return c->fetched[box];
    return c->map && box < c->there ? c->map + c->boxes[box].at : NULL;
}

/* The holder of a box sends it to all ranks. */
static choir_status fetch(source *s, copy *c, int box)
{
    size_t bytes = c->boxes[box].bytes;
    char *at = malloc(bytes + 1);
    if (!at)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot receive %zu bytes of a rank's state", bytes);
    if (s->copies->elastic->env->rank == c->place->holder)
        memcpy(at, c->map + c->boxes[box].at, bytes);
    c->fetched[box] = at;
    return send(s, c, at, bytes);
}

/* Fetches the boxes of an item that some machine lacks. */
static choir_status fetch_item(source *s, int item)
{
    choir_status status = CHOIR_OK;
    bool sent = !s->copies->set.newcomers; /* every machine has the common tensors */
    for (int r = 0; r < s->world && s->copies->kept; r++) {
        copy *c = &s->list[r];
        range parts = boxes_of(c, item, false), common = boxes_of(c, item, true);
        for (int b = parts.from; b < parts.to && status == CHOIR_OK; b++)
            if (!c->place->everywhere)
                status = fetch(s, c, b);
        for (int b = common.from; b < common.to && status == CHOIR_OK && !sent; b++) {
            sent = true;
            status = fetch(s, c, b);
        }
    }
    return status;
}

static void forget_item(source *s, int item)
{
    for (int r = 0; r < s->world; r++)
        for (int common = 0; common < 2; common++) {
            copy *c = &s->list[r];
            range boxes = boxes_of(c, item, common);
            for (int b = boxes.from; b < boxes.to; b++) {
                free(c->fetched[b]);
                c->fetched[b] = NULL;
            }
        }
}

/* --- tensors --- */

/* Copies c's part of a region into the block `to`. Returns whether the whole region was copied.
 */
static bool take(const copy *c, int number, const choir__item *item,
    const choir__box_region *region, const choir__block_of *to, char *host)
{
    int ndim = item->whole.ndim;
    bool all = false;
    for (int common = 0; common < 2; common++) {
        range boxes = boxes_of(c, number, common);
        for (int i = boxes.from; i < boxes.to; i++) {
            choir__box_region both = {{0}, {0}};
            const choir__copy_box *b = &c->boxes[i];
            choir__block_of from = choir__block_of_region(&b->region);
            const char *values = values_of(c, i);
            if (!values || !choir__box_region_meet(region, &b->region, ndim, &both))
                continue;
            choir__box_region_copy(
                &both, ndim, to, host, &from, values, choir_dtype_size(item->dtype));
            all |= choir__box_region_same(&both, region, ndim);
        }
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
    for (int i = 0; i < 2 * s->world; i++) {
        const copy *c = &s->list[i / 2];
        range boxes = boxes_of(c, number, i % 2);
        for (int b = boxes.from; b < boxes.to; b++) {
            const choir__box_region *region = &c->boxes[b].region;
            bool known = false;
            for (int k = 0; k < count && !known; k++)
                known = choir__box_region_same(&regions[k], region, item->whole.ndim);
            if (known)
                continue;
            CHOIR__GROW(regions, count);
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
        choir__box_region region = choir__box_region_of(&item->boxes[b]);
        choir__block_of to = choir__block_of_local(&item->boxes[b], item->tensor->shape);
        bool all = s->mine >= 0 && take(&s->list[s->mine], number, item, &region, &to, host);
        for (int r = s->world - 1; r >= 0 && !all; r--)
            (void)take(&s->list[r], number, item, &region, &to, host);
    }
    return item->box_count ? choir_write(item->tensor, host, bytes) : CHOIR_OK;
}

static choir_status restore_items(source *s, const choir__items *items)
{
    choir_status status = CHOIR_OK;
    size_t most = 0;
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        most = choir__max(most, (size_t)item->tensor->count * choir_dtype_size(item->dtype));
    }
    char *host = malloc(most + 1);
    if (!host)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of host memory: cannot restore %zu bytes of a rank's state", most);
    for (int i = 0; i < items->count && status == CHOIR_OK; i++) {
        status = fetch_item(s, i);
        if (status == CHOIR_OK)
            status = restore_item(s, i, &items->list[i], host);
        forget_item(s, i);
        choir__board_beat();
    }
    free(host);
    return status;
}

/* --- everything --- */

static choir_status check(const source *s, const choir_elastic *e, const choir__items *items)
{
    const choir__copy_head *head = &s->list[0].head;
    if (head->items == items->count && head->own_bytes == e->opts.state_bytes)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "the copies have %d tensors and %zu bytes of the program's state, this rank %d and %zu: "
        "expected the same objects in each generation of the ranks",
        head->items, (size_t)head->own_bytes, items->count, e->opts.state_bytes);
}

choir_status choir__copies_restore(choir__copies *c, choir__copied *numbers)
{
    source s;
    choir__items items;
    choir_elastic *e = c->elastic;
    choir_status status = open_all(&s, c);
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
        if (e->opts.state_bytes)
            memcpy(e->opts.state, s.list[0].own, e->opts.state_bytes);
        *numbers = s.list[0].head.numbers;
    }
    close_all(&s);
    return status;
}
