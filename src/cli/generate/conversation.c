/* Conversations in ChatML, in which Choir trains on chats. */
#include "cli/generate/conversation.h"

#include <choir/generate.h>
#include "base/text.h"
#include "data/text/corpus.h"

static choir_status check_markers(const choir__saved *s, const char *name)
{
    if (choir_tokenizer_id(s->tokenizer, CHOIR__CHAT_OPENS) < 0 ||
        choir_tokenizer_id(s->tokenizer, CHOIR__CHAT_CLOSES) < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: its tokenizer lacks the markers of chats, %s and %s; choir generate continues "
            "texts",
            name, CHOIR__CHAT_OPENS, CHOIR__CHAT_CLOSES);
    return CHOIR_OK;
}

choir_status choir__conversation_text(
    const choir__saved *s, const char *name, const json_t *messages, char **text)
{
    choir__text_buffer t = {0};
    choir_status status = check_markers(s, name);
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
        choir__text_format(&t, "%s%s\n%s%s\n", CHOIR__CHAT_OPENS,
            json_string_value(json_object_get(message, "role")),
            json_string_value(json_object_get(message, "content")), CHOIR__CHAT_CLOSES);
    choir__text_format(&t, "%sassistant\n", CHOIR__CHAT_OPENS);
    *text = t.bytes;
    return status;
}

choir_status choir__conversation_ends(const choir__saved *s, const char *name,
    int64_t ends[CHOIR__CONVERSATION_ENDS], int64_t *count)
{
    *count = choir_generate_ends(s->tokenizer, ends, CHOIR__CONVERSATION_ENDS - 1);
    ends[*count] = choir_tokenizer_id(s->tokenizer, CHOIR__CHAT_CLOSES);
    *count += ends[*count] >= 0;
    return check_markers(s, name);
}
