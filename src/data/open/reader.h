/* The kinds of data that can be opened by a path. A reader recognises one kind and opens it. */
#ifndef CHOIR_DATA_READER_H
#define CHOIR_DATA_READER_H

#include <choir/data_open.h>

/* The arguments of choir_dataset_open. */
typedef struct choir__data_request {
    const char *path; /* never NULL */
    choir_split split;
    const choir_data_opts *opts;
    const choir_model_info *info; /* the model's requirements */
} choir__data_request;

typedef struct choir__data_reader {
    const char *name;
    /* Returns whether the path holds data of this kind and the model can use it. */
    bool (*takes)(const choir__data_request *request);
    /* Opens the data. Kinds that have tokens read *tokenizer and fill it in. */
    choir_status (*open)(const choir__data_request *request, choir_tokenizer **tokenizer,
        choir_dataset **dataset);
    /* Returns whether a file of the folder is part of the data, by its name without folders.
     * NULL: the path is a file. */
    bool (*reads)(const char *name);
} choir__data_reader;

extern const choir__data_reader choir__data_random, choir__data_documents, choir__data_images,
    choir__data_idx, choir__data_shards, choir__data_labelled, choir__data_tokens,
    choir__data_corpus, choir__data_text;

/* Returns the first reader that takes the path, or NULL. */
const choir__data_reader *choir__data_reader_find(const choir__data_request *request);

/* Returns an error if the request needs a tokenizer and has none. */
choir_status choir__data_check_tokenizer(
    const choir__data_request *request, const choir_tokenizer *tokenizer);

/* --- several sources: sources.c --- */

enum { CHOIR__MOST_SOURCES = 64 };

typedef struct choir__data_source {
    const char *path; /* points into the text of the sources */
    double weight;    /* 0: none */
    int64_t first;    /* samples at most; 0: all */
    double part;      /* share of the samples, from the first on */
    int64_t every;    /* 2: every second sample */
} choir__data_source;

typedef struct choir__data_sources {
    char *text;
    bool weighed;
    int count;
    choir__data_source source[CHOIR__MOST_SOURCES];
} choir__data_sources;

/* Reads the sources that a text names. The caller frees them, also after an error. Error:
 * argument. */
choir_status choir__data_sources_parse(const char *text, choir__data_sources *sources);
void choir__data_sources_free(choir__data_sources *sources);
/* Replaces *dataset by the part of it that the source names. Error: argument. */
choir_status choir__data_source_cut(const choir__data_source *source, choir_dataset **dataset);

/* Returns whether the path means random samples. */
bool choir__data_is_random(const char *path);

/* Returns whether the path is a folder. */
bool choir__data_is_folder(const char *path);

/* Returns the path of the text that comes with Choir, or NULL with the error noted. The caller
 * frees it. */
char *choir__data_own_text(void);

#endif
