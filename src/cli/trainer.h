/* One rank of a training job. */
#ifndef CHOIR_TRAINER_H
#define CHOIR_TRAINER_H

#include "cli/job.h"

/* Trains; rank 0 reports and saves. Errors are left in choir_error_message().
 * CHOIR_ERR_INTERRUPTED after SIGINT or SIGTERM. */
choir_status choir__train_rank(const choir__job *job);

/* Why a step does not fit: the largest micro-batch that would, as an error message. */
choir_status choir__explain_memory(
    const choir__job *job, choir_device *device, int64_t micro_count);

/* Sets the flag that makes choir__train_rank stop after the step at hand. */
void choir__train_interrupt(int signal);

/* Writes `count` tokens after prompt (count of ids; may be 0) to stdout. */
choir_status choir__generate(choir_scope *run, choir_module *net, const choir_model_info *info,
    const choir_tokenizer *tokenizer, const int64_t *prompt, int64_t prompt_count,
    int64_t count, double temperature, int64_t top_k);

#endif
