/* A new file beside the file that it will replace. O_EXCL makes the file, or fails: it follows
 * no link. */
#include "base/files/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"

int choir__fresh_open(const char *path, char **temporary)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    *temporary = choir__format("%s.tmp.%ld", path, (long)getpid());
    int fd = open(*temporary, flags, 0666);
    if (fd < 0 && errno == EEXIST) { /* left by a killed process with the same PID */
        unlink(*temporary);
        fd = open(*temporary, flags, 0666);
    }
    return fd;
}
