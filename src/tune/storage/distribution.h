/* Distributions as Optuna writes them, in JSON. */
#ifndef CHOIR_TUNE_STORAGE_DISTRIBUTION_H
#define CHOIR_TUNE_STORAGE_DISTRIBUTION_H

#include <jansson.h>

#include "tune/space/space.h"

/* Returns Optuna's JSON, on the heap. A normal distribution, which Optuna does not have, is a
 * range of nine deviations on both sides. */
char *choir__dist_json(const choir__dist *dist);

/* Returns the distribution of Optuna's JSON as people write it, "log(1e-5, 0.1)", on the heap;
 * NULL if it is not a distribution. */
char *choir__dist_text_of_json(const char *json);

/* Returns a choice as it is stored. */
json_t *choir__choice_json(const choir__choice *choice);

/* Learns from a stored distribution, with the same choices as `dist`, which choices are values
 * such as true (in a space, the word True). Returns whether any is new. */
bool choir__dist_learn(choir__dist *dist, const char *json);

/* Makes *dist the distribution of Optuna's JSON, whatever its choices are; the caller frees it
 * with choir__dist_free. Error: format (not a distribution); the message begins with the
 * parameter's name. */
choir_status choir__dist_of_json(const char *name, const char *json, choir__dist *dist);

/* Stores in *value what a value in JSON means, as of Optuna's enqueue_trial: true is the choice
 * True. Error: argument, not one of the distribution's values. */
choir_status choir__dist_take_json(
    const choir__dist *dist, const char *name, const json_t *json, double *value);

/* Stores in *value what an internal value of Optuna's means in `dist`. Error: argument, the
 * stored distribution is another one; the message begins with the parameter's name. */
choir_status choir__dist_value_of_json(const choir__dist *dist, const char *name,
    const char *json, double internal, double *value);

#endif
