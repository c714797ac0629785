/* The layout of an optimizer: one part per device, with a table of entries in name order and
 * the state of its parameters.
 *
 * Norms are summed over the rows of all parameters in name order, on whichever device they
 * reside. Each part sums its rows into its own array. Spans map runs of these rows to the whole
 * model's array on the run's device, so that the tree of the sum does not depend on the
 * placement:
 *
 *     by name   a.bias a.weight | b.bias b.weight | c.bias
 *     cpu:0     a.bias a.weight c.bias      two spans
 *     cpu:1     b.bias b.weight             one */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "optim/optim.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"

/* Returns zeros like param. each: the number of state tensors per parameter. */
static choir_tensor *state_like(choir_optim *o, const choir_tensor *param, int each)
{
    choir_tensor *outside = choir__offload_tensor(o, param, each);
    if (outside)
        return outside;
    choir_tensor like = *param;
    like.dtype = CHOIR_F32;
    choir_tensor *t = choir__tensor_like(o->run, &like);
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

/* Cuts a parameter's state to this rank's rows: the parameter was whole before and is sharded
 * by rows now. */
static void take_rows(choir_optim *o, const choir__param *p, choir_tensor **state, int each)
{
    choir_tensor *whole = *state, *rows = state_like(o, p->local, each);
    int64_t count = p->local->shape.ndim ? p->local->shape.dim[0] : 1;
    int64_t first = count ? p->boxes->from[0] * (p->local->count / count) : 0;
    if (!rows->poisoned && p->local->count)
        choir__launch_bytes(choir__device_of(rows), choir__data(rows),
            (float *)choir__data(whole) + first, (size_t)p->local->count * sizeof(float));
    choir__tensor_release(whole);
    *state = rows;
}

/* True if state of p is off-loaded, here or on the rank that has it. */
static bool is_outside(const choir_optim *o, const choir__param *p)
{
    return o->offloaded || (p->local->storage && p->local->storage->outside);
}

/* Moves state to the parameter's device. Off-loaded state stays off-loaded. */
static choir_status move(choir_optim *o, const choir__param *p, choir_tensor **state, int each)
{
    choir_device *device = choir__device_of(p->local);
    choir_tensor *old = *state, like = *p->local;
    if (choir__device_of(old) == device)
        return CHOIR_OK;
    if (!is_outside(o, p))
        return choir__tensor_move(old, device, true);
    like.shape = old->shape; /* take_rows may cut it */
    like.count = old->count;
    memcpy(like.stride, old->stride, sizeof like.stride);
    *state = state_like(o, &like, each);
    if (!(*state)->poisoned)
        choir__copy_across(*state, old);
    choir__tensor_release(old);
    return choir__scope_status(o->run);
}

/* Notes that the state goes with the parameter, unless it is off-loaded: then it follows at the
 * next step. */
static void go_along(choir_optim *o, choir__param *p, choir_tensor **state)
{
    if (is_outside(o, p))
        return;
    choir__companion *c = choir__arena_get(&o->run->arena, sizeof *c);
    *c = (choir__companion){state, p->companions};
    p->companions = c;
}

void choir__optim_make_state(choir_optim *o, choir__optim_state *s)
{
    choir_tensor **wanted[3] = {&s->m, &s->v, &s->top};
    bool moments = o->kind != CHOIR__SGD,
         wants[3] = {moments || o->momentum != 0, moments, o->amsgrad};
    int each = wants[0] + wants[1] + wants[2];
    for (int i = 0; i < 3; i++)
        if (wants[i] && !*wanted[i]) {
            *wanted[i] = state_like(o, s->param->local, each);
            go_along(o, s->param, wanted[i]);
        } else if (wants[i] && move(o, s->param, wanted[i], each) != CHOIR_OK)
            choir__scope_fail(o->run, CHOIR_ERR_STATE);
        else if (wants[i] && (*wanted[i])->count != s->param->local->count)
            take_rows(o, s->param, wanted[i], each);
}

static uint64_t place_of(const choir_tensor *t)
{
    return t && t->storage ? (uintptr_t)choir__data(t) : 0;
}

/* Returns a hash of the addresses of all parameters, gradients and state. State is included
 * because a parameter may move away and back to its old memory, and its state has moved in
 * between. */
static uint64_t places(const choir_optim *o)
{
    uint64_t key = 1;
    for (int i = 0; i < o->count; i++) {
        const choir__optim_state *s = &o->states[i];
        key = choir__mix(key, place_of(s->param->local));
        key = choir__mix(key, (uintptr_t)choir__param_grad_data(s->param));
        key = choir__mix(key, place_of(s->m));
        key = choir__mix(key, place_of(s->v));
        key = choir__mix(key, place_of(s->top));
    }
    return key ? key : 1;
}

void choir__optim_forget(choir_optim *o)
{
    for (int i = 0; i < o->part_count; i++) {
        choir__optim_part *part = &o->parts[i];
        choir__storage_unref(part->entries);
        choir__storage_unref(part->hyper);
        choir__storage_unref(part->rows);
        choir__storage_unref(part->near);
        choir__storage_unref(part->clip);
        free(part->table);
    }
    choir__storage_unref(o->rows);
    free(o->parts);
    free(o->spans);
    o->parts = NULL;
    o->spans = NULL;
    o->rows = NULL;
    o->part_count = o->span_count = 0;
    o->layout = 0;
}

static int part_on(choir_optim *o, choir_device *device)
{
    for (int i = 0; i < o->part_count; i++)
        if (o->parts[i].device == device)
            return i;
    o->parts = choir__realloc(o->parts, (size_t)(o->part_count + 1) * sizeof *o->parts);
    o->parts[o->part_count] = (choir__optim_part){.device = device};
    o->parts[o->part_count].table =
        choir__calloc((size_t)o->count + 1, sizeof *o->parts->table);
    return o->part_count++;
}

/* Maps rows [from, from + rows) of the part to rows [to, to + rows) of the whole model. */
static void add_span(choir_optim *o, int part, int64_t from, int64_t to, int64_t rows)
{
    choir__optim_span *last = o->span_count ? &o->spans[o->span_count - 1] : NULL;
    if (last && last->part == part && last->from + last->count == from &&
        last->to + last->count == to) {
        last->count += rows;
        return;
    }
    /* capacity grows to the next power of two */
    if ((o->span_count & (o->span_count - 1)) == 0)
        o->spans = choir__realloc(
            o->spans, (size_t)(o->span_count ? 2 * o->span_count : 1) * sizeof *o->spans);
    o->spans[o->span_count++] = (choir__optim_span){part, from, to, rows};
}

static int64_t rows_of(choir_shape shape)
{
    return !choir__shape_count(shape) ? 0 : shape.ndim ? shape.dim[0] : 1;
}

/* Maps the rows of this rank's part of p to the whole model's rows, in which p begins at
 * `to`. */
static void add_spans(choir_optim *o, int at, const choir__param *p, int64_t to)
{
    int64_t from = o->parts[at].row_count, rows = rows_of(p->local->shape);
    if (!p->boxes && rows && !p->uncounted)
        add_span(o, at, from, to, rows);
    for (int b = 0; b < p->box_count && rows && !p->uncounted; b++)
        add_span(
            o, at, from + p->boxes[b].at[0], to + p->boxes[b].from[0], p->boxes[b].size[0]);
    o->parts[at].row_count += rows;
}

static choir_status fill_tables(choir_optim *o, int64_t *rows)
{
    *rows = 0;
    for (int i = 0; i < o->count; i++) {
        choir__optim_state *s = &o->states[i];
        const choir_tensor *t = s->param->local;
        float *grad = choir__param_grad_data(s->param);
        if (!grad)
            continue;
        if (o->kind == CHOIR__LAMB && t->dtype != CHOIR_F32)
            return choir__error(CHOIR_ERR_DTYPE,
                "lamb: expected f32 weights, as it steps by their norms, got %s as %s",
                s->param->name, choir_dtype_name(t->dtype));
        choir__optim_make_state(o, s);
        if (choir__scope_status(o->run) != CHOIR_OK)
            return choir__scope_status(o->run);
        int64_t first = rows_of(t->shape) ? rows_of(t->shape) : 1;
        int at = part_on(o, choir__device_of(t));
        choir__optim_part *part = &o->parts[at];
        part->table[part->entry_count++] =
            (choir__opt_entry){.param = choir__is_half(t->dtype) ? NULL : choir__data(t),
                .grad = grad,
                .m = s->m ? choir__data(s->m) : NULL,
                .v = s->v ? choir__data(s->v) : NULL,
                .top = s->top ? choir__data(s->top) : NULL,
                .n = t->count,
                .row = t->count / first,
                .group = s->group,
                .whole_at = *rows,
                .whole_rows = rows_of(s->param->whole),
                .half = choir__is_half(t->dtype) ? choir__data(t) : NULL,
                .half_dtype = t->dtype};
        add_spans(o, at, s->param, *rows);
        *rows += rows_of(s->param->whole);
    }
    return CHOIR_OK;
}

static bool give_memory(const choir_optim *o, choir__optim_part *part)
{
    size_t rows_bytes = (size_t)(2 * part->row_count + 1) * sizeof(double);
    size_t bytes = (size_t)part->entry_count * sizeof *part->table;
    part->entries = choir__storage_new(part->device, bytes);
    part->hyper =
        choir__storage_new(part->device, CHOIR__MAX_GROUPS * sizeof(choir__opt_hyper));
    part->rows = choir__storage_new(part->device, rows_bytes);
    if (choir__carrier_of(part->device, o->run->device) &&
        !(part->near = choir__storage_new(o->run->device, rows_bytes)))
        return false;
    if (part->device != o->run->device &&
        !(part->clip = choir__storage_new(part->device, CHOIR__CLIP_COUNT * sizeof(float))))
        return false;
    if (!part->entries || !part->hyper || !part->rows)
        return false;
    choir__launch_upload(part->device, part->entries->data, part->table, bytes);
    return true;
}

static choir_status no_memory(const choir_device *device)
{
    return choir__error(
        CHOIR_ERR_MEMORY, "out of memory on %s for the optimizer", choir_device_name(device));
}

choir_status choir__optim_lay_out(choir_optim *o)
{
    int64_t rows;
    if (places(o) == o->layout)
        return CHOIR_OK;
    choir__optim_forget(o);
    choir_status status = fill_tables(o, &rows);
    if (status != CHOIR_OK)
        return status;
    choir_device *home = o->run->device;
    if (!o->part_count)
        part_on(o, home);
    for (int i = 0; i < o->part_count; i++)
        if (!give_memory(o, &o->parts[i]))
            return no_memory(o->parts[i].device);
    o->row_count = rows;
    if (o->part_count > 1 || o->parts[0].device != home || choir__strategies_share(o->run)) {
        o->rows = choir__storage_new(home, (size_t)(2 * rows + 1) * sizeof(double));
        if (!o->rows)
            return no_memory(home);
    }
    o->layout = places(o); /* includes state that was just made or moved */
    return CHOIR_OK;
}
