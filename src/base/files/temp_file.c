/* A new file beside the file that it will replace. O_EXCL makes the file, or fails: it follows
 * no link. No other writer has the file's name, on this machine or on another one that shares
 * the file system, so each writes and removes its own file alone. */
#include "base/files/temp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

uint64_t choir__temp_file_mark(void)
{
    uint32_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        struct timespec now; /* a machine that has just begun */
        clock_gettime(CLOCK_MONOTONIC, &now);
        random = (uint32_t)now.tv_nsec ^ (uint32_t)(uintptr_t)&random;
    }
    return (uint64_t)getpid() << 32 | random;
}

int choir__temp_file_open(const char *path, char **temporary)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    *temporary =
        choir__format("%s.tmp.%llx", path, (unsigned long long)choir__temp_file_mark());
    int fd = open(*temporary, flags, 0666);
    struct stat before;
    if (fd >= 0 && stat(path, &before) == 0 && S_ISREG(before.st_mode))
        (void)!fchmod(fd, before.st_mode & 0777); /* a private file stays private */
    return fd;
}

FILE *choir__temp_file_begin(choir__temp_file *fresh, const char *path)
{
    *fresh = (choir__temp_file){.path = choir__strdup(path)};
    int fd = choir__temp_file_open(path, &fresh->temporary);
    fresh->out = fd < 0 ? NULL : fdopen(fd, "w");
    fresh->error = fresh->out ? 0 : errno;
    if (fd >= 0 && !fresh->out) {
        unlink(fresh->temporary);
        close(fd);
    }
    return fresh->out;
}

/* The stream of a file that shall take its path. Returns 0 or an error number. */
static int write_out(FILE *out, bool synced)
{
    errno = 0;
    if (fflush(out) != 0 || ferror(out) || (synced && fsync(fileno(out)) != 0))
        return errno ? errno : EIO; /* an earlier write failed */
    return 0;
}

int choir__temp_file_end(choir__temp_file *fresh, bool good, bool synced)
{
    int error = good ? fresh->error : 0;
    if (fresh->out) {
        error = good ? write_out(fresh->out, synced) : 0;
        if (fclose(fresh->out) != 0 && good && !error) /* network file systems fail here */
            error = errno;
        if (good && !error && rename(fresh->temporary, fresh->path) != 0)
            error = errno;
        if (!good || error)
            unlink(fresh->temporary);
    }
    free(fresh->path);
    free(fresh->temporary);
    *fresh = (choir__temp_file){0};
    return error;
}

int choir__temp_file_write(const char *path, const void *data, size_t bytes, bool synced)
{
    choir__temp_file fresh;
    FILE *out = choir__temp_file_begin(&fresh, path);
    if (out)
        fwrite(data, 1, bytes, out);
    return choir__temp_file_end(&fresh, true, synced);
}
