/* Conversations by the chat template of the model's folder; without one in ChatML, in which
 * Choir trains on chats, if the tokenizer has its markers. */
#include "cli/generate/conversation.h"

#include <time.h>

#include <stdlib.h>

#include <choir/chat.h>
#include <choir/generate.h>
#include "base/base.h"

/* As training writes chats of folders without a template (choir/data.h). */
static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n";

choir_status choir__conversation_open(
    const choir__saved *s, const char *name, choir_chat **chat)
{
    choir_status status = choir_chat_of(s->tokenizer, chat);
    if (status != CHOIR_ERR_ARGUMENT) /* the folder has a template */
        return status;
    if (choir_tokenizer_id(s->tokenizer, "<|im_start|>") >= 0 &&
        choir_tokenizer_id(s->tokenizer, "<|im_end|>") >= 0)
        return choir_chat_parse("ChatML", chatml, sizeof chatml - 1, s->tokenizer, chat);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: no chats: %s, and its tokenizer lacks ChatML's markers <|im_start|> and <|im_end|>; "
        "choir generate continues texts",
        name, choir_error_message());
}

choir_status choir__conversation_text(
    const choir_chat *chat, json_t *messages, char **text, size_t *bytes)
{
    json_t *variables =
        json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    char *json = json_dumps(variables, JSON_COMPACT);
    choir_status status = choir_chat_render(chat, json, (int64_t)time(NULL), text, bytes);
    free(json);
    json_decref(variables);
    return status;
}

int64_t choir__conversation_ends(
    const choir__saved *s, const choir_chat *chat, int64_t ends[CHOIR__CONVERSATION_ENDS])
{
    const int64_t more[] = {
        choir_tokenizer_id(s->tokenizer, "<|im_end|>"), choir_chat_end(chat, s->tokenizer)};
    const int64_t room = CHOIR__CONVERSATION_ENDS - (int64_t)CHOIR_COUNT(more);
    int64_t count = choir__min(choir_generate_ends(s->tokenizer, ends, room), room);
    for (size_t i = 0; i < CHOIR_COUNT(more); i++)
        if (more[i] >= 0)
            ends[count++] = more[i];
    return count;
}
