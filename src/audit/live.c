/* Comparisons of ranks while they train.
 *
 *     a line's parts    a box that several ranks hold must be equal on all of them, and what a
 *                       step reads must be what the step before has left
 *     recheck           a step's gradients are computed several times, each micro-batch on
 * other ranks; each time a rank states hashes of its weights and state, of the sums of
 * gradients, and of the gradient of each of its micro-batches
 *
 * Hashes of gradients are taken as backward completes them, before they are added to others. So
 * a wrong sum leads to the micro-batch, and thereby to the rank that computed it. */
#include <stdlib.h>
#include <string.h>

#include "audit/inside.h"
#include "autograd/layout.h"
#include "base/base.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "tensor/launch.h"

static const choir__audit_kind read_kinds[] = {CHOIR__AUDIT_READ_WEIGHTS,
    CHOIR__AUDIT_READ_STATE},
                               left_kinds[] = {CHOIR__AUDIT_LEFT_WEIGHTS,
                                   CHOIR__AUDIT_LEFT_STATE},
                               own_kinds[] = {CHOIR__AUDIT_WEIGHTS, CHOIR__AUDIT_STATE};

void choir__audit_set_recheck(choir_audit *a, int64_t every)
{
    a->recheck = every;
}

const choir__judgement *choir__audit_verdict(const choir_audit *a)
{
    return &a->verdict;
}

const char *choir__audit_accused(const choir_audit *a)
{
    return a->accused ? a->accused : "";
}

bool choir__audit_compared(const choir_audit *a)
{
    return a->own_at == a->done;
}

bool choir__audit_is_new(const choir_audit *a)
{
    return a->verdict.question >> 56 > CHOIR__AUDIT_READ_STATE;
}

/* --- this rank's memory between two steps --- */

static void add(choir__audit_parts *to, choir__audit_part part, choir__audit_kind kind)
{
    part.kind = (int32_t)kind;
    CHOIR__GROW(to->list, to->count);
    to->list[to->count++] = part;
}

void choir__audit_note_own(choir_audit *a)
{
    a->own.count = 0;
    for (int i = 0; i < a->parts.count; i++)
        for (size_t k = 0; k < CHOIR_COUNT(own_kinds); k++)
            if (a->parts.list[i].kind == (int32_t)own_kinds[k])
                add(&a->own, a->parts.list[i], read_kinds[k]);
    a->own_at = a->done;
}

/* Adds two answers of this rank where the update has read another number of part i than the
 * list has. from: where the part may be in it. */
static void add_updated(choir_audit *a, int i, const choir__audit_parts *list, int from)
{
    const choir__audit_part part = a->parts.list[i],
                            *other = choir__audit_part_of(list, from, &part);
    if (!other || other->buffer || other->hash == part.hash)
        return;
    add(&a->parts, part, CHOIR__AUDIT_UPDATED);
    add(&a->parts, *other, CHOIR__AUDIT_UPDATED);
}

/* Does so where the first update has not read zeros for the optimizer's state. */
static void add_stained(choir_audit *a)
{
    choir__audit_part part = a->parts.list[a->ride.stained];
    for (part.hash = 0; part.hash < 2; part.hash++)
        add(&a->parts, part, CHOIR__AUDIT_UPDATED);
}

void choir__audit_add_left(choir_audit *a)
{
    bool known = a->own_at == a->read - 1 && a->own_at;
    const int count = a->parts.count;
    for (int i = 0; i < a->read_count; i++) { /* the lists have one order */
        const choir__audit_part *read = &a->parts.list[i],
                                *left = known ? choir__audit_part_of(&a->own, i, read) : NULL;
        if (left && !left->buffer && left->hash != read->hash)
            add(&a->parts, *left, left_kinds[left->kind == CHOIR__AUDIT_READ_STATE]);
        if (a->again.count)
            add_updated(a, i, &a->again, i);
    }
    for (int i = a->read_count, at = 0; i < count && a->summed.count; i++)
        if (a->parts.list[i].kind == CHOIR__AUDIT_GRADIENTS)
            add_updated(a, i, &a->summed, at++);
    if (a->rides && a->ride.stained >= 0)
        add_stained(a);
}

