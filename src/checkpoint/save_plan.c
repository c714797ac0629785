/* The plan of a save: see save.h.
 *
 * A rank's claims are its boxes in the order of the items, as numbers:
 *
 *     item 0: number of boxes, then from and size of each; item 1: ...
 *
 * All ranks receive all claims, and each distributes the parts by the same rule. */
#include "checkpoint/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/agree.h"
#include "checkpoint/format/sha256.h"
#include "checkpoint/state.h"
#include "tensor/tensor.h"

typedef struct claim {
    int rank, box;
    choir__box_region region;
} claim;

typedef struct claims {
    int64_t *numbers; /* (world, room) */
    int64_t room;
    int world;
} claims;

typedef struct header {
    char same[CHOIR__SHA256_HEX + 7]; /* must be equal on all ranks */
    int64_t count;
} header;

/* --- exchange --- */

static void hash_items(const choir__items *items, char *hex)
{
    choir__sha256_state s;
    choir__sha256_init(&s);
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        choir__sha256_update(&s, item->name, strlen(item->name) + 1);
        choir__sha256_update(&s, &item->dtype, sizeof item->dtype);
        choir__sha256_update(&s, &item->whole.ndim, sizeof item->whole.ndim);
        choir__sha256_update(
            &s, item->whole.dim, (size_t)item->whole.ndim * sizeof *item->whole.dim);
    }
    choir__sha256_final(&s, hex);
}

static int64_t *own_claims(const choir__items *items, int64_t *count)
{
    int64_t n = 0;
    for (int i = 0; i < items->count; i++)
        n += 1 + 2 * (int64_t)items->list[i].box_count * items->list[i].whole.ndim;
    int64_t *numbers = choir__calloc((size_t)n + 1, sizeof *numbers), *at = numbers;
    for (int i = 0; i < items->count; i++) {
        const choir__item *item = &items->list[i];
        *at++ = item->box_count;
        for (int b = 0; b < item->box_count; b++)
            for (int half = 0; half < 2; half++)
                for (int d = 0; d < item->whole.ndim; d++)
                    *at++ = half ? item->boxes[b].size[d] : item->boxes[b].from[d];
    }
    *count = n;
    return numbers;
}

static choir_status exchange(claims *c, const choir__items *items, choir_group *group)
{
    header mine = {.count = 0};
    choir_status status = CHOIR_OK;
    c->world = choir__world_of(group);
    int64_t *own = own_claims(items, &mine.count);
    c->room = mine.count;
    if (c->world == 1) {
        c->numbers = own;
        return CHOIR_OK;
    }
    hash_items(items, mine.same);
    header *all = choir__calloc((size_t)c->world, sizeof *all);
    status = choir_group_all_gather(group, &mine, all, (int64_t)sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < c->world && status == CHOIR_OK; r++) {
        c->room = choir__max(c->room, all[r].count);
        if (strcmp(all[r].same, all[0].same) != 0)
            status = choir__error(CHOIR_ERR_MISMATCH,
                "checkpoint: rank %d has another model or optimizer than rank 0", r);
    }
    if (status == CHOIR_OK) {
        int64_t *padded = choir__calloc((size_t)c->room + 1, sizeof *padded);
        memcpy(padded, own, (size_t)mine.count * sizeof *own);
        c->numbers = choir__calloc((size_t)(c->world * c->room) + 1, sizeof *c->numbers);
        status = choir_group_all_gather(group, padded, c->numbers, c->room, CHOIR_I64, NULL);
        free(padded);
    }
    free(all);
    free(own);
    return status;
}

/* --- parts --- */

/* Collects all claims to an item, rank by rank. at: the read position in each rank's numbers,
 * which advances. */
