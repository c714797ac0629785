/* A stored study: changes are queued and written by one thread, the writer.
 *
 * The writer takes all changes that are queued, writes them as one batch, and wakes those who
 * wait for them. So the trials of many threads share a commit, and no thread holds the study's
 * lock while the disk works. If a server is lost, the writer connects again and repeats the
 * batch; who waits, waits.
 *
 *     ask, tell, report -> queue -> writer -> backend (sqlite.c, postgres.c, journal.c)
 *
 * Threads: any. */
#ifndef CHOIR_TUNE_STORAGE_STORE_H
#define CHOIR_TUNE_STORAGE_STORE_H

#include "tune/storage/stored_trial.h"

typedef struct choir__study_store choir__study_store;

/* Opens a storage. create: for writing, and made if it does not exist. Errors: argument, I/O,
 * format, unsupported. */
choir_status choir__study_store_open(const char *url, bool create, choir__study_store **store);
/* Writes all queued changes and closes; NULL is allowed. */
void choir__study_store_close(choir__study_store *s);

/* Before any change: finds or makes the study, see backend.h. */
choir_status choir__study_store_study(choir__study_store *s, choir__stored_study *study);

/* Appends the trials from number `from` on, after all changes that were queued before. */
choir_status choir__study_store_load(
    choir__study_store *s, int64_t from, choir__stored_trials *records);

/* Queues a change, which the writer frees. Errors go to the next one who waits. */
void choir__study_store_send(choir__study_store *s, choir__change *c);
/* Queues a change for which the caller waits, and then frees it. */
void choir__study_store_send_awaited(choir__study_store *s, choir__change *c);
choir_status choir__study_store_wait(choir__study_store *s, choir__change *c);

/* Makes all later waits for a server end with an error once fd becomes readable. */
void choir__study_store_stop_on(choir__study_store *s, int fd);

/* This worker's name, JSON. */
const char *choir__study_store_worker(const choir__study_store *s);
/* The largest step of a report. */
int64_t choir__study_store_most_step(const choir__study_store *s);
/* The storage's name, for messages. */
const char *choir__study_store_place(const choir__study_store *s);

#endif
