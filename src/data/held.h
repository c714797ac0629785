/* Which samples are for validation, of data that have no validation split of their own: the
 * last ones of text, and one of each group of records or files of a class that follow one
 * another. Its place in the group is random, but always the same: every n-th record of a file
 * whose labels take turns would be of one class. The first sample
 * is never held out. */
#ifndef CHOIR_DATA_HELD_H
#define CHOIR_DATA_HELD_H

#include "base/base.h"

/* A part is a share of the samples, such as 0.2; 0: a tenth, the default. choir__held_check
 * returns an error for a part outside [0, 1]; 1: all. Error: argument. */
choir_status choir__held_check(const char *name, double part);

/* Returns whether the sample is for validation: with a part of 0.1, one of
 * 0-9, one of 10-19, ... */
bool choir__is_held(double part, int64_t sample);

/* Returns how many of `count` tokens or samples are for training, rounded down, if the last
 * ones are for validation. */
int64_t choir__training_part(double part, int64_t count);

#endif
