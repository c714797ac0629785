/* The registry of schedulers. */
#include "tune/scheduler/scheduler.h"

#include "base/named.h"

static const choir__scheduler_ops *const schedulers[] = {
    &choir__scheduler_none,
    &choir__scheduler_asha,
    &choir__scheduler_hyperband,
    &choir__scheduler_median,
    &choir__scheduler_percentile,
    &choir__scheduler_patience,
    &choir__scheduler_pbt,
};

static const choir__name_table names = CHOIR__NAME_TABLE_OF_POINTERS(schedulers);

const char *choir__scheduler_name(size_t i)
{
    return i < CHOIR_COUNT(schedulers) ? schedulers[i]->name : NULL;
}

const choir__scheduler_ops *choir__scheduler_find(const char *text)
{
    char name[32];
    int at = choir__options_name(text, name, sizeof name) == CHOIR_OK
                 ? choir__find_named(&names, name)
                 : -1;
    return at < 0 ? NULL : schedulers[at];
}

choir_status choir__scheduler_open(
    const choir_study_opts *opts, int objectives, choir__scheduler **scheduler)
{
    int at;
    choir_status status = choir__options_find(opts->scheduler, &names, "scheduler", &at);
    if (status != CHOIR_OK)
        return status;
    if (schedulers[at] != &choir__scheduler_none && objectives > 1)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "scheduler %s: expected one direction, got %d", schedulers[at]->name, objectives);
    return schedulers[at]->open(opts, scheduler);
}
