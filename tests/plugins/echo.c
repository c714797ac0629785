/* A valid plug-in for tests/unit/base/plugin.c. It calls back into its host, and installs
 * signal handlers for crashes as some libraries do when they are loaded. */
#include "comm/plugin.h"

#include <signal.h>

static void backtrace_of_mine(int number)
{
    (void)number;
}

__attribute__((constructor)) static void take_signals(void)
{
    signal(SIGSEGV, backtrace_of_mine);
}

static void close_echo(choir__engine *engine)
{
    choir__engine_free(engine);
}

static const choir__engine_ops ops = {.name = "echo", .close = close_echo};

choir_status choir__plugin_open(choir__meeting *meeting, choir__engine **engine)
{
    if (meeting->world > 2)
        return choir__error(CHOIR_ERR_ARGUMENT, "echo: %d ranks", meeting->world);
    *engine = choir__calloc(1, sizeof **engine);
    **engine = (choir__engine){.ops = &ops, .rank = meeting->rank, .world = meeting->world};
    choir__engine_fail(*engine, CHOIR_ERR_STATE, "rank %d is an echo", meeting->rank);
    return CHOIR_OK;
}
