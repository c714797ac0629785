/* The placements of --strategy auto: ranks are divided among micro-batches (ddp, fsdp), chunks
 * of sequences (cp), slices of weights (tp) and stages (pipeline), as far as the job's cut has
 * parts for them. None of them changes a bit. */
#include <stdio.h>
#include <string.h>

#include "job/auto/auto.h"

typedef struct list {
    choir__auto_form *forms;
    int count, room;
} list;

/* Adds "data+cp+tp+pipeline" with the sizes that are above one. */
static void add(list *l, const char *data, const int sizes[4])
{
    const char *const names[4] = {data, "cp", "tp", "pipeline"};
    choir__auto_form f = {.ranks = 1};
    int parts = 0;
    for (int i = 0; i < 4; i++) {
        const size_t used = strlen(f.strategy), on = strlen(f.mesh);
        f.ranks *= sizes[i];
        if (sizes[i] < 2)
            continue;
        snprintf(
            f.strategy + used, sizeof f.strategy - used, "%s%s", parts ? "+" : "", names[i]);
        snprintf(f.mesh + on, sizeof f.mesh - on, "%s%d", parts ? "x" : "", sizes[i]);
        parts++;
    }
    if (parts < 2) /* no mesh */
        *f.mesh = '\0';
    if (parts && l->count < l->room)
        l->forms[l->count++] = f;
}

static bool divides(int ranks, int64_t parts)
{
    return ranks == 1 || (parts > 1 && parts % ranks == 0);
}

int choir__auto_forms(const choir__job *j, int ranks, choir__auto_form *forms, int room)
{
    list l = {.forms = forms, .room = room};
    for (int data = ranks; data >= 1; data--)
        for (int cp = 1; data <= j->training.microbatches && cp <= ranks / data; cp++)
            for (int tp = 1; divides(cp, j->training.chunks) && tp <= ranks / data / cp; tp++) {
                const int rest = data * cp * tp,
                          sizes[4] = {data, cp, tp, rest ? ranks / rest : 1};
                if (ranks % rest || !divides(tp, j->training.slices))
                    continue;
                add(&l, "ddp", sizes);
                if (data > 1)
                    add(&l, "fsdp", sizes);
            }
    return l.count;
}