static int claims_to(const choir__item *item, const claims *c, int64_t *at, claim **found)
{
    int n = 0;
    for (int r = 0; r < c->world; r++) {
        const int64_t *numbers = c->numbers + r * c->room;
        int64_t boxes = numbers[at[r]++];
        for (int b = 0; b < boxes; b++) {
            CHOIR__GROW(*found, n);
            claim *k = &(*found)[n++];
            *k = (claim){.rank = r, .box = b};
            for (int d = 0; d < item->whole.ndim; d++)
                k->region.from[d] = numbers[at[r]++];
            for (int d = 0; d < item->whole.ndim; d++)
                k->region.size[d] = numbers[at[r]++];
        }
    }
    return n;
}

static void take(choir__save_plan_part *part, const claim *c, int64_t *load)
{
    part->owner = c->rank;
    part->box = c->box;
    load[c->rank] += part->bytes;
}

/* A part that several ranks hold. */
typedef struct shared_part {
    int part, claim, claims; /* index in the plan; first claim in the list, and their number */
    int64_t bytes;
} shared_part;

typedef struct dealer {
    choir__save_plan *plan;
    shared_part *shared;
    int shared_count;
    claim *kept; /* claims to shared parts */
    int kept_count;
    int64_t *load; /* bytes, by rank */
} dealer;

/* Adds the parts of one item. A part that one rank holds is that rank's; others are distributed
 * later. */
static void add_parts(dealer *d, int item_index, const choir__item *item, claim *c, int n)
{
    int ndim = item->whole.ndim;
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int k = 0; k < i && !again; k++)
            again = choir__box_region_same(&c[k].region, &c[i].region, ndim);
        if (again)
            continue;
        choir__save_plan *plan = d->plan;
        CHOIR__GROW(plan->parts, plan->part_count);
        int index = plan->part_count++, holders = 0, first = d->kept_count;
        choir__save_plan_part *part = &plan->parts[index];
        *part = (choir__save_plan_part){.item = item_index,
            .region = c[i].region,
            .bytes = choir__box_region_count(&c[i].region, ndim) *
                     (int64_t)choir_dtype_size(item->dtype)};
        for (int k = i; k < n && !(item->buffer && holders); k++) {
            if (!choir__box_region_same(&c[k].region, &c[i].region, ndim))
                continue;
            CHOIR__GROW(d->kept, d->kept_count);
            d->kept[d->kept_count++] = c[k];
            holders++;
        }
        if (holders == 1) {
            take(part, &c[i], d->load);
            d->kept_count = first;
            continue;
        }
        CHOIR__GROW(d->shared, d->shared_count);
        d->shared[d->shared_count++] = (shared_part){index, first, holders, part->bytes};
    }
}

static choir_status check_cover(
    const choir__save_plan *plan, int first, const choir__item *item)
{
    int n = plan->part_count - first;
    int64_t covered;
    choir__box_region *regions = choir__calloc((size_t)n + 1, sizeof *regions);
    for (int i = 0; i < n; i++)
        regions[i] = plan->parts[first + i].region;
    bool good = choir__box_regions_cover(regions, n, item->whole, &covered);
    free(regions);
    return good ? CHOIR_OK
                : choir__error(CHOIR_ERR_MISMATCH,
                      "'%.200s' %s: expected each entry once, got %lld entries; all ranks "
                      "that it is sharded over must take part",
                      item->name, choir__shape_text(item->whole), (long long)covered);
}

static int by_size(const void *a, const void *b)
{
    const shared_part *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : x->part - y->part;
}

/* Distributes shared parts, the largest first, each to its holder with the least to write. */
static void deal(dealer *d, int world, int64_t least)
{
    int64_t total = 0;
    for (int i = 0; i < d->shared_count; i++)
        total += d->shared[i].bytes;
    int64_t writers = choir__max(1, choir__min(world, total / choir__max(least, 1)));
    if (d->shared_count)
        qsort(d->shared, (size_t)d->shared_count, sizeof *d->shared, by_size);
    for (int i = 0; i < d->shared_count; i++) {
        const shared_part *s = &d->shared[i];
        const claim *best = &d->kept[s->claim];
        for (int k = 1; k < s->claims; k++) {
            const claim *c = &d->kept[s->claim + k];
            if (c->rank < writers && d->load[c->rank] < d->load[best->rank])
                best = c;
        }
        take(&d->plan->parts[s->part], best, d->load);
    }
}

