/* Drafts: write beside the target, sync, rename, sync the folder.
 *
 * One thread hashes a piece while another writes it, and the disk starts as soon as enough data
 * is there. So hashing, copying and the disk overlap, and the final sync has little left to
 * wait for. */
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fresh.h"

enum {
    WRITE_CHUNK = 8 << 20,
    HASH_ASIDE = 1 << 20, /* the smallest piece worth passing to another thread */
    FLUSH_CHUNK = 16 << 20,
    READ_CHUNK = 1 << 18
};

static choir_status cannot_write(const char *path)
{
    return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

choir_status choir__draft_open(choir__draft *draft, const char *path)
{
    draft->path = choir__strdup(path);
    draft->bytes = draft->flushed = 0;
    draft->hashed = false;
    draft->hasher = NULL;
    choir__sha256_init(&draft->hash);
    draft->fd = choir__fresh_open(path, &draft->temp);
    return draft->fd < 0 ? cannot_write(path) : CHOIR_OK;
}

/* Asks the system to start writing the data added since the last call. This is a hint, which
 * the system may refuse. */
static void flush_some(choir__draft *draft)
{
    if (draft->bytes - draft->flushed < FLUSH_CHUNK)
        return;
    sync_file_range(
        draft->fd, draft->flushed, draft->bytes - draft->flushed, SYNC_FILE_RANGE_WRITE);
    draft->flushed = draft->bytes;
}

static choir_status write_piece(choir__draft *draft, const char *at, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(draft->fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_write(draft->path);
        at += n;
        bytes -= (size_t)n;
        draft->bytes += n;
        flush_some(draft);
    }
    return CHOIR_OK;
}

choir_status choir__draft_write(choir__draft *draft, const void *data, size_t bytes)
{
    choir_status status = CHOIR_OK;
    const char *at = data;
    for (size_t n; bytes && status == CHOIR_OK; at += n, bytes -= n) {
        n = bytes < WRITE_CHUNK ? bytes : WRITE_CHUNK;
        if (draft->hashed && !draft->hasher && n >= HASH_ASIDE)
            draft->hasher = choir__hasher_new(&draft->hash);
        bool aside = draft->hasher && n >= HASH_ASIDE;
        if (aside)
            choir__hasher_add(draft->hasher, at, n);
        else if (draft->hashed)
            choir__sha256_update(&draft->hash, at, n);
        status = write_piece(draft, at, n);
        if (aside)
            choir__hasher_wait(draft->hasher);
    }
    return status;
}

/* Returns the folder that contains a path; the caller frees it. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return choir__strdup(".");
    return slash == path ? choir__strdup("/")
                         : choir__format("%.*s", (int)(slash - path), path);
}

choir_status choir__draft_close(choir__draft *draft, choir_status status)
{
    choir__hasher_free(draft->hasher);
    if (draft->fd >= 0) {
        if (status == CHOIR_OK && fsync(draft->fd) != 0)
            status = cannot_write(draft->path);
        if (close(draft->fd) != 0 && status == CHOIR_OK) /* network file systems fail here */
            status = cannot_write(draft->path);
        if (status == CHOIR_OK && rename(draft->temp, draft->path) != 0)
            status = cannot_write(draft->path);
        if (status != CHOIR_OK) {
            unlink(draft->temp);
        } else {
            char *folder = folder_of(draft->path);
            status = choir__sync_path(folder);
            free(folder);
        }
    }
    free(draft->path);
    free(draft->temp);
    *draft = (choir__draft){.fd = -1};
    return status;
}

choir_status choir__write_file(const char *path, const void *data, size_t bytes)
{
    choir__draft draft;
    choir_status status = choir__draft_open(&draft, path);
    if (status == CHOIR_OK)
        status = choir__draft_write(&draft, data, bytes);
    return choir__draft_close(&draft, status);
}

choir_status choir__sync_path(const char *path)
{
    choir_status status = CHOIR_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    /* Some file systems have no fsync of folders: EINVAL is no error. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        status = choir__error(CHOIR_ERR_IO, "cannot sync %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return status;
}

/* --- hashes --- */

void choir__sha256(const void *data, size_t bytes, char *hex)
{
    choir__sha256_state state;
    choir__sha256_init(&state);
    choir__sha256_update(&state, data, bytes);
    choir__sha256_final(&state, hex);
}

choir_status choir__sha256_file(const char *path, char *hex, int64_t *bytes)
{
    choir_status status = CHOIR_OK;
    choir__sha256_state state;
    unsigned char *chunk = choir__alloc(READ_CHUNK);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    ssize_t n = -1;
    choir__sha256_init(&state);
    *bytes = 0;
    while (fd >= 0 && ((n = read(fd, chunk, READ_CHUNK)) > 0 || (n < 0 && errno == EINTR))) {
        if (n < 0)
            continue;
        choir__sha256_update(&state, chunk, (size_t)n);
        *bytes += n;
    }
    if (fd < 0 || n < 0)
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    choir__sha256_final(&state, hex);
    if (fd >= 0)
        close(fd);
    free(chunk);
    return status;
}
