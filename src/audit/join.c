/* How the parts of all ranks join: sums modulo 2^64, in any order. A box that several ranks
 * hold counts once, by the first rank that has it. A hash is known if the boxes are all of the
 * tensor. */
#include <stdlib.h>
#include <string.h>

#include "audit/parts.h"
#include "base/rng.h"

choir_status choir__audit_gather(
    const choir__audit_parts *mine, choir_group *group, choir__audit_parts *all)
{
    int64_t most = mine->count, world = group ? choir_group_world(group) : 1;
    choir_status status =
        group ? choir_group_all_reduce(group, &most, 1, CHOIR_I64, CHOIR_MAX, NULL) : CHOIR_OK;
    *all = (choir__audit_parts){0};
    if (status != CHOIR_OK)
        return status;
    /* ranks with fewer parts send empty ones, whose whole is 0 */
    choir__audit_part *sent = choir__calloc((size_t)most + 1, sizeof *sent);
    all->list = choir__calloc((size_t)(most * world) + 1, sizeof *all->list);
    memcpy(sent, mine->list, (size_t)mine->count * sizeof *sent);
    if (group)
        status = choir_group_all_gather(
            group, sent, all->list, most * (int64_t)sizeof *sent, CHOIR_U8, NULL);
    else
        memcpy(all->list, sent, (size_t)most * sizeof *sent);
    for (int64_t i = 0; i < most * world; i++)
        if (all->list[i].whole) {
            all->list[all->count] = all->list[i];
            all->list[all->count++].rank = (int32_t)(i / most);
        }
    free(sent);
    return status;
}

typedef struct ranked {
    const choir__audit_part *part;
    int at; /* position among all, by rank */
} ranked;

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int by_tensor(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    int order = ORDER(x->part->module, y->part->module);
    order = order ? order : ORDER(x->part->name, y->part->name);
    order = order ? order : ORDER(x->part->region, y->part->region);
    return order ? order : ORDER(x->at, y->at);
}

static bool same_tensor(const ranked *a, const ranked *b)
{
    return a->part->module == b->part->module && a->part->name == b->part->name;
}

/* Adds the hash of the tensor whose boxes are list (count) to its module's. */
static void add_tensor(choir__audit_hash *to, const ranked *list, int count)
{
    uint64_t sum = 0;
    int64_t covered = 0;
    for (int i = 0; i < count; i++) {
        if (i && list[i].part->region == list[i - 1].part->region)
            continue;
        sum += list[i].part->hash;
        covered += list[i].part->count;
    }
    to->value += choir__mix(list->part->name, sum);
    to->known &= covered == list->part->whole;
}

void choir__audit_join(
    const choir__audit_parts *all, choir__audit_kind kind, choir__audit_hash *hashes, int count)
{
    int n = 0;
    ranked *list = choir__calloc((size_t)all->count + 1, sizeof *list);
    for (int i = 0; i < all->count; i++)
        if (all->list[i].kind == (int32_t)kind && all->list[i].module < count)
            list[n++] = (ranked){&all->list[i], i};
    qsort(list, (size_t)n, sizeof *list, by_tensor);
    memset(hashes, 0, (size_t)count * sizeof *hashes);
    for (int i = 0; i < n; i++) /* some rank has a part of these modules */
        hashes[list[i].part->module].known = true;
    for (int first = 0, next; first < n; first = next) {
        for (next = first + 1; next < n && same_tensor(&list[first], &list[next]);)
            next++;
        add_tensor(&hashes[list[first].part->module], list + first, next - first);
    }
    free(list);
}
