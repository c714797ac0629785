/* Applies a plan to a module's tree: ranks compare their plans, then each parameter becomes
 * this rank's part of it.
 *
 *     whole (in, 3 C), packed 3, two ranks      rank 1's part (in, 3 C / 2)
 *     | q0 q1 | k0 k1 | v0 v1 |                 | q1 | k1 | v1 |      three boxes
 *
 * The tensor's handle stays the same, so modules need no change. The part's values are a slice
 * of the whole: of its current values, or of the values that would be drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "base/tree.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/held.h"
#include "tensor/launch.h"

const choir__part_ops choir__tp_ops = {.linear = choir__tp_linear,
    .embedding = choir__tp_embedding,
    .cross_entropy = choir__tp_cross_entropy,
    .argmax = choir__tp_argmax,
    .join = choir__tp_join,
    .all_tokens = choir__tp_all_tokens,
    .own_tokens = choir__tp_own_tokens,
    .join_tokens = choir__tp_join_tokens};

/* --- comparing plans --- */

enum { COMPLAINT = 400 };

/* Returns the seed and one line per entry. */
static char *describe(const choir__tp_plan *plan)
{
    char *text =
        choir__format("seed %llu, %lld slices%s", (unsigned long long)plan->module->run->seed,
            (long long)plan->slices, plan->sequence ? ", sequence parallelism" : "");
    for (int i = 0; i < plan->count; i++) {
        const choir__tp_entry *e = &plan->entries[i];
        char *more = choir__format(
            "%s\n'%s' %s along dimension %d in %d times %lld units, %lld slices each, by rule %d",
            text, e->param->name, choir__shape_text(e->param->whole), e->dim, e->packed,
            (long long)e->units, (long long)e->shared, (int)e->style);
        free(text);
        text = more;
    }
    return text;
}

/* Writes the first line in which the two texts differ. */
static void compare(const char *theirs, const char *mine, char complaint[COMPLAINT])
{
    while (*theirs || *mine) {
        int n = (int)strcspn(theirs, "\n"), m = (int)strcspn(mine, "\n");
        if (n != m || memcmp(theirs, mine, (size_t)n)) {
            snprintf(complaint, COMPLAINT, "rank 0 has %.*s, where this rank has %.*s",
                n ? n : 12, n ? theirs : "nothing more", m ? m : 12, m ? mine : "nothing more");
            return;
        }
        theirs += n + (theirs[n] != 0);
        mine += m + (mine[m] != 0);
    }
}

/* Copies rank 0's text to all ranks. */
static choir_status bring_text(choir_group *group, const char *mine, char **text)
{
    int64_t bytes = (int64_t)strlen(mine) + 1;
    choir_status status = choir_group_broadcast(group, &bytes, 1, CHOIR_I64, 0, NULL);
    if (status != CHOIR_OK)
        return status;
    *text = choir__calloc((size_t)bytes, 1);
    if (choir_group_rank(group) == 0)
        memcpy(*text, mine, (size_t)bytes);
    return choir_group_broadcast(group, *text, bytes, CHOIR_U8, 0, NULL);
}

choir_status choir__tp_agree(
    const choir__tp_plan *plan, choir_group *group, choir_status planned)
{
    int world = choir_group_world(group);
    char *mine = describe(plan), *theirs = NULL, complaint[COMPLAINT] = "";
    char *all = choir__calloc((size_t)world, COMPLAINT), *own = NULL;
    if (planned != CHOIR_OK)
        own = choir__strdup(choir__message());
    choir_status status = bring_text(group, mine, &theirs);
    if (status == CHOIR_OK) {
        compare(theirs, mine, complaint);
        if (own)
            snprintf(complaint, COMPLAINT, "%s", own);
        status = choir_group_all_gather(group, complaint, all, COMPLAINT, CHOIR_U8, NULL);
    }
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (all[r * COMPLAINT])
            status = choir__error(CHOIR_ERR_MISMATCH,
                "tensor_parallel: rank %d does otherwise: %s; all ranks must give it the same "
                "model, rules and seed",
                r, all + r * COMPLAINT);
    if (own) /* this rank's own error says more */
        status = choir__error(planned, "%s", own);
    free(own);
    free(all);
    free(mine);
    free(theirs);
    return status;
}

/* --- boxes --- */

struct part {
    const choir__tp_entry *entry;
    int64_t first, own, slices;
    int64_t lo, hi; /* the range along the dimension, of each of the packed matrices */
    choir_shape shape;
};

