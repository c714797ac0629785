/* Kinds of data that are opened by a path: how each is recognised, and opened. */
#ifndef CHOIR_DATA_READER_H
#define CHOIR_DATA_READER_H

#include <choir/data_open.h>

/* What is to be opened. */
typedef struct choir__data_request {
    const char *path; /* never NULL */
    choir_split split;
    const choir_data_opts *opts;
    const choir_model_info *info; /* what the model wants */
} choir__data_request;

typedef struct choir__data_reader {
    const char *name;
    /* Whether the path holds data of this kind, and the model wants such. */
    bool (*takes)(const choir__data_request *request);
    /* *tokenizer is looked at and filled in by kinds that have tokens. */
    choir_status (*open)(const choir__data_request *request, choir_tokenizer **tokenizer,
        choir_dataset **dataset);
} choir__data_reader;

extern const choir__data_reader choir__data_random, choir__data_documents, choir__data_images,
    choir__data_idx, choir__data_tokens, choir__data_text;

/* The first kind that takes the path, or NULL. */
const choir__data_reader *choir__data_reader_find(const choir__data_request *request);

/* Whether the path means random samples. */
bool choir__data_is_random(const char *path);
bool choir__data_is_folder(const char *path);

/* The text that comes with Choir: its path, which the caller frees; NULL with the error noted.
 */
char *choir__data_own_text(void);

#endif
