/* Bytes and times as people read them. */
#include "cli/plan/plan.h"

#include <stdio.h>

const char *choir__plan_size(double bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < CHOIR_COUNT(units); unit++)
        bytes /= 1024;
    snprintf(text, 32, "%.*f %s", unit && bytes < 99.95 ? 1 : 0, bytes, units[unit]);
    return text;
}

const char *choir__plan_time(double ms, char text[32])
{
    snprintf(text, 32, ms < 999.5 ? "%.3g ms" : "%.4g s", ms < 999.5 ? ms : ms * 1e-3);
    return text;
}
