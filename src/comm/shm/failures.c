/* Detects and reports ranks that do not come to a call.
 *
 * One pidfd per peer becomes readable when that process has ended, for any reason. The first
 * rank that notices writes the sentence into the control segment, so that all ranks name the
 * same culprit even if others have given up and ended by then. A rank's last activity is read
 * from its slot: the calls that it entered by steps (calls), and those that it runs by messages
 * (announced). */
#include "comm/shm/shm.h"
#include "comm/flight/flight.h"
#include "launch/crew/crew.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* seconds, on a very busy machine. A longer nap means that this process was stopped, perhaps
 * with all others; the excess does not count. */
static const double LONGEST_NAP = 1;

choir_status choir__shm_fault(choir__shm *shm)
{
    choir__fault *fault = &shm->control->fault;
    if (shm->base.failed == CHOIR_OK &&
        atomic_load_explicit(&fault->state, memory_order_acquire) == 2)
        choir__engine_fail(&shm->base, (choir_status)fault->status, "%s", fault->text);
    if (shm->base.failed == CHOIR_OK && choir__crew_void())
        choir__engine_fail(&shm->base, CHOIR_ERR_PEER_LOST,
            "another rank of the job is lost, perhaps one of another group");
    return shm->base.failed;
}

choir_status choir__shm_fail(choir__shm *shm, choir_status status, const char *format, ...)
{
    if (choir__shm_fault(shm) != CHOIR_OK)
        return shm->base.failed;
    char sentence[sizeof shm->base.message];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    choir__engine_fail(&shm->base, status, "%s", sentence);
    return choir__shm_tell(shm, status);
}

void choir__shm_abort(choir__engine *engine, choir_status status, const char *sentence)
{
    choir__fault *fault = &((choir__shm *)engine)->control->fault;
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&fault->state, &none, 1)) {
        fault->status = status;
        snprintf(fault->text, sizeof fault->text, "%.495s", sentence);
        atomic_store(&fault->state, 2);
    }
}

choir_status choir__shm_tell(choir__shm *shm, choir_status status)
{
    if (status != CHOIR_OK)
        choir__shm_abort(&shm->base, status, shm->base.message);
    return status;
}

choir_status choir__shm_spread(choir__engine *engine, choir_status status, const char *sentence)
{
    return choir__shm_fail((choir__shm *)engine, status, "%s", sentence);
}

bool choir__shm_dead(const choir__shm *shm, int rank)
{
    struct pollfd process = {.fd = shm->pidfds[rank], .events = POLLIN};
    return process.fd >= 0 && poll(&process, 1, 0) == 1;
}

/* --- the last activity of a rank --- */

void choir__shm_announce(choir__shm *shm, const choir__stamp *call)
{
    choir__shm_slot *me = shm->me;
    shm->call = shm->recent[call->seq % CHOIR__RECENT] = *call;
    atomic_fetch_add(&me->announcing, 1);
    me->announced = *call;
    atomic_fetch_add(&me->announcing, 1);
}

/* Gets the newest call that a rank has entered; false: it has entered none, or the entry is
 * being written. */
static bool last_call(const choir__shm *shm, int rank, choir__stamp *last)
{
    choir__shm_slot *slot = &shm->control->slots[rank];
    uint32_t before = atomic_load(&slot->announcing);
    *last = slot->announced;
    atomic_thread_fence(memory_order_acquire);
    if (before % 2 || atomic_load(&slot->announcing) != before)
        return false;
    for (int i = 0; i < 2; i++)
        if ((int32_t)(slot->calls[i].seq - last->seq) > 0)
            *last = slot->calls[i];
    return last->seq != 0;
}

bool choir__shm_came(const choir__shm *shm, int rank)
{
    choir__stamp last;
    return last_call(shm, rank, &last) && (int32_t)(last.seq - shm->call.seq) >= 0;
}

/* Compares a call that is not the current one: a rank that only had to send may have finished a
 * call before others notice that they made a different one. */
static choir_status compare_earlier(choir__shm *shm, int rank, const choir__stamp *theirs)
{
    const choir__stamp *mine = &shm->recent[theirs->seq % CHOIR__RECENT];
    char there[CHOIR__CALL_TEXT], here[CHOIR__CALL_TEXT];
    if (mine->seq != theirs->seq || memcmp(mine, theirs, sizeof *mine) == 0)
        return CHOIR_OK;
    return choir__shm_fail(shm, CHOIR_ERR_MISMATCH, "rank %d called %s while rank %d called %s",
        choir__engine_number(&shm->base, rank), choir__call_text(theirs, there),
        choir__engine_number(&shm->base, shm->base.rank), choir__call_text(mine, here));
}

