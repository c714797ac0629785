/* Ranks that talk over UCX, as between machines; its plug-in may not be built. */
#ifndef CHOIR_TESTS_OVER_UCX_H
#define CHOIR_TESTS_OVER_UCX_H

#include <stdlib.h>

#include "check.h"
#include "comm/plugin.h"

/* Returns why the engine is missing, or NULL. */
static inline const char *no_ucx(void)
{
    char *plugin = choir__plugin_find("ucx", NULL);
    free(plugin);
    return plugin ? NULL : "the plug-in choir_ucx.so was not built (install libucx-dev)";
}

static inline bool have_ucx(void)
{
    return !no_ucx();
}

static inline void skip_without_ucx(void)
{
    if (!have_ucx())
        skip();
}

/* From now on groups are over UCX, until the caller unsets CHOIR_BACKEND. */
static inline void use_ucx(void)
{
    skip_without_ucx();
    setenv("CHOIR_BACKEND", "ucx", 1);
}

#endif
