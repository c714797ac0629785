/* The registry of strategies. */
#include "job/strategy/strategy.h"

#include "base/named.h"
#include "base/options.h"

extern const choir__cli_strategy choir__cli_strategy_single, choir__cli_strategy_dp,
    choir__cli_strategy_dp_balanced, choir__cli_strategy_ddp, choir__cli_strategy_fsdp,
    choir__cli_strategy_tp, choir__cli_strategy_cp, choir__cli_strategy_mp,
    choir__cli_strategy_pipeline, choir__cli_strategy_hogwild, choir__cli_strategy_diloco,
    choir__cli_strategy_local_sgd;

const choir__cli_strategy *const choir__cli_strategies[] = {
    &choir__cli_strategy_single,
    &choir__cli_strategy_dp,
    &choir__cli_strategy_dp_balanced,
    &choir__cli_strategy_ddp,
    &choir__cli_strategy_fsdp,
    &choir__cli_strategy_tp,
    &choir__cli_strategy_cp,
    &choir__cli_strategy_mp,
    &choir__cli_strategy_pipeline,
    &choir__cli_strategy_hogwild,
    &choir__cli_strategy_diloco,
    &choir__cli_strategy_local_sgd,
    NULL,
};

const choir__cli_strategy *choir__cli_strategy_dividing(choir__divided what, int i)
{
    for (int s = 0; choir__cli_strategies[s]; s++)
        if (choir__cli_strategies[s]->divides == what && i-- == 0)
            return choir__cli_strategies[s];
    return NULL;
}

/* Each takes an even number of devices, from four on. */
static const char *const compositions[] = {"ddp+pipeline", "fsdp+pipeline", "fsdp+tp"};

const char *choir__cli_strategy_form(int i, const choir__cli_strategy **strategy)
{
    for (const choir__cli_strategy *const *s = choir__cli_strategies; (*strategy = *s); s++) {
        const char *const only[] = {(*s)->name, NULL};
        for (const char *const *v = (*s)->variants ? (*s)->variants : only; *v; v++)
            if (i-- == 0)
                return *v;
    }
    return i < (int)CHOIR_COUNT(compositions) ? compositions[i] : NULL;
}

choir_status choir__cli_strategy_find(const char *text, const choir__cli_strategy **strategy)
{
    static const choir__name_table table = {choir__cli_strategies,
        CHOIR_COUNT(choir__cli_strategies) - 1, sizeof *choir__cli_strategies, true};
    char name[64];
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    int at = choir__find_named(&table, name);
    if (at < 0)
        return choir__unknown_name(&table, "strategy", name);
    *strategy = choir__cli_strategies[at];
    return CHOIR_OK;
}