/* Returns the name and kind that the numbers of an item have in the list while parameters and
 * averages are exchanged: each has the other's. Others, and frozen parameters, have their own.
 */
static const choir__audit_part *exchanged(
    const choir_audit *a, const choir__item *item, choir__audit_part wanted)
{
    static const char average[] = "average.";
    const size_t length = sizeof average - 1;
    const bool is_average = item->moment && !strncmp(item->name, average, length);
    if (!a->optim->average.swapped || !(is_average || item->param))
        return NULL;
    char *other = is_average ? choir__strdup(item->name + length)
                             : choir__format("%s%s", average, item->name);
    wanted.kind = is_average ? CHOIR__AUDIT_READ_WEIGHTS : CHOIR__AUDIT_READ_STATE;
    wanted.name = choir__rng_key(0, other);
    free(other);
    return choir__audit_part_of(&a->own, 0, &wanted);
}

void choir__audit_prove(const choir_audit *a, const choir__item *item,
    const choir__box_region *region, choir__proof *proof)
{
    const choir__audit_part wanted = {
        .kind = item->moment ? CHOIR__AUDIT_READ_STATE : CHOIR__AUDIT_READ_WEIGHTS,
        .name = choir__audit_name(item),
        .region = choir__audit_region(region, item->whole.ndim)};
    const bool all = a->own_at == a->done && a->done;
    const choir__audit_part *left = all ? exchanged(a, item, wanted) : NULL;
    if (all && !left)
        left = choir__audit_part_of(&a->own, 0, &wanted);
    *proof = (choir__proof){.known = left,
        .missing = all && !left && choir__audit_names_have(&a->names, item),
        .name = wanted.name};
    if (!left)
        return;
    proof->hash = left->hash;
    choir__audit_places(item, proof->place);
}

/* --- the parts of all ranks --- */

/* Parts that must be equal answer one question, also what a rank has left and then read. */
static uint64_t question_of(const choir__audit_part *p)
{
    int32_t kind = p->kind;
    for (size_t k = 0; k < CHOIR_COUNT(left_kinds); k++)
        kind = kind == (int32_t)left_kinds[k] ? (int32_t)read_kinds[k] : kind;
    /* earlier causes first: the kinds are in the order of a step */
    return (uint64_t)kind << 56 |
           choir__mix(choir__mix(p->name, p->region), (uint64_t)p->module) >> 8;
}

static char *describe(const choir_audit *a, const choir__audit_part *p)
{
    int module = p->module;
    switch (p->kind) {
    case CHOIR__AUDIT_READ_WEIGHTS:
    case CHOIR__AUDIT_LEFT_WEIGHTS:
        return choir__format(
            "the weights of module '%s', before the step", a->names.list[module]);
    case CHOIR__AUDIT_READ_STATE:
    case CHOIR__AUDIT_LEFT_STATE:
        return choir__format(
            "the optimizer's state of module '%s', before the step", a->names.list[module]);
    case CHOIR__AUDIT_BATCH:
    case CHOIR__AUDIT_SAMPLES: return choir__format("the samples of micro-batch %d", module);
    case CHOIR__AUDIT_LOSSES: return choir__format("the loss of micro-batch %d", module);
    case CHOIR__AUDIT_UPDATED:
        return choir__format("what the update read for module '%s'", a->names.list[module]);
    case CHOIR__AUDIT_GRADIENTS:
        return choir__format("the gradients of module '%s'", a->names.list[module]);
    case CHOIR__AUDIT_STATE:
        return choir__format("the optimizer's new state of module '%s'", a->names.list[module]);
    default: return choir__format("the new weights of module '%s'", a->names.list[module]);
    }
}

void choir__audit_compare(choir_audit *a, const choir__audit_parts *all)
{
    choir__testimony *list = choir__calloc((size_t)all->count + 1, sizeof *list);
    for (int i = 0; i < all->count; i++)
        list[i] = (choir__testimony){.question = question_of(&all->list[i]),
            .value = all->list[i].hash,
            .rank = all->list[i].rank,
            .nothing = all->list[i].buffer};
    choir__vote(list, all->count, &a->verdict);
    free(a->accused);
    a->accused = NULL;
    for (int i = 0; i < all->count && a->verdict.how != CHOIR__VOTE_AGREED && !a->accused; i++)
        if (list[i].question == a->verdict.question)
            a->accused = describe(a, &all->list[i]);
    free(list);
}

