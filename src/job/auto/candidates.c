/* The placements of --strategy auto: ranks are divided among micro-batches, chunks of
 * sequences, slices of weights and layers, as far as the job's cut has parts for them, each by
 * the strategies that say so in their table. None of them changes a bit. */
#include <stdio.h>
#include <string.h>

#include "job/auto/auto.h"

typedef struct list {
    choir__auto_form *forms;
    int count, room;
} list;

/* Adds "data+cp+tp+pipeline" with the sizes, by choir__divided, that are above one; `data`
 * divides the micro-batches. */
static void add(
    list *l, const choir__job_strategy *data, const int sizes[static CHOIR__DIVIDED])
{
    choir__auto_form f = {.ranks = 1};
    int parts = 0;
    for (int i = CHOIR__MICRO_BATCHES; i < CHOIR__DIVIDED; i++) {
        const choir__job_strategy *s =
            i == CHOIR__MICRO_BATCHES ? data : choir__job_strategy_dividing(i, 0);
        const size_t used = strlen(f.strategy), on = strlen(f.mesh);
        f.ranks *= sizes[i];
        if (sizes[i] < 2)
            continue;
        snprintf(
            f.strategy + used, sizeof f.strategy - used, "%s%s", parts ? "+" : "", s->name);
        snprintf(f.mesh + on, sizeof f.mesh - on, "%s%d", parts ? "x" : "", sizes[i]);
        parts++;
    }
    if (parts < 2) /* no mesh */
        *f.mesh = '\0';
    if (parts && l->count < l->room)
        l->forms[l->count++] = f;
}

/* Adds the sizes with each strategy that divides micro-batches, or once if no rank does. */
static void add_all(list *l, const int sizes[static CHOIR__DIVIDED])
{
    const choir__job_strategy *s = choir__job_strategy_dividing(CHOIR__MICRO_BATCHES, 0);
    for (int i = 0; s && (i == 0 || sizes[CHOIR__MICRO_BATCHES] > 1);
         s = choir__job_strategy_dividing(CHOIR__MICRO_BATCHES, ++i))
        add(l, s, sizes);
}

static bool divides(int ranks, int64_t parts)
{
    return ranks == 1 || (parts > 1 && parts % ranks == 0);
}

int choir__auto_forms(
    const choir__job_training *t, int ranks, choir__auto_form *forms, int room)
{
    list l = {.forms = forms, .room = room};
    for (int data = ranks; data >= 1; data--)
        for (int cp = 1; data <= t->microbatches && cp <= ranks / data; cp++)
            for (int tp = 1; divides(cp, t->chunks) && tp <= ranks / data / cp; tp++) {
                const int rest = data * cp * tp,
                          sizes[CHOIR__DIVIDED] = {[CHOIR__MICRO_BATCHES] = data,
                              [CHOIR__CHUNKS] = cp,
                              [CHOIR__SLICES] = tp,
                              [CHOIR__LAYERS] = ranks / rest};
                if (ranks % rest == 0 && divides(tp, t->slices))
                    add_all(&l, sizes);
            }
    return l.count;
}
