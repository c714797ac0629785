/* The files of records that a path stands for: a single file, or the files of a folder's
 * splits. */
#ifndef CHOIR_DATA_RECORD_PARTS_H
#define CHOIR_DATA_RECORD_PARTS_H

#include "data/images/image_list.h"
#include "data/records.h"

/* The files of each split, in order. If none is held out, the training files have both splits
 * (data/dataset.h). */
typedef struct choir__data_record_parts {
    choir__name_list train, held;
} choir__data_record_parts;

/* Returns whether the path is a file of records, or a folder with one for training. */
bool choir__has_records(const char *path);

/* Finds the files. The caller frees the parts, also after an error. Error: format (a numbered
 * file is missing). */
choir_status choir__data_record_parts_find(const char *path, choir__data_record_parts *parts);
void choir__data_record_parts_free(choir__data_record_parts *parts);

/* Calls fn for each record of the files, in order, until it fails (choir__data_records_read).
 */
choir_status choir__data_record_parts_read(
    const choir__name_list *files, choir__data_record_fn *fn, void *arg);

#endif
