/* The options of a job as JSON, for job files and the records of checkpoints. */
#ifndef CHOIR_CLI_JOB_VALUES_H
#define CHOIR_CLI_JOB_VALUES_H

#include <jansson.h>

#include "job/job.h"

/* Returns the option's value as JSON of its type, or NULL. Files are found from any folder. */
json_t *choir__job_value(const choir__job *job, const choir__cli_option *option);

/* Like choir__job_value, but with defaults that the table lacks: the optimizer has all of its
 * keys. */
json_t *choir__job_full_value(const choir__job *job, const choir__cli_option *option);

/* Returns the kind of the job's devices, such as "cuda". */
json_t *choir__job_device(const choir__job *job);

/* Returns the JSON with the fewest digits that read back as the same numbers, on the heap. */
char *choir__job_exact_text(const json_t *root);

#endif