/* --- gradients of micro-batches --- */

choir_status choir__audit_leaves_begin(choir_audit *a, int64_t count)
{
    choir__audit_leaves *l = &a->leaves;
    *l = (choir__audit_leaves){.scope = choir_no_grad(a->run), .count = count};
    l->sums = choir__tensor_new(l->scope, a->run->device, CHOIR_I64, choir_dims(count));
    choir_status status = choir_scope_status(l->scope);
    if (status == CHOIR_OK)
        choir__launch_fill(l->sums, 0);
    else
        choir__audit_leaves_drop(a);
    return status;
}

/* Returns whether a bucket has a use's gradient or a part of it, whose place and size it sets.
 */
static bool in_bucket(
    const choir__param *p, const choir__slot *slot, int bucket, choir__k_hash *k)
{
    const int64_t part = bucket - slot->bucket;
    if (slot->by_rows || part < 0 || part >= slot->parts)
        return false;
    if (slot->parts > 1) {
        const int64_t row = p->tensor->shape.dim[1], each = choir__part_rows(p->tensor->shape);
        k->at += part * each * row;
        k->cols = choir__min(each, p->tensor->shape.dim[0] - part * each) * row;
    }
    return true;
}

/* An element's place does not depend on the buckets, which differ between layouts. */
void choir__audit_leaf_done(choir__strategy *s, choir__book *book, int bucket)
{
    choir_audit *a = CHOIR__STRATEGY_OF(s, choir_audit, strategy);
    const choir__audit_leaves *l = &a->leaves;
    if (!l->scope || book->leaves >= l->count || book->device != a->run->device)
        return;
    uint64_t *sum = (uint64_t *)choir__data(l->sums) + book->leaves;
    int64_t at = 0;
    for (int i = 0; i < book->count; i++) {
        const choir__param *p = book->params[i];
        for (int u = 0; u < p->slot_count; u++, at += p->tensor->count) {
            choir__k_hash k = {.sum = sum,
                .rows = 1,
                .cols = p->tensor->count,
                .at = at,
                .dtype = book->dtype};
            if (!in_bucket(p, &p->slots[u], bucket, &k))
                continue;
            const choir__slot here = {.bucket = bucket, .at = p->slots[u].at};
            k.x = choir__slot_data(book, &here, book->top);
            choir__launch(book->device, book->dtype, hash, &k);
        }
    }
}

/* Gradients that stay rows are in no bucket. */
static void hash_rows(const choir_audit *a, choir__book *book)
{
    uint64_t *sums = choir__data(a->leaves.sums);
    int64_t at = 0;
    for (int i = 0; i < book->count; i++) {
        const choir__param *p = book->params[i];
        for (int u = 0; u < p->slot_count; u++, at += p->tensor->count) {
            const choir__slot *slot = &p->slots[u];
            for (int64_t l = 0; slot->by_rows && l < slot->row_count && l < a->leaves.count;
                 l++) {
                choir__k_hash k = {.sum = sums + l,
                    .x = slot->rows[l].grads_data,
                    .rows = 1,
                    .cols = slot->rows[l].count * p->tensor->shape.dim[1],
                    .at = at,
                    .dtype = book->dtype};
                if (k.cols)
                    choir__launch(book->device, book->dtype, hash, &k);
            }
        }
    }
}

/* Keeps the hashes of gradients: the update must read these numbers. */
static void note_summed(choir_audit *a, const choir__audit_parts *parts)
{
    a->summed.count = 0;
    for (int i = 0; i < parts->count; i++)
        if (parts->list[i].kind == CHOIR__AUDIT_GRADIENTS)
            add(&a->summed, parts->list[i], CHOIR__AUDIT_GRADIENTS);
}

/* Returns a hash of this rank's parts of two kinds, without buffers. */
static uint64_t sum_of(
    const choir__audit_parts *parts, choir__audit_kind weights, choir__audit_kind state)
{
    uint64_t sum = 0;
    for (int i = 0; i < parts->count; i++) {
        const choir__audit_part *p = &parts->list[i];
        if (!p->buffer && (p->kind == (int32_t)weights || p->kind == (int32_t)state))
            sum += choir__mix(choir__mix(p->name, p->region), p->hash) ^
                   (uint64_t)(p->kind == (int32_t)state);
    }
    return sum;
}

