/* The facts of a stored study for which Optuna has no column: attributes of the study. */
#ifndef CHOIR_TUNE_KEPT_FACTS_H
#define CHOIR_TUNE_KEPT_FACTS_H

#include "tune/storage/store.h"
#include "tune/study.h"

/* Compares the study with the stored one, and stores the facts that are missing there. Error:
 * argument, another direction, space, sampler, seed or window. */
choir_status choir__facts_agree(choir_study *s, const choir__stored_study *stored,
    const choir_study_opts *opts, choir__study_store *store);

/* Takes directions and space from the storage. Errors: argument, I/O. */
choir_status choir__facts_take(
    choir_study *s, const choir__stored_study *stored, choir__study_store *store);

#endif
