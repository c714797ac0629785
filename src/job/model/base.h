/* --base: the type in which a job's frozen weights are held. */
#ifndef CHOIR_JOB_BASE_H
#define CHOIR_JOB_BASE_H

#include "job/parts.h"

/* Names of the types, for the table of options; NULL behind the last. */
const char *choir__base_names(size_t index);

/* `stored` is a file or a checkpoint whose types weights keep if no option names one
 * (choir__hold_as_stored); NULL: none. */

/* Holds the frozen weights of net as the option says: NULL: as they are stored, and in the type
 * of mixed precision, if there is any, those that products alone read; "f32": as they are.
 * Errors: as choir_module_hold; argument (a type, and no frozen weights). */
choir_status choir__base_hold(
    const char *base, const char *amp, const char *stored, choir_module *net);

/* Holds all weights of a model that will only run in that type; NULL: as they are stored.
 * Errors: as choir_module_hold. */
choir_status choir__base_of_running(const char *base, const char *stored, choir_module *net);

/* Holds the weights of a trained model in its job's type, once they are frozen; NULL: as its
 * checkpoint states. Types of 16 bits are read as f32: files have them so that others read
 * them, too. */
choir_status choir__base_of_saved(const char *base, const char *stored, choir_module *net);

#endif
