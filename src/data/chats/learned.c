/* The words of an assistant, by the template's own marks or by prefixes.
 *
 *     text of all messages       ...<user>Hi</user><assistant>Hello</assistant><user>...
 *     of earlier ones, prompt    ...<user>Hi</user><assistant>
 *     of all up to the answer    ...<user>Hi</user><assistant>Hello</assistant>
 *                                                             |-- learned ---|
 *
 * Both must begin the text of all messages. Some prompts have more than the message repeats,
 * such as <think>; then the message begins where both part.
 *
 * The whole text is encoded at once. The places of tokens follow from their own texts; where a
 * tokenizer changes the text, so that they do not, the parts are encoded by themselves. */
#include "data/chats/learned.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ANSWERS = 512 }; /* each is rendered with all messages before it */

/* --- prefixes --- */

static size_t common(const choir__jinja_result *a, const choir__jinja_result *b)
{
    size_t n = 0, most = choir__min(a->bytes, b->bytes);
    while (n < most && a->text[n] == b->text[n])
        n++;
    return n;
}

static bool says(const choir__json *message)
{
    const choir__json *role = choir__json_get(message, "role");
    return choir__json_is(role, CHOIR__JSON_STRING) && !strcmp(role->text, "assistant");
}

static choir_status changes(size_t message, const char *how)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "message %zu: %s, so the answer cannot be found; mark answers by {%% generation %%} "
        "in the chat template",
        message + 1, how);
}

/* Cuts off a text's eos_token, which some templates write behind the last message, whichever
 * that is. Returns whether both texts end with it. */
static bool drop_end(
    const choir_chat *chat, choir__jinja_result *first, const choir__jinja_result *whole)
{
    const char *end = choir__chat_token(chat, "eos_token");
    size_t n = end ? strlen(end) : 0;
    bool both = n && first->bytes > n && whole->bytes > n &&
                !memcmp(first->text + first->bytes - n, end, n) &&
                !memcmp(whole->text + whole->bytes - n, end, n);
    first->bytes -= both ? n : 0;
    return both;
}

/* Renders the first `count` messages; fails unless their text begins the whole one. */
static choir_status render_first(const choir_chat *chat, const choir__chat_input *all,
    size_t count, choir__jinja_result *work, const choir__jinja_result *whole)
{
    choir__chat_input first = *all;
    first.count = count;
    choir_status status = choir__chat_render(chat, &first, CHOIR__CHAT_NOW, work);
    bool begins = status != CHOIR_OK || common(work, whole) == work->bytes ||
                  (drop_end(chat, work, whole) && common(work, whole) == work->bytes);
    if (!begins)
        status =
            changes(count - 1, "later messages change the template's text of earlier ones");
    return status;
}

/* Finds where the answer that is message number `at` begins. */
static choir_status find_beginning(const choir_chat *chat, const choir__chat_input *all,
    size_t at, choir__jinja_result *work, const choir__jinja_result *whole, size_t *from)
{
    size_t least = 0;
    choir_status status = CHOIR_OK;
    if (!at)
        return changes(at, "it is the assistant's, and nothing stands before it");
    status = render_first(chat, all, at, work, whole);
    least = work->bytes;
    choir__chat_input before = *all;
    before.count = at;
    before.prompts = true;
    if (status == CHOIR_OK)
        status = choir__chat_render(chat, &before, CHOIR__CHAT_NOW, work);
    if (status == CHOIR_OK)
        *from = choir__max(common(work, whole), least);
    return status;
}

static void add_span(choir__jinja_result *result, size_t from, size_t to)
{
    if (result->spans == result->span_room) {
        result->span_room = 2 * result->spans + 8;
        result->span = choir__realloc(result->span, result->span_room * sizeof *result->span);
    }
    result->span[result->spans++] = (choir__jinja_span){from, to};
}

static choir_status by_prefixes(const choir_chat *chat, const choir__chat_input *input,
    choir__jinja_result *work, choir__jinja_result *result)
{
    const choir__json *message = choir__json_first(input->messages);
    choir_status status = CHOIR_OK;
    size_t answers = 0;
    result->spans = 0;
    for (size_t i = 0; i < input->count && status == CHOIR_OK; i++) {
        size_t from = 0, to = result->bytes;
        if (i >= input->asked && says(message) && ++answers > MOST_ANSWERS)
            status = choir__error(CHOIR_ERR_FORMAT,
                "a conversation has more than %d answers; mark them by {%% generation %%} in the "
                "chat template",
                MOST_ANSWERS);
        else if (i >= input->asked && says(message)) {
            status = find_beginning(chat, input, i, work, result, &from);
            if (status == CHOIR_OK && i + 1 < input->count) {
                status = render_first(chat, input, i + 1, work, result);
                to = work->bytes;
            }
            if (status == CHOIR_OK && to > from)
                add_span(result, from, to);
        }
        message = choir__json_next(message);
    }
    return status;
}

