/* The folder that harnesses write to: in memory where the system supports that, removed at
 * exit. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATHS = 8 };

static char folder[64];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    char path[512];
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/choir-fuzz-XXXXXX",
            access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(folder))
            die(folder);
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_write(const char *name, const void *data, size_t size)
{
    static char paths[PATHS][512];
    static int next;
    char *path = paths[next++ % PATHS];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) != 0)
        die(path);
    return path;
}
