/* choir check: known answers on all cores of this machine, or of several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/text.h"
#include "cli/check/cores.h"
#include "cli/check/hosts.h"
#include "cli/machines.h"
#include "job/job.h"
#include "line/command.h"
#include "line/say.h"

static const double usual_s = 60, quick_s = 5;

typedef struct request {
    bool quick, json, answers;
    const char *burn_in, *hosts, *through;
} request;

/* --- the outcome of this machine --- */

static int faults(const choir__check *c)
{
    int count = 0;
    for (int i = 0; i < c->count; i++)
        count += c->cores[i].wrong > 0 || *c->cores[i].why;
    return count;
}

static void print_core(const choir__core *core)
{
    char name[CHOIR__ANSWER_NAME];
    if (core->wrong)
        printf(
            "core %d computes otherwise: %s of the class %s gives %016llx, not %016llx; %lld "
            "wrong answers in %lld rounds\n",
            core->cpu, choir__answer_name(core->answer, name),
            choir__check_classes[core->class], (unsigned long long)core->got,
            (unsigned long long)core->known, (long long)core->wrong, (long long)core->rounds);
    if (*core->why)
        printf("core %d: %s\n", core->cpu, core->why);
    if (core->slow)
        printf(
            "core %d is slow: a round takes %.3g ms there\n", core->cpu, 1e3 * core->round_s);
}

static void print_table(const choir__check *c)
{
    int64_t rounds = 0;
    for (int i = 0; i < CHOIR__CHECK_CLASSES; i++)
        if (*c->bits[i])
            printf("cpu, class %-6s %s%s\n", choir__check_classes[i], c->bits[i],
                c->unknown[i] ? "  no constant: no verdict" : "");
    for (int i = 0; i < c->gpu_count; i++)
        printf("%s %s  no constant: no verdict\n", c->gpus[i].device,
            *c->gpus[i].bits ? c->gpus[i].bits : "no hash");
    for (int i = 0; i < c->count; i++) {
        rounds += c->cores[i].rounds;
        print_core(&c->cores[i]);
    }
    printf("%d cores, %d answers, %lld rounds: %s\n", c->count, choir__answers(),
        (long long)rounds, faults(c) ? "there are faults" : "all as they should be");
}

/* Opens the object of a device. ok: NULL: there is no verdict. */
static void open_json(choir__text_buffer *t, const char *device, const char *bits,
    const bool *ok, const char *hash)
{
    choir__text_open(t, NULL, '{');
    choir__text_string(t, "event", "check");
    choir__text_string(t, "device", device);
    choir__text_string(t, "bits", *bits ? bits : NULL);
    choir__text_value(t, "ok", "%s", !ok ? "null" : *ok ? "true" : "false");
    choir__text_string(t, "hash", *hash ? hash : NULL);
}

/* Prints the line of a core in a class. */
static void print_core_json(const choir__check *c, const choir__core *core, int class)
{
    choir__text_buffer t = {0};
    char name[CHOIR__ANSWER_NAME], device[24];
    const int64_t wrong = core->of[class].wrong;
    const bool ok = !wrong && !*core->why, judged = !c->unknown[class] || !ok;
    snprintf(device, sizeof device, "cpu:%d", core->cpu);
    open_json(
        &t, device, choir__check_classes[class], judged ? &ok : NULL, core->of[class].hash);
    choir__text_buffer_number(&t, "seconds", core->seconds);
    choir__text_value(&t, "rounds", "%lld", (long long)core->rounds);
    choir__text_value(&t, "wrong", "%lld", (long long)wrong);
    choir__text_string(&t, "op",
        wrong && core->class == class ? choir__answer_name(core->answer, name) : NULL);
    choir__text_buffer_number(&t, "round_s", core->round_s);
    choir__text_value(&t, "slow", "%s", core->slow ? "true" : "false");
    choir__text_string(&t, "message", *core->why ? core->why : NULL);
    choir__text_finish(&t, stdout);
}

static void print_json(const choir__check *c)
{
    choir__text_buffer t = {0};
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < CHOIR__CHECK_CLASSES; k++)
            if (*c->bits[k])
                print_core_json(c, &c->cores[i], k);
    for (int i = 0; i < c->gpu_count; i++) {
        choir__text_buffer gpu = {0};
        open_json(&gpu, c->gpus[i].device, c->gpus[i].class, NULL, c->gpus[i].bits);
        choir__text_finish(&gpu, stdout);
    }
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "checked");
    choir__text_value(&t, "cores", "%d", c->count);
    choir__text_value(&t, "gpus", "%d", c->gpu_count);
    choir__text_value(&t, "answers", "%d", choir__answers());
    choir__text_value(&t, "faults", "%d", faults(c));
    choir__text_finish(&t, stdout);
}

/* Prints the answers of a class, a line each: script/known-answers makes the constants of them.
 */
static int print_answers(void)
{
    uint64_t hash;
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_status status = choir_scope_status(run);
    for (int a = 0; a < choir__answers() && status == CHOIR_OK; a++) {
        char name[CHOIR__ANSWER_NAME];
        status = choir__answer_compute(run, a, &hash);
        if (status == CHOIR_OK)
            printf("%016llx %s\n", (unsigned long long)hash, choir__answer_name(a, name));
    }
    choir_status closed = choir_scope_close(run);
    return status == CHOIR_OK && closed == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

static int check_here(double seconds, bool json)
{
    choir__check c = {0};
    if (choir__check_cores(seconds, &c) != CHOIR_OK)
        return choir__line_fail();
    if (json)
        print_json(&c);
    else
        print_table(&c);
    int bad = faults(&c);
    free(c.cores);
    return bad ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands operands;
    int parsed = choir__line_parse(command, &r, argc, argv, &operands);
    if (parsed != CHOIR__EXIT_OK)
        return parsed;
    double seconds = r.burn_in ? choir__job_seconds(r.burn_in) : r.quick ? quick_s : usual_s;
    if (seconds < 0)
        return choir__line_usage(command->name,
            "--burn-in: expected a time such as 90s, 15m, 2h or 1d, got '%s'", r.burn_in);
    if (r.quick && r.burn_in)
        return choir__line_usage(command->name, "--quick with --burn-in: choose one of them");
    if (r.answers)
        return print_answers();
    return r.hosts ? choir__check_hosts(r.hosts, r.through, seconds, r.json)
                   : check_here(seconds, r.json);
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"quick", CHOIR__FLAG, AT(quick), .help = "check for 5 seconds (default: 60)"},
    {"burn-in", CHOIR__STRING, AT(burn_in), .argument = "TIME",
        .help = "check for this time, such as 90s, 15m, 2h or 1d"},
    {"hosts", CHOIR__STRING, AT(hosts), .argument = "NAME,...",
        .help = "check these machines, all at once, in place of this one"},
    {"through", CHOIR__STRING, AT(through), .preset = CHOIR__MACHINES_THROUGH,
        .argument = "COMMAND", .help = "command that runs a command on machine {}"},
    {"answers", CHOIR__FLAG, AT(answers),
        .help = "print the answer of each op, in the class of bits of CHOIR_MATH, and end"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per core or GPU"},
    {NULL},
};

const choir__line_command choir__cli_check = {
    .name = "check",
    .summary = "find hardware that computes wrong",
    .usage = "[OPTION]...",
    .about =
        "Computes each op of `choir info --kernels`, with its gradients, on all cores at once, and "
        "compares the results with those that this release knows. A core that computes otherwise "
        "is named, with the op; so is one that is slower than others of its kind. GPUs get a hash "
        "and no verdict.",
    .example = "  choir check --quick",
    .options = options,
    .run = run,
};
