/* Formats in which a trained model goes to other programs. */
#ifndef CHOIR_JOB_EXPORT_H
#define CHOIR_JOB_EXPORT_H

#include <jansson.h>

#include "job/model/saved.h"
#include "job/model/unpacked.h"

typedef struct choir__export_request {
    const char *path; /* a run, a step of one, or a folder of a published model or an adapter */
    const char *adapter; /* a folder with an adapter for the model; NULL: none */
    const char *to;      /* the new folder */
    const char *format, *dtype;
} choir__export_request;

/* The model on its way, and its origin. */
typedef struct choir__export {
    choir__saved model;
    char *from;               /* folder of its small files */
    choir__unpacked unpacked; /* the folder, if the model is a GGUF file */
    bool trained;             /* from is a checkpoint's */
    json_t *record;           /* the record of a checkpoint's job; NULL: unknown */
    char *base; /* folder or name of the model that the training began with; NULL: unknown */
    char base_sha256[65]; /* hashes the weights that adapters leave alone; "": no adapters */
    choir_dtype dtype;    /* type of the weights, unless they are blocks */
    const char *type;     /* name of the type, which may be blocks */
} choir__export;

typedef struct choir__export_format {
    const char *name, *help;
    const char *library; /* named on the model card */
    bool adapters;       /* the model must have adapters */
    bool blocks;         /* weights may be in blocks of few bits */
    /* Writes the files of the format into a new folder. */
    choir_status (*write)(const choir__export *e, const char *folder);
} choir__export_format;

/* The formats, and a NULL behind them. */
extern const choir__export_format *const choir__export_formats[];
extern const choir__export_format choir__export_peft, choir__export_hf, choir__export_gguf;

/* Names of formats, and of the types of weights, for tables of options; NULL behind the last.
 */
const char *choir__export_format_names(size_t index);
const char *choir__export_dtype_names(size_t index);

/* Errors: argument (the folder is there; a format that cannot have the model), io, format. */
choir_status choir__export_model(const choir__export_request *request);

/* Writes README.md, the card of the model. Error: io. */
choir_status choir__export_card(
    const choir__export *e, const choir__export_format *format, const char *folder);

#endif
