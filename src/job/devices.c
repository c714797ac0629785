/* Reads --devices: a list of names and ranges ("cpu:0,cuda:0-3"), or auto, which is all devices
 * of the best kind that is there. Each must exist; none is used before. */
#include "job/devices.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/device.h"
#include "job/job.h"

static choir_status no_list(const char *text)
{
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--devices: expected a list such as cpu:0,cpu:1 or cuda:0-3, got '%s'", text);
}

static choir_status too_many(const char *text, size_t room)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "--devices: expected at most %d devices, got '%s'",
        (int)room, text);
}

/* Reads one "cuda:0-3" of `length` characters. If it is the whole text, it may have more
 * devices than names. */
static choir_status read_range(const char *text, const char *at, size_t length,
    char (*names)[CHOIR__JOB_DEVICE_NAME], size_t room, int *count)
{
    const char *colon = memchr(at, ':', length);
    char *end = NULL;
    long low = colon ? strtol(colon + 1, &end, 10) : -1, high = low;
    if (end && *end == '-' && isdigit((unsigned char)end[1]))
        high = strtol(end + 1, &end, 10);
    if (!colon || colon - at >= 8 || !isdigit((unsigned char)colon[1]) || end != at + length ||
        high < low || high > 1 << 20)
        return no_list(text);
    if (high - low >= (long)room - *count && at[length])
        return too_many(text, room);
    for (long i = low; i <= high; i++, ++*count)
        if (*count < (int)room)
            snprintf(names[*count], CHOIR__JOB_DEVICE_NAME, "%.*s:%d", (int)(colon - at), at,
                (int)i);
    return at == text || *count <= (int)room ? CHOIR_OK : too_many(text, room);
}

choir_status choir__job_devices_list(
    const char *text, char (*names)[CHOIR__JOB_DEVICE_NAME], size_t room, int *count)
{
    *count = 0;
    if (!text || !strcmp(text, "auto")) {
        const char *kind = choir__device_kind("auto");
        int there = choir__device_look(kind, NULL, 0);
        for (; *count < there && *count < (int)room; ++*count)
            snprintf(names[*count], CHOIR__JOB_DEVICE_NAME, "%.8s:%d", kind, *count);
        return CHOIR_OK;
    }
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, ",");
        choir_status status = read_range(text, at, length, names, room, count);
        if (status != CHOIR_OK)
            return status;
        at += length + (at[length] == ',');
    }
    return *count ? CHOIR_OK : no_list(text);
}

choir_status choir__job_devices_read(
    const char *text, char (*names)[CHOIR__JOB_DEVICE_NAME], size_t room, int *count)
{
    choir_status status = choir__job_devices_list(text, names, room, count);
    if (status != CHOIR_OK || !text || !strcmp(text, "auto"))
        return status;
    if (*count > (int)room)
        return too_many(text, room);
    for (int i = 0; i < *count; i++)
        if (!choir__device_is_there(names[i]))
            return CHOIR_ERR_DEVICE;
    return CHOIR_OK;
}

const char *choir__job_device_name(
    const choir__job_placement *p, int device, char name[CHOIR__JOB_DEVICE_NAME])
{
    const char *first = p->device_names[0], *colon = strchr(first, ':');
    if (device < CHOIR__MAX_DEVICES || !colon)
        snprintf(name, CHOIR__JOB_DEVICE_NAME, "%s",
            p->device_names[device < CHOIR__MAX_DEVICES ? device : 0]);
    else
        snprintf(name, CHOIR__JOB_DEVICE_NAME, "%.*s:%d", (int)(colon - first), first,
            atoi(colon + 1) + device);
    return name;
}

void choir__job_devices_text(const choir__job_placement *p, char *text, size_t bytes)
{
    size_t used = 0;
    const char *first = p->device_names[0], *number = strchr(first, ':');
    *text = '\0';
    if (p->device_count > CHOIR__MAX_DEVICES && number) {
        snprintf(text, bytes, "%s-%d", first, atoi(number + 1) + p->device_count - 1);
        return;
    }
    for (int i = 0; i < p->device_count && used < bytes; i++)
        used += (size_t)snprintf(
            text + used, bytes - used, "%s%s", i ? "," : "", p->device_names[i]);
}
