/* diloco and local-sgd: a process a device, each of which trains a model of its own; every so
 * many steps they meet. */
#include <choir/diloco.h>

#include <string.h>

#include "base/options.h"
#include "cli/job.h"
#include "parallel/diloco/diloco.h"

enum { MOST_STEPS = 1000000000 };

static choir_status parse_diloco(const char *text, choir__strategy_options *o)
{
    double lr = 0.7, momentum = 0.9;
    char wire[64] = "f32";
    o->diloco = choir_diloco_defaults();
    choir__option known[] = {{"every", CHOIR__INT, &o->diloco.every, 1, MOST_STEPS},
        {"outer_lr", CHOIR__FLOAT, &lr, 1e-6, 1e3},
        {"momentum", CHOIR__FLOAT, &momentum, 0, 0.999999},
        {"nesterov", CHOIR__FLAG, &o->diloco.nesterov, 0, 0}, {"wire", CHOIR__WORD, wire, 0, 0},
        {NULL}};
    choir_status status = choir__options_parse(text, "strategy diloco", known);
    if (status == CHOIR_OK && strcmp(wire, "f32") && strcmp(wire, "bf16"))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "strategy diloco: wire=%s; f32 or bf16 is wanted", wire);
    o->diloco.outer_lr = (float)lr;
    o->diloco.momentum = (float)momentum;
    o->diloco.wire = strcmp(wire, "bf16") ? CHOIR_F32 : CHOIR_BF16;
    return status;
}

static choir_status build_diloco(choir__cli_part *p)
{
    p->model = choir_diloco(p->run, p->net, p->env.group, p->job->strategy_options.diloco);
    return CHOIR_OK; /* errors stick to the run */
}

static choir_status parse_local_sgd(const char *text, choir__strategy_options *o)
{
    o->local_sgd = choir_local_sgd_defaults();
    choir__option known[] = {{"every", CHOIR__INT, &o->local_sgd.every, 1, MOST_STEPS},
        {"warmup", CHOIR__INT, &o->local_sgd.warmup, 0, MOST_STEPS},
        {"node_every", CHOIR__INT, &o->local_sgd.near_every, 1, MOST_STEPS}, {NULL}};
    return choir__options_parse(text, "strategy local-sgd", known);
}

static choir_status build_local_sgd(choir__cli_part *p)
{
    choir_local_sgd_opts opts = p->job->strategy_options.local_sgd;
    choir_status status = CHOIR_OK;
    if (opts.near_every) {
        status = choir_group_split(
            p->env.group, choir_group_node(p->env.group, -1), p->env.rank, &p->subgroup);
        opts.near = p->subgroup;
    }
    if (status == CHOIR_OK)
        p->model = choir_local_sgd(p->run, p->net, p->env.group, opts);
    return status; /* other errors stick to the run */
}

static bool together(const choir__cli_part *p)
{
    return choir_steps_apart(p->model) == 0;
}

static choir_status meet(choir__cli_part *p)
{
    choir_status status = choir_meet(p->model);
    return status == CHOIR_OK ? choir_device_sync(p->run->device) : status;
}

static choir_status resumed(choir__cli_part *p)
{
    return choir__worker_resume(p->model, (int64_t)choir__run_of(p->run)->next_step);
}

const choir__cli_strategy choir__strategy_diloco = {
    .name = "diloco",
    .options = "[:every=50,outer_lr=0.7,momentum=0.9,nesterov=1,wire=f32]",
    .help = "a process a device by itself; now and then they meet",
    .spread = CHOIR__DEVICE_A_RANK,
    .parse = parse_diloco,
    .micro_each = 1,
    .build = build_diloco,
    .step = choir__strategy_plain_step,
    .meet = meet,
    .together = together,
    .resumed = resumed,
};

const choir__cli_strategy choir__strategy_local_sgd = {
    .name = "local-sgd",
    .options = "[:every=50,warmup=0,node_every=STEPS]",
    .help = "the same; weights are averaged where they meet",
    .spread = CHOIR__DEVICE_A_RANK,
    .parse = parse_local_sgd,
    .micro_each = 1,
    .build = build_local_sgd,
    .step = choir__strategy_plain_step,
    .meet = meet,
    .together = together,
    .resumed = resumed,
};
