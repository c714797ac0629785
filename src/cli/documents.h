/* Models of documents, which tell what is in an image. */
#ifndef CHOIR_CLI_DOCUMENTS_H
#define CHOIR_CLI_DOCUMENTS_H

#include "cli/saved.h"

/* Prints what the model tells of an image; each token is the likeliest one. */
choir_status choir__documents_tell(const choir__saved *saved, const char *image);

#endif
