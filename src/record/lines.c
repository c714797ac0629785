/* Files of lines. Opening for a continued run reads the file from its end, and cuts off a
 * broken line and the lines that will be written again, since a run's lines ascend. */
#include "record/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"

/* --- adding ---
 *
 * One write per record. What a full disk has cut off is removed again, so that the file ends
 * with a whole record, and a file that was removed meanwhile is an error and not silence. */

choir_status choir__record_failed(const char *path, int error)
{
    return choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, choir__why(error));
}

choir_status choir__record_append(int fd, const char *path, const void *bytes, size_t count)
{
    struct stat s;
    ssize_t written;
    do
        written = write(fd, bytes, count);
    while (written < 0 && errno == EINTR);
    int error = written < 0 ? errno : ENOSPC;
    bool file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    if (written == (ssize_t)count)
        return file && !s.st_nlink
                   ? choir__error(CHOIR_ERR_IO, "cannot write %s: it was removed", path)
                   : CHOIR_OK;
    if (written > 0 && file)
        (void)!ftruncate(fd, s.st_size - written);
    return choir__record_failed(path, error);
}

/* Returns the number of bytes that stay: up to the end of the last line before the first one
 * that does not. The lines of a run ascend, so those that go are at the end. */
static size_t staying(const char *text, size_t bytes, choir__lines_stay *stay, void *arg)
{
    while (bytes) {
        const char *start = bytes > 1 ? memrchr(text, '\n', bytes - 1) : NULL;
        start = start ? start + 1 : text;
        bool whole = text[bytes - 1] == '\n';
        if (whole && stay(start, (size_t)(text + bytes - 1 - start), arg))
            break;
        bytes = (size_t)(start - text);
    }
    return bytes;
}

static int cut(int fd, choir__lines_stay *stay, void *arg)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return errno;
    if (!S_ISREG(s.st_mode)) /* a pipe or a terminal has nothing to cut */
        return 0;
    size_t bytes = (size_t)s.st_size, left = 0;
    if (stay && bytes) {
        char *text = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text == MAP_FAILED)
            return errno;
        left = staying(text, bytes, stay, arg);
        munmap(text, bytes);
    }
    return left < bytes && ftruncate(fd, (off_t)left) != 0 ? errno : 0;
}

choir_status choir__lines_open(
    choir__lines *l, const char *path, choir__lines_stay *stay, void *arg)
{
    *l = (choir__lines){.path = choir__strdup(path),
        .fd = choir__file_try(
            path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK, CHOIR__FILE_OUTPUT)};
    int error = l->fd < 0 ? errno : cut(l->fd, stay, arg);
    return error ? choir__record_failed(path, error) : CHOIR_OK;
}

choir_status choir__lines_add(choir__lines *l, const char *bytes, size_t count)
{
    return choir__record_append(l->fd, l->path, bytes, count);
}

choir_status choir__lines_close(choir__lines *l)
{
    choir_status status = CHOIR_OK;
    if (l->fd >= 0 && l->path && close(l->fd) != 0) /* network file systems fail here */
        status = choir__record_failed(l->path, errno);
    free(l->path);
    *l = (choir__lines){.fd = -1};
    return status;
}
