/* The token that ends an answer, as the template writes it:
 *
 *     <start_of_turn>model\nYes<end_of_turn>\n
 *                              |------------- behind the answer's words
 *
 * An added token that stands there, but for white space, is the one. */
#include <string.h>

#include "base/floats.h"
#include "data/chats/learned.h"
#include "data/tokenizer/tokenizer.h"

#define WORD "answered" /* no published template writes it */

static const char chat_text[] =
    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"" WORD "\"}]";

/* Returns the added token at the beginning of a text, or behind white space; -1: none. */
static int64_t first_token(const choir_tokenizer *t, const char *text, const char *end)
{
    choir__added_walk w = choir__added_begin(text, end);
    if (!choir__added_next(&t->added, &w) || !w.token)
        return -1;
    const size_t space = strspn(w.piece, " \t\r\n");
    return w.piece + space >= w.piece_end ? w.token->id : -1;
}

int64_t choir_chat_end(const choir_chat *chat, const choir_tokenizer *tokenizer)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(chat, __func__, "chat") || choir__lacks(tokenizer, __func__, "tokenizer"))
        return -1;
    char text[sizeof chat_text];
    const char *where;
    choir__json_nodes nodes = {0};
    choir__jinja_result result = {0};
    int64_t id = -1;
    memcpy(text, chat_text, sizeof text);
    const char *wrong = choir__json_parse(&nodes, text, text + strlen(text), &where);
    choir__chat_input input = {.messages = nodes.node, .count = 2};
    if (!wrong && choir__chat_render(chat, &input, CHOIR__CHAT_NOW, &result) == CHOIR_OK) {
        const char *word = strstr(result.text, WORD);
        if (word)
            id = first_token(tokenizer, word + strlen(WORD), result.text + result.bytes);
    } else {
        (void)choir_error_message(); /* a template for other chats has no such end */
    }
    choir__jinja_result_free(&result);
    choir__json_nodes_free(&nodes);
    return id;
}

int64_t choir__chat_end_of(const choir_tokenizer *tokenizer)
{
    choir_chat *chat = NULL;
    int64_t id = -1;
    if (!tokenizer || !choir__chat_exists(tokenizer))
        return -1;
    if (choir_chat_of(tokenizer, &chat) == CHOIR_OK)
        id = choir_chat_end(chat, tokenizer);
    else
        (void)choir_error_message(); /* marks the error as read: a chat would say it */
    choir_chat_free(chat);
    return id;
}
