/* A study of choir tune as it goes on, as JSON for the page. */
#ifndef CHOIR_CLI_WATCH_STUDY_H
#define CHOIR_CLI_WATCH_STUDY_H

#include <sys/stat.h>

#include "record/text.h"

typedef struct choir__watch_study {
    char *path;
    dev_t device; /* of its file */
    ino_t inode;
    choir__text news; /* a server-sent event with the newest trials */
    int64_t version;  /* changes with the news */
    double look_at;   /* choir__now(), when it is read again */
} choir__watch_study;

/* Returns whether the path is a file, or a folder of choir tune --dir, and stores what the file
 * of the study is. */
bool choir__watch_is_study(const char *path, struct stat *file);

choir__watch_study *choir__watch_study_new(const char *path);
void choir__watch_study_free(choir__watch_study *study);
/* Reads the study if it is time; `id` stands for it in the news. A study that cannot be read
 * now has the news of before. */
void choir__watch_study_look(choir__watch_study *study, int id);

#endif
