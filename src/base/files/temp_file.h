/* A new file beside the file that it will replace: the path holds the complete old file or the
 * complete new one at every moment. */
#ifndef CHOIR_TEMP_FILE_H
#define CHOIR_TEMP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns a number for the name of a temporary file, which no other thread, process or machine
 * uses: the PID and 32 random bits. */
uint64_t choir__temp_file_mark(void);

/* Creates PATH.tmp.MARK for writing, with the permissions of the file that it will replace.
 * *temporary is its name, which the caller frees, also after a failure. Returns a descriptor,
 * or -1 with errno. */
int choir__temp_file_open(const char *path, char **temporary);

typedef struct choir__temp_file {
    char *path, *temporary;
    FILE *out; /* NULL: the file could not be created */
    int error; /* errno of the failed creation */
} choir__temp_file;

/* Creates PATH.tmp.MARK as a stream. Every stream is ended by choir__temp_file_end. */
FILE *choir__temp_file_begin(choir__temp_file *fresh, const char *path);
/* Closes the stream. If `good`, and the stream had no error, the file takes its path, after its
 * bytes are on the disk if `synced`; otherwise the file is removed, and the path stays as it
 * was. Returns 0 or an error number; after `good` of false, 0. */
int choir__temp_file_end(choir__temp_file *fresh, bool good, bool synced);

/* Writes a whole file. Returns 0 or an error number. */
int choir__temp_file_write(const char *path, const void *data, size_t bytes, bool synced);

#endif
