/* The bytes of a file of records: from a descriptor, or rows of a Parquet file as lines of
 * JSON, a part at a time. */
#include "data/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/plugin/plugin.h"
#include "data/parquet/plugin.h"

/* --- Parquet ---
 *
 * The side of Choir of the plug-in that reads Parquet files. */

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

choir_status choir__data_record_rows_open(const char *path, choir__parquet **file)
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

/* Reads up to `room` more bytes of the lines; *bytes 0: there are no more. Error: format. */
static choir_status read_rows(choir__parquet *f, char *to, size_t room, size_t *bytes)
{
    char why[CHOIR__PARQUET_WHY];
    int64_t n = f->plugin->read(f->file, to, room, why);
    *bytes = n > 0 ? (size_t)n : 0;
    return n < 0 ? choir__error(CHOIR_ERR_FORMAT, "%s: %s", f->path, why) : CHOIR_OK;
}

void choir__data_record_rows_close(choir__parquet *f)
{
    if (!f)
        return;
    f->plugin->close(f->file);
    free(f->path);
    free(f);
}

enum {
    ROOM = 1 << 18, /* bytes that are read together: they stay in the cache while parsed */
    LONGEST = 1 << 30
};

/* --- the buffer --- */

static choir_status make_room(choir__data_records *r)
{
    if (r->next) {
        memmove(r->data, r->data + r->next, r->end - r->next);
        r->end -= r->next;
        r->searched -= choir__min(r->searched, r->next);
        r->next = 0;
    }
    if (r->end < r->room)
        return CHOIR_OK;
    size_t room = r->room ? 2 * r->room : ROOM;
    r->at.line = r->behind + 1;
    char *data = room <= LONGEST ? realloc(r->data, room + 1) : NULL;
    if (!data)
        return room > LONGEST
                   ? choir__data_record_wrong(&r->at, "a record of more than %d bytes", LONGEST)
                   : choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes",
                         r->at.path, room);
    r->data = data;
    r->room = room;
    return CHOIR_OK;
}

static choir_status read_some(
    const choir__data_records *r, char *to, size_t room, size_t *bytes)
{
    ssize_t n;
    if (r->rows)
        return read_rows(r->rows, to, room, bytes);
    do
        n = read(r->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return choir__error(
            CHOIR_ERR_IO, "%s: cannot be read: %s", r->at.path, strerror(errno));
    *bytes = (size_t)n;
    return CHOIR_OK;
}

choir_status choir__data_records_fill(choir__data_records *r)
{
    size_t bytes = 0;
    choir_status status = make_room(r);
    if (status == CHOIR_OK)
        status = read_some(r, r->data + r->end, r->room - r->end, &bytes);
    r->end += bytes;
    r->ended = bytes == 0;
    return status;
}

int64_t choir__lines_in(const char *from, const char *end)
{
    int64_t lines = 0;
    while (from < end && (from = memchr(from, '\n', (size_t)(end - from)))) {
        from++;
        lines++;
    }
    return lines;
}
