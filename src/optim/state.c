/* The state of an optimizer: which tensors it keeps for a parameter, how they are laid out, and
 * how they follow the parameter to other devices and into shards.
 *
 * Most state has a number per element and is laid out like this rank's part of the parameter.
 * 8-bit state has a code per element instead and a number per block of 256 elements. A block
 * never reaches beyond a row of dimension 0, nor beyond a slice of it (choir__optim_run), so a
 * rank has whole blocks, and the codes do not depend on the distribution over ranks:
 *
 *     row 0 of 600   | block 0, 256 | block 1, 256 | block 2, 88 |
 *     row 1          | block 3, 256 | ...
 *
 * Adafactor's sums per row and per column are small, and whole on every rank. */
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"

enum { LEAST_CODED = 4096 /* elements; smaller parameters have f32 state */ };

static void keep(
    choir__state_list *list, choir_tensor **tensor, const char *name, choir__state_form form)
{
    list->of[list->count].tensor = tensor;
    list->of[list->count].name = name;
    list->of[list->count++].form = form;
}

static void keep_moments(const choir_optim *o, choir__optim_state *s, choir__state_list *list)
{
    const choir_shape *whole = &s->param->whole;
    bool coded = o->rule.coded && whole->ndim > 1 && choir__shape_count(*whole) >= LEAST_CODED;
    choir__state_form form = coded ? CHOIR__STATE_CODES : CHOIR__STATE_ELEMENTS;
    keep(list, &s->m, "exp_avg", form);
    keep(list, &s->v, "exp_avg_sq", form);
    if (coded) {
        keep(list, &s->m_most, "exp_avg_absmax", CHOIR__STATE_BLOCKS);
        keep(list, &s->v_most, "exp_avg_sq_absmax", CHOIR__STATE_BLOCKS);
    }
    if (o->rule.amsgrad)
        keep(list, &s->top, "max_exp_avg_sq", CHOIR__STATE_ELEMENTS);
}

static void keep_rule(const choir_optim *o, choir__optim_state *s, choir__state_list *list)
{
    switch (o->rule.kind) {
    case CHOIR__SGD:
        if (o->rule.momentum != 0)
            keep(list, &s->m, "momentum_buffer", CHOIR__STATE_ELEMENTS);
        break;
    case CHOIR__LION: keep(list, &s->m, "exp_avg", CHOIR__STATE_ELEMENTS); break;
    case CHOIR__RMSPROP:
        if (o->rule.momentum != 0)
            keep(list, &s->m, "momentum_buffer", CHOIR__STATE_ELEMENTS);
        keep(list, &s->v, "square_avg", CHOIR__STATE_ELEMENTS);
        if (o->rule.centered)
            keep(list, &s->top, "grad_avg", CHOIR__STATE_ELEMENTS);
        break;
    case CHOIR__ADAFACTOR:
        if (s->param->whole.ndim < 2) {
            keep(list, &s->v, "variance", CHOIR__STATE_WHOLE);
            break;
        }
        keep(list, &s->m, "row_var", CHOIR__STATE_ROWS);
        keep(list, &s->v, "col_var", CHOIR__STATE_COLUMNS);
        break;
    case CHOIR__MUON:
        if (s->matrix)
            keep(list, &s->m, "momentum_buffer", CHOIR__STATE_ELEMENTS);
        else
            keep_moments(o, s, list);
        break;
    case CHOIR__ADAM:
    case CHOIR__LAMB: keep_moments(o, s, list); break;
    }
}

/* Lists the state that the optimizer keeps for s->param. */
static void list_states(const choir_optim *o, choir__optim_state *s, choir__state_list *list)
{
    list->count = 0;
    keep_rule(o, s, list);
    if (o->average.on)
        keep(list, &s->average, "average", CHOIR__STATE_ELEMENTS);
}

/* --- shapes --- */

static bool follows_rows(choir__state_form form)
{
    return form == CHOIR__STATE_ELEMENTS || form == CHOIR__STATE_CODES ||
           form == CHOIR__STATE_BLOCKS;
}

/* Returns the number of blocks for `count` elements of a row, whole runs. */
static int64_t blocks_in(const choir__param *p, int64_t count)
{
    int64_t run = choir__max(choir__optim_run(p, count), 1);
    return count / run * ((run + CHOIR__CODED_BLOCK - 1) / CHOIR__CODED_BLOCK);
}

