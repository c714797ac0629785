/* Between values and coordinates: inner ones, in which a distribution is flat; the unit cube;
 * and the line of a normal number, cut off at four deviations. Whole numbers have a cell of a
 * step's width around them. */
#include <math.h>

#include "base/math/functions.h"
#include "tune/space/normal.h"
#include "tune/space/space.h"

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

void choir__inner_range(const choir__dist *d, double *low, double *high)
{
    *low = d->low, *high = d->high;
    switch (d->kind) {
    case CHOIR__UNIFORM: return;
    case CHOIR__LOG: *low = choir__log(d->low), *high = choir__log(d->high); return;
    case CHOIR__INTEGER:
        *low -= d->step / 2, *high += d->step / 2;
        if (d->log)
            *low = choir__log(*low), *high = choir__log(*high);
        return;
    case CHOIR__CHOICE: *low = 0, *high = d->choice_count; return;
    case CHOIR__NORMAL: *low = 0, *high = 1; return;
    }
}

bool choir__inner_cell(const choir__dist *d, double value, double *from, double *to)
{
    if (d->kind != CHOIR__INTEGER)
        return false;
    *from = value - d->step / 2, *to = value + d->step / 2;
    if (d->log)
        *from = choir__log(*from), *to = choir__log(*to);
    return true;
}

double choir__to_inner(const choir__dist *d, double value)
{
    switch (d->kind) {
    case CHOIR__LOG: return choir__log(value);
    case CHOIR__INTEGER: return d->log ? choir__log(value) : value;
    case CHOIR__NORMAL: return choir__normal_cdf((value - d->low) / d->high);
    default: return value;
    }
}

double choir__from_inner(const choir__dist *d, double inner)
{
    double low, high;
    choir__inner_range(d, &low, &high);
    inner = clip(inner, low, high);
    switch (d->kind) {
    case CHOIR__UNIFORM: return inner;
    case CHOIR__LOG: return clip(choir__exp(inner), d->low, d->high);
    case CHOIR__INTEGER:
        inner = d->log ? choir__exp(inner) : inner;
        inner = d->low + d->step * floor((inner - d->low) / d->step + 0.5);
        return clip(inner, d->low, d->high);
    case CHOIR__CHOICE: return fmin(floor(inner), d->choice_count - 1);
    default: /* never at an infinite distance: 1e-16 of the draws lie beyond 8 deviations */
        return d->low + d->high * choir__normal_quantile(clip(inner, 1e-16, 1 - 1e-16));
    }
}

double choir__to_cube(const choir__dist *d, double value)
{
    double low, high, inner = choir__to_inner(d, value);
    choir__inner_range(d, &low, &high);
    if (d->kind == CHOIR__CHOICE)
        inner += 0.5;
    return high > low ? (inner - low) / (high - low) : 0.5;
}

double choir__from_cube(const choir__dist *d, double x)
{
    double low, high;
    choir__inner_range(d, &low, &high);
    return choir__from_inner(d, low + (high - low) * x);
}

/* A normal number lies beyond four deviations once in 16,000 draws. */
static const double FAR = 4;

double choir__to_line(const choir__dist *d, double value)
{
    return d->kind == CHOIR__NORMAL ? ((value - d->low) / d->high + FAR) / (2 * FAR)
                                    : choir__to_cube(d, value);
}

double choir__from_line(const choir__dist *d, double x)
{
    return d->kind == CHOIR__NORMAL ? d->low + d->high * (2 * FAR * clip(x, 0, 1) - FAR)
                                    : choir__from_cube(d, x);
}

double choir__line_of_draw(const choir__dist *d, double x)
{
    return d->kind == CHOIR__NORMAL ? choir__to_line(d, choir__from_cube(d, x)) : x;
}

int64_t choir__dist_size(const choir__dist *d)
{
    if (d->kind == CHOIR__CHOICE)
        return d->choice_count;
    if (d->kind == CHOIR__INTEGER)
        return (int64_t)fmin((d->high - d->low) / d->step, 0x1p62) + 1;
    return d->low == d->high && d->kind != CHOIR__NORMAL ? 1 : -1;
}
