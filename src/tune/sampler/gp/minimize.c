/* L-BFGS in a box: see minimize.h.
 *
 * The last few steps and changes of the gradient stand for the second derivatives (Nocedal,
 * "Updating quasi-Newton matrices with limited storage", 1980). Variables at the end of their
 * range whose gradient points outwards stay there; the others move along the direction, cut off
 * at the box, for as long as the value falls enough (Armijo's rule; Bertsekas, "Projected
 * Newton methods", 1982). */
#include "tune/sampler/gp/minimize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/algebra.h"

enum { KEPT = 8, HALVINGS = 20 };

typedef struct search {
    int n, kept, next;
    const double *low, *high; /* (n) */
    double step[KEPT][CHOIR__MINIMIZE_MAX], change[KEPT][CHOIR__MINIMIZE_MAX], over[KEPT];
    double direction[CHOIR__MINIMIZE_MAX];
    bool held[CHOIR__MINIMIZE_MAX];
} search;

/* Holds variables at the ends; returns the greatest element of the gradient of the others. */
static double hold(search *s, const double *x, const double *gradient)
{
    double most = 0;
    for (int i = 0; i < s->n; i++) {
        s->held[i] =
            (x[i] <= s->low[i] && gradient[i] > 0) || (x[i] >= s->high[i] && gradient[i] < 0);
        if (!s->held[i])
            most = fmax(most, fabs(gradient[i]));
    }
    return most;
}

/* direction = -(approximate inverse of the second derivatives) gradient, of variables not
 * held. */
static void find_direction(search *s, const double *gradient)
{
    double *d = s->direction, alpha[KEPT];
    for (int i = 0; i < s->n; i++)
        d[i] = s->held[i] ? 0 : -gradient[i];
    for (int k = 0; k < s->kept; k++) { /* the newest first */
        int at = (s->next - 1 - k + 2 * KEPT) % KEPT;
        alpha[at] = s->over[at] * choir__dot(s->step[at], d, s->n);
        for (int i = 0; i < s->n; i++)
            d[i] -= alpha[at] * s->change[at][i];
    }
    if (s->kept) {
        int at = (s->next - 1 + KEPT) % KEPT;
        double scale = 1 / (s->over[at] * choir__dot(s->change[at], s->change[at], s->n));
        for (int i = 0; i < s->n; i++)
            d[i] *= scale;
    }
    for (int k = s->kept - 1; k >= 0; k--) {
        int at = (s->next - 1 - k + 2 * KEPT) % KEPT;
        double beta = s->over[at] * choir__dot(s->change[at], d, s->n);
        for (int i = 0; i < s->n; i++)
            d[i] += (alpha[at] - beta) * s->step[at][i];
    }
    for (int i = 0; i < s->n; i++)
        d[i] = s->held[i] ? 0 : d[i];
}

/* Remembers a step, unless the function is not convex along it. */
static void remember(search *s, const double *x, const double *from, const double *gradient,
    const double *before)
{
    double *step = s->step[s->next], *change = s->change[s->next];
    for (int i = 0; i < s->n; i++) {
        step[i] = x[i] - from[i];
        change[i] = gradient[i] - before[i];
    }
    double product = choir__dot(step, change, s->n);
    if (product <= 1e-10 * choir__dot(change, change, s->n))
        return;
    s->over[s->next] = 1 / product;
    s->next = (s->next + 1) % KEPT;
    s->kept = s->kept < KEPT ? s->kept + 1 : KEPT;
}

/* Moves x along the direction until the value falls enough; returns whether it does. */
static bool move(
    search *s, choir__function f, void *of, double *x, double *value, double *gradient)
{
    double from[CHOIR__MINIMIZE_MAX], before[CHOIR__MINIMIZE_MAX];
    size_t bytes = (size_t)s->n * sizeof *x;
    memcpy(from, x, bytes);
    memcpy(before, gradient, bytes);
    double length = sqrt(choir__dot(s->direction, s->direction, s->n));
    double t = s->kept || length <= 1 ? 1 : 1 / length;
    for (int k = 0; k < HALVINGS; k++, t *= k < 3 ? 0.5 : 0.25) {
        double promised = 0;
        for (int i = 0; i < s->n; i++) {
            x[i] = fmin(fmax(from[i] + t * s->direction[i], s->low[i]), s->high[i]);
            promised += before[i] * (x[i] - from[i]);
        }
        double reached = f(of, x, gradient);
        if (promised < 0 && reached <= *value + 1e-4 * promised) {
            *value = reached;
            remember(s, x, from, gradient, before);
            return true;
        }
    }
    memcpy(x, from, bytes);
    memcpy(gradient, before, bytes);
    return false;
}

double choir__minimize(choir__function f, void *of, int n, const double *low,
    const double *high, double tolerance, int steps, double *x)
{
    search *s = choir__calloc(1, sizeof *s);
    double gradient[CHOIR__MINIMIZE_MAX];
    s->n = n, s->low = low, s->high = high;
    double value = f(of, x, gradient);
    for (int i = 0; i < steps && isfinite(value); i++) {
        double was = value;
        if (hold(s, x, gradient) <= tolerance)
            break;
        find_direction(s, gradient);
        if (!move(s, f, of, x, &value, gradient)) {
            if (!s->kept)
                break;
            s->kept = 0; /* once more, along the gradient */
        } else if (was - value <= 1e-12 * (fabs(value) + 1)) {
            break;
        }
    }
    free(s);
    return value;
}
