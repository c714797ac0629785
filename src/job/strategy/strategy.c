/* The registry of strategies. */
#include "job/strategy/strategy.h"

#include "base/named.h"
#include "base/options.h"

extern const choir__job_strategy choir__job_strategy_single, choir__job_strategy_dp,
    choir__job_strategy_dp_balanced, choir__job_strategy_ddp, choir__job_strategy_fsdp,
    choir__job_strategy_tp, choir__job_strategy_cp, choir__job_strategy_mp,
    choir__job_strategy_pipeline, choir__job_strategy_hogwild, choir__job_strategy_diloco,
    choir__job_strategy_local_sgd;

const choir__job_strategy *const choir__job_strategies[] = {
    &choir__job_strategy_single,
    &choir__job_strategy_dp,
    &choir__job_strategy_dp_balanced,
    &choir__job_strategy_ddp,
    &choir__job_strategy_fsdp,
    &choir__job_strategy_tp,
    &choir__job_strategy_cp,
    &choir__job_strategy_mp,
    &choir__job_strategy_pipeline,
    &choir__job_strategy_hogwild,
    &choir__job_strategy_diloco,
    &choir__job_strategy_local_sgd,
    NULL,
};

const choir__job_strategy *choir__job_strategy_dividing(choir__divided what, int i)
{
    for (int s = 0; choir__job_strategies[s]; s++)
        if (choir__job_strategies[s]->divides == what && i-- == 0)
            return choir__job_strategies[s];
    return NULL;
}

/* Each takes an even number of devices, from four on. */
static const char *const compositions[] = {"ddp+pipeline", "fsdp+pipeline", "fsdp+tp"};

const char *choir__job_strategy_form(int i, const choir__job_strategy **strategy)
{
    for (const choir__job_strategy *const *s = choir__job_strategies; (*strategy = *s); s++) {
        const char *const only[] = {(*s)->name, NULL};
        for (const char *const *v = (*s)->variants ? (*s)->variants : only; *v; v++)
            if (i-- == 0)
                return *v;
    }
    return i < (int)CHOIR_COUNT(compositions) ? compositions[i] : NULL;
}

choir_status choir__job_strategy_find(const char *text, const choir__job_strategy **strategy)
{
    static const choir__name_table table = {choir__job_strategies,
        CHOIR_COUNT(choir__job_strategies) - 1, sizeof *choir__job_strategies, true};
    int at;
    choir_status status = choir__options_find(text, &table, "strategy", &at);
    if (status != CHOIR_OK)
        return status;
    *strategy = choir__job_strategies[at];
    return CHOIR_OK;
}
