/* Folders of checkpoints: names, links, leftovers. What each is for is in checkpoint.h. */
#ifndef CHOIR_FOLDER_H
#define CHOIR_FOLDER_H

#include <choir/status.h>
#include "base/base.h"

/* Makes DIR and those above it, and locks it for this process: *lock is closed when the save is
 * done; -1 without one. Errors: io (also when another process saves there). */
choir_status choir__folder_lock(const char *dir, int *lock);

/* Removes what killed saves left in DIR, and puts back what one had aside. */
void choir__folder_clean(const char *dir);

/* Gives the finished folder `fresh` in DIR its name, step, moves `latest` (and `best`) to it,
 * and removes steps that are neither. Errors: io; the links are what they were, then. */
choir_status choir__folder_install(
    const char *dir, const char *fresh, const char *step, bool best);

/* Removes a checkpoint's folder; one that holds anything else stays, with that. */
void choir__folder_remove(const char *path);

bool choir__folder_has(const char *folder, const char *name);
bool choir__is_folder(const char *path);
/* Whether a path is a file called *.safetensors. */
bool choir__is_weights_file(const char *path);

/* Whether a name is one that a manifest may have: a file of a checkpoint, in its folder. */
bool choir__is_part_name(const char *name);

#endif
