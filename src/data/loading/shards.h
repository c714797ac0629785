/* Recognition of tars with images. */
#ifndef CHOIR_DATA_SHARDS_H
#define CHOIR_DATA_SHARDS_H

#include "data/dataset.h"
#include "data/images/image_list.h"

/* Returns whether a file is taken for a tar, by its name. */
bool choir__is_tar_name(const char *name);

/* Adds the tars that a path names, NAME.tar or NAME-{000..010}.tar. Error: argument. */
choir_status choir__shards_list(choir__name_list *files, const char *path);

/* Returns whether the path names tars, NAME.tar or NAME-{000..010}.tar, or is a folder with
 * some. */
bool choir__is_shards(const char *path);

#endif
