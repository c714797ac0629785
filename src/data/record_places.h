/* Where the records of a split come from: their files and lines, in the order in which they
 * were read. */
#ifndef CHOIR_DATA_RECORD_PLACES_H
#define CHOIR_DATA_RECORD_PLACES_H

#include <choir/data.h>

#include "data/records.h"

typedef struct choir__data_record_places {
    char **files;
    int32_t file_count;
    struct choir__data_record_place {
        int64_t first; /* the reader's number of the record's first token or sample */
        int64_t line;
        int32_t file;
    } * of; /* (count) by `first`, ascending */
    int64_t count;
} choir__data_record_places;

/* Notes a record. */
void choir__data_record_places_add(
    choir__data_record_places *places, const choir__data_record_at *at, int64_t first);

/* Returns the number of the record that has `at`, which is `first` of a record or behind. */
int64_t choir__data_record_places_find(const choir__data_record_places *places, int64_t at);

/* Fills in file, line and document of a record. */
void choir__data_record_places_fill(
    const choir__data_record_places *places, int64_t record, choir_sample_place *place);

void choir__data_record_places_free(choir__data_record_places *places);

#endif