/* Drops the spans of the prompt's messages. */
static choir_status drop_asked(const choir_chat *chat, const choir__chat_input *input,
    choir__jinja_result *work, choir__jinja_result *result)
{
    choir_status status = render_first(chat, input, input->asked, work, result);
    size_t kept = 0;
    for (size_t i = 0; i < result->spans && status == CHOIR_OK; i++)
        if (result->span[i].from >= work->bytes)
            result->span[kept++] = result->span[i];
    result->spans = kept;
    return status;
}

choir_status choir__chat_learned(const choir_chat *chat, const choir__chat_input *input,
    choir__jinja_result *work, choir__jinja_result *result)
{
    choir_status status = choir__chat_render(chat, input, CHOIR__CHAT_NOW, result);
    bool marked = choir__chat_marks(chat, input) && !result->lost_span && result->spans;
    result->lost_span =
        !marked; /* also by a template whose marks are for other conversations */
    if (status == CHOIR_OK && marked && input->asked)
        return drop_asked(chat, input, work, result);
    return status == CHOIR_OK && !marked ? by_prefixes(chat, input, work, result) : status;
}

/* --- tokens --- */

/* Returns the place behind a token whose text stands at this place; NULL: it does not. A word's
 * blank is missing where a tokenizer has added it. */
static const char *behind(const char *at, const char *end, const char *token, size_t bytes)
{
    if (bytes <= (size_t)(end - at) && !memcmp(at, token, bytes))
        return at + bytes;
    if (bytes && *token == ' ' && bytes - 1 <= (size_t)(end - at) &&
        !memcmp(at, token + 1, bytes - 1))
        return at + bytes - 1;
    return NULL;
}

/* Marks the tokens that overlap no span; false: their places are unknown, and all stay. */
static bool mark(const choir_tokenizer *tokenizer, const choir__jinja_result *text, int32_t *id,
    size_t count)
{
    bool *learned = choir__calloc(count + 1, sizeof *learned);
    const char *at = text->text, *end = at + text->bytes, *next = at;
    size_t span = 0, i = 0;
    for (; i < count && next; i++) {
        size_t bytes = 0;
        const char *token = choir_tokenizer_token(tokenizer, id[i], &bytes);
        next = token ? behind(at, end, token, bytes) : NULL;
        size_t from = (size_t)(at - text->text);
        while (span < text->spans && text->span[span].to <= from)
            span++;
        /* A blank that the tokenizer has added belongs to the character behind it. */
        size_t to = next ? (size_t)(next - text->text) + (next == at) : 0;
        learned[i] = next && span < text->spans && to > text->span[span].from;
        at = next ? next : at;
    }
    bool known = next && at == end;
    for (size_t k = 0; k < count && known; k++)
        if (!learned[k])
            id[k] = -1 - id[k];
    free(learned);
    return known;
}

static choir_status encode_part(const choir_tokenizer *tokenizer,
    const choir__jinja_result *text, size_t from, size_t to, bool learned, choir__ids *ids)
{
    size_t first = ids->count;
    choir_status status = from == to
                              ? CHOIR_OK
                              : choir__tokenizer_encode(tokenizer, NULL, text->text + from,
                                    to - from, from ? CHOIR__INSIDE : CHOIR__BEGINNING, ids);
    for (size_t k = first; k < ids->count && !learned; k++)
        ids->id[k] = -1 - ids->id[k];
    return status;
}

/* The parts by themselves. */
static choir_status encode_parts(
    const choir_tokenizer *tokenizer, const choir__jinja_result *text, choir__ids *ids)
{
    size_t at = 0;
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < text->spans && status == CHOIR_OK; i++) {
        status = encode_part(tokenizer, text, at, text->span[i].from, false, ids);
        at = text->span[i].to;
        if (status == CHOIR_OK)
            status = encode_part(tokenizer, text, text->span[i].from, at, true, ids);
    }
    return status == CHOIR_OK ? encode_part(tokenizer, text, at, text->bytes, false, ids)
                              : status;
}

choir_status choir__chat_encode(
    const choir_tokenizer *tokenizer, const choir__jinja_result *text, choir__ids *ids)
{
    size_t first = ids->count;
    choir_status status = choir__tokenizer_encode(
        tokenizer, NULL, text->text, text->bytes, CHOIR__BEGINNING, ids);
    if (status != CHOIR_OK || mark(tokenizer, text, ids->id + first, ids->count - first))
        return status;
    ids->count = first;
    return encode_parts(tokenizer, text, ids);
}
