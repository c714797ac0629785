/* A file of lines that another process writes, read as it grows: record/lines.h is the
 * writing side. Only whole lines are handed out. A file that is replaced, or cut and rewritten,
 * is read from its start. */
#ifndef CHOIR_CLI_WATCH_TAIL_H
#define CHOIR_CLI_WATCH_TAIL_H

#include <sys/types.h>

#include "base/base.h"

typedef struct choir__tail {
    char *path;
    dev_t device;
    ino_t inode;     /* 0: the file has not been there */
    off_t at;        /* offset of the first byte that was not read */
    char before[64]; /* (before_count) last bytes read, to recognise a rewritten file */
    int before_count;
    bool skips; /* the rest of a line that is too long */
} choir__tail;

typedef enum choir__tail_state {
    CHOIR__TAIL_IDLE, /* everything so far has been read */
    CHOIR__TAIL_MORE, /* more can be read now */
    CHOIR__TAIL_ANEW, /* the file is another one: kept lines are void */
} choir__tail_state;

/* line: `bytes` bytes without the line's end, followed by '\0'. */
typedef void choir__tail_line(void *arg, char *line, size_t bytes);

/* Reads on, up to some megabytes, and calls fn for each line. A file that is not there, or no
 * regular file, has no lines. */
choir__tail_state choir__tail_read(choir__tail *tail, choir__tail_line *fn, void *arg);
/* Begins at the start again. */
void choir__tail_rewind(choir__tail *tail);

#endif
