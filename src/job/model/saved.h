/* A model loaded from a checkpoint, ready to run, for eval, predict and generate. */
#ifndef CHOIR_JOB_MODEL_SAVED_H
#define CHOIR_JOB_MODEL_SAVED_H

#include "data/labels.h"
#include "job/parts.h"

typedef struct choir__saved {
    choir_scope *run;
    choir_module *net;
    choir_model_info info;
    choir_tokenizer *tokenizer; /* tokenizer of a model of texts; NULL: none was saved */
    choir_class_names classes;  /* names of a classifier's classes; may be empty */
    choir_image_opts images;    /* how a classifier of images reads them */
    int64_t step;
    uint64_t seed;   /* seed of its training */
    double held_out; /* held_out of its data (choir_data_opts); 0: the default */
    bool pack;       /* documents did not see one another */
    char *columns;   /* names of its data's columns; NULL: the usual ones */
    choir__labelled_columns labelled; /* the same of texts with labels */
    char *lora;                       /* text of its adapters; NULL: it has no adapters */
    char *base, *frozen; /* type of its frozen weights, and their names; NULL: as it is */
    bool rounded;        /* the frozen weights may be rounded in the file */
    /* data of its training; data NULL: the text that comes with Choir; data_sha256 NULL or "":
     * unknown */
    char *data, *data_sha256;
} choir__saved;

/* Opens the model on a device; NULL: the one that CHOIR_DEVICE names. The caller calls
 * choir__saved_close also after a failure. */
choir_status choir__saved_open(
    const char *path, choir_device *device, uint64_t seed, choir__saved *saved);
/* Like choir__saved_open, with the weights held in the type that --base names; NULL: as the
 * model was trained. A held model can only run. Error: argument (another type in training). */
choir_status choir__saved_open_held(const char *path, choir_device *device, uint64_t seed,
    const char *base, choir__saved *saved);
/* Adds a folder's adapter to a model without adapters. Errors: as choir__adapter_read and
 * choir__adapter_load. */
choir_status choir__saved_adapt(choir__saved *saved, const char *folder);
/* Replaces the model's tokenizer by the one that --tokenizer names; NULL: keeps it. */
choir_status choir__saved_tokenizer(choir__saved *saved, const char *name);
/* Names the columns of texts in *opts, which points into *saved then. Error: argument. */
choir_status choir__saved_text_columns(choir__saved *saved, choir_labelled_opts *opts);
void choir__saved_close(choir__saved *saved);

/* Returns the name of a class, or its number, for which text has room, if it has none. */
const char *choir__saved_class(const choir__saved *saved, int64_t class, char text[24]);
/* Prints the name of a class for people: control characters from the file must not reach the
 * terminal. */
void choir__saved_print_class(const choir__saved *saved, int64_t class);

#endif
