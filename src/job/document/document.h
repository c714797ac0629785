/* A job as JSON. Job files and run folders have all of its options, and the record in its
 * checkpoints has those that decide its numbers, so that `choir train --resume DIR` needs no
 * other argument:
 *
 *     {"format": "choir-job", "version": 1, "data": "/data/text", "data_sha256": "...",
 *      "options": {"model": "gpt2:...", "lr": 0.001, "steps": 500, "recompute": false, ...},
 *      "classes": ["down", "up"],                                       of a classifier
 *      "device": "cpu",                                                 of a record alone
 *      "run": {"id": "...", "build": {...}, "machine": {...}}}          of a run folder alone
 *
 * The table of options states the keys, their types, and the documents that have them.
 * docs/job.schema.json is the schema. A document that has been read has texts for all values,
 * as the command line has them. */
#ifndef CHOIR_JOB_DOCUMENT_DOCUMENT_H
#define CHOIR_JOB_DOCUMENT_DOCUMENT_H

#include <jansson.h>

#include "job/job.h"

/* The advice of choir train where data of a document have changed; choir audit has no such way.
 */
#define CHOIR__OTHER_DATA "; naming them on the command line takes them as they are"

/* --- writing --- */

/* Returns the option's text as a document of this form has it, on the heap, or NULL if it has
 * no value. */
char *choir__job_option_text(
    const choir__job *job, const choir__line_option *option, choir__line_form form);

/* Returns the option that is given, and that determines the value of this one, as epochs
 * determine steps, or NULL. */
const choir__line_option *choir__job_filled_by(
    const choir__job *job, const choir__line_option *option);

/* Returns the job as the record of its checkpoints; the caller frees it. choir__job_text writes
 * a job file. */
char *choir__job_record_text(const choir__job *job);

/* Returns the JSON with the fewest digits that read back as the same numbers, on the heap. */
char *choir__job_exact_text(const json_t *root);

/* Returns the kind of the job's devices, such as "cuda"; the caller frees it. */
char *choir__job_device(const choir__job_placement *placement);

/* Prints the schema. */
void choir__job_print_schema(void);

/* --- reading --- */

/* Checks a job file, and replaces its values by texts. Error: argument. */
choir_status choir__job_check_document(const char *path, json_t *root);

/* Reads the text of a checkpoint's record, in which all values may be texts, as an older
 * version wrote them; NULL: not a record. The caller releases it. */
json_t *choir__job_read_record(const char *text);

/* Returns the job that a record states, as far as it does, with the presets of other options.
 * Its texts are the record's; command is for messages. */
choir__job choir__job_of_record(const char *command, const json_t *record);

/* --- taking: take.c --- */

/* Returns whether the job takes the option's value from a document of its own, or from the
 * record of another run (recorded). */
bool choir__job_takes(
    const choir__job *job, const choir__line_option *option, const json_t *root, bool recorded);

/* Takes the values of an option that may be given several times. Error: argument. */
choir_status choir__job_take_list(choir__job_records *records, const choir__line_option *option,
    const json_t *options, const char *where);

/* Returns whether the path names a job file. */
bool choir__job_is_file(const char *path);

/* Reads a file of JSON; the caller releases it. Errors: I/O, argument. */
choir_status choir__job_load_file(const char *path, json_t **root);

/* Takes what a document says, unless the command line says otherwise. The places of a recorded
 * run (its folder, its logs) belong to that run, and are not taken. The job releases the
 * document, whose values become texts; path: for messages. Error: argument. */
choir_status choir__job_take_document(choir__job *job, const char *path, json_t *root);

/* Reads a job file, and takes it. Errors: those of both. */
choir_status choir__job_read_file(choir__job *job, const char *path);

/* Returns CHOIR_ERR_ARGUMENT: documents have no option of this name; where: for the message. */
choir_status choir__job_unknown_option(const char *where, const char *name);

#endif
