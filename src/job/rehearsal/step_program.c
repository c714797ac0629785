/* A rank's recorded step as a program for forecasts: the tasks of its devices' queues become
 * kernels, and its groups' calls collectives. */
#include <stdlib.h>
#include <string.h>

#include "comm/dry/dry.h"
#include "comm/group.h"
#include "comm/issue.h"
#include "comm/rows.h"
#include "device/dry/dry.h"
#include "device/recording_list.h"
#include "device/work.h"
#include "forecast/costs.h"
#include "job/rehearsal/rehearsal.h"
#include "tensor/run.h"

enum { MOST_QUEUES = 64 };

typedef struct recorder {
    choir__step *step;
    choir__step_program *program;
    const choir__job_rank *part;
    int devices, rank;
    double *elements; /* (devices) weights, which optimizers update */
    bool cores;       /* the job's devices are cores, on which collectives run, too */
    choir__queue *queues[MOST_QUEUES];
    /* (group_count) the step's groups that have been found: their members may be many */
    struct known_group {
        const int *ranks;
        int group;
    } * groups;
    int group_count;
} recorder;

/* Returns the number of a queue in the program, which gets it where it has not. */
static int queue_of(recorder *r, choir__queue *queue)
{
    choir__step_program *p = r->program;
    int device = -1;
    for (int q = 0; q < p->queue_count; q++)
        if (r->queues[q] == queue)
            return q;
    for (int d = 0; d < r->devices; d++)
        if (r->part->devices[d]->queue == queue)
            device = d;
    if (p->queue_count == MOST_QUEUES)
        return MOST_QUEUES - 1;
    r->queues[p->queue_count] = queue;
    /* The queue of the first device has the first core, where the groups' run as well. */
    return choir__step_add_queue(p, device, device < 0 && r->cores ? 0 : p->queue_count);
}

static void note_kernel(recorder *r, int queue, const choir__kernel_work *w)
{
    choir__step_entry *e = choir__step_add(r->program, CHOIR__ENTRY_KERNEL, queue);
    e->as.kernel.id = (int)w->id;
    e->as.kernel.flops = w->flops;
    e->as.kernel.bytes = w->bytes;
    e->as.kernel.dtype = w->dtype;
    memcpy(e->as.kernel.dims, w->dims, sizeof e->as.kernel.dims);
}

/* Returns the step's group of an engine's ranks. */
static int group_of(recorder *r, const int *ranks, int world)
{
    for (int g = 0; g < r->group_count; g++)
        if (r->groups[g].ranks == ranks)
            return r->groups[g].group;
    const int group = choir__step_group_by(r->step, ranks, world);
    CHOIR__GROW(r->groups, r->group_count);
    r->groups[r->group_count++] = (struct known_group){ranks, group};
    return group;
}

/* Writes the collective that carries out a call, as engines without rows would. */
static void note_call(recorder *r, int queue, const choir_group *group, const choir__call *call)
{
    const choir__stamp *s = &call->stamp;
    const choir__engine *engine = group->engine;
    const int *ranks = choir__dry_members(engine);
    const int world = engine->world;
    choir__kind kind = (choir__kind)s->kind;
    int64_t count = (int64_t)s->count;
    if (world == 1 || kind == CHOIR__SHARE)
        return;
    choir__step_entry *e = choir__step_add(r->program, CHOIR__ENTRY_COLLECTIVE, queue);
    const bool message = kind == CHOIR__SEND || kind == CHOIR__RECEIVE;
    if (kind == CHOIR__TREE_SCATTER || kind == CHOIR__GATHER_ROWS)
        count = (count + world - 1) / world;
    kind = kind == CHOIR__TREE_SCATTER  ? CHOIR__REDUCE_SCATTER
           : kind == CHOIR__GATHER_ROWS ? CHOIR__ALL_GATHER
                                        : kind;
    e->as.collective.kind = kind;
    e->as.collective.algorithm = (choir__algorithm)s->algorithm;
    e->as.collective.dtype = (choir_dtype)s->dtype;
    e->as.collective.count = count;
    e->as.collective.leaves = kind == CHOIR__TREE_REDUCE ? s->leaves : 0;
    e->as.collective.group = group_of(r, ranks, world);
    if (message)
        e->as.collective.root = ranks[s->peer] - r->rank;
    else if (kind != CHOIR__TREE_REDUCE)
        e->as.collective.root = s->root;
}

