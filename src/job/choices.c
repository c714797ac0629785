/* Names for options, one by one, out of the registries that define them: models, strategies,
 * engines, dtypes, augmentation. Help, completion and messages take them from here. */
#include "job/choices.h"

#include <choir/augment.h>
#include <choir/dtype.h>
#include <choir/models.h>

#include "base/named.h"
#include "job/strategy/strategy.h"
#include "comm/engine.h"

const char *choir__job_model_names(size_t i)
{
    return choir_model_name((int)i, NULL);
}

const char *choir__job_augment_names(size_t i)
{
    return choir_augment_name((int)i, NULL);
}

const char *choir__job_strategy_names(size_t i)
{
    return choir__job_strategies[i] ? choir__job_strategies[i]->name : NULL;
}

/* The value of a job's --strategy may also be auto, which becomes one of them. */
const char *choir__job_strategy_names_and_auto(size_t i)
{
    return i ? choir__job_strategy_names(i - 1) : "auto";
}

const char *choir__job_backend_names(size_t i)
{
    const choir__name_table *engines = choir__engine_names();
    return i < engines->count ? choir__name_at(engines, i) : NULL;
}

const char *choir__job_dtype_names(size_t i)
{
    return i < CHOIR_DTYPE_COUNT ? choir_dtype_name((choir_dtype)i) : NULL;
}

/* Types that the weights of a checkpoint can be converted to. */
const char *choir__job_weight_dtype_names(size_t i)
{
    static const choir_dtype types[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16};
    size_t count = CHOIR_COUNT(types);
    return i < count    ? choir_dtype_name(types[i])
           : i == count ? "fp16" /* as --amp calls it */
                        : NULL;
}

const char *choir__job_init_names(size_t i)
{
    static const char *const names[] = {"choir", "torch"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}
