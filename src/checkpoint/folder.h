/* Folders of checkpoints: names, links, leftovers. checkpoint.h describes their purpose. */
#ifndef CHOIR_FOLDER_H
#define CHOIR_FOLDER_H

#include <choir/status.h>
#include "base/base.h"
#include "base/files/folders.h"

/* Creates DIR and its parents, and locks DIR for this process. The caller closes *lock when the
 * save is done; it is -1 if there is no lock. Errors: io (also when another process saves
 * there). */
choir_status choir__folder_lock(const char *dir, int *lock);

/* Removes what killed saves left in DIR, and restores a step that one had moved aside. */
void choir__folder_clean(const char *dir);

/* Removes a checkpoint's folder, but keeps files that do not belong to a checkpoint. */
void choir__folder_remove(const char *path);

/* Renames the finished folder `fresh` in DIR to `step`, moves `latest` (and `best`) to it, and
 * removes steps that neither link names. Errors: io; the links are then unchanged. */
choir_status choir__folder_install(
    const char *dir, const char *fresh, const char *step, bool best, int64_t keep);

/* Makes `best` name a step's folder, and removes old steps as choir__folder_install does. */
choir_status choir__folder_mark_best(const char *dir, const char *step, int64_t keep);

/* Makes the link `name` of DIR point to a step's folder, by one rename. Error: io. */
choir_status choir__folder_link(const char *dir, const char *name, const char *step);

/* Returns the number of a step's folder by its name, or -1 if this is another file. */
int64_t choir__folder_step(const char *name);

/* Returns an error if a file or folder has this path. */
choir_status choir__folder_is_free(const char *path);
/* Makes a folder that `fill` writes; it appears whole or not at all. Errors: argument (it is
 * there), io, fill's. */
choir_status choir__folder_make(
    const char *to, choir_status (*fill)(const char *folder, void *arg), void *arg);
/* Removes a folder that this process has made, and all that is in it. */
void choir__folder_unmake(const char *folder);
/* Makes the folder that a file's name begins with, if it does. Errors: io. */
choir_status choir__folder_of(const char *folder, const char *name);
/* Copies a file, unless the folder lacks it; the folder that the name may begin with is made.
 * Errors: io. */
choir_status choir__folder_copy(const char *from, const char *to, const char *name);
/* Finds the newest complete step of a folder that has no `latest`: the process that saved the
 * first one died before it made the link. found: PATH_MAX bytes. Returns false if no step is
 * complete, or if `latest` exists. */
bool choir__folder_unnamed(const char *dir, char *found);
/* Returns whether path is a file named *.safetensors. */
bool choir__is_weights_file(const char *path);

/* Calls each(name, arg) for the small files that a folder has besides tensors and state, chat
 * templates with names and unknown files among them, until one fails. */
choir_status choir__small_files(
    const char *folder, choir_status (*each)(const char *name, void *arg), void *arg);
/* Copies the small files of a checkpoint, or all files but weights of a published folder;
 * those that `to` has already stay. published: `to` is no checkpoint but a published folder,
 * in which unknown files lie among the others; the job, which names files of this machine, is
 * left out. Errors: io. */
choir_status choir__small_files_copy(const char *from, const char *to, bool published);
/* Removes a file of a checkpoint, or the folders of its small files; others stay. */
void choir__part_remove(const char *dir, const char *name, void *arg);

/* Returns whether a manifest may contain this name: a file of a checkpoint, in its folder. */
bool choir__is_part_name(const char *name);

#endif
