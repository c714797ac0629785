/* Engines in plug-ins: the table of functions that they receive, and how one is opened. */
#include "comm/plugin.h"

#include <stdlib.h>

static choir_status engine_fail(choir__engine *engine, choir_status status, const char *text)
{
    return choir__engine_fail(engine, status, "%s", text);
}

static const choir__plugin_host host = {
#define X(type, name, parameters, arguments) .name = name,
    CHOIR__PLUGIN_HOST(X)
#undef X
        .engine_fail = engine_fail,
};

choir_status choir__plugin_engine(
    const char *name, const char *needs, choir__meeting *meeting, choir__engine **engine)
{
    const choir__plugin_head *head;
    char *what = choir__format("backend '%s' is", name);
    choir_status status = choir__plugin_load(name, what, needs, CHOIR__PLUGIN_LAYOUT, &head);
    free(what);
    if (status != CHOIR_OK)
        return status;
    const choir__plugin *plugin = (const choir__plugin *)head;
    plugin->start(&host);
    return plugin->open(meeting, engine);
}
