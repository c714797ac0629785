/* Samples for validation. Parts are whole millionths, so that 0.29 of 100 samples are 29. */
#include "data/held.h"

#include <math.h>

enum { ONE = 1000000, A_TENTH = ONE / 10 };

static int64_t millionths(double part)
{
    return part > 0 ? choir__max(llround(part * ONE), 1) : A_TENTH;
}

/* Returns count * share / ONE, rounded down. */
static int64_t share_of(int64_t count, int64_t share)
{
    return count / ONE * share + count % ONE * share / ONE;
}

choir_status choir__held_check(const char *name, double part)
{
    if (part >= 0 && part < 1)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected a part for validation of 0 (a tenth) or more, and less than 1, got %g",
        name, part);
}

bool choir__is_held(double part, int64_t sample)
{
    const int64_t share = millionths(part);
    return share_of(sample + 1, share) > share_of(sample, share);
}

int64_t choir__training_part(double part, int64_t count)
{
    return share_of(count, ONE - millionths(part));
}
