/* Rows of a Parquet file as lines of JSON, by the plug-in choir_parquet.so. */
#ifndef CHOIR_DATA_PARQUET_H
#define CHOIR_DATA_PARQUET_H

#include "base/base.h"

typedef struct choir__parquet choir__parquet;

/* Opens a regular file. Errors: io, format, unsupported (there is no plug-in). */
choir_status choir__parquet_open(const char *path, choir__parquet **file);
void choir__parquet_close(choir__parquet *file); /* NULL is fine */

/* Reads up to `room` more bytes of the lines; *bytes 0: there are no more. Error: format. */
choir_status choir__parquet_read(choir__parquet *file, char *to, size_t room, size_t *bytes);

#endif
