/* Folders that are made with all folders above them. */
#ifndef CHOIR_FOLDERS_H
#define CHOIR_FOLDERS_H

/* Makes the folder `path` and those above it, unless they are there. Returns 0, or the errno
 * that says why files cannot be made in it. */
int choir__folders_make(const char *path);

#endif