/* --- files --- */

static int by_place(const void *a, const void *b)
{
    const choir__save_plan_file *x = a, *y = b;
    return x->moments != y->moments ? x->moments - y->moments
           : x->layer != y->layer   ? x->layer - y->layer
                                    : x->owner - y->owner;
}

static void name_files(choir__save_plan *plan)
{
    int of[2] = {0, 0}, number[2] = {0, 0};
    for (int f = 0; f < plan->file_count; f++)
        of[plan->files[f].moments]++;
    for (int f = 0; f < plan->file_count; f++) {
        choir__save_plan_file *file = &plan->files[f];
        const char *kind = file->moments ? "optimizer" : "model";
        if (of[file->moments] == 1)
            snprintf(file->name, sizeof file->name, "%s.safetensors", kind);
        else
            snprintf(file->name, sizeof file->name, "%s-%05d-of-%05d.safetensors", kind,
                ++number[file->moments], of[file->moments]);
    }
}

static void make_files(choir__save_plan *plan, const choir__items *items)
{
    bool parted[2] = {false, false};
    for (int p = 0; p < plan->part_count; p++) {
        choir__save_plan_part *part = &plan->parts[p];
        const choir__item *item = &items->list[part->item];
        for (int k = p; k-- > 0 && plan->parts[k].item == part->item;)
            part->layer += plan->parts[k].owner == part->owner;
        parted[item->moment] |= !choir__box_region_is_whole(&part->region, item->whole);
        choir__save_plan_file key = {
            .moments = item->moment, .layer = part->layer, .owner = part->owner};
        int f = 0;
        while (f < plan->file_count && by_place(&plan->files[f], &key) != 0)
            f++;
        if (f == plan->file_count) {
            CHOIR__GROW(plan->files, plan->file_count);
            plan->files[plan->file_count++] = key;
        }
    }
    if (plan->file_count)
        qsort(plan->files, (size_t)plan->file_count, sizeof *plan->files, by_place);
    for (int p = 0; p < plan->part_count; p++) {
        choir__save_plan_part *part = &plan->parts[p];
        choir__save_plan_file key = {.moments = items->list[part->item].moment,
            .layer = part->layer,
            .owner = part->owner};
        while (by_place(&plan->files[part->file], &key) != 0)
            part->file++;
    }
    for (int f = 0; f < plan->file_count; f++)
        plan->files[f].parted = parted[plan->files[f].moments];
    name_files(plan);
}

/* --- all of it --- */

choir_status choir__save_plan_make(
    choir__save_plan *plan, const choir__items *items, choir_group *group, int64_t least)
{
    *plan = (choir__save_plan){0};
    claims c = {0};
    claim *found = NULL;
    choir_status status = exchange(&c, items, group);
    dealer d = {.plan = plan};
    d.load = choir__calloc((size_t)c.world + 1, sizeof *d.load);
    int64_t *at = choir__calloc((size_t)c.world + 1, sizeof *at);
    for (int i = 0; i < items->count && status == CHOIR_OK; i++) {
        int first = plan->part_count, n = claims_to(&items->list[i], &c, at, &found);
        add_parts(&d, i, &items->list[i], found, n);
        status = check_cover(plan, first, &items->list[i]);
    }
    if (status == CHOIR_OK) {
        deal(&d, c.world, least);
        make_files(plan, items);
    }
    free(found);
    free(at);
    free(d.load);
    free(d.kept);
    free(d.shared);
    free(c.numbers);
    if (status != CHOIR_OK)
        choir__save_plan_free(plan);
    return status;
}

void choir__save_plan_free(choir__save_plan *plan)
{
    free(plan->parts);
    free(plan->files);
    *plan = (choir__save_plan){0};
}
