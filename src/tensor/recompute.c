/* Results that are computed again, which trades time for memory.
 *
 * An op's result can be released before backward reads it if the op can compute it again, bit
 * for bit, from its operands (choir__op.recompute). Results are released in two places:
 * choir__done_with releases those that are cheap, and the end of a segment (the ops of a module
 * whose activations are recomputed; Chen et al., 2016) releases all that were made in it except
 * its result.
 *
 * Backward goes back over the tape. The first entry of a segment that reads a released tensor
 * has the whole segment computed again, in the order of forward and in the way of forward:
 * tensors that forward released on the way, or that belong to an inner segment, are released
 * again after their last use. So the peak of backward is the results of all segments plus the
 * contents of one segment. In a pipeline a segment may have ops of several stages. Each stage
 * computes its own ops again, on its device; their operands from other devices are copies,
 * which are kept, and operands from other stages of the device are computed again on the way.
 *
 * The forward pass, too, may need a tensor from within a segment (a connection that skips
 * blocks): then only this tensor is computed again, and it stays. */
#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/run.h"
#include "tensor/segment.h"

/* --- which entries, which of their tensors --- */

static bool within(const choir__tape_entry *r, const choir__segment *s)
{
    const choir__segment *of = r->segment;
    while (of && of != s)
        of = of->outer;
    return of == s;
}

enum { MOST_OPERANDS = CHOIR__MAX_IN + CHOIR__MAX_SAVED };

/* Returns operand i of r's computation: its inputs, then other tensors that it saved. */
static choir_tensor *operand(const choir__tape_entry *r, int i)
{
    if (i < CHOIR__MAX_IN)
        return i < r->count ? r->in[i] : NULL;
    choir_tensor *t = r->saved[i - CHOIR__MAX_IN];
    return t && t != r->out && !choir__made_along(r, i - CHOIR__MAX_IN) ? t : NULL;
}

static choir_tensor *missing_operand(const choir__tape_entry *r)
{
    for (int i = 0; i < MOST_OPERANDS; i++) {
        choir_tensor *t = operand(r, i);
        if (t && !t->storage)
            return t;
    }
    return NULL;
}

bool choir__made_of(const choir__tape_entry *r, const choir_tensor *t)
{
    return r->segment && choir__is_operand(r, t);
}

void choir__copy_again(const choir__tape_entry *r, int i)
{
    if (!r->first && r->saved[i] != r->in[i])
        choir__launch_copy(r->saved[i], r->in[i]);
}

/* --- one entry --- */

static choir_status lost(const choir__tape_entry *r)
{
    return choir__error(CHOIR_ERR_STATE,
        "the result of %s cannot be made again: an operand of it is gone", r->op->name);
}

static choir_status check(const choir__tape_entry *r)
{
    if (missing_operand(r))
        return lost(r);
    for (int i = 0; i < r->count; i++)
        if (r->in[i] && r->in[i]->storage->version != r->version[i])
            return choir__error(CHOIR_ERR_STATE,
                "the result of %s cannot be made again: operand %d was changed in place after "
                "the forward pass",
                r->op->name, i);
    return CHOIR_OK;
}

/* Gives t new memory of its own. */
static bool allocate(choir_tensor *t, choir_device *device, uint32_t version)
{
    if (!choir__tensor_allocate(t, device))
        return false;
    t->storage->version = version;
    t->freed = false;
    return true;
}

static void release_scratch(choir_scope *scope, const choir_tensor *mark)
{
    for (choir_tensor *t = scope->tensors; t != mark; t = t->next)
        choir__tensor_release(t);
}

/* Computes the result and the tensors saved along with it; their operands must be in memory. A
 * result that is still in memory stays untouched, because it may be in use or hold a
 * gradient. */
