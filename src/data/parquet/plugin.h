/* choir_parquet.so, rows of Parquet files: a plug-in (base/plugin/plugin.h), because it needs
 * Apache Arrow, whose Parquet reader is in C++. It calls nothing of Choir. */
#ifndef CHOIR_DATA_PARQUET_PLUGIN_H
#define CHOIR_DATA_PARQUET_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/plugin/plugin_head.h"

enum { CHOIR__PARQUET_WHY = 512 }; /* bytes of a reason, with its final NUL */

/* The table that the plug-in exports, under the name choir_plugin. A file is read as one line
 * of JSON per row: an object with a member per column; columns of raw bytes are left
 * out. Null values and numbers that are not finite are null; dates and other types are
 * strings. */
typedef struct choir__parquet_plugin {
    choir__plugin_head head;
    /* Returns the open file; NULL: it is not a Parquet file, and `why` receives the reason. */
    void *(*open)(const char *path, char *why);
    /* Writes up to `room` more bytes of the lines. Returns their number; 0: there are no more;
     * -1: the file is damaged, and `why` says the reason. */
    int64_t (*read)(void *file, char *to, size_t room, char *why);
    void (*close)(void *file);
} choir__parquet_plugin;

#define CHOIR__PARQUET_LAYOUT ((uint32_t)sizeof(choir__parquet_plugin))

#endif
