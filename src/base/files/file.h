/* Files of the user: those that are named on a command line, in a job or in another file, and
 * those in folders that are.
 *
 * All of them are opened here, so that no reader waits for the writer of a FIFO, reads a device
 * that has no end, or starts a tape. script/opens, a part of script/format --check, finds calls
 * of open and its like elsewhere. */
#ifndef CHOIR_BASE_FILE_H
#define CHOIR_BASE_FILE_H

#include <choir/status.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef enum choir__file_kinds {
    CHOIR__FILE_REGULAR, /* regular files alone */
    CHOIR__FILE_TEXT,    /* regular files, FIFOs (whose other end is waited for) and sockets */
    CHOIR__FILE_OUTPUT,  /* anything but folders; a FIFO without a reader is an error */
    CHOIR__FILE_PRIVATE /* like OUTPUT, for files that may hold secrets: O_CREAT makes mode 0600
                         */
} choir__file_kinds;

/* Opens a file with the flags of open(2) and O_CLOEXEC and O_NOCTTY; O_CREAT makes mode 0666
 * unless `kinds` has another one. Stores a descriptor that the caller closes. Error: I/O, with
 * the path and the reason. */
choir_status choir__file_open(const char *path, int flags, choir__file_kinds kinds, int *fd);
/* Opens a file for reading as a stream; *file is NULL after an error. Errors: as
 * choir__file_open. */
choir_status choir__file_stream(const char *path, choir__file_kinds kinds, FILE **file);

/* Kinds of things on the Hugging Face Hub, whose names are OWNER/NAME. */
typedef enum choir__hub_kind {
    CHOIR__HUB_MODEL,
    CHOIR__HUB_ADAPTER,
    CHOIR__HUB_TOKENIZER,
    CHOIR__HUB_DATA
} choir__hub_kind;

/* Returns whether a path has the form of such a name, not of a file's name with an ending, and
 * neither it nor a folder OWNER is there. */
bool choir__is_hub_name(const char *path);

/* Reports that nothing is at a path. For a name of the Hub, the message has the command that
 * fetches it. */
choir_status choir__file_absent(const char *path, choir__hub_kind kind);

/* Returns an error if the path is there and is no regular file, for a library that opens files
 * by itself. */
choir_status choir__file_check(const char *path);

/* Open a file that may be missing, or whose error has other words: they leave the thread's
 * message as it is, return -1 or NULL, and set errno, which choir__file_why explains: EISDIR
 * for a folder, ENOTSUP for another kind. _output truncates the file, or makes it. */
int choir__file_try(const char *path, int flags, choir__file_kinds kinds);
FILE *choir__file_try_stream(const char *path);
FILE *choir__file_try_stream_in(const char *folder, const char *name);
FILE *choir__file_try_output(const char *path);
const char *choir__file_why(int error);

/* Like json_load_file, for a regular file. If it cannot be opened, why->line is -1, and
 * why->text the reason. why may be NULL. */
json_t *choir__file_json(const char *path, size_t flags, json_error_t *why);
/* Like choir__file_json for FOLDER/NAME, without flags and reason. */
json_t *choir__file_json_in(const char *folder, const char *name);

#endif
