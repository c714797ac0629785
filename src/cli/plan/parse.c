/* The options of choir plan: its own, and all of choir train. */
#include "cli/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/choices.h"
#include "job/document/document.h"

#define AT(member) CHOIR__LINE_AT(choir__planning, member)

const choir__line_option choir__plan_options[] = {
    {"strategies", CHOIR__STRING, AT(strategies), .argument = "LIST",
        .help = "strategies to plan, with their keys and compositions as --strategy takes them "
                "(default: --strategy, or all that the devices allow)",
        .choices = choir__job_strategy_names},
    {"memory", CHOIR__BYTES, AT(memory), 1, 0x1p63, .argument = "BYTES",
        .help =
            "memory of the machine, or of each node of a cluster of CPUs, which its devices share "
            "(default: this machine's, as far as its control groups allow; a node's: its "
            "devices' memory_bytes)"},
    {"cluster", CHOIR__STRING, AT(cluster), .argument = "FILE",
        .help = "time the steps on this cluster, described in JSON (default: this machine)"},
    {"items", CHOIR__FLOAT, AT(items), 1, 1e18, .argument = "N",
        .help =
            "tell time and cost of a training on this number of tokens, or samples, as in 1e9 "
            "(default: the job's)"},
    {"price", CHOIR__FLOAT, AT(price), 0, 1e9, .argument = "P",
        .help = "price of a device per hour (default: the cluster's)"},
    {"plot", CHOIR__STRING, AT(plot), .argument = "FILE",
        .help =
            "draw the memory and the timeline of a step of the advised strategy (.svg, .png)"},
    {"calibrate", CHOIR__FLAG, AT(calibrate),
        .help = "measure this machine's kernels and messages, for the times of later plans"},
    {"json", CHOIR__FLAG, AT(job.records.json),
        .help = "print one JSON object per strategy, and last the advice"},
    {NULL},
};

/* Notes the words of the command line that train takes, too. */
int choir__plan_took(void *values, const choir__line_option *o, const char *text)
{
    choir__planning *p = values;
    for (const choir__line_option *own = choir__plan_options; own->name; own++)
        if (own == o)
            return CHOIR__EXIT_OK;
    if (choir__job_took(&p->job, o, text) != CHOIR_OK)
        return choir__line_refuse("plan", true);
    if (p->args && !o->advised)
        p->args[p->arg_count++] = choir__line_word(o, text);
    return CHOIR__EXIT_OK;
}

/* Takes DATA, or a job file, behind which other data may be named. */
static int take_operands(choir__planning *p, const choir__line_operands *given)
{
    bool file = given->count && choir__job_is_file(given->words[0]);
    if (given->count > 1 && !file)
        return choir__line_usage("plan", "unexpected argument '%s'", given->words[1]);
    p->job.data.path = given->count > file ? given->words[file] : NULL;
    for (int i = 0; i < given->count && p->args; i++)
        p->args[p->arg_count++] = choir__strdup(given->words[i]);
    return file && choir__job_read_file(&p->job, given->words[0]) != CHOIR_OK
               ? choir__line_refuse("plan", true)
               : CHOIR__EXIT_OK;
}

int choir__plan_parse(
    const choir__line_command *command, choir__planning *p, int argc, char **argv)
{
    choir__line_operands operands;
    p->command = command;
    p->job = choir__job_new(command->name);
    p->job.placement.imagined = true;
    int status = choir__line_parse(command, p, argc, argv, &operands);
    return status == CHOIR__EXIT_OK ? take_operands(p, &operands) : status;
}

int choir__plan_parse_again(const choir__planning *p, choir__planning *copy)
{
    char **argv = choir__alloc(((size_t)p->argc + 1) * sizeof *argv);
    memcpy(argv, p->argv, ((size_t)p->argc + 1) * sizeof *argv);
    *copy = (choir__planning){0};
    int status = choir__plan_parse(p->command, copy, p->argc, argv);
    free(argv);
    return status;
}
