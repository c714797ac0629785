/* Document models, which describe the content of an image as tokens. */
#ifndef CHOIR_CLI_DOCUMENTS_H
#define CHOIR_CLI_DOCUMENTS_H

#include "job/model/saved.h"

/* Prints the model's description of an image. Each token is the most likely one. */
choir_status choir__documents_tell(const choir__saved *saved, const char *image);

#endif
