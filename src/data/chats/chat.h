/* The chat template of a folder, for readers of conversations. */
#ifndef CHOIR_DATA_CHAT_H
#define CHOIR_DATA_CHAT_H

#include <choir/chat.h>

#include "data/jinja/template.h"

/* A conversation to render. */
typedef struct choir__chat_input {
    const choir__json *messages; /* an array of objects, not empty */
    const choir__json *tools;    /* an array, or NULL */
    const choir__json *others;   /* an object with further variables, or NULL */
    size_t count;                /* messages that are rendered, from the first one on */
    size_t asked;                /* messages at the beginning that are not learned */
    bool prompts;                /* add_generation_prompt */
} choir__chat_input;

/* Renders a conversation into *result, which is reused. Errors: format. */
choir_status choir__chat_render(const choir_chat *chat, const choir__chat_input *input,
    int64_t now, choir__jinja_result *result);
/* Returns the text of a special token such as "eos_token"; NULL: the folder names none. */
const char *choir__chat_token(const choir_chat *chat, const char *name);
/* Returns whether the template that the conversation gets has a {% generation %}. */
bool choir__chat_marks(const choir_chat *chat, const choir__chat_input *input);
/* Returns whether the tokenizer's folder has a chat template, right or wrong. */
bool choir__chat_exists(const choir_tokenizer *tokenizer);
/* Returns choir_chat_end of that template; -1 also without one that can be read, or without a
 * tokenizer. */
int64_t choir__chat_end_of(const choir_tokenizer *tokenizer);

#endif
