/* The ranks in view as JSON for the page: jobs with their ranks, devices, memory and current
 * calls, the newest collectives that the training's thread waits for, the slowest rank, and
 * machines in trouble. The numbers of calls and processes are bounded. */
#include "cli/watch/board.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "record/json_value.h"

enum { MOST_CALLS = 24, MOST_PROCESSES = 256 };

typedef struct call_at {
    const choir__seen_call *call;
    bool kept;
} call_at;

static int newest_first(const void *a, const void *b)
{
    double x = ((const call_at *)a)->call->begun, y = ((const call_at *)b)->call->begun;
    return (x < y) - (x > y);
}

/* The newest collectives of all groups for which the training's thread waits. */
static json_t *calls_of(const choir__seen *seen)
{
    call_at *all = NULL;
    int count = 0;
    json_t *calls = json_array();
    for (int g = 0; g < seen->group_count; g++)
        count += seen->groups[g].aside ? 0 : seen->groups[g].count;
    all = choir__calloc((size_t)count + 1, sizeof *all);
    count = 0;
    for (int g = 0; g < seen->group_count; g++)
        for (int i = 0; i < seen->groups[g].count && !seen->groups[g].aside; i++)
            all[count++].call = &seen->groups[g].calls[i];
    qsort(all, (size_t)count, sizeof *all, newest_first);
    for (int i = 0; i < count && i < MOST_CALLS; i++) {
        const choir__seen_call *c = all[i].call;
        double end = c->ended > 0 ? c->ended : seen->at;
        json_array_append_new(
            calls, json_pack("[s, f, f, b]", choir__kind_name((choir__kind)c->stamp.kind),
                       seen->at - c->begun, end - c->begun, c->ended > 0));
    }
    free(all);
    return calls;
}

static json_t *rank_of(const choir__seen *seen, const choir__seen *earlier)
{
    char doing[400];
    json_t *devices = json_array();
    choir__looks_doing(seen, doing, sizeof doing);
    for (int i = 0; i < seen->device_count; i++) {
        const choir__seen_device *d = &seen->devices[i];
        json_array_append_new(
            devices, json_pack("{s:o, s:I, s:I, s:I, s:f, s:I}", "device",
                         choir__json_string(d->name), "bytes", (json_int_t)d->now, "peak",
                         (json_int_t)d->peak, "limit", (json_int_t)d->limit, "busy",
                         choir__seen_busy(seen, earlier, i), "queue", (json_int_t)d->queued));
    }
    return json_pack("{s:i, s:i, s:o, s:I, s:o, s:o, s:o}", "rank", seen->who.rank, "pid",
        seen->pid, "host", choir__json_string(seen->who.host), "steps",
        (json_int_t)seen->who.steps, "doing", choir__json_string(doing), "devices", devices,
        "calls", calls_of(seen));
}

static json_t *job_of(const choir__ranks_view *view, int from)
{
    const choir__seen *first = view->now.seen[from];
    char job[24] = "";
    if (first->who.job)
        snprintf(job, sizeof job, "%08" PRIx64, first->who.job >> 32);
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:o, s:o, s:f, s:[]}", "job", job, "world",
        first->who.world, "generation", first->who.generation, "machines",
        choir__view_machines(view, from), "command",
        choir__json_string(*first->command ? first->command : first->who.program), "host",
        choir__json_string(first->who.host), "age_s", first->at - first->who.started, "ranks");
    choir__slow_rank slow = choir__looks_slow(&view->now, from, &view->before);
    if (slow.rank >= 0)
        json_object_set_new(o, "slow",
            json_pack("{s:i, s:f, s:f}", "rank", slow.rank, "share", slow.share, "per_step_s",
                slow.per_step));
    return o;
}

static json_t *troubles_of(const choir__machines *machines)
{
    char text[CHOIR__TROUBLE_TEXT];
    json_t *all = json_array();
    for (int i = 0; machines && choir__machines_trouble(machines, i, text); i++)
        if (*text)
            json_array_append_new(all, choir__json_string(text));
    return all;
}

void choir__watch_ranks(const choir__ranks_view *view, choir__text *json)
{
    const choir__looks *now = &view->now;
    json_t *root = json_pack("{s:[], s:o}", "jobs", "troubles", troubles_of(view->machines)),
           *jobs = json_object_get(root, "jobs"), *job = NULL;
    for (int i = 0; i < now->count && i < MOST_PROCESSES; i++) {
        const choir__seen *seen = now->seen[i];
        bool new_job = !i || !seen->who.job || seen->who.job != now->seen[i - 1]->who.job;
        if (new_job) {
            job = job_of(view, i);
            json_array_append_new(jobs, job);
        }
        json_array_append_new(json_object_get(job, "ranks"),
            rank_of(seen, choir__looks_earlier(&view->before, seen)));
    }
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    choir__text_put(json, text);
    free(text);
    json_decref(root);
}
