/* A conversation as the text that a model continues. */
#ifndef CHOIR_CLI_CONVERSATION_H
#define CHOIR_CLI_CONVERSATION_H

#include <jansson.h>

#include <choir/chat.h>
#include "job/model/saved.h"

enum { CHOIR__CONVERSATION_ENDS = 66 };

/* Stores the template of the model's chats, for choir_chat_free. name: the model's, for
 * messages. Errors: argument (no template, nor the markers of ChatML). */
choir_status choir__conversation_open(
    const choir__saved *s, const char *name, choir_chat **chat);

/* Stores the text of the messages, [{"role":...,"content":...}], behind which the assistant
 * speaks; the caller frees it. Errors: the template refuses them. */
choir_status choir__conversation_text(
    const choir_chat *chat, json_t *messages, char **text, size_t *bytes);

/* Stores the tokens that end an answer, the template's own among them, and returns their
 * number.
 */
int64_t choir__conversation_ends(
    const choir__saved *s, const choir_chat *chat, int64_t ends[CHOIR__CONVERSATION_ENDS]);

#endif
