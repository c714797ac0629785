/* Folders: making one with all folders above it, and its entries. */
#ifndef CHOIR_FOLDERS_H
#define CHOIR_FOLDERS_H

#include <stdbool.h>

/* Makes the folder `path` and those above it, unless they are there. Returns 0, or the errno
 * that says why files cannot be made in it. */
int choir__folders_make(const char *path);

/* Calls each(dir, name, arg) for every entry of a folder. */
void choir__folder_walk(
    const char *dir, void (*each)(const char *dir, const char *name, void *arg), void *arg);

bool choir__folder_has(const char *folder, const char *name);
bool choir__is_folder(const char *path);

#endif
