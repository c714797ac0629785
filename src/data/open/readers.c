/* The registry of kinds of data. The first reader that takes a path opens it. */
#include <stddef.h>

#include "data/open/reader.h"

static const choir__data_reader *const readers[] = {
    &choir__data_random,
    &choir__data_documents,
    &choir__data_images,
    &choir__data_shards,
    &choir__data_idx,
    &choir__data_labelled,
    &choir__data_corpus,
    &choir__data_tokens,
    &choir__data_text,
    NULL,
};

const choir__data_reader *choir__data_reader_find(const choir__data_request *request)
{
    for (int i = 0; readers[i]; i++)
        if (readers[i]->takes(request))
            return readers[i];
    return NULL;
}