/* The units of this rank's slices. */
static struct part part_of(const choir__tp_entry *e, int64_t first, int64_t own, int64_t slices)
{
    struct part p = {.entry = e,
        .first = first,
        .own = own,
        .slices = slices,
        .shape = choir__param_values(e->param)};
    int64_t each = p.shape.dim[e->dim] / e->packed, unit = each / e->units, unused;
    if (*e->widths) {
        p.shape.dim[e->dim] = p.shape.dim[e->dim] / slices * own;
        return p;
    }
    if (e->shared) {
        p.lo = first / e->shared;
        p.hi = (first + own - 1) / e->shared + 1;
    } else {
        choir__tree_run(e->units, (int)first, (int)slices, &p.lo, &unused);
        choir__tree_run(e->units, (int)(first + own - 1), (int)slices, &unused, &p.hi);
    }
    p.lo *= unit;
    p.hi *= unit;
    p.shape.dim[e->dim] = e->packed * (p.hi - p.lo);
    return p;
}

/* Returns n values along the entry's dimension in elements of its tensor, which may be words.
 */
static int64_t elements(const choir__tp_entry *e, int64_t n)
{
    const struct choir__held *held = e->param->tensor->held;
    return held && e->dim ? choir__held_words(held->type, n) : n;
}

static choir__box *boxes_of(choir_scope *run, const struct part *part)
{
    const choir__tp_entry *e = part->entry;
    int64_t each = e->param->whole.dim[e->dim] / e->packed,
            own = elements(e, part->hi - part->lo);
    choir__box *boxes = choir__arena_get(&run->arena, (size_t)e->packed * sizeof *boxes);
    for (int b = 0; b < e->packed; b++)
        memcpy(boxes[b].size, e->param->whole.dim, sizeof boxes[b].size);
    if (*e->widths)
        choir__tp_piece_boxes(e, part->first, part->own, part->slices, boxes);
    for (int b = 0; b < e->packed && !*e->widths; b++) {
        boxes[b].size[e->dim] = own;
        boxes[b].from[e->dim] = b * each + elements(e, part->lo);
        boxes[b].at[e->dim] = b * own;
    }
    return boxes;
}

/* --- values --- */

/* Returns the block of `size` at `from` of t: a view on the stack. */
static choir_tensor view_of(const choir_tensor *t, const int64_t *from, const int64_t *size)
{
    choir_tensor v = *t;
    v.count = 1;
    for (int d = 0; d < t->shape.ndim; d++) {
        v.offset += from[d] * t->stride[d];
        v.shape.dim[d] = size[d];
        v.count *= size[d];
    }
    return v;
}

/* Copies rows [first, first + rows) of the whole, which `slab` holds, to the boxes of p's
 * part. */
static void copy_rows(choir__param *p, const choir_tensor *slab, int64_t first, int64_t rows)
{
    for (int b = 0; b < p->box_count; b++) {
        choir__box box = p->boxes[b];
        int64_t lo = choir__max(first, box.from[0]),
                hi = choir__min(first + rows, box.from[0] + box.size[0]);
        if (lo >= hi)
            continue;
        box.at[0] += lo - box.from[0];
        box.from[0] = lo - first;
        box.size[0] = hi - lo;
        choir_tensor to = view_of(p->tensor, box.at, box.size),
                     from = view_of(slab, box.from, box.size);
        choir__launch_copy(&to, &from);
    }
}

enum { SLAB = 1 << 20 }; /* elements drawn at a time */

/* Draws the whole, a slab of rows at a time, and keeps this rank's part. */
static choir_status draw(choir__param *p)
{
    choir_scope *run = p->tensor->scope;
    choir_shape shape = p->whole;
    int64_t rows = shape.dim[0], row = rows ? choir__shape_count(shape) / rows : 0;
    int64_t most = choir__max(1, choir__min(rows, SLAB / choir__max(row, 1)));
    for (int64_t first = 0; first < rows; first += most) {
        shape.dim[0] = choir__min(most, rows - first);
        choir_tensor *slab =
            choir__tensor_new(run, choir__device_of(p->tensor), p->tensor->dtype, shape);
        if (slab->poisoned)
            return choir__scope_status(run);
        choir__param_draw(p, slab, first * row);
        copy_rows(p, slab, first, shape.dim[0]);
        choir__tensor_release(slab);
    }
    p->initialised = true;
    return choir__scope_status(run);
}

/* Makes the handle refer to the part. */
static choir_status take_part(choir__param *p, const struct part *part)
{
    choir_tensor *t = p->tensor, old = *t;
    choir_device *device = t->device ? t->device : choir__device_of(t);
    uint32_t version = old.storage ? old.storage->version + 1 : 0;
    p->boxes = p->part_boxes = boxes_of(t->scope, part);
    p->box_count = p->part_box_count = part->entry->packed;
    t->shape = part->shape;
    if (t->held)
        choir__hold_as(t, t->held->type, t->shape.dim[1]);
    t->count = choir__shape_count(t->shape);
    t->offset = 0;
    choir__set_row_major(t);
    if (!choir__tensor_allocate(t, device))
        return choir__scope_status(t->scope);
    t->storage->version = version;
    choir__storage_holds(t->storage, CHOIR__MEMORY_WEIGHTS);
    choir__storage_tell(t->storage, CHOIR__FOR_WORK, p->name);
    if (!p->initialised)
        return draw(p);
    copy_rows(p, &old, 0, p->whole.dim[0]);
    choir__storage_unref(old.storage);
    return CHOIR_OK;
}