/* Detects ranks that wait for one another in different ways, by steps and by messages or by
 * messages of two schedules: they would wait forever. */
choir_status choir__shm_compare(choir__shm *shm, int rank)
{
    choir__stamp last;
    char there[CHOIR__STAMP_TEXT], here[CHOIR__STAMP_TEXT];
    bool stepping = shm->me->announced.seq != shm->call.seq;
    if (!shm->call.seq || !last_call(shm, rank, &last))
        return CHOIR_OK;
    if (last.seq != shm->call.seq)
        return compare_earlier(shm, rank, &last);
    bool steps = shm->control->slots[rank].announced.seq != last.seq;
    if (steps == stepping && (steps || memcmp(&last, &shm->call, sizeof last) == 0))
        return CHOIR_OK; /* ranks that run by steps compare their calls themselves */
    return choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
        "rank %d called %s (algorithm %s) while rank %d called %s (algorithm %s)",
        choir__engine_number(&shm->base, rank), choir__stamp_text(&last, there),
        choir__algorithm_name((choir__algorithm)last.algorithm),
        choir__engine_number(&shm->base, shm->base.rank), choir__stamp_text(&shm->call, here),
        choir__algorithm_name((choir__algorithm)shm->call.algorithm));
}

/* --- ranks that are gone, or late --- */

/* Fails with the sentence about a rank that has left or ended; before: its last activity. */
static choir_status say_gone(
    choir__shm *shm, int rank, const choir__stamp *during, const char *before)
{
    char text[CHOIR__ENDED_TEXT], call[CHOIR__CALL_TEXT];
    if (choir__shm_left(shm, rank))
        return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST,
            "%s has left the group, and %s needs it",
            choir__engine_peer(&shm->base, rank, text), choir__call_text(during, call));
    choir__engine_ended(&shm->base, rank, shm->pidfds[rank], during, text);
    return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST, "%s%s", text, before);
}

choir_status choir__shm_look(choir__engine *engine, const choir__stamp *during, bool needed)
{
    choir__shm *shm = (choir__shm *)engine;
    int gone = -1;
    if (choir__shm_fault(shm) != CHOIR_OK)
        return engine->failed;
    for (int r = 0; r < engine->world; r++)
        if (r != engine->rank && (choir__shm_left(shm, r) ? needed : choir__shm_dead(shm, r)))
            gone = choir__shm_culprit(shm, gone, r);
    if (gone < 0)
        return CHOIR_OK;
    return say_gone(shm, gone, during, "");
}

double choir__shm_slept(double seconds)
{
    return seconds < LONGEST_NAP ? seconds : LONGEST_NAP;
}

bool choir__shm_left(const choir__shm *shm, int rank)
{
    return atomic_load(&shm->control->slots[rank].left);
}

bool choir__shm_gone(const choir__shm *shm, int rank)
{
    return choir__shm_left(shm, rank) || choir__shm_dead(shm, rank);
}

int choir__shm_culprit(const choir__shm *shm, int a, int b)
{
    return a < 0 || (choir__shm_left(shm, a) && !choir__shm_left(shm, b)) ? b : a;
}

choir_status choir__shm_lost(choir__shm *shm, int rank)
{
    char what[CHOIR__CALL_TEXT], before[CHOIR__CALL_TEXT + 32] = "; it had made no call yet";
    choir__stamp last;
    if (last_call(shm, rank, &last) && last.seq == shm->call.seq)
        snprintf(before, sizeof before, "; it had come to that");
    else if (last.seq)
        snprintf(
            before, sizeof before, "; its last call was %s", choir__call_text(&last, what));
    return say_gone(shm, rank, &shm->call, before);
}

choir_status choir__shm_late(choir__shm *shm, const int *silent, int count)
{
    char text[CHOIR__SILENT_TEXT];
    bool all_came = true;
    for (int i = 0; i < count; i++)
        all_came = all_came && choir__shm_came(shm, silent[i]);
    return choir__shm_fail(shm, CHOIR_ERR_TIMEOUT, "%s",
        choir__engine_silent(&shm->base, silent, count, all_came, &shm->call, text));
}
