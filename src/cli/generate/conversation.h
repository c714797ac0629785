/* A conversation as the text that a model continues. */
#ifndef CHOIR_CLI_CONVERSATION_H
#define CHOIR_CLI_CONVERSATION_H

#include <jansson.h>

#include "job/model/saved.h"

enum { CHOIR__CONVERSATION_ENDS = 65 };

/* Stores the text of the messages, [{"role":...,"content":...}], behind which the assistant
 * speaks; the caller frees it. Errors: argument (no template; the template refuses them). */
choir_status choir__conversation_text(
    const choir__saved *s, const char *name, const json_t *messages, char **text);

/* Stores the tokens that end an answer. */
choir_status choir__conversation_ends(const choir__saved *s, const char *name,
    int64_t ends[CHOIR__CONVERSATION_ENDS], int64_t *count);

#endif
