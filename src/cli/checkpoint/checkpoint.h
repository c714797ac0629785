/* Internals of `choir checkpoint`: printing and verifying checkpoints. */
#ifndef CHOIR_CLI_CHECKPOINT_H
#define CHOIR_CLI_CHECKPOINT_H

#include "checkpoint/weights/convert.h"

/* Prints an opened checkpoint as text or as JSON, with one object per line. */
void choir__checkpoint_print(const choir__opened *opened, bool json);

/* Compares every file with the manifest and prints a verdict on each. Returns CHOIR_ERR_FORMAT,
 * with the message of the first bad file, if any is bad. */
choir_status choir__checkpoint_check(const char *path, bool json);

#endif