static choir_shape blocks_of(const choir__param *p, choir_shape of)
{
    int64_t rows = of.dim[0], row = 1;
    for (int d = 1; d < of.ndim; d++)
        row *= of.dim[d];
    return choir_dims(rows, blocks_in(p, row));
}

/* Returns the shape of state for p, or a part of it, of shape `of`. As in PyTorch,
 * the last two dimensions are the matrix whose rows and columns Adafactor keeps. */
static choir_shape shape_of(const choir__param *p, choir__state_form form, choir_shape of)
{
    if (form == CHOIR__STATE_BLOCKS)
        return blocks_of(p, of);
    if (form == CHOIR__STATE_ROWS)
        of.dim[of.ndim - 1] = 1;
    if (form == CHOIR__STATE_COLUMNS)
        of.dim[of.ndim - 2] = 1;
    return of;
}

/* --- making, moving and cutting --- */

/* Returns zeros for state of p. each: the number of state tensors per parameter. */
static choir_tensor *new_state(
    choir_optim *o, const choir__param *p, choir__state_form form, int each)
{
    const choir_tensor *local = p->local;
    choir_tensor *t;
    if (form == CHOIR__STATE_ELEMENTS && (t = choir__offload_tensor(o, local, each)))
        return t;
    choir_tensor like = *local;
    like.dtype = form == CHOIR__STATE_CODES  ? CHOIR_U8
                 : local->dtype == CHOIR_F64 ? CHOIR_F64
                                             : CHOIR_F32;
    if (form == CHOIR__STATE_ELEMENTS || form == CHOIR__STATE_CODES)
        t = choir__tensor_like(o->run, &like);
    else
        t = choir__tensor_new(o->run, choir__device_of(local), CHOIR_F32,
            shape_of(p, form, follows_rows(form) ? local->shape : p->whole));
    choir__storage_holds(t->storage, CHOIR__MEMORY_OPTIMIZER);
    choir__storage_tell(t->storage, CHOIR__FOR_WORK, p->name);
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

/* Cuts a parameter's state to this rank's rows: the parameter was whole before and is sharded
 * by rows now. */
static void take_rows(choir_optim *o, const choir__param *p, choir_tensor **state,
    choir__state_form form, int each)
{
    choir_tensor *whole = *state, *rows = new_state(o, p, form, each);
    int64_t count = p->local->shape.ndim ? p->local->shape.dim[0] : 1;
    int64_t first = count ? p->boxes->from[0] * (rows->count / count) : 0;
    size_t size = choir_dtype_size(rows->dtype);
    if (!rows->poisoned && rows->count)
        choir__launch_bytes(choir__device_of(rows), choir__data(rows),
            (char *)choir__data(whole) + (size_t)first * size, (size_t)rows->count * size);
    choir__tensor_release(whole);
    *state = rows;
}

/* True if state of p is off-loaded, here or on the rank that has it. */
static bool is_outside(const choir_optim *o, const choir__param *p)
{
    return o->offload.whole || (p->local->storage && p->local->storage->outside);
}

/* Moves state to the parameter's device. Off-loaded state stays off-loaded. */
static choir_status move(choir_optim *o, const choir__param *p, choir_tensor **state,
    choir__state_form form, int each)
{
    choir_device *device = choir__device_of(p->local);
    choir_tensor *old = *state, like = *p->local;
    if (choir__device_of(old) == device)
        return CHOIR_OK;
    if (form != CHOIR__STATE_ELEMENTS || !is_outside(o, p))
        return choir__tensor_move(old, device, true);
    like.shape = old->shape; /* take_rows may cut it */
    like.count = old->count;
    memcpy(like.stride, old->stride, sizeof like.stride);
    if (!(*state = choir__offload_tensor(o, &like, each))) {
        like.dtype = CHOIR_F32;
        *state = choir__tensor_like(o->run, &like);
        choir__storage_holds((*state)->storage, CHOIR__MEMORY_OPTIMIZER);
        choir__storage_tell((*state)->storage, CHOIR__FOR_WORK, p->name);
    }
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

static bool is_cut(const choir__param *p, const choir_tensor *state, choir__state_form form)
{
    return follows_rows(form) &&
           state->count != choir__shape_count(shape_of(p, form, p->local->shape));
}

static void copy_from(choir_tensor *average, choir_tensor *local)
{
    if (!average->poisoned && local->count && !choir__device_of(local)->away)
        choir__copy_across(average, local);
}

void choir__optim_make_state(choir_optim *o, choir__optim_state *s)
{
    choir__state_list list;
    list_states(o, s, &list);
    for (int i = 0; i < list.count; i++) {
        choir_tensor **state = list.of[i].tensor;
        choir__state_form form = list.of[i].form;
        if (!*state) {
            *state = new_state(o, s->param, form, list.count);
            if (state == &s->average) /* until a step is averaged */
                copy_from(*state, s->param->local);
            go_along(o, s->param, state);
        } else if (move(o, s->param, state, form, list.count) != CHOIR_OK) {
            choir__scope_fail(o->run, CHOIR_ERR_STATE);
        } else if (is_cut(s->param, *state, form)) {
            take_rows(o, s->param, state, form, list.count);
        }
    }
}

/* --- what a rule can update --- */

static const char *rule_name(const choir_optim *o)
{
    return o->rule.kind == CHOIR__LAMB        ? "lamb"
           : o->rule.kind == CHOIR__ADAFACTOR ? "adafactor"
                                              : "muon";
}

choir_status choir__optim_check_part(const choir_optim *o, const choir__param *p)
{
    bool measures = o->rule.kind == CHOIR__LAMB || o->rule.kind == CHOIR__ADAFACTOR ||
                    o->rule.kind == CHOIR__MUON;
    bool wide = p->local->dtype == CHOIR_F64, moves = o->offload.whole || o->offload.store;
    if (wide && (o->rule.coded || moves || choir__device_of(p->local)->far))
        return choir__error(CHOIR_ERR_DTYPE, "%s: expected f32 weights, got f64 as %s",
            o->rule.coded ? "8-bit state"
            : moves       ? "off-loaded state"
                          : "an optimizer on a GPU",
            p->name);
    if (o->average.on && p->local->dtype != CHOIR_F32)
        return choir__error(CHOIR_ERR_DTYPE,
            "averages of weights: expected f32 weights, got %s as %s", p->name,
            choir_dtype_name(p->local->dtype));
    if (measures && p->local->dtype != CHOIR_F32)
        return choir__error(CHOIR_ERR_DTYPE,
            "%s: expected f32 weights, as it steps by their norms, got %s as %s", rule_name(o),
            p->name, choir_dtype_name(p->local->dtype));
    return CHOIR_OK;
}

/* --- checkpoints --- */

static int64_t columns_of(const choir__param *p, const choir__box *box)
{
    int64_t columns = 1;
    for (int d = 1; d < p->whole.ndim; d++)
        columns *= box->size[d];
    return columns;
}

/* Calls visit with the blocks of a sharded parameter: they have the rows of the parameter, so
 * its boxes, with other columns, are theirs. */
static void visit_blocks(const char *name, const choir__param *p, choir_tensor *t,
    choir__state_visit_fn *visit, void *arg)
{
    choir__box *boxes = choir__calloc((size_t)p->box_count + 1, sizeof *boxes);
    const choir__partition *cut = p->tensor->split;
    for (int b = 0; b < p->box_count; b++) {
        boxes[b].from[0] = p->boxes[b].from[0];
        boxes[b].at[0] = p->boxes[b].at[0];
        boxes[b].size[0] = p->boxes[b].size[0];
        boxes[b].size[1] = blocks_in(p, columns_of(p, &p->boxes[b]));
        if (cut && cut->dim) {
            boxes[b].from[1] = blocks_in(p, p->boxes[b].from[1]);
            boxes[b].at[1] = blocks_in(p, p->boxes[b].at[1]);
        }
    }
    choir__param blocks = {.name = p->name,
        .local = t,
        .whole = blocks_of(p, p->whole),
        .boxes = p->boxes ? boxes : NULL,
        .box_count = p->box_count};
    visit(name, t, &blocks, arg);
    free(boxes);
}

bool choir__optim_is_idle(const choir__optim_state *s)
{
    return !s->param->tensor->requires_grad && !s->m && !s->v && !s->average;
}

void choir__optim_visit_state(
    choir_optim *o, choir__optim_state *s, choir__state_visit_fn *visit, void *arg)
{
    choir__state_list list;
    if (choir__optim_is_idle(s))
        return;
    choir__optim_make_state(o, s);
    list_states(o, s, &list);
    for (int i = 0; i < list.count; i++) {
        choir_tensor *t = *list.of[i].tensor;
        char *name = choir__format("%s.%s", list.of[i].name, s->param->name);
        if (list.of[i].form == CHOIR__STATE_BLOCKS)
            visit_blocks(name, s->param, t, visit, arg);
        else
            visit(name, t, follows_rows(list.of[i].form) ? s->param : NULL, arg);
        free(name);
    }
}
