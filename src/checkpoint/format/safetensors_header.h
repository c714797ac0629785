/* A safetensors file that is being read, and its header (safetensors_read.c,
 * safetensors_header.c). */
#ifndef CHOIR_SAFETENSORS_HEADER_H
#define CHOIR_SAFETENSORS_HEADER_H

#include <jansson.h>

#include "checkpoint/format/safetensors.h"

enum { CHOIR__ST_LENGTH = 8 }; /* bytes of the header's length, before the header */

struct choir__st_file {
    char *path;
    char *map;
    size_t size, header_bytes;
    json_t *metadata; /* NULL: no metadata */
    choir__st_tensor *tensors;
    int count;
};

/* "PATH: tensor 'NAME'", with a name of any length shortened for a message. */
#define CHOIR__ST_TENSOR "%s: tensor '%.200s' "

/* Reads the header's tensors, in its order, and the metadata; f->header_bytes are in the file.
 * Checks each tensor by itself. Error: format. */
choir_status choir__st_read_header(choir__st_file *f);

#endif
