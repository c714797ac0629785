/* The registry of recorders. */
#include "base/named.h"
#include "record/recorder.h"

#include <string.h>

static const choir__recorder_ops *const recorders[] = {
    &choir__recorder_tensorboard,
    &choir__recorder_csv,
    &choir__recorder_metrics,
    &choir__recorder_mlflow,
    &choir__recorder_wandb,
    &choir__recorder_run,
};
static const choir__name_table table = CHOIR__NAME_TABLE_OF_POINTERS(recorders);

const choir__recorder_ops *choir__recorder_at(size_t i)
{
    return i < CHOIR_COUNT(recorders) ? recorders[i] : NULL;
}

choir_status choir__recorder_find(
    const char *dest, const choir__recorder_ops **ops, const char **place)
{
    char name[32];
    size_t length = strcspn(dest, ":");
    snprintf(name, sizeof name, "%.*s", (int)length, dest);
    int at = choir__find_named(&table, name);
    if (at < 0)
        return choir__unknown_name(&table, "kind of log", name);
    *ops = recorders[at];
    *place = dest + length + 1;
    if (!dest[length] || !**place)
        return choir__error(CHOIR_ERR_ARGUMENT, "log '%s': missing %s, as in %s:%s", dest,
            recorders[at]->place, name, recorders[at]->place);
    if (recorders[at]->needs)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "log '%s': this build has no %s; install %s and build again", dest, name,
            recorders[at]->needs);
    return CHOIR_OK;
}