static choir_status make(choir__tape_entry *r)
{
    choir_tensor *t = r->out;
    choir_status status = check(r);
    if (status != CHOIR_OK)
        return status;
    if (r->op->view) {
        if (!t->storage)
            t->storage = choir__storage_ref(r->in[0]->storage);
        t->freed = false;
        return CHOIR_OK;
    }
    choir_device *device = choir__device_of(t);
    choir__storage *had = t->storage;
    const char *path = r->scope->run->path;
    r->scope->run->path = r->path;
    t->storage = NULL;
    bool fits = allocate(t, device, r->out_version);
    for (int i = 0; i < CHOIR__MAX_SAVED && fits; i++) {
        choir_tensor *along = choir__made_along(r, i);
        fits = !along || along->storage || allocate(along, device, 0);
    }
    choir_tensor *mark = r->scope->tensors;
    if (fits)
        r->op->recompute(r);
    release_scratch(r->scope, mark);
    r->scope->run->path = path;
    if (had) {
        choir__storage_unref(t->storage);
        t->storage = had;
    }
    return choir__scope_status(r->scope);
}

/* --- a segment --- */

/* The purpose of computing a segment again: in one stage, all tensors that the segment released
 * and backward may read (t NULL), or one tensor. */
struct goal {
    choir__segment *segment;
    int stage;
    const choir_device *device; /* the stage's */
    const choir_tensor *t;
};

static bool is_goal(const struct goal *g, const choir__tape_entry *r, const choir_tensor *t)
{
    return g->t
               ? t == g->t
               : t && choir__released_by(t) == g->segment && r->reached && r->stage == g->stage;
}

/* Returns the last entry that needs t while others are computed again; NULL: none. */
static const choir__tape_entry *until(const choir_tensor *t)
{
    return t->released ? t->released->until : NULL;
}

static bool needed(const struct goal *g, const choir__tape_entry *r)
{
    bool need = until(r->out) || (!r->out->storage && is_goal(g, r, r->out));
    for (int i = 0; i < CHOIR__MAX_SAVED && !need; i++) {
        choir_tensor *along = choir__made_along(r, i);
        need = along && !along->storage && is_goal(g, r, along);
    }
    return need;
}

static bool part_of(const struct goal *g, const choir__tape_entry *r)
{
    return r && (r->stage == g->stage || choir__device_of(r->out) == g->device) &&
           choir__can_make(r) && within(r, g->segment);
}

/* Goes from the last entry to the first and notes the entries that are needed, and the last
 * entry that needs each result. Returns an operand from outside that is not in memory, or
 * NULL. */
static choir_tensor *plan(const struct goal *g)
{
    choir_tensor *outside = NULL;
    for (choir__tape_entry *r = g->segment->last; r;
         r = r == g->segment->first ? NULL : r->previous) {
        if (!part_of(g, r) || !(r->needed = needed(g, r)))
            continue;
        for (int i = 0; i < MOST_OPERANDS; i++) {
            choir_tensor *t = operand(r, i);
            if (!t || t->storage || until(t))
                continue;
            if (part_of(g, t->producer))
                choir__released_of(t)->until = r;
            else
                outside = t;
        }
    }
    return outside;
}

static void forget(const struct goal *g)
{
    for (choir__tape_entry *r = g->segment->first; r; r = choir__segment_after(g->segment, r)) {
        r->needed = false;
        if (r->out->released) {
            r->out->released->until = NULL;
            r->out->released->passing = false;
        }
    }
}

/* Decides about t, which was just computed: it stays if it is a goal, or until no other entry
 * needs it. */
static void settle(const struct goal *g, const choir__tape_entry *r, choir_tensor *t)
{
    if (is_goal(g, r, t))
        choir__released_of(t)->segment = NULL;
    else if (until(t))
        t->released->passing = true;
    else
        choir__tensor_release(t);
}

