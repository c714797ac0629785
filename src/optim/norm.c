/* The norm of all gradients, over the parts of an optimizer on several devices and ranks.
 *
 * Each part sums the squares of its rows. They go to the run's device, which adds up all rows
 * in name order and sends back the factor that clips. */
#include "optim/optim.h"
#include "tensor/launch.h"

#include <stdlib.h>

/* Returns a part's rows of all kinds, at an address that the run's device can read. */
static double *bring_rows(const choir_optim *o, const choir__optim_part *part, int kinds)
{
    int64_t count = kinds * part->row_count;
    choir_tensor from = {.storage = part->rows,
        .dtype = CHOIR_F64,
        .shape = {1, {count}},
        .stride = {1},
        .count = count};
    choir_tensor to = from;
    if (part->near) {
        to.storage = part->near;
        choir__copy_across(&to, &from);
    } else {
        choir__queue_wait_event(
            o->run->device->queue, choir__queue_record(part->device->queue));
    }
    return choir__data(&to);
}

/* Copies a span's rows to the whole model's. */
static void copy_span(
    choir_device *device, double *to, double *from, const choir__optim_span *s)
{
    choir__k_copy args = {.y = {.p = to, .stride = {s->to_step, 1}},
        .x = {.p = from, .stride = {s->from_step, 1}},
        .shape = {s->times, s->count},
        .ndim = 2,
        .y_dtype = CHOIR_F64,
        .x_dtype = CHOIR_F64};
    if (s->times > 1)
        choir__launch(device, CHOIR_F32, copy, &args);
    else
        choir__launch_bytes(device, to, from, (size_t)s->count * sizeof *from);
}

choir_status choir__optim_gather_rows(const choir_optim *o, int kinds)
{
    double **rows = choir__calloc((size_t)o->part_count, sizeof *rows);
    choir__k_fill zero = {
        .y = o->norm.rows->data, .n = kinds * o->norm.row_count, .dtype = CHOIR_F64};
    if (choir__strategies_share(o->run) && zero.n)
        choir__launch(o->run->device, CHOIR_F64, fill, &zero);
    for (int i = 0; i < o->part_count; i++)
        rows[i] = bring_rows(o, &o->parts[i], kinds);
    for (int i = 0; i < kinds * o->norm.span_count; i++) {
        const choir__optim_span *s = &o->norm.spans[i % o->norm.span_count];
        int64_t kind = i / o->norm.span_count;
        copy_span(o->run->device,
            (double *)o->norm.rows->data + kind * o->norm.row_count + s->to,
            rows[s->part] + kind * o->parts[s->part].row_count + s->from, s);
    }
    free(rows);
    return choir__strategies_sum(
        o->run, o->run->device, o->norm.rows->data, kinds * o->norm.row_count);
}

/* Copies o->norm.clip between a GPU and a processor, which cannot read each other's memory. */
static void copy_clip(const choir_optim *o, const choir__optim_part *part)
{
    choir_tensor to = *o->norm.clip;
    to.storage = part->clip;
    to.offset = 0;
    choir__copy_across(&to, o->norm.clip);
}

void choir__optim_send_clip(const choir_optim *o)
{
    choir__event done = choir__queue_record(o->run->device->queue);
    for (int i = 0; i < o->part_count; i++) {
        const choir__optim_part *part = &o->parts[i];
        if (!part->clip)
            continue;
        if (part->device->far != o->run->device->far) {
            copy_clip(o, part);
            continue;
        }
        choir__queue_wait_event(part->device->queue, done);
        choir__launch_bytes(part->device, part->clip->data, choir__data(o->norm.clip),
            CHOIR__CLIP_COUNT * sizeof(float));
    }
}

/* Sums the squares of the entries' rows, for a norm that is taken of them later. */
static void norm_run(const choir_optim *o, const choir__optim_part *part, choir_device *device,
    int first, int count, const void *unused)
{
    const choir__opt_entry *entries = part->entries->data;
    choir__k_grad_norm args = {
        .entries = entries + first, .count = count, .rows = part->rows->data};
    (void)o;
    (void)unused;
    for (int i = 0; i < first; i++)
        args.rows += part->table[i].row ? part->table[i].n / part->table[i].row : 0;
    choir__launch(device, CHOIR_F32, grad_norm, &args);
}

choir_status choir__optim_take_norm(const choir_optim *o, const float *inverse)
{
    const choir__optim_part *only =
        o->norm.rows ? NULL : &o->parts[0]; /* on the run's device */
    choir__k_grad_norm whole = {.norm = choir__data(o->norm.value),
        .clip = choir__data(o->norm.clip),
        .inverse = inverse,
        .max_norm = o->norm.most,
        .rows = only ? only->rows->data : o->norm.rows->data,
        .given = o->norm.row_count};
    if (only && !choir__optim_is_shared(o, only)) { /* one kernel does it all */
        whole.entries = only->entries->data;
        whole.count = only->entry_count;
        whole.given = 0;
        choir__storage_claim(only->rows);
        choir__launch(only->device, CHOIR_F32, grad_norm, &whole);
        return CHOIR_OK;
    }
    for (int i = 0; i < o->part_count; i++) {
        choir__storage_claim(o->parts[i].rows);
        choir__optim_share(o, &o->parts[i], norm_run, NULL);
    }
    choir_status status = only ? CHOIR_OK : choir__optim_gather_rows(o, 1);
    choir__launch(o->run->device, CHOIR_F32, grad_norm, &whole);
    if (!only)
        choir__optim_send_clip(o);
    return status;
}
