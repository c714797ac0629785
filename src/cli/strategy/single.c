/* single: one process on one device, by which the other strategies are judged. */
#include "base/options.h"
#include "cli/job.h"

static choir_status parse(const char *text, choir__strategy_options *options)
{
    (void)options;
    return choir__options_parse(text, "strategy single", (choir__option[]){{NULL}});
}

static choir_status build(choir__cli_part *p)
{
    (void)p;
    return CHOIR_OK;
}

const choir__cli_strategy choir__strategy_single = {
    .name = "single",
    .options = "",
    .help = "one device",
    .spread = CHOIR__ONE_DEVICE,
    .parse = parse,
    .micro_each = 1,
    .build = build,
    .step = choir__strategy_plain_step,
};