/* --- the tree --- */

static choir_status can_part(const choir__param *p, const choir_device *device)
{
    const choir_tensor *t = p->tensor;
    if (p->book || p->boxes || p->replicas)
        return choir__error(CHOIR_ERR_STATE,
            "tensor_parallel: parameter '%s' has an optimizer already, or another strategy: it "
            "must be distributed before that",
            p->name);
    if ((t->storage ? choir__device_of(t) : t->device) != device)
        return choir__error(CHOIR_ERR_DEVICE,
            "tensor_parallel: parameter '%s' is not on the run's device, %s", p->name,
            choir_device_name(device));
    return CHOIR_OK;
}

choir_status choir__tp_can_apply(choir_module *module)
{
    choir_status status = CHOIR_OK;
    int count;
    choir__param **all = choir__module_named_params(module, &count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = can_part(all[i], module->run->device);
    free(all);
    return status;
}

static void free_group(void *group)
{
    choir_group_free(group);
}

/* Makes the group of the ranks with the same key and value heads as this one; one group for
 * each number of such ranks. Collective. */
static choir_status sharing_group(
    choir_scope *run, choir_group *group, int64_t ranks, choir_group **sharing)
{
    const choir__coordinate place = {1, (int)ranks};
    choir_status status =
        choir__group_split_by(group, choir__color_without, &place, NULL, sharing);
    if (status == CHOIR_OK)
        choir__on_end(run, free_group, *sharing);
    return status;
}

/* Returns the mark of a column layer's result. Slices that share a unit have a copy of it each
 * (repeated_units.c), so its columns are numbered among the columns of all copies. */
static choir__partition result_of(const choir__partition *base, const choir__tp_entry *e)
{
    choir__partition result = *base;
    int64_t unit = base->size / e->packed / e->units;
    result.passes = true;
    if (e->shared) {
        result.at = base->first * unit;
        result.size = base->cut.leaves * unit;
    }
    return result;
}

/* Marks the parameter; on several ranks it becomes this rank's part. */
static choir_status part_entry(const choir__tp_plan *plan, const choir__tp_entry *e,
    choir_group *group, choir_group *sharing)
{
    choir__param *p = e->param;
    choir_scope *run = p->tensor->scope;
    int64_t own = plan->slices / plan->ranks, first = group ? choir_group_rank(group) * own : 0;
    struct part part = part_of(e, first, own, plan->slices);
    choir__tp_part *kept = choir__arena_get(&run->arena, sizeof *kept);
    *kept = (choir__tp_part){.base = {.by = plan->strategy,
                                 .whole = !group,
                                 .dim = e->dim,
                                 .cut = {e->packed, plan->slices},
                                 .first = first,
                                 .own = own,
                                 .at = part.lo,
                                 .size = choir__param_values(p).dim[e->dim],
                                 .shared = e->shared},
        .group = group,
        .style = e->style,
        .sharing = sharing,
        .sequence = plan->sequence && group};
    kept->result = result_of(&kept->base, e);
    if (*e->widths)
        choir__tp_make_pieces(e, run, plan->slices, kept);
    p->tensor->split = &kept->base;
    if (!group)
        return CHOIR_OK;
    p->uncounted = e->shared && first % e->shared;
    return take_part(p, &part);
}

/* Returns the number of ranks that share each unit of the parameter; 0: they share none. */
static int64_t ranks_sharing(const choir__tp_plan *plan, const choir__tp_entry *e)
{
    int64_t own = plan->slices / plan->ranks;
    return e->shared > own ? e->shared / own : 0;
}

choir_status choir__tp_apply(const choir__tp_plan *plan, choir_group *group)
{
    choir_scope *run = plan->module->run;
    choir_group *sharing = NULL;
    int64_t shared = 0;
    int count;
    choir_status status = CHOIR_OK;
    choir__param **all = choir__module_named_params(plan->module, &count);
    for (int i = 0; i < count && group; i++) /* except parameters in parts, see part_entry */
        all[i]->uncounted = choir_group_rank(group) > 0;
    free(all);
    choir__scope_uses(run, run->device);
    for (int i = 0; i < plan->count && status == CHOIR_OK; i++) {
        const choir__tp_entry *e = &plan->entries[i];
        int64_t ranks = ranks_sharing(plan, e);
        if (ranks && ranks != shared)
            status = sharing_group(run, group, shared = ranks, &sharing);
        if (status == CHOIR_OK)
            status = part_entry(plan, e, group, ranks ? sharing : NULL);
    }
    return status;
}
