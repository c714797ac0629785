/* The data that ranks exchange about their backwards.
 *
 * If ranks may use different parameters, they first agree how often each is used, since the
 * layout depends on it. In each step they also agree which parameters any rank used. That
 * request is queued before the first bucket is reduced, once the tape of the last backward has
 * been counted, so the answer is complete when the step ends, and no rank waits for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/ddp/ddp.h"

bool choir__ddp_agrees(const choir__ddp *d)
{
    return d->opts.find_unused_parameters || d->opts.static_graph || d->joins;
}

/* --- how often --- */

/* A rank's uses of a parameter: their number, the mask of uses that give rows, the most rows.
 */
enum { USES, ROWS_USES, ROWS_GIVEN, SAID };

/* (SAID * count) */
static void my_uses(const choir__book *book, int64_t *mine)
{
    for (int i = 0; i < book->count; i++, mine += SAID) {
        mine[USES] = book->params[i]->uses;
        mine[ROWS_USES] = book->params[i]->rows_uses;
        mine[ROWS_GIVEN] = book->params[i]->rows_given;
    }
}

static choir_status take_uses(choir__book *book, const int64_t *all, int world)
{
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        int from = -1;
        p->uses_elsewhere = 0;
        p->rows_given_elsewhere = 0;
        for (int r = 0; r < world; r++) {
            const int64_t *theirs = all + SAID * ((int64_t)r * book->count + i);
            if (!theirs[USES])
                continue;
            if (from >= 0 && (theirs[USES] != p->uses_elsewhere ||
                                 (uint32_t)theirs[ROWS_USES] != p->rows_elsewhere))
                return choir__error(CHOIR_ERR_MISMATCH,
                    "ddp: parameter %s is used %d times in a micro-batch of rank %d, %d times on "
                    "rank %d, or otherwise: ranks may leave a parameter out, not use it "
                    "differently",
                    p->name, (int)theirs[USES], r, p->uses_elsewhere, from);
            from = r;
            p->uses_elsewhere = (int)theirs[USES];
            p->rows_elsewhere = (uint32_t)theirs[ROWS_USES];
            p->rows_given_elsewhere = choir__max(p->rows_given_elsewhere, theirs[ROWS_GIVEN]);
        }
    }
    return CHOIR_OK;
}

choir_status choir__ddp_agree_uses(choir__ddp_part *part)
{
    choir__ddp *d = part->ddp;
    choir__book *book = part->book;
    int world = choir_group_world(d->group);
    if (book->laid_out || !choir__ddp_agrees(d))
        return CHOIR_OK;
    int64_t n = SAID * (int64_t)book->count;
    int64_t *mine = choir__calloc((size_t)(n * (world + 1) + 1), sizeof *mine), *all = mine + n;
    my_uses(book, mine);
    choir_status status = choir_group_all_gather(d->group, mine, all, n, CHOIR_I64, NULL);
    if (status == CHOIR_OK)
        status = take_uses(book, all, world);
    free(mine);
    return status;
}

/* --- in which order --- */

typedef struct turn {
    int param, last;
} turn;

static int by_turn(const void *a, const void *b)
{
    const turn *x = a, *y = b;
    return x->last != y->last ? (x->last > y->last) - (x->last < y->last)
                              : y->param - x->param; /* the default order */
}

/* Lists the (count) parameters in the order in which this rank's last backward finished
 * them. */
static void my_order(const choir__book *book, int32_t *order)
{
    turn *turns = choir__calloc((size_t)book->count + 1, sizeof *turns);
    for (int i = 0; i < book->count; i++) {
        const choir__param *p = book->params[i];
        turns[i].param = i;
        for (int u = 0; u < p->slot_count; u++)
            turns[i].last = p->slots[u].turn > turns[i].last ? p->slots[u].turn : turns[i].last;
    }
    qsort(turns, (size_t)book->count, sizeof *turns, by_turn);
    for (int i = 0; i < book->count; i++)
        order[i] = turns[i].param;
    free(turns);
}

static bool is_order_now(const choir__book *book, const int *order)
{
    for (int i = 0; i < book->count; i++)
        if (order[i] != (book->order ? book->order[i] : book->count - 1 - i))
            return false;
    return true;
}

choir__sums choir__ddp_sums(const choir__ddp *d)
{
    return choir__algorithm_sums(d->algorithm ? d->algorithm : d->group->algorithm);
}

/* Happens once, before the second step: where several micro-batches advance together, a step
 * begins several times, on each rank as often as it has micro-batches. Not if the uses may
 * change from step to step: one step's order is then useless for the next. Neither if bits may
 * depend on an element's place in its bucket: the layout then equals the first step's, also in
 * a process that continues from a checkpoint. */
