/* Drafts: write beside the target, sync, rename, sync the folder. */
#include "checkpoint/format/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/temp_file.h"

static choir_status cannot_write(const char *path, int error)
{
    return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

choir_status choir__draft_open(choir__draft *draft, const char *path)
{
    *draft = (choir__draft){.path = choir__strdup(path)};
    draft->fd = choir__temp_file_open(path, &draft->temp);
    if (draft->fd >= 0)
        draft->writer = choir__writer_new(draft->fd);
    return draft->writer ? CHOIR_OK : cannot_write(path, errno);
}

choir_status choir__draft_write(choir__draft *draft, const void *data, size_t bytes)
{
    int error = choir__writer_add(draft->writer, data, bytes);
    return error ? cannot_write(draft->path, error) : CHOIR_OK;
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

/* Gives the complete file its name. */
static choir_status install(choir__draft *draft)
{
    if (fsync(draft->fd) != 0)
        return cannot_write(draft->path, errno);
    int closed = close(draft->fd); /* network file systems fail here */
    draft->fd = -1;
    if (closed != 0 || rename(draft->temp, draft->path) != 0)
        return cannot_write(draft->path, errno);
    char *folder = folder_of(draft->path);
    choir_status status = choir__sync_path(folder);
    free(folder);
    return status;
}

choir_status choir__draft_close(choir__draft *draft, choir_status status, choir__digest *digest)
{
    choir__digest own;
    bool made = draft->fd >= 0;
    digest = digest ? digest : &own;
    int error = draft->writer ? choir__writer_end(draft->writer, digest) : 0;
    if (status == CHOIR_OK && error)
        status = cannot_write(draft->path, error);
    if (status == CHOIR_OK)
        status = install(draft);
    if (draft->fd >= 0)
        close(draft->fd);
    if (made && status != CHOIR_OK)
        unlink(draft->temp);
    free(draft->path);
    free(draft->temp);
    *draft = (choir__draft){.fd = -1};
    return status;
}

/* The bytes pass through a writer, the system's memory and a disk, and one of them may be
 * faulty. */
choir_status choir__write_file(const char *path, const void *data, size_t bytes)
{
    choir__draft draft;
    choir__digest given, read;
    choir_status status = choir__draft_open(&draft, path);
    if (status == CHOIR_OK)
        status = choir__draft_write(&draft, data, bytes);
    status = choir__draft_close(&draft, status, &given);
    if (status == CHOIR_OK)
        status = choir__sha256_file(path, &read);
    if (status == CHOIR_OK &&
        (read.bytes != given.bytes || strcmp(read.sha256, given.sha256) != 0))
        return choir__error(CHOIR_ERR_STATE,
            "%s has other bytes than were to be written: they changed in this machine's memory "
            "or on its disk",
            path);
    return status;
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

/* Reads fd to its end. Returns 0 or an errno. */
static int read_into(choir__writer *w, int fd)
{
    for (ssize_t n = 1; n != 0;) {
        size_t room;
        void *at = choir__writer_room(w, &room);
        n = read(fd, at, room);
        if (n < 0 && errno != EINTR)
            return errno;
        choir__writer_filled(w, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

choir_status choir__sha256_file(const char *path, choir__digest *digest)
{
    int fd;
    *digest = (choir__digest){0};
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    choir__writer *w = choir__writer_new(-1);
    int error = w ? read_into(w, fd) : errno;
    if (w)
        choir__writer_end(w, digest);
    close(fd);
    return error ? choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(error))
                 : CHOIR_OK;
}
