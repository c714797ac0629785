/* Small files and folders, processes, and memory that processes share, for tests of several
 * kinds. */
#ifndef CHOIR_TESTS_HELPERS_H
#define CHOIR_TESTS_HELPERS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* --- files and folders --- */

/* Returns a small file's bytes, followed by zeros and room for more. The caller frees them. */
static inline unsigned char *slurp(const char *path, size_t *bytes)
{
    enum { ROOM = 1 << 16 };
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *data = calloc(1, ROOM);
    assert_non_null(data);
    *bytes = fread(data, 1, ROOM, f);
    assert_true(*bytes < ROOM);
    fclose(f);
    return data;
}

static inline void spit(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void spit_text(const char *path, const char *text)
{
    spit(path, text, strlen(text));
}

static inline void touch(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_int_not_equal(fd, -1);
    close(fd);
}

/* Returns the number of files and folders in a folder. */
static inline int entries(const char *dir)
{
    int count = 0;
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count - 2;
}

/* --- processes --- */

/* Runs a command, formatted as by printf; returns its status. */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command);
}

/* Returns whether the process has ended. */
static inline bool gone(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true;
    size_t got = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *after = strrchr(text, ')');
    return !got || (after && after[2] == 'Z'); /* some containers never reap orphans */
}

/* Returns zeros that processes share that are forked from now on. */
static inline void *shared_memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    return at;
}

#endif
