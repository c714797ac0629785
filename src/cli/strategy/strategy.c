/* The registry of strategies. */
#include "cli/strategy/strategy.h"

#include <stdio.h>
#include <string.h>

#include "base/options.h"

extern const choir__cli_strategy choir__strategy_single, choir__strategy_dp,
    choir__strategy_dp_balanced, choir__strategy_ddp, choir__strategy_fsdp, choir__strategy_tp,
    choir__strategy_mp, choir__strategy_pipeline, choir__strategy_hogwild,
    choir__strategy_diloco, choir__strategy_local_sgd;

const choir__cli_strategy *const choir__cli_strategies[] = {
    &choir__strategy_single,
    &choir__strategy_dp,
    &choir__strategy_dp_balanced,
    &choir__strategy_ddp,
    &choir__strategy_fsdp,
    &choir__strategy_tp,
    &choir__strategy_mp,
    &choir__strategy_pipeline,
    &choir__strategy_hogwild,
    &choir__strategy_diloco,
    &choir__strategy_local_sgd,
    NULL,
};

choir_status choir__strategy_find(const char *text, const choir__cli_strategy **strategy)
{
    char name[64], list[320] = "";
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; choir__cli_strategies[i]; i++) {
        if (!strcmp(choir__cli_strategies[i]->name, name)) {
            *strategy = choir__cli_strategies[i];
            return CHOIR_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
            choir__cli_strategies[i]->name);
    }
    return choir__error(
        CHOIR_ERR_ARGUMENT, "there is no strategy '%s'; there are %s", name, list);
}
