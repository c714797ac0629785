/* ddp: a process a device, each with the model, in lockstep. */
#include <string.h>

#include <choir/ddp_hook.h>
#include <choir/sync_batch_norm.h>

#include "base/options.h"
#include "cli/job.h"
#include "comm/call.h"

static choir_status check_hook(const choir__strategy_options *o, int64_t rank, int64_t start)
{
    bool power = !strcmp(o->hook, "powersgd");
    if (*o->hook && !power && strcmp(o->hook, "bf16") && strcmp(o->hook, "f16"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "strategy ddp: there is no hook '%s'; there are bf16, f16, powersgd", o->hook);
    if ((rank || start >= 0) && !power)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "strategy ddp: %s is an option of hook=powersgd", rank ? "rank" : "start_step");
    return CHOIR_OK;
}

static choir_status parse(const char *text, choir__strategy_options *o)
{
    int64_t rank = 0, start = -1;
    o->ddp = choir_ddp_defaults();
    o->powersgd = choir_powersgd_defaults();
    choir__option known[] = {{"bucket_cap_mb", CHOIR__FLOAT, &o->ddp.bucket_cap_mb, 1e-6, 1e6},
        {"first_bucket_mb", CHOIR__FLOAT, &o->ddp.first_bucket_mb, 1e-6, 1e6},
        {"algorithm", CHOIR__WORD, o->algorithm, 0, 0},
        {"find_unused", CHOIR__FLAG, &o->ddp.find_unused_parameters, 0, 0},
        {"static_graph", CHOIR__FLAG, &o->ddp.static_graph, 0, 0},
        {"delay_allreduce", CHOIR__FLAG, &o->ddp.delay_allreduce, 0, 0},
        {"sync_bn", CHOIR__FLAG, &o->sync_bn, 0, 0}, {"hook", CHOIR__WORD, o->hook, 0, 0},
        {"rank", CHOIR__INT, &rank, 1, 1024}, {"start_step", CHOIR__INT, &start, 0, 1e15},
        {NULL}};
    choir__algorithm algorithm;
    choir_status status = choir__options_parse(text, "strategy ddp", known);
    if (status == CHOIR_OK && *o->algorithm)
        status = choir__algorithm_parse(o->algorithm, &algorithm);
    if (status == CHOIR_OK)
        status = check_hook(o, rank, start);
    if (rank)
        o->powersgd.rank = (int)rank;
    if (start >= 0)
        o->powersgd.start_step = start;
    return status;
}

static choir_status build(choir__cli_part *p)
{
    const choir__strategy_options *o = &p->job->strategy_options;
    choir_ddp_opts opts = o->ddp;
    opts.algorithm = *o->algorithm ? o->algorithm : NULL;
    if (o->sync_bn)
        choir_sync_batch_norm(p->run, p->net, p->along);
    p->model = choir_ddp(p->run, p->model, p->along, opts);
    if (!strcmp(o->hook, "bf16"))
        return choir_ddp_set_hook(p->model, choir_ddp_bf16_compress, NULL);
    if (!strcmp(o->hook, "f16"))
        return choir_ddp_set_hook(p->model, choir_ddp_f16_compress, NULL);
    if (!strcmp(o->hook, "powersgd"))
        return choir_ddp_powersgd(p->model, o->powersgd);
    return CHOIR_OK; /* errors stick to the run */
}

const choir__cli_strategy choir__strategy_ddp = {
    .name = "ddp",
    .options = "[:bucket_cap_mb=25,first_bucket_mb=1,algorithm=exchange,sync_bn=0,"
               "find_unused=0,static_graph=0,delay_allreduce=0,hook=bf16|f16|powersgd,"
               "rank=1,start_step=1000]",
    .help = "a process a device, gradients averaged while backward runs",
    .dimension = "data",
    .spread = CHOIR__DEVICE_A_RANK,
    .parse = parse,
    .micro_each = 1,
    .build = build,
    .step = choir__strategy_plain_step,
};
