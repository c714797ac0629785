/* The number of trials that run at once: as requested, or as many as devices and memory allow.
 * The devices are then divided into places. */
#include "cli/tune/machine.h"

#include <string.h>

#include "base/usable.h"
#include "line/command.h"
#include "job/devices.h"

/* Returns the requested number of trials at once, or as many as devices and memory allow. */
static int choose_parallel(const choir__tune_machine *m, int devices, int64_t *parallel)
{
    int64_t room = devices ? devices / m->devices_each : INT64_MAX, beside = INT64_MAX;
    if (!room)
        return choir__cli_usage("tune",
            "--devices-per-trial %lld: expected at most the %d devices of --devices",
            (long long)m->devices_each, devices);
    if (*parallel > room)
        return choir__cli_usage("tune",
            "--parallel %lld: expected at most %lld, for which the %d devices of --devices are "
            "enough",
            (long long)*parallel, (long long)room, devices);
    if (m->memory_each)
        beside = (int64_t)(choir__usable_memory("") / (double)m->memory_each);
    if (!beside || *parallel > beside)
        return choir__cli_usage("tune",
            "--memory-per-trial: the memory of this machine is enough for %lld trials at once",
            (long long)beside);
    if (!*parallel)
        *parallel = devices ? choir__min(room, beside) : 1;
    return CHOIR__EXIT_OK;
}

int choir__tune_machine_read(choir__tune_machine *m, int64_t *parallel)
{
    static char names[CHOIR__TUNE_DEVICES][CHOIR__CLI_DEVICE_NAME];
    _Static_assert((int)CHOIR__CLI_DEVICE_NAME == (int)CHOIR__DEVICE_NAME, "both hold names");
    int count = 0, status = CHOIR__EXIT_OK;
    if (m->devices_each > 1 && !m->devices)
        return choir__cli_usage("tune",
            "--devices-per-trial %lld: expected --devices LIST beside it, of which each trial has "
            "that many",
            (long long)m->devices_each);
    if (m->devices)
        status = choir__cli_devices_read("tune", m->devices, names, CHOIR_COUNT(names), &count);
    for (int i = 1; i < count && status == CHOIR__EXIT_OK; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return choir__cli_usage(
                    "tune", "--devices %s: %s is named twice", m->devices, names[i]);
    if (status == CHOIR__EXIT_OK)
        status = choose_parallel(m, count, parallel);
    if (status != CHOIR__EXIT_OK || !count)
        return status;
    m->place_count = count / (int)m->devices_each;
    m->places = choir__places_new(names, count, (int)m->devices_each);
    return CHOIR__EXIT_OK;
}
