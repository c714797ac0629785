/* Folders of documents, images with JSON, as the command takes them. */
#ifndef CHOIR_CLI_DOCUMENTS_H
#define CHOIR_CLI_DOCUMENTS_H

#include "cli/job.h"
#include "cli/saved.h"

/* Both splits of job->data for its model, which info describes already; what the tokenizer says
 * (classes, pad, start) is filled in. */
choir_status choir__documents_open(choir__job *job);

/* The validation split for a model that is there. */
choir_status choir__documents_validation(const char *folder, const choir__model_info *info,
    choir_tokenizer **tokenizer, choir_dataset **dataset);

/* Prints what the model tells of an image, the likeliest token each time. */
choir_status choir__documents_tell(const choir__saved *saved, const char *image);

#endif
