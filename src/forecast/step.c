/* Builds recorded steps (step.h): programs, their queues and entries, and groups; equal
 * groups are stored once. A finished step is checked as a whole, so that replays need no
 * checks. */
#include "forecast/step.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int choir__step_program_of(const choir__step *step, int64_t rank)
{
    if (step->program_of)
        return step->program_of[rank];
    int low = 0, high = step->program_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (step->programs[middle].first <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

choir__step_program *choir__step_add_program(choir__step *step, int64_t first, int64_t ranks)
{
    CHOIR__GROW(step->programs, step->program_count);
    choir__step_program *p = &step->programs[step->program_count++];
    *p = (choir__step_program){.first = first, .ranks = ranks};
    return p;
}

int choir__step_add_queue(choir__step_program *program, int device, int runner)
{
    CHOIR__GROW(program->queues, program->queue_count);
    program->queues[program->queue_count] = (choir__step_queue){device, runner};
    return program->queue_count++;
}

choir__step_entry *choir__step_add(
    choir__step_program *program, choir__step_kind kind, int queue)
{
    CHOIR__GROW(program->entries, program->entry_count);
    choir__step_entry *e = &program->entries[program->entry_count++];
    memset(e, 0, sizeof *e);
    e->kind = kind;
    e->queue = queue;
    return e;
}

int choir__step_group_of(choir__step *step, int64_t size, int64_t stride)
{
    for (int g = 0; g < step->group_count; g++)
        if (step->groups[g].size == size && step->groups[g].stride == stride &&
            !step->groups[g].ranks)
            return g;
    CHOIR__GROW(step->groups, step->group_count);
    step->groups[step->group_count] = (choir__step_group){size, stride, NULL};
    return step->group_count++;
}

/* Returns whether ranks are a group of a mesh's dimension, with this stride. */
static bool are_spaced(const int *ranks, int64_t size, int64_t stride)
{
    const int64_t reach = stride * size;
    for (int64_t i = 0; i < size; i++)
        if (ranks[i] != ranks[0] / reach * reach + ranks[0] % stride + i * stride)
            return false;
    return true;
}

int choir__step_group_by(choir__step *step, const int *ranks, int64_t size)
{
    const int64_t stride = size > 1 && ranks[1] > ranks[0] ? ranks[1] - ranks[0] : 1;
    const size_t bytes = (size_t)size * sizeof *ranks;
    if (are_spaced(ranks, size, stride))
        return choir__step_group_of(step, size, stride);
    for (int g = 0; g < step->group_count; g++)
        if (step->groups[g].size == size && step->groups[g].ranks &&
            !memcmp(step->groups[g].ranks, ranks, bytes))
            return g;
    CHOIR__GROW(step->groups, step->group_count);
    int *list = memcpy(choir__alloc(bytes), ranks, bytes);
    step->groups[step->group_count] = (choir__step_group){size, 1, list};
    return step->group_count++;
}

void choir__step_free(choir__step *step)
{
    for (int p = 0; p < step->program_count; p++) {
        free(step->programs[p].held);
        free(step->programs[p].entries);
        free(step->programs[p].queues);
    }
    free(step->programs);
    free(step->program_of);
    for (int g = 0; g < step->group_count; g++)
        free(step->groups[g].ranks);
    free(step->groups);
    *step = (choir__step){0};
}

/* --- checks --- */

static choir_status wrong(int program, int64_t entry, const char *what, int got, int most)
{
    return choir__error(CHOIR_ERR_ARGUMENT,
        "step: entry %lld of program %d: expected %s below %d, got %d", (long long)entry,
        program, what, most, got);
}

static choir_status check_queues(int program, const choir__step_program *p)
{
    for (int q = 0; q < p->queue_count; q++)
        if (p->queues[q].runner < 0 || p->queues[q].runner >= p->queue_count)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "step: queue %d of program %d: expected a runner below %d, got %d", q, program,
                p->queue_count, p->queues[q].runner);
    return CHOIR_OK;
}

static choir_status check_entry(
    const choir__step *s, int program, int64_t at, bool *recorded, int events)
{
    const choir__step_program *p = &s->programs[program];
    const choir__step_entry *e = &p->entries[at];
    if (e->queue < 0 || e->queue >= p->queue_count)
        return wrong(program, at, "a queue", e->queue, p->queue_count);
    if (e->kind == CHOIR__ENTRY_COLLECTIVE &&
        (e->as.collective.group < 0 || e->as.collective.group >= s->group_count))
        return wrong(program, at, "a group", e->as.collective.group, s->group_count);
    if (e->kind != CHOIR__ENTRY_EVENT && e->kind != CHOIR__ENTRY_WAIT)
        return CHOIR_OK;
    if (e->as.event < 0 || e->as.event >= events)
        return wrong(program, at, "an event", e->as.event, events);
    if (e->kind == CHOIR__ENTRY_WAIT && !recorded[e->as.event])
        return choir__error(CHOIR_ERR_ARGUMENT,
            "step: entry %lld of program %d waits for event %d, which is not recorded before",
            (long long)at, program, e->as.event);
    recorded[e->as.event] = true;
    return CHOIR_OK;
}

choir_status choir__step_check(const choir__step *step)
{
    choir_status status = CHOIR_OK;
    int64_t ranks = 0;
    for (int i = 0; i < step->program_count && !status; i++) {
        const choir__step_program *p = &step->programs[i];
        bool *recorded = choir__calloc((size_t)p->event_count + 1, sizeof *recorded);
        status = check_queues(i, p);
        for (int64_t e = 0; e < p->entry_count && !status; e++)
            status = check_entry(step, i, e, recorded, p->event_count);
        free(recorded);
        ranks += p->ranks;
    }
    if (!status && (!step->program_count || ranks != step->world))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "step: expected programs for its %lld ranks, got some for %lld",
            (long long)step->world, (long long)ranks);
    return status;
}
