/* How an engine stores its first failure, and how it names a rank in the sentence. */
#include <stdio.h>

#include "comm/engine.h"

choir_status choir__engine_fail(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    va_list args;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    va_start(args, format);
    vsnprintf(engine->message, sizeof engine->message, format, args);
    va_end(args);
    return engine->failed = status;
}

choir_status choir__engine_spread(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    char sentence[sizeof engine->message];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (engine->ops->fail)
        return engine->ops->fail(engine, status, sentence);
    return choir__engine_fail(engine, status, "%s", sentence);
}

const char *choir__engine_peer(
    const choir__engine *engine, int rank, char text[CHOIR__PEER_TEXT])
{
    const choir__member *m = engine->members ? &engine->members[rank] : NULL;
    int number = choir__engine_number(engine, rank);
    char role[100] = "";
    if (engine->role.write)
        engine->role.write(engine->role.arg, number, role, sizeof role);
    const char *comma = *role ? ", " : "";
    if (!m)
        snprintf(text, CHOIR__PEER_TEXT, "rank %d", number);
    else if (engine->nodes > 1)
        snprintf(text, CHOIR__PEER_TEXT, "rank %d (pid %d on %s%s%s)", number, m->pid, m->host,
            comma, role);
    else
        snprintf(text, CHOIR__PEER_TEXT, "rank %d (pid %d%s%s)", number, m->pid, comma, role);
    return text;
}