static void note_task(recorder *r, const choir__recording *list, const entry *e)
{
    const void *args = list->args + e->args_at;
    const int queue = queue_of(r, e->queue);
    choir_group *group;
    int count;
    const choir__call *calls = choir__group_calls_of(e->as.fn, args, &group, &count);
    for (int i = 0; calls && i < count; i++)
        note_call(r, queue, group, &calls[i]);
    if (calls || r->program->queues[queue].device < 0)
        return;
    const choir__kernel_id id = choir__kernel_of(r->part->devices[0], e->as.fn);
    if (id == CHOIR__KERNEL_COUNT)
        return;
    choir__kernel_work work = choir__kernel_work_by(id, args);
    if (choir__optimizer_bytes((int)id, 1) > 0) {
        work.bytes =
            choir__optimizer_bytes((int)id, r->elements[r->program->queues[queue].device]);
        memset(work.dims, 0, sizeof work.dims);
    }
    note_kernel(r, queue, &work);
}

static void note(recorder *r, const choir__recording *list, const entry *e)
{
    choir__step_program *p = r->program;
    int to;
    switch (e->kind) {
    case TASK: note_task(r, list, e); break;
    case EVENT:
    case WAIT:
        choir__step_add(
            p, e->kind == EVENT ? CHOIR__ENTRY_EVENT : CHOIR__ENTRY_WAIT, queue_of(r, e->queue))
            ->as.event = e->as.event;
        break;
    case MOVED:
        to = queue_of(r, e->queue);
        choir__step_entry *copy = choir__step_add(p, CHOIR__ENTRY_COPY, to);
        copy->as.copy.from = queue_of(r, e->as.moved.from);
        copy->as.copy.bytes = (double)e->as.moved.bytes;
        break;
    case HOST: break; /* the host's own work is in the time of a step */
    }
}

_Static_assert((int)CHOIR__STEP_HELD == (int)CHOIR__DRY_KINDS, "kinds of memory in a step");

/* Gives each kernel of the first device the memory that the device noted at its launch. */
static void take_memory(recorder *r)
{
    choir__step_program *p = r->program;
    int64_t count, at = 0;
    const choir__dry_moment *m = choir__dry_moments(r->part->devices[0], &count);
    if (!count || !p->entry_count)
        return;
    p->held = choir__calloc((size_t)p->entry_count * CHOIR__STEP_HELD, sizeof *p->held);
    for (int64_t i = 0; i < p->entry_count && at < count; i++) {
        const choir__step_entry *e = &p->entries[i];
        if (e->kind != CHOIR__ENTRY_KERNEL || p->queues[e->queue].device != 0)
            continue;
        int64_t *held = p->held + i * CHOIR__STEP_HELD;
        for (int k = 0; k < CHOIR__STEP_HELD; k++)
            held[k] = (int64_t)m[at].of[k];
        at++;
    }
}

void choir__rehearsal_record(choir__rehearsal *r, const choir__job_rank *part)
{
    const choir__recording *list = choir__step_recording(part->run);
    recorder to = {.step = &r->step,
        .program = &r->step.programs[r->class_of[part->env.rank]],
        .part = part,
        .devices = r->each,
        .rank = part->env.rank,
        .cores = strncmp(r->devices[0].name, "cpu", 3) == 0};
    if (!list)
        return;
    to.program->event_count = list->event_count;
    for (int d = 0; d < to.devices; d++) /* first, so that they have the cores' numbers */
        queue_of(&to, part->devices[d]->queue);
    to.elements = choir__calloc((size_t)to.devices, sizeof *to.elements);
    for (int d = 0; d < to.devices; d++) {
        choir_dry_counts counts;
        if (choir_dry_count(part->devices[d], &counts) == CHOIR_OK)
            to.elements[d] = (double)counts.peak_weights / sizeof(float);
    }
    for (int i = 0; i < list->count; i++)
        note(&to, list, &list->entries[i]);
    if (r->holds)
        take_memory(&to);
    free(to.groups);
    free(to.elements);
}
