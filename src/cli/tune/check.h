/* Checks of choir tune before a search begins. */
#ifndef CHOIR_CLI_TUNE_CHECK_H
#define CHOIR_CLI_TUNE_CHECK_H

#include "cli/tune/request.h"

/* Returns whether the scheduler pauses and resumes trials. */
bool choir__tune_pauses(const choir__tune_request *request);

/* Checks the command, its placeholders, folders and the picture, and makes --dir. Errors:
 * argument, io. */
choir_status choir__tune_check(const choir__tune_request *request,
    const choir__tune_metrics *metrics, const choir_space *space);

#endif
