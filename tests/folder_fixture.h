/* A temporary folder, of one test or of all tests of a program. */
#ifndef CHOIR_TESTS_FOLDER_FIXTURE_H
#define CHOIR_TESTS_FOLDER_FIXTURE_H

#include "helpers.h"

static char folder[] = "/tmp/choir-test-XXXXXX";

static inline int make_folder(void **state)
{
    strcpy(folder, "/tmp/choir-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Fails if a test left anything, a temporary file, too. */
static inline int remove_folder(void **state)
{
    return rmdir(folder);
}

static inline int remove_all(void **state)
{
    return shell("rm -rf '%s'", folder);
}

/* "FOLDER/text", in one of a few static buffers. */
__attribute__((format(printf, 1, 2))) static inline const char *at(const char *format, ...)
{
    static char text[8][512];
    static int next;
    char *out = text[next++ % 8];
    va_list args;
    va_start(args, format);
    int n = snprintf(out, sizeof text[0], "%s/", folder);
    vsnprintf(out + n, sizeof text[0] - (size_t)n, format, args);
    va_end(args);
    return out;
}

/* Writes a file of the folder; returns its path. */
static inline const char *put(const char *name, const char *text)
{
    const char *path = at("%s", name);
    spit_text(path, text);
    return path;
}

#endif
