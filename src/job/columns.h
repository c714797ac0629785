/* Functions that rows of choir__job_options name in their columns, which choir__line_option
 * describes. `job` is a choir__job. */
#ifndef CHOIR_JOB_COLUMNS_H
#define CHOIR_JOB_COLUMNS_H

#include "job/job.h"

/* .matters */
bool choir__option_stretched(const void *job);
bool choir__option_judged(const void *job);

/* .written */
char *choir__option_model_text(const void *job, choir__line_form form);
char *choir__option_weights_text(const void *job, choir__line_form form);
char *choir__option_adapter_text(const void *job, choir__line_form form);
char *choir__option_tokenizer_text(const void *job, choir__line_form form);
char *choir__option_strategy_text(const void *job, choir__line_form form);
char *choir__option_amp_text(const void *job, choir__line_form form);
char *choir__option_bits_text(const void *job, choir__line_form form);
const char *choir__option_bits_before(void);
char *choir__option_lora_text(const void *job, choir__line_form form);
char *choir__option_optimizer_text(const void *job, choir__line_form form);
char *choir__option_weight_decay_text(const void *job, choir__line_form form);
char *choir__option_schedule_text(const void *job, choir__line_form form);
char *choir__option_best_text(const void *job, choir__line_form form);

/* .idle */
bool choir__option_launched(const void *job);
bool choir__option_saves_nothing(const void *job);
bool choir__option_no_histograms(const void *job);

/* .no_effect */
const char *choir__option_unsaved(const void *job);
const char *choir__option_no_grace(const void *job);
const char *choir__option_unvalidated(const void *job);
const char *choir__option_alone(const void *job);

#endif
