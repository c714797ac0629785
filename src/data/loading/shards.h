/* Tars with images: their names, and members of a tar. */
#ifndef CHOIR_DATA_SHARDS_H
#define CHOIR_DATA_SHARDS_H

#include "base/base.h"
#include "data/dataset.h"
#include "data/images/image_list.h"

/* Returns whether a file is taken for a tar, by its name. */
bool choir__is_tar_name(const char *name);

/* Adds the tars that a path names, NAME.tar or NAME-{000..010}.tar. Error: argument. */
choir_status choir__file_shards_list(choir__name_list *files, const char *path);

/* The tars of a path: the first ones are for training, the others for validation. */
typedef struct choir__shard_files {
    choir__name_list all;
    int64_t training;
    bool splits; /* some are for validation; false: a part of the samples is */
} choir__shard_files;

/* Finds the tars of a path, of a folder in the order of their names: val*.tar (or test*.tar)
 * are for validation, and train*.tar, or else all others, for training. Without the former a
 * part of the samples is (data/dataset.h). The caller frees files->all. Error: argument. */
choir_status choir__shards_find(const char *path, choir__shard_files *files);

/* Returns whether the path names tars, NAME.tar or NAME-{000..010}.tar, or is a folder with
 * some. */
bool choir__is_shards(const char *path);

/* Members of a tar: their names, places and sizes. Formats: ustar, with GNU's and POSIX's (pax)
 * long names and sizes. */

typedef struct choir__tar_member {
    char *name; /* name in the tar; the reader owns it */
    int64_t at; /* offset of its bytes in the file */
    int64_t bytes;
} choir__tar_member;

typedef struct choir__tar {
    const char *path;
    int fd;
    int64_t next, size; /* offset of the next header; size of the file */
    char *name;         /* name of the current member */
} choir__tar;

/* Opens a tar. Close it also after an error. Errors: io. */
choir_status choir__tar_open(choir__tar *tar, const char *path);
void choir__tar_close(choir__tar *tar);

/* Finds the next regular file; member->name NULL: no more files. Errors: io, format (damaged,
 * cut short). */
choir_status choir__tar_next(choir__tar *tar, choir__tar_member *member);

/* Reads a member's bytes, and a '\0' behind them, into *data, which the caller frees. Errors:
 * io, format (the file has become shorter), memory. */
choir_status choir__tar_read(int fd, const char *path, int64_t at, int64_t bytes, char **data);

#endif
