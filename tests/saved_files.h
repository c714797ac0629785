/* Helpers of the tests of saving: read a whole file, count a folder's entries, compare an
 * error's message. */
#ifndef CHOIR_TEST_SAVED_FILES_H
#define CHOIR_TEST_SAVED_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <choir/status.h>

static inline void assert_says(const char *part)
{
    if (!strstr(choir_error_message(), part))
        fail_msg("'%s' has not '%s'", choir_error_message(), part);
}

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

#endif
