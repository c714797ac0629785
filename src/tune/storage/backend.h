/* A kind of storage provides one table of functions, called by one thread at a time.
 *
 * A backend that has lost its server returns CHOIR_ERR_PEER_LOST and connects again at the next
 * call; the caller repeats the call, so each change may be written twice and counts once. */
#ifndef CHOIR_TUNE_STORAGE_BACKEND_H
#define CHOIR_TUNE_STORAGE_BACKEND_H

#include <sys/stat.h>

#include "tune/storage/stored_trial.h"

typedef struct choir__study_backend choir__study_backend;

/* The studies of a storage. */
typedef struct choir__study_names {
    char *place; /* the storage, for messages */
    char **name; /* (count) */
    int count;
} choir__study_names;

typedef struct choir__study_backend_ops {
    const char *name;  /* name of the URL's scheme */
    int64_t most_step; /* largest step of a report */
    bool is_file;      /* the place is a file's path */
    /* Opens what the text behind the scheme names. create: it may be made. Errors: I/O, format
     * (another kind of file, a newer schema), peer lost, unsupported. */
    choir_status (*open)(const char *place, bool create, choir__study_backend **backend);
    /* Adds the names of all studies, oldest first. */
    choir_status (*list)(choir__study_backend *b, choir__study_names *names);
    /* Finds the study study->name, which is set, or makes it if `create`, and stores how it is
     * stored in *study. All later calls are about it. Error: argument (it is not there). */
    choir_status (*study)(choir__study_backend *b, bool create, choir__stored_study *study);
    /* Appends the trials from number `from` on. This and `write` fail if the study is deleted.
     */
    choir_status (*load)(choir__study_backend *b, int64_t from, choir__stored_trials *records);
    /* Writes all changes or none. They are durable when it returns. */
    choir_status (*write)(choir__study_backend *b, choir__change *const *changes, int count);
    void (*close)(choir__study_backend *b);
} choir__study_backend_ops;

struct choir__study_backend {
    const choir__study_backend_ops *ops;
    char *place;  /* for messages */
    dev_t device; /* device and inode of the file; both 0: no file */
    ino_t file;
};

extern const choir__study_backend_ops choir__backend_journal, choir__backend_sqlite,
    choir__backend_postgres;

/* Opens the backend that a URL names (backends.c). Errors: argument, errors of `open`. */
choir_status choir__backend_open(const char *url, bool create, choir__study_backend **backend);

/* Returns whether a text begins with the scheme of a storage, as sqlite:FILE does. */
bool choir__backend_is_url(const char *text);

/* Returns a URL without its password and options, for messages; the caller frees it. */
char *choir__backend_public(const char *url);

/* Lists the studies of a storage that exists. The caller frees the names, also after an error.
 * Errors: as choir__backend_open. */
choir_status choir__backend_list(const char *url, choir__study_names *names);
void choir__study_names_add(choir__study_names *names, const char *name);
void choir__study_names_free(choir__study_names *names);

/* Stores the name of the storage's only study in study->name. Error: argument (the storage has
 * no study, or several). */
choir_status choir__backend_only(choir__study_backend *b, choir__stored_study *study);

/* Notes which file the backend has opened, if it has one. */
void choir__backend_opened(choir__study_backend *b);
/* Fails with an I/O error if the file is not the one that was opened: it was removed, and
 * further changes would be lost. */
choir_status choir__backend_check(const choir__study_backend *b);

/* The error of `study`, argument: it is not there. The sentence names some that are. */
choir_status choir__backend_none(choir__study_backend *b, const char *name);
/* The error of `load` and `write`, I/O: another program has deleted the study. */
choir_status choir__backend_deleted(const choir__study_backend *b, const char *name);

#endif