/* Returns a hash of the places of this rank's boxes, equal on ranks that answer one question.
 */
static uint64_t boxes_of(const choir__audit_parts *parts)
{
    uint64_t sum = 0;
    for (int i = 0; i < parts->count; i++)
        if (!parts->list[i].buffer && parts->list[i].kind == CHOIR__AUDIT_READ_WEIGHTS)
            sum += choir__mix(parts->list[i].name, parts->list[i].region);
    return choir__mix(sum, 1);
}

int choir__audit_read_told(const choir_audit *a, choir__testimony to[2])
{
    if (a->read != a->done + 1)
        return 0;
    to[0] = (choir__testimony){
        .question = choir__audit_asked(CHOIR__AUDIT_TOLD_STATE, boxes_of(&a->parts)),
        .value = sum_of(&a->parts, CHOIR__AUDIT_READ_WEIGHTS, CHOIR__AUDIT_READ_STATE)};
    if (a->own_at != a->done || !a->done)
        return 1;
    to[1] = to[0];
    to[1].value = sum_of(&a->own, CHOIR__AUDIT_READ_WEIGHTS, CHOIR__AUDIT_READ_STATE);
    return 2;
}

static choir_status finish_books(const choir_audit *a)
{
    choir_status status = CHOIR_OK;
    for (choir__book *b = choir__run_of(a->run)->books; b && status == CHOIR_OK; b = b->next)
        status = choir__book_finish(b);
    return status;
}

static choir_status tell(
    choir_audit *a, int64_t first, const float *losses, choir__testimony *to)
{
    choir__items items;
    choir__audit_parts parts = {0};
    const choir__audit_leaves *l = &a->leaves;
    choir_status status = choir__audit_collect(a, &items);
    if (status == CHOIR_OK)
        status = choir__audit_take(&parts, &a->names, a->module, &items,
            (choir__audit_taking){
                CHOIR__AUDIT_READ_WEIGHTS, CHOIR__AUDIT_READ_STATE, true, NULL});
    uint64_t *sums = choir__calloc((size_t)l->count + 1, sizeof *sums);
    note_summed(a, &parts);
    if (status == CHOIR_OK)
        status = choir_read(l->sums, sums, (size_t)l->count * sizeof *sums);
    *to++ = (choir__testimony){
        .question = choir__audit_asked(CHOIR__AUDIT_TOLD_STATE, boxes_of(&parts)),
        .value = sum_of(&parts, CHOIR__AUDIT_READ_WEIGHTS, CHOIR__AUDIT_READ_STATE)};
    *to++ = (choir__testimony){
        .question = choir__audit_asked(CHOIR__AUDIT_TOLD_SUMS, boxes_of(&parts)),
        .value = sum_of(&parts, CHOIR__AUDIT_GRADIENTS, CHOIR__AUDIT_GRADIENTS)};
    for (int64_t m = 0; m < l->count; m++) {
        uint32_t loss;
        memcpy(&loss, &losses[m], sizeof loss);
        *to++ =
            (choir__testimony){.question = choir__audit_asked(CHOIR__AUDIT_TOLD + first + m, 0),
                .value = choir__mix(sums[m], loss)};
    }
    free(sums);
    free(parts.list);
    choir__items_free(&items);
    return status;
}

choir_status choir__audit_leaves_end(
    choir_audit *a, int64_t first, const float *losses, choir__testimony *to)
{
    choir_status status = finish_books(a);
    for (choir__book *b = choir__run_of(a->run)->books; b && status == CHOIR_OK; b = b->next)
        if (b->device == a->run->device)
            hash_rows(a, b);
    if (status == CHOIR_OK)
        status = tell(a, first, losses, to);
    choir__audit_leaves_drop(a);
    return status;
}

void choir__audit_leaves_drop(choir_audit *a)
{
    if (a->leaves.scope)
        (void)!choir_scope_close(a->leaves.scope);
    a->leaves = (choir__audit_leaves){0};
}
