/* Drafts: write beside the target, sync, rename, sync the folder. Hashes are libsodium's. */
#include "checkpoint/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* write(2) takes at most 0x7ffff000 bytes a call; hashing reads so much at once. */
enum { WRITE_CHUNK = 1 << 30, READ_CHUNK = 1 << 18 };

static choir_status cannot_write(const char *path)
{
    return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

choir_status choir__draft_open(choir__draft *draft, const char *path)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    draft->path = choir__strdup(path);
    draft->temp = choir__format("%s.tmp.%ld", path, (long)getpid());
    draft->fd = open(draft->temp, flags, 0666);
    if (draft->fd < 0 && errno == EEXIST) { /* of a killed process that had our number */
        unlink(draft->temp);
        draft->fd = open(draft->temp, flags, 0666);
    }
    return draft->fd < 0 ? cannot_write(path) : CHOIR_OK;
}

choir_status choir__draft_write(choir__draft *draft, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = write(draft->fd, at, bytes < WRITE_CHUNK ? bytes : WRITE_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot_write(draft->path);
        at += n;
        bytes -= (size_t)n;
    }
    return CHOIR_OK;
}

/* The folder a path is in; the caller frees it. */
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
    /* Some file systems have no fsync of folders: EINVAL, and nothing more to be done. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        status = choir__error(CHOIR_ERR_IO, "cannot sync %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return status;
}

/* --- hashes --- */

void choir__hex(const unsigned char *hash, char *hex)
{
    sodium_bin2hex(hex, CHOIR__SHA256_HEX, hash, crypto_hash_sha256_BYTES);
}

void choir__sha256(const void *data, size_t bytes, char *hex)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, data, bytes);
    choir__hex(hash, hex);
}

choir_status choir__sha256_file(const char *path, char *hex, int64_t *bytes)
{
    choir_status status = CHOIR_OK;
    crypto_hash_sha256_state state;
    unsigned char hash[crypto_hash_sha256_BYTES];
    unsigned char *chunk = choir__alloc(READ_CHUNK);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    ssize_t n = -1;
    crypto_hash_sha256_init(&state);
    *bytes = 0;
    while (fd >= 0 && ((n = read(fd, chunk, READ_CHUNK)) > 0 || (n < 0 && errno == EINTR))) {
        if (n < 0)
            continue;
        crypto_hash_sha256_update(&state, chunk, (unsigned long long)n);
        *bytes += n;
    }
    if (fd < 0 || n < 0)
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    crypto_hash_sha256_final(&state, hash);
    choir__hex(hash, hex);
    if (fd >= 0)
        close(fd);
    free(chunk);
    return status;
}