static choir_status make_part(const struct goal *g, choir__tape_entry *r)
{
    unsigned made = 0;
    bool result = !r->out->storage;
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (choir__made_along(r, i) && !choir__made_along(r, i)->storage)
            made |= 1u << i;
    choir_status status = make(r);
    if (status != CHOIR_OK)
        return status;
    if (result)
        settle(g, r, r->out);
    for (int i = 0; i < CHOIR__MAX_SAVED; i++)
        if (made >> i & 1)
            settle(g, r, r->saved[i]);
    for (int i = 0; i < MOST_OPERANDS; i++) {
        choir_tensor *t = operand(r, i);
        if (!t || until(t) != r)
            continue;
        t->released->until = NULL;
        if (t->released->passing)
            choir__tensor_release(t);
        t->released->passing = false;
    }
    return CHOIR_OK;
}

/* Computes t again like restore (backward) or choir__bring_back. */
static choir_status bring(choir_tensor *t, bool backward);

static choir_status remake(struct goal g, bool backward)
{
    choir_status status = CHOIR_OK;
    for (choir_tensor *t; (t = plan(&g)) && status == CHOIR_OK;) {
        forget(&g); /* bring may plan for these entries, too */
        status = bring(t, backward);
        if (status == CHOIR_OK && !t->storage)
            status = choir__error(
                CHOIR_ERR_STATE, "results cannot be computed again: their operands are gone");
    }
    for (choir__tape_entry *r = g.segment->first; r && status == CHOIR_OK;
         r = choir__segment_after(g.segment, r)) {
        if (!r->needed)
            continue;
        r->needed = false;
        status = make_part(&g, r);
    }
    if (status != CHOIR_OK)
        forget(&g);
    return status;
}

/* --- a tensor --- */

/* Computes t from its operands, after computing released operands. */
static choir_status make_chain(choir_tensor *t, bool backward)
{
    choir__released_of(t)->waiting = NULL;
    while (t) {
        choir__tape_entry *r = t->producer;
        choir_tensor *gone = missing_operand(r);
        choir_status status = CHOIR_OK;
        if (gone && choir__released_by(gone)) {
            status = bring(gone, backward);
            if (status == CHOIR_OK && !gone->storage)
                status = lost(r);
        } else if (gone && gone->producer && choir__can_make(gone->producer)) {
            choir__released_of(gone)->waiting = t;
            t = gone;
        } else if (gone) {
            status = lost(r);
        } else {
            status = make(r);
            t = t->released->waiting;
        }
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

static choir_status bring(choir_tensor *t, bool backward)
{
    choir__tape_entry *r = t->producer;
    if (!r || t->storage || !choir__can_make(r))
        return CHOIR_OK;
    choir__segment *of = choir__released_by(t);
    const choir_device *device = choir__device_of(t);
    choir_status status = CHOIR_OK;
    if (of && backward)
        status = remake((struct goal){of, r->stage, device, NULL}, true);
    if (of && status == CHOIR_OK && !t->storage)
        status = remake((struct goal){of, r->stage, device, t}, backward);
    if (!of)
        status = make_chain(t, backward);
    return status;
}

static choir_status restore(choir_tensor *t)
{
    return t ? bring(t, true) : CHOIR_OK;
}

choir_status choir__bring_back(choir_tensor *t)
{
    if (t->storage || !choir__released_by(t))
        return CHOIR_OK;
    choir_status status = bring(t, false);
    if (status == CHOIR_OK && !t->storage)
        status = lost(t->producer);
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(t->scope, status);
}

choir_status choir__restore_read(choir__tape_entry *r)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < r->count && status == CHOIR_OK; i++)
        status = choir__cast_again(r->in[i]);
    for (int i = 0; i < CHOIR__MAX_SAVED && status == CHOIR_OK; i++) {
        choir_tensor *along = choir__made_along(r, i);
        if (along && !along->storage && choir__released_by(along))
            status = remake((struct goal){choir__released_by(along), r->stage,
                                choir__device_of(along), NULL},
                true);
        else if (r->saved[i] && !along)
            status = restore(r->saved[i]);
    }
    for (int i = 0; i < r->count && status == CHOIR_OK; i++)
        if (r->op->reads_in >> i & 1)
            status = restore(r->in[i]);
    return status;
}
