/* One rank of a training job. */
#ifndef CHOIR_JOB_TRAINER_TRAINER_H
#define CHOIR_JOB_TRAINER_TRAINER_H

#include <stdio.h>

#include "job/job.h"
#include "line/tee.h"

/* Takes the signals that do not stop a job (launch/process/signal_table.h) from now on. speaks:
 * where one ends it at once, this process names the loss on standard error, which tee may copy
 * (NULL: nothing does). */
void choir__train_signals(const choir__tee *tee, bool speaks);

/* A program's process takes only signals that the program neither handles nor ignores, and
 * gives them back, with the requests that have come, when its job has ended. give_back returns
 * the first signal that was to stop the job; 0: no such signal has come. */
void choir__train_signals_borrow(bool speaks);
int choir__train_signals_give_back(void);
/* A supervisor gives back the signal at which a rank shows its work: choir_spawn shows that of
 * all ranks, also of those that hang. */
void choir__train_signals_supervise(void);

/* Trains; rank 0 reports and saves. choir_error_message() has the message of a failure. Signals
 * that stop a job end the process until the first step is due. Afterwards they stop all ranks
 * after the current step, or the batch of a validation, and the result is
 * CHOIR_ERR_INTERRUPTED; *by: the signal. */
choir_status choir__train_rank(const choir__job *job, int *by);

/* Returns whether this job, whose ranks are replaced, has written a checkpoint to --save. */
bool choir__trainer_has_saved(const choir__job *job);

/* Explains why a step does not fit into memory: its error message names the largest micro-batch
 * that does. */
choir_status choir__explain_memory(
    const choir__job *job, choir_device *device, int64_t micro_count);

/* Writes a text of `count` tokens to out. */
choir_status choir__sample(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, int64_t count, FILE *out);

#endif
