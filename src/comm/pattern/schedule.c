/* Complete schedules: collectives that are the same for all algorithms, and the algorithms'
 * own. */
#include "comm/pattern/schedule.h"

#include "comm/pattern/build.h"

/* Dissemination: after round k a rank has heard, directly or indirectly, of the 2^(k+1) - 1
 * ranks before it. */
static void barrier(const choir__pattern_collective *p, choir__move_schedule *s)
{
    choir__chunk_span token = choir__add_scratch(s, 2);
    for (int round = 0; round < choir__log2_ceil(p->world); round++) {
        int distance = 1 << round;
        choir__add_receive(s, round, (p->rank + p->world - distance) % p->world, token, 1);
        choir__add_send(s, round, (p->rank + distance) % p->world, choir__past(token, 1), 1);
    }
}

/* Writes the schedule of a collective that is the same for all algorithms; false if it is for
 * another one. */
static bool plain(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (p->kind == CHOIR__BARRIER)
        barrier(p, s);
    else if (p->kind == CHOIR__SEND)
        choir__add_send(s, 0, p->root, choir__in(0), p->count);
    else if (p->kind == CHOIR__RECEIVE)
        choir__add_receive(s, 0, p->root, choir__out(0), p->count);
    else
        return false;
    return true;
}

choir_status choir__move_schedule_make(
    const choir__pattern_collective *collective, choir__move_schedule *schedule)
{
    *schedule = (choir__move_schedule){0};
    if (plain(collective, schedule))
        return CHOIR_OK;
    choir__pattern_fill *pattern = choir__pattern_of(collective);
    if (pattern && pattern(collective, schedule))
        return CHOIR_OK;
    choir__move_schedule_free(schedule);
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: the %s algorithm does not do it with %d ranks placed as these are: take exchange",
        choir__kind_name(collective->kind), choir__algorithm_name(collective->algorithm),
        collective->world);
}
