/* The update: the rule's kernel on each device that has parameters, for all of them at once. In
 * data parallelism other devices take a share (share.c): rules work element by element, so the
 * bits equal one device's. Rules that read whole matrices are in matrices.c. */
#include "optim/optim.h"
#include "tensor/launch.h"

static choir__k_optim part_args(
    const choir_optim *o, const choir__optim_part *part, bool scaled)
{
    choir__k_optim args = {.entries = part->entries->data,
        .count = part->entry_count,
        .hyper = part->hyper->data,
        .rows = part->rows->data,
        .coded = o->rule.coded};
    if (o->norm.value)
        args.clip = choir__optim_clip_of(o, part) + CHOIR__CLIP_FACTOR;
    if (scaled)
        args.found = choir__optim_clip_of(o, part) + CHOIR__CLIP_FOUND;
    return args;
}

static void launch_kernel(
    const choir_optim *o, choir_device *device, const choir__k_optim *args)
{
    switch (o->rule.kind) {
    case CHOIR__SGD: choir__launch(device, CHOIR_F32, sgd, args); break;
    case CHOIR__ADAM: choir__launch(device, CHOIR_F32, adam, args); break;
    case CHOIR__LAMB: choir__launch(device, CHOIR_F32, lamb, args); break;
    case CHOIR__LION: choir__launch(device, CHOIR_F32, lion, args); break;
    case CHOIR__RMSPROP: choir__launch(device, CHOIR_F32, rmsprop, args); break;
    case CHOIR__ADAFACTOR: break; /* matrices.c */
    case CHOIR__MUON: choir__launch(device, CHOIR_F32, adam, args); break;
    }
}

static void update_run(const choir_optim *o, const choir__optim_part *part,
    choir_device *device, int first, int count, const void *whole)
{
    choir__k_optim args = *(const choir__k_optim *)whole;
    (void)part;
    args.entries += first;
    args.count = count;
    launch_kernel(o, device, &args);
}

/* --- parts --- */

/* Launches the update of a part. With state in a file it goes run by run, except for LAMB,
 * whose norms cover all entries. */
static void launch_part(const choir_optim *o, const choir__optim_part *part, bool scaled)
{
    choir__k_optim args = part_args(o, part, scaled);
    choir__storage_claim(part->rows); /* the norm's rows, which other devices may still read */
    if (o->rule.kind == CHOIR__LAMB) {
        launch_kernel(o, part->device, &args);
        return;
    }
    if (!choir__offload_runs(o)) {
        choir__optim_share(o, part, update_run, &args);
        return;
    }
    const choir__opt_entry *entries = args.entries;
    for (int first = 0, n; first < part->entry_count; first += n) {
        n = choir__offload_run(part, first);
        args.entries = entries + first;
        args.count = n;
        launch_kernel(o, part->device, &args);
        choir__offload_let_go(o, part, first, n);
    }
}

/* LAMB if ranks have parts of parameters: |p| and |u| are norms of whole parameters. */
static choir_status launch_lamb(const choir_optim *o, bool scaled)
{
    for (int i = 0; i < o->part_count; i++) {
        choir__k_lamb measure = part_args(o, &o->parts[i], scaled);
        choir__storage_claim(o->parts[i].rows);
        measure.part = CHOIR__LAMB_MEASURE;
        choir__launch(o->parts[i].device, CHOIR_F32, lamb, &measure);
    }
    choir_status status = choir__optim_gather_rows(o, 2);
    for (int i = 0; i < o->part_count; i++) {
        choir__k_lamb step = part_args(o, &o->parts[i], scaled);
        step.part = CHOIR__LAMB_STEP;
        step.rows = o->norm.rows->data;
        step.whole_rows = o->norm.row_count;
        choir__queue_wait_event(
            o->parts[i].device->queue, choir__queue_record(o->run->device->queue));
        choir__launch(o->parts[i].device, CHOIR_F32, lamb, &step);
    }
    return status;
}

choir_status choir__optim_update(choir_optim *o, bool scaled)
{
    if (o->rule.kind == CHOIR__LAMB && choir__strategies_share(o->run))
        return launch_lamb(o, scaled);
    for (int i = 0; i < o->part_count; i++)
        launch_part(o, &o->parts[i], scaled);
    return o->rule.kind == CHOIR__ADAFACTOR || o->rule.kind == CHOIR__MUON
               ? choir__optim_step_matrices(o, scaled)
               : CHOIR_OK;
}
