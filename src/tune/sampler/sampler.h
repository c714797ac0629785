/* Samplers: they suggest the parameters of the next trial. */
#ifndef CHOIR_TUNE_SAMPLER_H
#define CHOIR_TUNE_SAMPLER_H

#include "base/options.h"
#include "base/rng.h"
#include "tune/space/space.h"
#include "tune/trial.h"

/* The trials, as a sampler may look at them. */
typedef struct choir__history {
    const choir_space *space;
    choir_trial *const *trial; /* (count) by number; of results, the known ones (trial.h) */
    int64_t count, most;       /* most: trials in all, 0: no limit */
    /* (news_count) trials in the order in which results became known; a resumed trial occurs
     * several times, the last time at its known_news */
    const int64_t *news;
    int64_t news_count;
    int objectives;
    const double *sign; /* (objectives) 1: less is better; -1: more is better */
} choir__history;

/* The random numbers of one trial, which follow from the study's seed and the trial's number
 * alone. */
typedef struct choir__draws {
    uint64_t key, next;
} choir__draws;

/* Returns a number in [0, 1) of 53 bits. */
static inline double choir__draw(choir__draws *d)
{
    uint32_t bits[4];
    choir__philox(d->key, 0, d->next++, bits);
    return (double)(((uint64_t)bits[0] << 21) ^ (bits[1] >> 11)) * 0x1p-53;
}

typedef struct choir__tune_sampler choir__tune_sampler;

typedef struct choir__tune_sampler_ops {
    const char *name;
    /* Makes a sampler from its text, such as "tpe:startup=20". Errors: argument,
     * unsupported. */
    choir_status (*open)(const choir__history *first, uint64_t seed, const char *text,
        choir__tune_sampler **sampler);
    /* Writes a value for each parameter, NaN for those that the trial does not have. Called
     * again, with the next draws, if the space does not allow the values. Error: end. */
    choir_status (*suggest)(choir__tune_sampler *s, const choir__history *history,
        choir__draws *draws, double *params);
    /* Returns whether suggest has another suggestion. NULL: it always has. */
    bool (*has_more)(choir__tune_sampler *s, const choir__history *history);
    void (*free)(choir__tune_sampler *s);
} choir__tune_sampler_ops;

struct choir__tune_sampler {
    const choir__tune_sampler_ops *ops;
};

/* Returns the name of sampler i, or NULL if there are fewer. */
const char *choir__tune_sampler_name(size_t i);

/* Opens the sampler that a text like "tpe:startup=20" names. Errors: argument. */
choir_status choir__tune_sampler_open(const char *text, const choir__history *first,
    uint64_t seed, choir__tune_sampler **sampler);

/* Draws one value of a distribution. */
double choir__dist_draw(const choir__dist *dist, choir__draws *draws);
/* Draws every parameter that the trial has. */
void choir__space_draw(const choir_space *space, choir__draws *draws, double *params);

/* The members of the registry of samplers. */

extern const choir__tune_sampler_ops choir__tune_sampler_bohb, choir__tune_sampler_cmaes,
    choir__tune_sampler_gp, choir__tune_sampler_grid, choir__tune_sampler_nsga2,
    choir__tune_sampler_qmc, choir__tune_sampler_random, choir__tune_sampler_tpe;

#endif
