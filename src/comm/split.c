/* Sub-groups: every rank announces its color and key, and the ranks of a color open an engine
 * of their own, derived from the parent's. Dry ranks compute the colors, if these follow from
 * the ranks: a rank that another one represents announces none. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/dry/dry.h"
#include "comm/issue.h"

typedef struct choice {
    int32_t color, key, rank;
} choice;

static int by_key(const void *a_, const void *b_)
{
    const choice *a = a_, *b = b_;
    int key = (a->key > b->key) - (a->key < b->key);
    return key ? key : a->rank - b->rank;
}

/* Writes the ranks of this rank's color, in the order of key and rank, to ranks (world);
 * returns their number. */
static int choose(const choir_group *group, choice *all, int *ranks, int *mine)
{
    int world = choir_group_world(group), me = choir_group_rank(group), count = 0;
    int32_t color = all[me].color;
    qsort(all, (size_t)world, sizeof *all, by_key);
    for (int i = 0; i < world; i++)
        if (all[i].color == color) {
            if (all[i].rank == me)
                *mine = count;
            ranks[count++] = all[i].rank;
        }
    return count;
}

/* Opens the child with these ranks of the parent; `mine` is this rank's place among them. */
static choir_status open_child(choir_group *group, const int *ranks, int count, int mine,
    int color, const char *purpose, choir_group **child)
{
    choir__engine *engine = NULL;
    const uint32_t number = group->splits++;
    choir_status status =
        group->engine->ops->split(group->engine, ranks, count, mine, color, &engine);
    if (status == CHOIR_OK) {
        char name[2 * sizeof group->name + 32];
        snprintf(name, sizeof name, "%s/%u.%d%s%.24s%s", group->name, number, color,
            purpose ? " (" : "", purpose ? purpose : "", purpose ? ")" : "");
        *child = choir__group_new(engine, group->job, name);
        (*child)->algorithm = group->algorithm;
    } else if (group->engine->failed != CHOIR_OK) {
        choir__error(status, "%s", group->engine->message);
    }
    return status;
}

static choir_status check_batch(const choir_group *group)
{
    return group->batching /* the colors would only be exchanged at its end */
               ? choir__error(
                     CHOIR_ERR_STATE, "a group is split in an open batch: end it first")
               : CHOIR_OK;
}

static choir_status split_as(
    choir_group *group, int color, int key, const char *purpose, choir_group **child)
{
    *child = NULL;
    choir_status status = check_batch(group);
    if (status != CHOIR_OK)
        return status;
    int world = choir_group_world(group), rank = 0;
    choice mine = {color, key, choir_group_rank(group)};
    choice *all = choir__calloc((size_t)world, sizeof *all);
    int *ranks = choir__calloc((size_t)world, sizeof *ranks);
    status = choir_group_all_gather(
        group, &mine, all, sizeof mine / sizeof mine.color, CHOIR_I32, NULL);
    for (int r = 0; r < world; r++) /* a dry rank may have another one's choice */
        if (all[r].rank != r)
            all[r] = (choice){all[r].color, all[r].key == all[r].rank ? r : all[r].key, r};
    if (status == CHOIR_OK && color >= 0) {
        int count = choose(group, all, ranks, &rank);
        status = open_child(group, ranks, count, rank, color, purpose, child);
    } else {
        group->splits++;
    }
    free(all);
    free(ranks);
    return status;
}

choir_status choir_group_split(choir_group *group, int color, int key, choir_group **child)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!child)
        return choir__missing(__func__, "child");
    return split_as(group, color, key, NULL, child);
}

int choir__color_without(int rank, const void *coordinate)
{
    const choir__coordinate *c = coordinate;
    return rank - rank / c->stride % c->size * c->stride;
}

choir_status choir__group_split_by(choir_group *group, choir__color_of *color_of,
    const void *arg, const char *purpose, choir_group **child)
{
    *child = NULL;
    const int world = choir_group_world(group), me = choir_group_rank(group),
              color = color_of(me, arg);
    if (!choir__is_dry_engine(group->engine))
        return split_as(group, color, me, purpose, child);
    choir_status status = check_batch(group);
    if (status != CHOIR_OK)
        return status;
    int *ranks = choir__calloc((size_t)world, sizeof *ranks), count = 0, mine = 0;
    for (int r = 0; r < world; r++)
        if (color_of(r, arg) == color) {
            mine = r == me ? count : mine;
            ranks[count++] = r;
        }
    status = open_child(group, ranks, count, mine, color, purpose, child);
    free(ranks);
    return status;
}
