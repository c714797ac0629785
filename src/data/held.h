/* Which samples are for validation, of data that have no validation split of their own: the
 * last ones of text, and one of each group of records or files of a class that follow one
 * another. Its place in the group is random, but always the same: every n-th record of a file
 * whose labels take turns would be of one class. The first sample is never held out.
 *
 * A class with two samples or more from which none would be chosen gives its second one, so
 * that validation has all classes. Where classes are mixed in a file, that is known at its end:
 * until then both splits keep the second sample of such a class. */
#ifndef CHOIR_DATA_HELD_H
#define CHOIR_DATA_HELD_H

#include "base/base.h"

/* A part is a share of the samples, such as 0.2; 0: a tenth, the default. choir__held_check
 * returns an error for a part outside [0, 1]; 1: all. Error: argument. */
choir_status choir__held_check(const char *name, double part);

/* Returns whether the sample is for validation: with a part of 0.1, one of
 * 0-9, one of 10-19, ... */
bool choir__is_held(double part, int64_t sample);

/* Returns whether a class's sample is for validation; count: the samples of the class, which
 * are counted by themselves. */
bool choir__is_held_of_class(double part, int64_t sample, int64_t count);

typedef struct choir__held_class {
    int64_t samples, held;
    int64_t second; /* the place of its second sample among those kept; -1: it needs none */
} choir__held_class;

/* The counts of each class, while a split reads its data. */
typedef struct choir__held_classes {
    choir__held_class *of; /* (count) */
    int64_t count;
} choir__held_classes;

/* Notes the next sample of a class. held: result of choir__is_held; kept: number of samples
 * that the split has kept before. Returns whether it keeps this one. */
bool choir__held_classes_note(
    choir__held_classes *classes, int64_t class, bool held, bool training, int64_t kept);

/* Ends and frees the notes; returns, of each of the samples that were kept (kept), whether the
 * split drops it after all. The caller frees the array. */
bool *choir__held_classes_end(choir__held_classes *classes, bool training, int64_t kept);

/* Returns how many of `count` tokens or samples are for training, rounded down, if the last
 * ones are for validation. */
int64_t choir__training_part(double part, int64_t count);

#endif
