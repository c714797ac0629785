/* Lists of the images and folders in a folder. */
#ifndef CHOIR_IMAGE_LIST_H
#define CHOIR_IMAGE_LIST_H

#include "base/base.h"

/* A list of names; zeroed at first. */
typedef struct choir__name_list {
    char **name;
    int64_t count;
} choir__name_list;

void choir__name_list_add(choir__name_list *names, const char *name);
void choir__name_list_free(choir__name_list *names);

/* Returns whether PATH/NAME is a folder. */
bool choir__is_folder_at(const char *path, const char *name);

/* Lists the folders in a folder, sorted, except those whose name starts with a dot. Error:
 * io. */
choir_status choir__list_folders(const char *path, choir__name_list *names);

/* Lists the images in a folder and in the folders there, as paths within it: by folder, then by
 * name. Errors: io, format (nested too deep), unsupported (an image of another format). */
choir_status choir__list_images(const char *folder, choir__name_list *names);

#endif
