/* Samples for validation. Parts are whole millionths, so that 0.29 of 100 samples are 29. */
#include "data/held.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

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
    if (part >= 0 && part <= 1)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected a part for validation from 0 (a tenth) to 1 (all), got %g", name, part);
}

/* Returns the first sample of a group: the smallest number whose share_of is the group. */
static int64_t first_of(int64_t group, int64_t share)
{
    return group / share * ONE + (group % share * ONE + share - 1) / share;
}

/* Returns the sample of a group that is held. */
static int64_t held_of(int64_t group, int64_t share)
{
    const int64_t first = first_of(group, share), count = first_of(group + 1, share) - first;
    const int64_t least = !group && count > 1; /* a single sample is trained on */
    const uint64_t place = choir__mix(0, (uint64_t)group) % (uint64_t)(count - least);
    return first + least + (int64_t)place;
}

bool choir__is_held(double part, int64_t sample)
{
    const int64_t share = millionths(part);
    return sample == held_of(share_of(sample, share), share);
}

bool choir__is_held_of_class(double part, int64_t sample, int64_t count)
{
    return choir__is_held(part, sample) ||
           (sample == 1 && count > 1 && held_of(0, millionths(part)) >= count);
}

/* --- classes that are mixed --- */

bool choir__held_classes_note(
    choir__held_classes *h, int64_t class, bool held, bool training, int64_t kept)
{
    if (class >= h->count) {
        h->of = choir__realloc(h->of, (size_t)(2 * class + 16) * sizeof *h->of);
        while (h->count < 2 * class + 16)
            h->of[h->count++] = (choir__held_class){.second = -1};
    }
    choir__held_class *c = &h->of[class];
    const bool second = ++c->samples == 2 && !held && !c->held;
    const bool keep = held != training || second;
    c->held += held;
    if (second)
        c->second = kept;
    return keep;
}

bool *choir__held_classes_end(choir__held_classes *h, bool training, int64_t kept)
{
    bool *dropped = choir__calloc((size_t)kept + 1, sizeof *dropped);
    for (int64_t i = 0; i < h->count; i++)
        if (h->of[i].second >= 0)
            dropped[h->of[i].second] = training == !h->of[i].held;
    free(h->of);
    *h = (choir__held_classes){0};
    return dropped;
}

int64_t choir__training_part(double part, int64_t count)
{
    return share_of(count, ONE - millionths(part));
}
