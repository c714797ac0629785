/* Compares a value of all ranks, such as an option that decides the numbers of a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/group.h"

enum { SHOWN = 200, RANKS_SHOWN = 8 };

/* One rank's value: its hash decides, its beginning is shown. */
typedef struct view {
    uint64_t hash;
    uint32_t given;
    char name[44], text[SHOWN];
} view;

static view view_of(const char *name, const char *value)
{
    view v = {.given = value != NULL, .hash = choir__hash_text(CHOIR__HASH_SEED, name)};
    v.hash = choir__hash_text(choir__hash_step(v.hash, v.given), value ? value : "");
    snprintf(v.name, sizeof v.name, "%s", name);
    snprintf(v.text, sizeof v.text, "%s", value ? value : "unspecified");
    return v;
}

/* Writes "0.01 on rank 0" or "0.01 on ranks 0, 2, 3" for the ranks with the value of rank r. */
static void describe(const view *all, int world, int r, char *text, size_t bytes)
{
    int count = 0, shown = 0;
    for (int i = 0; i < world; i++)
        count += all[i].hash == all[r].hash;
    size_t used =
        (size_t)snprintf(text, bytes, "%s on rank%s", all[r].text, count > 1 ? "s" : "");
    for (int i = 0; i < world && used < bytes; i++)
        if (all[i].hash == all[r].hash && shown++ < RANKS_SHOWN)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%d", shown > 1 ? ", " : " ", i);
    if (shown > RANKS_SHOWN && used < bytes)
        snprintf(text + used, bytes - used, " and %d more", shown - RANKS_SHOWN);
}

/* Returns an error that shows the value of rank 0 and the first one that differs. */
static choir_status compare(const view *all, int world)
{
    char mine[SHOWN + 100], other[SHOWN + 100];
    for (int r = 1; r < world; r++) {
        if (all[r].hash == all[0].hash)
            continue;
        if (strcmp(all[r].name, all[0].name) != 0)
            return choir__error(CHOIR_ERR_MISMATCH,
                "ranks compare different values: %s on rank 0, %s on rank %d", all[0].name,
                all[r].name, r);
        describe(all, world, 0, mine, sizeof mine);
        describe(all, world, r, other, sizeof other);
        return choir__error(
            CHOIR_ERR_MISMATCH, "ranks disagree on %s: %s; %s", all[0].name, mine, other);
    }
    return CHOIR_OK;
}

choir_status choir_group_agree(choir_group *group, const char *name, const char *value)
{
    int world = group ? choir_group_world(group) : 1;
    if (world == 1)
        return CHOIR_OK;
    view mine = view_of(name, value);
    view *all = choir__calloc((size_t)world, sizeof *all);
    choir_status status =
        choir_group_all_gather(group, &mine, all, (int64_t)sizeof mine, CHOIR_U8, NULL);
    if (status == CHOIR_OK)
        status = compare(all, world);
    free(all);
    return status;
}
