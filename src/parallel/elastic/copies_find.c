/* Finding copies: each rank reads the heads of the copies on its machine, and ranks of several
 * machines exchange these heads. */
#include "parallel/elastic/copies_layout.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/group.h"

/* A complete copy. */
typedef struct note {
    uint64_t generation, print;
    int64_t steps;
    int32_t rank, world, slot, half;
    int32_t by;    /* the rank that has found it on its machine; -1: this is no note */
    int32_t whole; /* 1: the copy was written as a whole on that machine */
} note;

typedef struct notes {
    note *list;
    int count;
} notes;

/* --- looking --- */

/* list: (2 * slots). own: slots whose copies were written here. Returns the number of notes. */
static int read_heads(const int (*fds)[2], int slots, int own, int by, note *list)
{
    int count = 0;
    for (int i = 0; i < 2 * slots; i++) {
        choir__copy_head head;
        ssize_t got = pread(fds[i / 2][i % 2], &head, sizeof head, 0);
        if (got != (ssize_t)sizeof head || head.complete != 1)
            continue;
        list[count++] = (note){.generation = head.generation,
            .print = head.print,
            .steps = head.numbers.steps,
            .rank = head.rank,
            .world = head.world,
            .slot = i / 2,
            .half = i % 2,
            .by = by,
            .whole = i / 2 < own};
    }
    return count;
}

/* Gathers what all ranks have found. */
static choir_status look_everywhere(const choir__copies *c, notes *all)
{
    choir_group *group = c->elastic->env->group;
    int world = choir_group_world(group), rank = choir_group_rank(group);
    int32_t most = 2 * c->slots;
    choir_status status = choir_group_all_reduce(group, &most, 1, CHOIR_I32, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    note *mine = choir__calloc((size_t)most + 1, sizeof *mine);
    for (int i = 0; i < most; i++)
        mine[i].by = -1;
    (void)read_heads(c->fds, c->slots, c->keeper.own, rank, mine);
    all->list = choir__calloc((size_t)world * (size_t)most + 1, sizeof *all->list);
    status = choir_group_all_gather(
        group, mine, all->list, most * (int64_t)sizeof *mine, CHOIR_U8, NULL);
    for (int i = 0; i < world * most; i++)
        if (all->list[i].by >= 0)
            all->list[all->count++] = all->list[i];
    free(mine);
    return status;
}

/* --- choosing --- */

static bool has(const notes *all, uint64_t generation, int64_t steps, int rank)
{
    for (int i = 0; i < all->count; i++) {
        const note *n = &all->list[i];
        if (n->generation == generation && n->steps == steps && n->rank == rank)
            return true;
    }
    return false;
}

/* Returns whether the notes like this one are of all ranks. */
static bool is_state(const notes *all, const note *like)
{
    for (int r = 0; r < like->world; r++)
        if (!has(all, like->generation, like->steps, r))
            return false;
    return true;
}

/* Returns a note of the newest state, or NULL. */
static const note *newest(const notes *all)
{
    const note *best = NULL;
    for (int i = 0; i < all->count; i++) {
        const note *n = &all->list[i];
        bool newer = !best || n->generation > best->generation ||
                     (n->generation == best->generation && n->steps > best->steps);
        if (newer && n->world > 0 && is_state(all, n))
            best = n;
    }
    return best;
}

/* Notes where the copies of the chosen state are. by: the rank that looks, of `world`. */
static void place(const notes *all, const note *chosen, int by, int world, choir__copy_set *set)
{
    *set = (choir__copy_set){.world = chosen->world, .steps = chosen->steps};
    set->places = choir__calloc((size_t)set->world + 1, sizeof *set->places);
    int *found = choir__calloc((size_t)(set->world * world) + 1, sizeof *found);
    bool *wrote = choir__calloc((size_t)world + 1, sizeof *wrote);
    for (int r = 0; r < set->world; r++)
        set->places[r] = (choir__copy_place){.slot = -1, .half = -1, .holder = -1};
    for (int i = 0; i < all->count; i++) {
        const note *n = &all->list[i];
        if (n->generation != chosen->generation || n->steps != chosen->steps ||
            n->rank >= set->world || n->rank < 0 || n->by >= world)
            continue;
        choir__copy_place *p = &set->places[n->rank];
        if (n->by == by && (p->slot < 0 || n->whole)) {
            p->slot = n->slot;
            p->half = n->half;
        }
        bool better = n->whole != p->whole ? n->whole : n->by < p->holder;
        if (p->holder < 0 || better) {
            p->holder = n->by;
            p->whole = n->whole;
        }
        found[n->rank * world + n->by] = 1;
        wrote[n->by] |= n->whole;
    }
    for (int r = 0; r < set->world; r++) {
        set->places[r].everywhere = true;
        for (int i = 0; i < world; i++)
            set->places[r].everywhere &= found[r * world + i];
    }
    for (int i = 0; i < world; i++)
        set->newcomers |= !wrote[i];
    free(found);
    free(wrote);
}

/* Keeps the notes that count for this rank's training in its generation. */
static void keep_fitting(notes *all, uint64_t before, uint64_t print)
{
    int kept = 0;
    for (int i = 0; i < all->count; i++)
        if (all->list[i].generation < before && all->list[i].print == print)
            all->list[kept++] = all->list[i];
    all->count = kept;
}

choir_status choir__copies_find(choir__copies *c, choir__copy_set *set)
{
    notes all = {0};
    choir_status status = CHOIR_OK;
    int by = c->kept ? c->elastic->env->rank : 0;
    *set = (choir__copy_set){0};
    if (c->kept) {
        status = look_everywhere(c, &all);
        keep_fitting(&all, c->generation, c->print);
    } else {
        all.list = choir__calloc(2 * (size_t)c->slots + 1, sizeof *all.list);
        all.count = read_heads(c->fds, c->slots, c->slots, by, all.list);
    }
    const note *chosen = status == CHOIR_OK ? newest(&all) : NULL;
    if (chosen)
        place(&all, chosen, by, c->kept ? c->elastic->env->world : 1, set);
    free(all.list);
    return status;
}

void choir__copy_set_free(choir__copy_set *set)
{
    free(set->places);
    *set = (choir__copy_set){0};
}

int64_t choir__copies_kept_step(void)
{
    const choir__crew *crew = choir__crew_mine();
    note list[2 * CHOIR__MEMBERS_MAX];
    if (!crew || !crew->rebuild)
        return -1;
    notes all = {
        list, read_heads((const int(*)[2])crew->copies, crew->world, crew->world, 0, list)};
    const note *chosen = newest(&all);
    return chosen ? chosen->steps : -1;
}
