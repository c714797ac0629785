/* Internals of loading. */
#ifndef CHOIR_LOAD_H
#define CHOIR_LOAD_H

#include <jansson.h>
#include "checkpoint/stored.h"

/* Opens the weights of a checkpoint's folder (with moments: the optimizer's state) as listed in
 * the manifest's "files". Errors: io, format. */
choir_status choir__stored_open_kind(
    choir__stored *stored, const char *folder, json_t *files, bool moments);

#endif
