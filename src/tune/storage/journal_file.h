/* The file of a journal, as journal_file.c reads and extends it, and its lines
 * (journal_write.c). */
#ifndef CHOIR_TUNE_STORAGE_JOURNAL_FILE_H
#define CHOIR_TUNE_STORAGE_JOURNAL_FILE_H

#include <stdio.h>
#include <sys/types.h>

#include "tune/storage/backend.h"
#include "tune/storage/journal.h"

typedef struct choir__journal_file {
    choir__study_backend base;
    char *lock;
    int fd;
    off_t read; /* bytes of whole lines that the state holds */
    int64_t lines;
    choir__journal state;
    int64_t study;        /* id of the study */
    FILE *out;            /* lines to append */
    bool ends;            /* lines wait for the disk */
    choir_status refused; /* why the lines cannot be appended */
} choir__journal_file;

/* The error of a system call: "cannot read FILE: ...". */
choir_status choir__journal_failed(const choir__journal_file *j, const char *what);
/* Reads the lines that others have appended; a part of a line is left for later. Errors: I/O,
 * format. */
choir_status choir__journal_catch_up(choir__journal_file *j);
/* Fails if lines follow bytes of zero, and the file has not changed for a second: it is damaged
 * there. Errors: I/O, format. */
choir_status choir__journal_check_holes(const choir__journal_file *j);
/* Under the lock, calls `compose`, which prints lines, and appends all of them, or none if it
 * sets j->refused. Errors: I/O, format, and the refusal. */
choir_status choir__journal_transact(
    choir__journal_file *j, void (*compose)(choir__journal_file *, void *), void *arg);
/* Returns the seconds of the calendar. */
double choir__journal_now(void);

/* --- lines (journal_write.c) --- */

/* Prints a line, and applies it; `members` is on the heap. A line that cannot be read back is
 * refused. */
void choir__journal_put(choir__journal_file *j, choir__journal_op op, char *members);
/* Returns a text in JSON, on the heap; of a text that is not UTF-8, which JSON cannot hold,
 * nothing, so that its line is refused. */
char *choir__journal_quote(const char *text);
/* The backend's function. */
choir_status choir__journal_write(
    choir__study_backend *b, choir__change *const *changes, int count);

#endif
