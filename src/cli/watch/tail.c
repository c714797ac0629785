/* Reads a growing file by whole lines, from where it stopped the last time. The file is
 * opened for each look, since it may be replaced at any moment, and an open file on a
 * network's file system may fail for good. A look reads a few MiB at most, so a huge file
 * does not block the page. */
#include "cli/watch/tail.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"

enum { BLOCK = 1024 * 1024, MOST_BLOCKS = 8 }; /* a line longer than a block is left out */

void choir__tail_rewind(choir__tail *t)
{
    *t = (choir__tail){.path = t->path};
}

/* Returns whether the bytes before `at` are those that were read. */
static bool is_the_same(const choir__tail *t, int fd, const struct stat *s)
{
    char now[sizeof t->before];
    if (!t->inode)
        return true;
    if (s->st_ino != t->inode || s->st_dev != t->device || s->st_size < t->at)
        return false;
    ssize_t n = pread(fd, now, (size_t)t->before_count, t->at - t->before_count);
    return n == t->before_count && !memcmp(now, t->before, (size_t)n);
}

static void pass(choir__tail *t, const char *bytes, size_t count)
{
    size_t kept = (size_t)choir__min((int64_t)count, (int64_t)sizeof t->before);
    t->at += (off_t)count;
    if (kept) {
        memcpy(t->before, bytes + count - kept, kept);
        t->before_count = (int)kept;
    }
}

/* Hands out the whole lines of a block; returns the number of bytes that are done. */
static size_t take_block(
    choir__tail *t, char *block, size_t count, choir__tail_line *fn, void *arg)
{
    size_t done = 0;
    for (char *end; (end = memchr(block + done, '\n', count - done));) {
        char *line = block + done;
        *end = '\0';
        if (!t->skips)
            fn(arg, line, (size_t)(end - line));
        *end = '\n';
        t->skips = false;
        done = (size_t)(end - block) + 1;
    }
    if (!done && count == BLOCK) {
        t->skips = true;
        done = count;
    }
    return done;
}

static choir__tail_state read_on(choir__tail *t, int fd, choir__tail_line *fn, void *arg)
{
    char *block = malloc(BLOCK);
    choir__tail_state state = CHOIR__TAIL_IDLE;
    for (int i = 0; block && i < MOST_BLOCKS; i++) {
        ssize_t n = pread(fd, block, BLOCK, t->at);
        size_t done = n > 0 ? take_block(t, block, (size_t)n, fn, arg) : 0;
        pass(t, block, done);
        state = done && n == BLOCK ? CHOIR__TAIL_MORE : CHOIR__TAIL_IDLE;
        if (state == CHOIR__TAIL_IDLE)
            break;
    }
    free(block);
    return state;
}

choir__tail_state choir__tail_read(choir__tail *t, choir__tail_line *fn, void *arg)
{
    struct stat s;
    choir__tail_state state = CHOIR__TAIL_IDLE;
    int fd = choir__file_try(t->path, O_RDONLY, CHOIR__FILE_REGULAR);
    if (fd < 0)
        return state;
    if (fstat(fd, &s) != 0) {
        /* the file is gone */
    } else if (!is_the_same(t, fd, &s)) {
        state = CHOIR__TAIL_ANEW;
    } else {
        t->inode = s.st_ino;
        t->device = s.st_dev;
        if (s.st_size > t->at)
            state = read_on(t, fd, fn, arg);
    }
    close(fd);
    return state;
}
