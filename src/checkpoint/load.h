/* Inside loading. */
#ifndef CHOIR_LOAD_H
#define CHOIR_LOAD_H

#include <jansson.h>
#include "checkpoint/stored.h"

/* The weights of a checkpoint's folder, or with moments the optimizer's state, as the
 * manifest's "files" has them. Errors: io, format. */
choir_status choir__stored_open_kind(
    choir__stored *stored, const char *folder, json_t *files, bool moments);

#endif
