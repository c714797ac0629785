/* The words of an assistant in a conversation's text, and in its tokens. */
#ifndef CHOIR_DATA_CHAT_LEARNED_H
#define CHOIR_DATA_CHAT_LEARNED_H

#include "data/chats/chat.h"
#include "data/tokenizer/tokenizer.h"

/* The time that templates see in training, 26 July 2024: samples do not depend on the clock. */
#define CHOIR__CHAT_NOW INT64_C(1721952000)

/* Renders a conversation, and fills in the spans that an assistant says: those that the
 * template marks, or else, with result->lost_span, by prefixes: each message of the assistant
 * is the text that it adds behind the messages before it and the prompt. work: room that is
 * reused. Errors: format: the template refuses the conversation, or what comes later changes
 * the text of earlier messages.
 */
choir_status choir__chat_learned(const choir_chat *chat, const choir__chat_input *input,
    choir__jinja_result *work, choir__jinja_result *result);

/* Encodes a text, and adds its ids; id i of a token that overlaps no span is -1 - i. Errors: as
 * choir__tokenizer_encode. */
choir_status choir__chat_encode(
    const choir_tokenizer *tokenizer, const choir__jinja_result *text, choir__ids *ids);

#endif
