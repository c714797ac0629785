/* Backends in plug-ins: the table of functions that they receive, and the loader. */
#include "device/plugin.h"

#include <stdlib.h>

static choir_status queue_fail(choir_status status, const char *text)
{
    return choir__queue_fail(status, "%s", text);
}

static const choir__device_host host = {
#define X(type, name, parameters, arguments) .name = name,
    CHOIR__DEVICE_HOST(X)
#undef X
        .queue_fail = queue_fail,
};

choir_status choir__plugin_backend(const char *kind, const choir__backend **backend)
{
    const choir__plugin_head *head;
    char *what = choir__format("'%s' devices are", kind);
    choir_status status =
        choir__plugin_load(kind, what, "the CUDA toolkit", CHOIR__DEVICE_LAYOUT, &head);
    free(what);
    if (status != CHOIR_OK)
        return status;
    const choir__device_plugin *plugin = (const choir__device_plugin *)head;
    plugin->start(&host);
    *backend = plugin->backend;
    return CHOIR_OK;
}
