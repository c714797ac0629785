/* Looking into checkpoints: what `choir checkpoint` shows. */
#ifndef CHOIR_CLI_CHECKPOINT_H
#define CHOIR_CLI_CHECKPOINT_H

#include "checkpoint/convert.h"

/* What is opened, for people or as JSON, a line an object. */
void choir__checkpoint_print(const choir__opened *opened, bool json);

/* Compares every file with the manifest, and says of each how it is. CHOIR_ERR_FORMAT, with a
 * message, if one is bad: the first. */
choir_status choir__checkpoint_check(const char *path, bool json);

#endif
