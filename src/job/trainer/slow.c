/* Averages this rank's share of time in collectives over the last seconds, and packs it with
 * the rank into words whose maximum over the ranks says who waits least. A rank is named once
 * its cost has lasted, and then rarely. */
#include "job/trainer/slow.h"

#include <math.h>

#include "base/base.h"
#include "comm/flight/flight.h"

enum { RANK_BITS = 20, MILLIONTHS = 1000000 };
static const double lately_s = 1;     /* least span of averages, in seconds */
static const double lately_steps = 8; /* least span of averages, in steps */
static const double news = 0.2;       /* smallest cost that counts, as a share of a step */
static const double again = 10;       /* times `after` until a rank is named again */

void choir__job_slow_begin(choir__job_slow *s)
{
    *s = (choir__job_slow){.waited = choir__flight_waited(), .ended = choir__now(), .rank = -1};
}

void choir__job_slow_note(choir__job_slow *s)
{
    double waited = choir__flight_waited(), now = choir__now(), seconds = now - s->ended;
    double share = (waited - s->waited) / seconds;
    s->waited = waited;
    s->ended = now;
    if (!(seconds > 0))
        return;
    double span = s->rate > 0 ? fmax(lately_s, lately_steps / s->rate) : 0;
    double weight = seconds / (seconds + span);
    s->share += weight * (fmin(fmax(share, 0), 1) - s->share);
    s->rate += weight * (1 / seconds - s->rate);
}

void choir__job_slow_write(const choir__job_slow *s, int rank, int64_t words[CHOIR__SLOW_WORDS])
{
    int64_t share = (int64_t)(MILLIONTHS * s->share);
    words[0] = (MILLIONTHS - share) << RANK_BITS | rank; /* greatest where the share is least */
    words[1] = share;
}

bool choir__job_slow_judge(
    choir__job_slow *s, const int64_t words[CHOIR__SLOW_WORDS], double after)
{
    int rank = (int)(words[0] & ((1 << RANK_BITS) - 1));
    int64_t least = MILLIONTHS - (words[0] >> RANK_BITS);
    double cost = (double)(words[1] - least) / MILLIONTHS, now = choir__now();
    s->step_s = s->rate > 0 ? 1 / s->rate : 0;
    s->cost_s = cost * s->step_s;
    if (cost < news)
        rank = -1;
    if (rank != s->rank) {
        s->rank = rank;
        s->since = now;
        s->told_at = 0;
    }
    bool due = !(s->told_at > 0) || now - s->told_at >= again * after;
    if (rank < 0 || !(after > 0) || now - s->since < after || !due)
        return false;
    s->told_at = now;
    return true;
}
