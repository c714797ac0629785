/* The registry of evaluators of importance. */
#include "tune/importance/evaluators.h"

#include "base/named.h"

static const choir__importance_ops *const evaluators[] = {
    &choir__importance_ped_anova,
    &choir__importance_fanova,
};

static const choir__name_table names = CHOIR__NAME_TABLE_OF_POINTERS(evaluators);

const char *choir__importance_name(size_t i)
{
    return i < CHOIR_COUNT(evaluators) ? evaluators[i]->name : NULL;
}

choir_status choir__importance_find(const char *name, const choir__importance_ops **ops)
{
    int at = choir__find_named(&names, name);
    if (at < 0)
        return choir__unknown_name(&names, "evaluator", name);
    *ops = evaluators[at];
    return CHOIR_OK;
}