choir_status choir__ddp_rebuild(choir__ddp_part *part)
{
    choir__ddp *d = part->ddp;
    choir__book *book = part->book;
    if (part->rebuilt || !part->stepped || !book->laid_out || choir__recording_active() ||
        choir__ddp_sums(d) == CHOIR__SUMS_BY_PLACE ||
        (d->opts.find_unused_parameters && !d->opts.static_graph))
        return CHOIR_OK;
    part->rebuilt = true;
    int *order = choir__calloc((size_t)book->count + 1, sizeof *order);
    my_order(book, order);
    choir_status status =
        choir_group_broadcast(d->group, order, book->count, CHOIR_I32, 0, NULL);
    if (status != CHOIR_OK || is_order_now(book, order)) {
        free(order);
        return status;
    }
    free(book->order);
    book->order = order;
    book->laid_out = false;
    return CHOIR_OK;
}

/* --- which --- */

/* Like PyTorch's static_graph: each step must use the parameters of the first. */
static choir_status check_static(const choir__ddp_part *part)
{
    const choir__book *book = part->book;
    for (int i = 0; i < book->count; i++)
        if (part->used[i] != part->first[i])
            return choir__error(CHOIR_ERR_STATE,
                "ddp: static_graph: this step %s parameter %s, the first one %s: leave "
                "static_graph out",
                part->used[i] ? "uses" : "does not use", book->params[i]->name,
                part->used[i] ? "did not" : "did");
    return CHOIR_OK;
}

choir_status choir__ddp_note_used(choir__ddp_part *part, bool last)
{
    choir__ddp *d = part->ddp;
    const choir__book *book = part->book;
    if (!d->opts.find_unused_parameters && !d->opts.static_graph)
        return CHOIR_OK;
    if (book->leaves == 0)
        memset(part->used, 0, (size_t)book->count);
    for (int i = 0; i < book->count; i++)
        part->used[i] |= book->params[i]->uses > 0;
    return last && part->known && !d->shadows ? check_static(part) : CHOIR_OK;
}

choir_status choir__ddp_ask_used(choir__ddp_part *part)
{
    choir__ddp *d = part->ddp;
    const choir__book *book = part->book;
    bool finds = d->opts.find_unused_parameters || d->opts.static_graph;
    if (!finds || part->asked || part->known)
        return CHOIR_OK;
    part->asked = true;
    memcpy(part->used_by, part->used, (size_t)book->count);
    if (d->opts.static_graph)
        memcpy(part->first, part->used, (size_t)book->count);
    return choir_group_all_reduce(
        d->group, part->used_by, book->count, CHOIR_U8, CHOIR_MAX, &part->answer);
}

choir_status choir__ddp_settle_used(choir__ddp_part *part)
{
    choir__ddp *d = part->ddp;
    choir__book *book = part->book;
    bool finds = d->opts.find_unused_parameters || d->opts.static_graph;
    /* not called yet if there are no buckets */
    choir_status status = choir__ddp_ask_used(part);
    if (status == CHOIR_OK && part->asked)
        status = choir_work_wait(part->answer);
    part->known = d->opts.static_graph && status == CHOIR_OK;
    for (int i = 0; i < book->count && status == CHOIR_OK; i++) {
        choir__param *p = book->params[i];
        if (p->tensor->requires_grad && (finds || d->shadows))
            p->has_grad = finds ? part->used_by[i] : true;
    }
    return status;
}

/* --- no gradient where each parameter should have one --- */

/* Aborts the group with the reason, since the other ranks would wait for buckets forever. */
choir_status choir__ddp_name_unused(choir__ddp_part *part)
{
    choir__ddp *d = part->ddp;
    char names[300] = "", spread[500];
    if (d->opts.find_unused_parameters || d->opts.static_graph || d->shadows)
        return CHOIR_OK;
    int count = choir__ranks_list_unused(part->book, names, sizeof names);
    if (!count)
        return CHOIR_OK;
    snprintf(spread, sizeof spread,
        "ddp: %d parameter%s got no gradient in a backward of rank %d: %s", count,
        count > 1 ? "s" : "", choir_group_rank(d->group), names);
    choir__group_abort(d->group, CHOIR_ERR_STATE, spread);
    return choir__error(CHOIR_ERR_STATE,
        "ddp: %d parameter%s got no gradient in this backward: %s; freeze what is not trained, "
        "or set find_unused_parameters",
        count, count > 1 ? "s" : "", names);
}
