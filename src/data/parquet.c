/* The side of Choir of the plug-in that reads Parquet files. */
#include "data/records.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/plugin/plugin.h"
#include "data/dataset.h"
#include "data/parquet/plugin.h"

struct choir__parquet {
    const choir__parquet_plugin *plugin;
    char *path;
    void *file;
};

/* The loader's messages about files, before Arrow's: missing, unreadable, no regular file. */
static choir_status check_file(const char *path)
{
    int fd;
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status == CHOIR_OK)
        close(fd);
    return status;
}

choir_status choir__parquet_open(const char *path, choir__parquet **file)
{
    const choir__plugin_head *head;
    char why[CHOIR__PARQUET_WHY];
    choir_status status = check_file(path);
    if (status == CHOIR_OK)
        status = choir__plugin_load("parquet", "Parquet is",
            "Apache Arrow (libparquet-dev of its repository, or Python's pyarrow) before the build",
            CHOIR__PARQUET_LAYOUT, &head);
    if (status != CHOIR_OK)
        return status;
    const choir__parquet_plugin *plugin = (const choir__parquet_plugin *)head;
    void *opened = plugin->open(path, why);
    if (!opened)
        return choir__error(CHOIR_ERR_FORMAT, "%s: %s", path, why);
    *file = choir__alloc(sizeof **file);
    **file = (choir__parquet){plugin, choir__strdup(path), opened};
    return CHOIR_OK;
}

choir_status choir__parquet_read(choir__parquet *f, char *to, size_t room, size_t *bytes)
{
    char why[CHOIR__PARQUET_WHY];
    int64_t n = f->plugin->read(f->file, to, room, why);
    *bytes = n > 0 ? (size_t)n : 0;
    return n < 0 ? choir__error(CHOIR_ERR_FORMAT, "%s: %s", f->path, why) : CHOIR_OK;
}

void choir__parquet_close(choir__parquet *f)
{
    if (!f)
        return;
    f->plugin->close(f->file);
    free(f->path);
    free(f);
}
