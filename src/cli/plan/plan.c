/* choir plan: which strategy fits, and which is the fastest, before anything is launched.
 *
 * The job of each strategy is rehearsed (job/rehearsal): its own program runs on devices that
 * compute nothing, so the bytes are those that choir train prints. */
#include "cli/plan/plan.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/usable.h"
#include "line/gnuplot.h"
#include "line/say.h"

enum { KEPT = 32 << 20 }; /* bytes that are not given back to the system */

static bool can_none_run(const choir__planning *p)
{
    bool none = true;
    for (int i = 0; i < p->count; i++)
        none = none && !p->entries[i].planned;
    return none;
}

/* Returns whether all strategies fail with one sentence: it is about the job. */
static bool is_the_job_wrong(const choir__planning *p)
{
    bool wrong = p->count > 0;
    for (int i = 0; i < p->count; i++)
        wrong = wrong && !p->entries[i].planned &&
                !strcmp(p->entries[i].error, p->entries[0].error);
    return wrong;
}

/* Sets the memory, unless --memory does: this machine's, or the memory of the devices of a
 * cluster's node. */
static void find_memory(choir__planning *p)
{
    const choir__cluster *place = &p->machine.place;
    if (p->memory)
        return;
    p->memory = choir__plan_has_nodes(p) ? place->devices_per_node * place->device.memory_bytes
                                         : (int64_t)choir__usable_memory("");
}

/* Returns the exit status. A strategy that cannot run is left out, unless the user asks for it
 * or no other runs. */
static int plan(choir__planning *p)
{
    int status = CHOIR__EXIT_OK;
    if (p->calibrate && p->cluster)
        return choir__line_usage("plan",
            "--calibrate measures this machine, and --cluster %s describes another: expected one "
            "of them",
            p->cluster);
    if (p->calibrate)
        return choir__plan_calibrate(p);
    if (p->plot && choir__gnuplot_check("--plot", p->plot) != CHOIR_OK)
        return choir__line_refuse("plan", true);
    if (p->cluster && choir__machine_find(p->cluster, "", &p->machine) != CHOIR_OK)
        return choir__line_fail();
    if (choir__plan_list(p) != CHOIR_OK)
        return choir__line_refuse("plan", true);
    if (!p->cluster &&
        choir__machine_find(NULL, p->job.placement.device_names[0], &p->machine) != CHOIR_OK)
        return choir__line_fail();
    choir__machine_extend(&p->machine, p->job.placement.device_count);
    find_memory(p);
    for (int i = 0; i < p->count; i++)
        choir__plan_foresee(p, &p->entries[i]);
    if (is_the_job_wrong(p))
        return choir__line_usage("plan", "%s", p->entries[0].error);
    choir__plan_mend(p);
    choir__plan_other_cut(p);
    (p->job.records.json ? choir__plan_json : choir__plan_table)(p);
    const choir__plan_entry *best = choir__plan_best(p);
    if (p->plot && best && choir__plan_plot(p, best) != CHOIR_OK)
        return choir__line_fail();
    for (int i = 0; i < p->count; i++)
        if (!p->entries[i].planned && (p->strategies || can_none_run(p))) {
            choir__line_tell(
                "plan", "strategy %s: %s", p->entries[i].text, p->entries[i].error);
            status = CHOIR__EXIT_FAILED;
        }
    return choir__line_flush() == CHOIR_OK ? status : choir__line_fail();
}

static void free_plan(choir__planning *p)
{
    for (int i = 0; i < p->count; i++)
        choir__rehearsal_free(&p->entries[i].rehearsal);
    for (int i = 0; i < p->arg_count; i++)
        free(p->args[i]);
    free(p->args);
    free(p->entries);
    free(p->other);
    free(p->other_command);
    for (int i = 0; i < p->remedy_count; i++) {
        free(p->remedies[i].words);
        free(p->remedies[i].command);
    }
    free(p->remedies);
    choir__machine_free(&p->machine);
    choir__job_free(&p->job);
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__planning p = {.argc = argc};
    mallopt(M_ARENA_MAX, 1); /* ranks are threads that take turns: one heap will do */
    /* the next rehearsal needs as much memory as the last one */
    mallopt(M_MMAP_THRESHOLD, KEPT);
    mallopt(M_TRIM_THRESHOLD, KEPT);
    p.argv = choir__alloc(((size_t)argc + 1) * sizeof *p.argv);
    memcpy(p.argv, argv, ((size_t)argc + 1) * sizeof *p.argv);
    p.args = choir__calloc((size_t)argc + 1, sizeof *p.args);
    int status = choir__plan_parse(command, &p, argc, argv);
    if (status == CHOIR__EXIT_OK)
        status = plan(&p);
    free_plan(&p);
    free(p.argv);
    return status;
}

const choir__line_command choir__cli_plan = {
    .name = "plan",
    .summary = "which strategy fits and is the fastest, before anything is launched",
    .usage = "[OPTION]... [DATA]\n[OPTION]... JOB.json [DATA]",
    .about =
        "Plans a job of choir train: for each strategy the memory of each device, to the byte, "
        "whether it fits, and the strategy to take, with its command line. The job's own program "
        "runs for it, on devices that compute nothing and take no memory, so a model that fits on "
        "no machine can be planned.",
    .example_title = "what fits on four cores",
    .example = "  choir plan --model gpt2 --devices cpu:0-3 --batch-size 16 random",
    .options = choir__plan_options,
    .inherited = choir__job_options,
    .inherited_at = offsetof(choir__planning, job),
    .inherits_all = true,
    .operand = "DATA",
    .most = 2,
    .took = choir__plan_took,
    .run = run,
};
