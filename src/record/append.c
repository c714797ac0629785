/* One write per record. What a full disk has cut off is removed again, so that the file ends
 * with a whole record, and a file that was removed meanwhile is an error and not silence. */
#include "record/append.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

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
