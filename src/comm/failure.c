/* How an engine stores its first failure, and how it names a rank in the sentence. */
#include <stdio.h>

#include "comm/engine.h"
#include "comm/flight/flight.h"
#include "launch/keeper.h"
#include "launch/process/process.h"

choir_status choir__engine_fail(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    va_list args;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    va_start(args, format);
    vsnprintf(engine->message, sizeof engine->message, format, args);
    va_end(args);
    if (status == CHOIR_ERR_PEER_LOST)
        choir__keeper_say_lost();
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

const char *choir__engine_ended(const choir__engine *engine, int rank, int pidfd,
    const choir__stamp *during, char text[CHOIR__ENDED_TEXT])
{
    char who[CHOIR__PEER_TEXT], call[CHOIR__CALL_TEXT];
    int status = choir__wait_status(pidfd);
    choir__engine_peer(engine, rank, who);
    choir__call_text(during, call);
    if (status == 0)
        snprintf(text, CHOIR__ENDED_TEXT,
            "%s has ended (it exited with status 0), and %s needs it", who, call);
    else
        snprintf(text, CHOIR__ENDED_TEXT, "%s %s during %s", who, status < 0 ? "ended" : "died",
            call);
    return text;
}
