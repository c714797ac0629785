/* Runs a call over messages: to come. */
#include "comm/engine.h"

choir_status choir__message_run(choir__engine *engine, const choir__call *call)
{
    return choir__engine_fail(engine, CHOIR_ERR_UNSUPPORTED, "%s by %s is not built in",
        choir__kind_name((choir__kind)call->stamp.kind),
        choir__algorithm_name((choir__algorithm)call->stamp.algorithm));
}

choir_status choir__message_batch(choir__engine *engine, const choir__call *calls, int count)
{
    (void)count;
    return choir__message_run(engine, calls);
}
