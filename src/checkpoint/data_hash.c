/* The SHA-256 of data, and of published weights, so that a resumed job, and the ranks of a job,
 * notice other data or weights.
 *
 * A file's hash is what sha256sum prints. A folder's hash covers the names, sizes and contents
 * of the files that its reader would open, in the order of their names. Data over 256 MiB are
 * hashed in part, so that a job starts in less than a second: of a file its size and 256 pieces
 * of 1 MiB, evenly spread; of a folder the names and sizes of its files. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/data_open.h>
#include <choir/training.h>

#include "base/files/file.h"
#include "checkpoint/format/sha256.h"
#include "checkpoint/weights/weight_files.h"
#include "data/open/reader.h"
#include "data/loading/shards.h"

enum { PIECE = 1 << 20, PIECES = 256 };
static const int64_t whole_limit = (int64_t)PIECE * PIECES; /* bytes */

static choir_status cannot_read(const char *path)
{
    return choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
}

/* Adds `bytes` bytes of the file from `at` on; fewer, if the file ends before. */
static choir_status add_piece(
    choir__sha256_state *hash, int fd, const char *path, int64_t at, int64_t bytes, char *room)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, room, (size_t)choir__min(bytes, PIECE), (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_read(path);
        if (n == 0)
            break;
        choir__sha256_update(hash, room, (size_t)n);
        at += n;
        bytes -= n;
    }
    return CHOIR_OK;
}

static void add_size(choir__sha256_state *hash, int64_t bytes)
{
    char text[32];
    snprintf(text, sizeof text, "%lld\n", (long long)bytes);
    choir__sha256_update(hash, text, strlen(text));
}

/* Adds a file: all of it, or its size and pieces of it. */
static choir_status add_file(choir__sha256_state *hash, const char *path)
{
    struct stat info;
    int fd;
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    char *room = choir__alloc(PIECE);
    if (fstat(fd, &info) != 0) {
        status = cannot_read(path);
    } else if (info.st_size <= whole_limit) {
        status = add_piece(hash, fd, path, 0, info.st_size, room);
    } else {
        add_size(hash, info.st_size);
        for (int i = 0; i < PIECES && status == CHOIR_OK; i++)
            status = add_piece(
                hash, fd, path, (info.st_size - PIECE) / (PIECES - 1) * i, PIECE, room);
    }
    free(room);
    close(fd);
    return status;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Adds the contents of the folder's files, or only their names and sizes, whose sum becomes
 * *total. */
static choir_status add_folder(choir__sha256_state *hash, const char *path,
    bool (*reads)(const char *name), bool contents, int64_t *total)
{
    char *copy = choir__strdup(path), *const roots[] = {copy, NULL};
    size_t skip = strlen(path) + 1;
    choir_status status = CHOIR_OK;
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    for (FTSENT *e; walk && status == CHOIR_OK && (e = fts_read(walk));) {
        if (e->fts_info != FTS_F || !reads(e->fts_name) || !S_ISREG(e->fts_statp->st_mode))
            continue;
        if (contents) {
            status = add_file(hash, e->fts_path);
            continue;
        }
        choir__sha256_update(hash, e->fts_path + skip, strlen(e->fts_path + skip) + 1);
        add_size(hash, e->fts_statp->st_size);
        *total += e->fts_statp->st_size;
    }
    if (!walk)
        status = cannot_read(path);
    else
        fts_close(walk);
    free(copy);
    return status;
}

static choir_status add_tars(choir__sha256_state *hash, const char *path)
{
    choir__name_list files = {0};
    choir_status status = choir__file_shards_list(&files, path);
    for (int64_t i = 0; i < files.count && status == CHOIR_OK; i++)
        status = add_file(hash, files.name[i]);
    choir__name_list_free(&files);
    return status;
}

/* Adds one source: a file, or the files of a folder that its reader opens. */
static choir_status add_source(choir__sha256_state *hash, const choir__data_request *r)
{
    const choir__data_reader *reader = choir__data_reader_find(r);
    int64_t total = 0;
    if (choir__data_is_random(r->path))
        return CHOIR_OK;
    if (choir__is_tar_name(r->path))
        return add_tars(hash, r->path);
    if (!choir__data_is_folder(r->path))
        return add_file(hash, r->path);
    if (!reader || !reader->reads)
        return CHOIR_OK;
    choir_status status = add_folder(hash, r->path, reader->reads, false, &total);
    return status == CHOIR_OK && total <= whole_limit
               ? add_folder(hash, r->path, reader->reads, true, &total)
               : status;
}

/* Adds which samples of the source are read, and how often. */
static void add_share(choir__sha256_state *hash, const choir__data_source *source)
{
    char *text = choir__format("%.17g %lld %.17g %lld\n", source->weight,
        (long long)source->first, source->part, (long long)source->every);
    choir__sha256_update(hash, text, strlen(text));
    free(text);
}

/* Adds the contents of each source, and the shares of several sources or of a part, but not
 * their paths: moved data keep their hash. */
static choir_status add_sources(choir__sha256_state *hash, choir__data_request *r)
{
    choir__data_sources sources;
    const char *text = r->path;
    choir_status status = choir__data_sources_parse(text, &sources);
    bool shared = status == CHOIR_OK && strcmp(sources.source[0].path, text) != 0;
    for (int s = 0; s < sources.count && status == CHOIR_OK; s++) {
        if (shared)
            add_share(hash, &sources.source[s]);
        r->path = sources.source[s].path;
        status = add_source(hash, r);
    }
    choir__data_sources_free(&sources);
    return status;
}

choir_status choir_data_sha256(const char *path, const choir_model_info *info, char hex[65])
{
    if (!info || !hex)
        return choir__missing(__func__, info ? "hex" : "model info");
    choir_data_opts opts = choir_data_defaults();
    choir__sha256_state hash;
    char *own = path ? NULL : choir__data_own_text();
    *hex = '\0';
    if (!path && !own)
        return CHOIR_ERR_IO;
    choir__data_request r = {
        .path = path ? path : own, .split = CHOIR_TRAIN, .opts = &opts, .info = info};
    bool random = choir__data_is_random(r.path);
    choir__sha256_init(&hash);
    choir_status status = random ? CHOIR_OK : add_sources(&hash, &r);
    if (status == CHOIR_OK && !random)
        choir__sha256_final(&hash, hex);
    free(own);
    return status;
}

static bool is_weights(const char *name)
{
    return fnmatch("*.safetensors", name, 0) == 0;
}

/* Adds an index of weights, and the files beside it. */
static choir_status add_index(choir__sha256_state *hash, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder =
        slash ? choir__format("%.*s", (int)(slash - path), path) : choir__strdup(".");
    int64_t total = 0;
    choir_status status = add_file(hash, path);
    if (status == CHOIR_OK)
        status = add_folder(hash, folder, is_weights, true, &total);
    free(folder);
    return status;
}

choir_status choir_weight_files_sha256(const char *path, char hex[65])
{
    if (!path || !hex)
        return choir__missing(__func__, path ? "hex" : "path");
    choir__weight_files found;
    choir__sha256_state hash;
    *hex = '\0';
    choir_status status = choir__weight_files_find(path, &found);
    if (status != CHOIR_OK)
        return status;
    choir__sha256_init(&hash);
    if (!found.count)
        status = add_index(&hash, found.path);
    for (int i = 0; i < found.count && status == CHOIR_OK; i++)
        status = add_file(&hash, found.files[i]);
    if (status == CHOIR_OK)
        choir__sha256_final(&hash, hex);
    choir__weight_files_free(&found);
    return status;
}
