/* The recorder of a program (choir/job.h) as one of those of the job's log. Rank 0 may be a
 * fork of the program: a relay then brings the calls to the program's process. */
#ifndef CHOIR_JOB_REPORT_OWN_H
#define CHOIR_JOB_REPORT_OWN_H

#include <choir/job.h>

#include "job/job.h"
#include "record/recorder.h"

typedef struct choir__relay choir__relay;

/* Returns a recorder for the job's log that calls the program's one; the log ends it. */
choir__recorder *choir__own_recorder(const choir__job_records *records);

/* Gives the program's recorder, if there is one, a sentence for people. */
void choir__own_note(const choir__job_records *records, const char *sentence);

/* Opens a relay, which is then choir__job.records.relay in the ranks. This process makes the
 * calls while it waits in choir_spawn. Error: I/O. */
choir_status choir__relay_open(const choir_job_recorder *own, choir__relay **relay);
/* Makes the calls that have arrived, once all ranks have ended. NULL is fine. */
void choir__relay_deliver(choir__relay *relay);
/* Frees the relay. NULL is fine. */
void choir__relay_close(choir__relay *relay);

#endif
