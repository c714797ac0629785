/* The small files in a GGUF file: its config.json and its tokenizer's. */
#ifndef CHOIR_JOB_MODEL_UNPACKED_H
#define CHOIR_JOB_MODEL_UNPACKED_H

#include <choir/beside.h>
#include <choir/data.h>

/* A folder with these files. */
typedef struct choir__unpacked {
    char *room, *folder; /* the folder is inside the room */
} choir__unpacked;

/* Makes the folder, in $TMPDIR. The caller removes it, also after a failure. Errors: as
 * choir__gguf_import_small. */
choir_status choir__unpack(const char *path, choir__unpacked *unpacked);
void choir__unpacked_remove(choir__unpacked *unpacked);

/* Read the files from such a folder, which is gone then. *tokenizer stays as it is if the file
 * has none. Errors: as above; as
 * choir_tokenizer_load and choir_beside_read. */
choir_status choir__unpack_tokenizer(const char *path, choir_tokenizer **tokenizer);
choir_status choir__unpack_beside(const char *path, choir_beside **beside);

#endif
