/* Sub-groups: every rank announces its color and key, and the ranks of a color open an engine
 * of their own, derived from the parent's. */
#include <stdio.h>
#include <stdlib.h>

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

choir_status choir_group_split(choir_group *group, int color, int key, choir_group **child)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!child)
        return choir__missing(__func__, "child");
    return choir__group_split_as(group, color, key, NULL, child);
}

choir_status choir__group_split_as(
    choir_group *group, int color, int key, const char *purpose, choir_group **child)
{
    *child = NULL;
    if (group->batching) /* the colors would only be exchanged at its end */
        return choir__error(CHOIR_ERR_STATE, "a group is split in an open batch: end it first");
    int world = choir_group_world(group), rank = 0;
    choice mine = {color, key, choir_group_rank(group)};
    choice *all = choir__calloc((size_t)world, sizeof *all);
    int *ranks = choir__calloc((size_t)world, sizeof *ranks);
    choir__engine *engine = NULL;
    uint32_t number = group->splits++;
    choir_status status = choir_group_all_gather(
        group, &mine, all, sizeof mine / sizeof mine.color, CHOIR_I32, NULL);
    if (status == CHOIR_OK && color >= 0) {
        int count = choose(group, all, ranks, &rank);
        status = group->engine->ops->split(group->engine, ranks, count, rank, color, &engine);
        if (status == CHOIR_OK) {
            char name[2 * sizeof group->name + 32];
            snprintf(name, sizeof name, "%s/%u.%d%s%.24s%s", group->name, number, color,
                purpose ? " (" : "", purpose ? purpose : "", purpose ? ")" : "");
            *child = choir__group_new(engine, group->job, name);
            (*child)->algorithm = group->algorithm;
        } else if (group->engine->failed != CHOIR_OK) {
            choir__error(status, "%s", group->engine->message);
        }
    }
    free(all);
    free(ranks);
    return status;
}
