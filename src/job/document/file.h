/* A job as a file, which `choir train job.json` reads and --print-job and run folders write:
 *
 *     {"format": "choir-job", "version": 1, "data": "/data/text", "data_sha256": "...",
 *      "options": {"model": "gpt2:...", "lr": 0.001, "steps": 500, "recompute": false, ...},
 *      "run": {"id": "...", "build": {...}, "machine": {...}}}          of a run folder alone
 *
 * Options have the names and types of the command line. docs/job.schema.json is the schema. */
#ifndef CHOIR_CLI_JOB_FILE_H
#define CHOIR_CLI_JOB_FILE_H

#include "job/job.h"

/* Returns whether the path names such a file. */
bool choir__job_is_file(const char *path);

/* Takes what the file says, unless the command line says otherwise. The places of a recorded
 * run (its folder, its logs) belong to that run, and are not taken. Returns like
 * choir__job_check. */
int choir__job_read_file(choir__job *job, const char *path);

/* Prints the schema. */
void choir__job_print_schema(void);

#endif
