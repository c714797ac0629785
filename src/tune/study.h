/* The study as its trials see it. */
#ifndef CHOIR_TUNE_STUDY_H
#define CHOIR_TUNE_STUDY_H

#include <choir/study.h>

#include "tune/space/space.h"

const choir_space *choir__study_space(const choir_study *study);
int choir__study_objectives(const choir_study *study);
/* Returns the text of the trial's parameter i, which it has; the trial keeps it. */
const char *choir__study_text(choir_trial *trial, int i);

#endif
