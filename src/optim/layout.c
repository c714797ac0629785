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
        choir_tensor *const states[] = {s->m, s->v, s->top, s->m_most, s->v_most, s->average};
        for (size_t j = 0; j < CHOIR_COUNT(states); j++)
            key = choir__mix(key, place_of(states[j]));
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
    choir__storage_unref(o->norm.rows);
    free(o->parts);
    free(o->norm.spans);
    o->parts = NULL;
    o->norm.spans = NULL;
    o->norm.rows = NULL;
    o->part_count = o->norm.span_count = 0;
    o->layout = 0;
}

static int part_on(choir_optim *o, choir_device *device)
{
    for (int i = 0; i < o->part_count; i++)
        if (o->parts[i].device == device)
            return i;
    CHOIR__GROW(o->parts, o->part_count);
    o->parts[o->part_count] = (choir__optim_part){.device = device};
    o->parts[o->part_count].table =
        choir__calloc((size_t)o->count + 1, sizeof *o->parts->table);
    return o->part_count++;
}

/* Adds a span of `times` runs. A run that continues the last span joins it. */
static void add_span(choir_optim *o, choir__optim_span span)
{
    choir__optim_span *last =
        o->norm.span_count ? &o->norm.spans[o->norm.span_count - 1] : NULL;
    if (last && span.times == 1 && last->times == 1 && last->part == span.part &&
        last->from + last->count == span.from && last->to + last->count == span.to) {
        last->count += span.count;
        return;
    }
    CHOIR__GROW(o->norm.spans, o->norm.span_count);
    o->norm.spans[o->norm.span_count++] = span;
}

/* Returns the number of rows that a shape of p has for norms. */
static int64_t rows_of(const choir__param *p, choir_shape shape)
{
    int64_t row = choir__optim_row(shape);
    return row ? choir__optim_rows(shape) * (row / choir__optim_run(p, row)) : 0;
}

/* Maps the rows of this rank's part of p to the whole model's rows, in which p begins at
 * `to`. */
static void add_spans(choir_optim *o, int at, const choir__param *p, int64_t to)
{
    int64_t from = o->parts[at].row_count, rows = rows_of(p, p->local->shape);
    if (!p->boxes && rows && !p->uncounted)
        add_span(o, (choir__optim_span){at, from, to, rows, 1, 0, 0});
    int64_t row = choir__optim_row(p->whole), run = choir__optim_run(p, row);
    int64_t here = rows ? choir__optim_row(p->local->shape) / run : 0,
            all = rows ? row / run : 0;
    for (int b = 0; b < p->box_count && rows && !p->uncounted; b++) {
        const choir__box *box = &p->boxes[b];
        int64_t lo = box->at[0] * here, there = box->from[0] * all;
        if (here == all) {
            add_span(
                o, (choir__optim_span){at, from + lo, to + there, box->size[0] * all, 1, 0, 0});
            continue;
        }
        lo += box->at[1] / run; /* slices cut the last of two dimensions */
        there += box->from[1] / run;
        add_span(o, (choir__optim_span){at, from + lo, to + there, box->size[1] / run,
                        box->size[0], here, all});
    }
    o->parts[at].row_count += rows;
}

static void point_to_state(choir__opt_entry *e, const choir__optim_state *s)
{
    e->top = s->top ? choir__data(s->top) : NULL;
    e->average = s->average ? choir__data(s->average) : NULL;
    if (s->m_most) {
        e->m_codes = choir__data(s->m);
        e->v_codes = choir__data(s->v);
        e->m_most = choir__data(s->m_most);
        e->v_most = choir__data(s->v_most);
        return;
    }
    e->m = s->m ? choir__data(s->m) : NULL;
    e->v = s->v ? choir__data(s->v) : NULL;
}

static choir_status fill_tables(choir_optim *o, int64_t *rows)
{
    *rows = 0;
    for (int i = 0; i < o->count; i++) {
        choir__optim_state *s = &o->states[i];
        const choir_tensor *t = s->param->local;
        void *grad = choir__param_grad_data(s->param);
        if (!grad)
            continue;
        choir_status status = choir__optim_check_part(o, s->param);
        if (status != CHOIR_OK)
            return status;
        choir__optim_make_state(o, s);
        if (choir__scope_status(o->run) != CHOIR_OK)
            return choir__scope_status(o->run);
        int at = part_on(o, choir__device_of(t));
        choir__optim_part *part = &o->parts[at];
        choir__opt_entry *e = &part->table[part->entry_count++];
        *e = (choir__opt_entry){.param = choir__is_half(t->dtype) ? NULL : choir__data(t),
            .grad = grad,
            .n = t->count,
            .row = choir__optim_run(s->param, choir__optim_row(t->shape)),
            .group = s->group,
            .whole_at = *rows,
            .whole_rows = rows_of(s->param, s->param->whole),
            .half = choir__is_half(t->dtype) ? choir__data(t) : NULL,
            .half_dtype = t->dtype,
            .apart = s->matrix,
            .sums = choir__optim_hashes_fit(o, s) ? &o->sums[i] : NULL};
        point_to_state(e, s);
        add_spans(o, at, s->param, *rows);
        *rows += rows_of(s->param, s->param->whole);
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
    o->norm.row_count = rows;
    if (o->part_count > 1 || o->parts[0].device != home || choir__strategies_share(o->run)) {
        o->norm.rows = choir__storage_new(home, (size_t)(2 * rows + 1) * sizeof(double));
        if (!o->norm.rows)
            return no_memory(home);
    }
    o->layout = places(o); /* includes state that was just made or moved */
    return CHOIR_OK;
}
