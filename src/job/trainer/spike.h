/* --on-spike: a step whose loss or norm of the gradients is far larger than before
 * makes the run go back some steps and leave batches out, as --rewind and --skip-batches do by
 * hand.
 */
#ifndef CHOIR_JOB_TRAINER_SPIKE_H
#define CHOIR_JOB_TRAINER_SPIKE_H

#include "data/loading/skips.h"
#include "job/job.h"

/* The length of a window; the number of edits after which a run gives up; and of those in a row
 * that lead back to one step, so that no batch is to blame. */
enum { CHOIR__SPIKE_WINDOW = 256, CHOIR__SPIKE_EDITS = 64, CHOIR__SPIKE_SAME = 10 };

/* The keys of --on-spike FACTOR:key=value,... */
typedef struct choir__spike_rule {
    double factor;
    int64_t rewind; /* steps before the spike from which the run continues */
    int64_t skip;   /* batches that are left out from there on */
    int64_t window; /* steps whose medians count */
} choir__spike_rule;

/* The last steps of a run, and the edits that spikes have caused; equal on all ranks. */
typedef struct choir__spikes {
    float loss[CHOIR__SPIKE_WINDOW], norm[CHOIR__SPIKE_WINDOW]; /* (count) last steps */
    int64_t count;
    choir__skips_range edits[CHOIR__SPIKE_EDITS]; /* batches left out, by this process's job */
    int32_t edit_count, same; /* same: the last edits that led back to one step, back_to, */
    int64_t back_to, from;    /* and that the run has not come far beyond: the last spike */
    bool found;     /* the last step is a spike, about which nothing has been done yet */
    char what[120]; /* the numbers that say so */
} choir__spikes;

/* Reads the rule; false: the job has none. It has been checked. */
bool choir__spike_rule_of(const choir__job_training *training, choir__spike_rule *rule);

/* Checks --on-spike, and whether there will be checkpoints to go back to. Error: argument. */
choir_status choir__spike_check(choir__job *job);

/* Returns the number of checkpoints that the job keeps at least. */
int64_t choir__spike_keep(const choir__job *job);

/* Judges a step, and notes its numbers if it is no spike. norm: 0: it was not measured. */
void choir__spike_note(
    choir__spikes *spikes, const choir__spike_rule *rule, float loss, float norm);

/* Returns a checkpoint's record (job/document/document.h) with the window; the caller frees it.
 */
char *choir__spike_record(const choir__spikes *spikes, const char *record);
/* Reads the window of a record; it is empty if the record has none. */
void choir__spike_recall(choir__spikes *spikes, const char *record);

#endif
