/* ddp: a process a device, each with the model, in lockstep. */
#include <choir/ddp.h>
#include <choir/sync_batch_norm.h>

#include "base/options.h"
#include "cli/job.h"
#include "comm/call.h"

static choir_status parse(const char *text, choir__strategy_options *o)
{
    o->ddp = choir_ddp_defaults();
    choir__option known[] = {{"bucket_cap_mb", CHOIR__FLOAT, &o->ddp.bucket_cap_mb, 1e-6, 1e6},
        {"first_bucket_mb", CHOIR__FLOAT, &o->ddp.first_bucket_mb, 1e-6, 1e6},
        {"algorithm", CHOIR__WORD, o->algorithm, 0, 0},
        {"sync_bn", CHOIR__FLAG, &o->sync_bn, 0, 0}, {NULL}};
    choir__algorithm algorithm;
    choir_status status = choir__options_parse(text, "strategy ddp", known);
    if (status == CHOIR_OK && *o->algorithm)
        status = choir__algorithm_parse(o->algorithm, &algorithm);
    return status;
}

static choir_status build(choir__part *p)
{
    const choir__strategy_options *o = &p->job->strategy_options;
    choir_ddp_opts opts = o->ddp;
    opts.algorithm = *o->algorithm ? o->algorithm : NULL;
    if (o->sync_bn)
        choir_sync_batch_norm(p->run, p->net, p->along);
    p->model = choir_ddp(p->run, p->model, p->along, opts);
    return CHOIR_OK; /* errors stick to the run */
}

const choir__strategy choir__strategy_ddp = {
    .name = "ddp",
    .options = "[:bucket_cap_mb=25,first_bucket_mb=1,algorithm=exchange,sync_bn=0]",
    .help = "a process a device, gradients averaged while backward runs",
    .dimension = "data",
    .spread = CHOIR__DEVICE_A_RANK,
    .parse = parse,
    .micro_each = 1,
    .build = build,
    .step = choir__strategy_plain_step,
};
