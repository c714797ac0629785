/* Recognition of files and folders with labelled texts, for data/open. */
#ifndef CHOIR_DATA_LABELLED_H
#define CHOIR_DATA_LABELLED_H

#include <stdbool.h>

/* Returns whether the path is a file of records, or a folder with one for training. */
bool choir__is_labelled(const char *path);

#endif
