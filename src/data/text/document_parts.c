/* The text of a record for a language model, and the parts of it that the model learns:
 *
 *     {"text": T}                            T                                  all of it
 *     {"prompt": P, "completion": C}         P C                                C
 *     a conversation (chats/conversation.h)  by the template of the folder      the assistant's
 *       without a template                   <|im_start|>R\nC<|im_end|>\n ...   C<|im_end|> of
 *                                                                               the assistant
 *
 * The last form is ChatML's, whose markers are tokens (end_of_text.c). */
#include <stdlib.h>
#include <string.h>

#include "data/text/corpus.h"

static const char opens[] = CHOIR__CHAT_OPENS, closes[] = CHOIR__CHAT_CLOSES;

static void add(choir__document_parts *p, const char *text, size_t bytes, bool learned)
{
    choir__text_buffer_add(&p->text, text, bytes);
    if (p->count && p->part[p->count - 1].learned == learned) {
        p->part[p->count - 1].end = p->text.used;
        return;
    }
    CHOIR__GROW(p->part, p->count);
    p->part[p->count++] = (struct choir__document_part){p->text.used, learned};
}

static choir_status wrong_column(const choir__data_record_at *at, const char *name)
{
    return choir__data_record_wrong(at, "column '%s': expected a text", name);
}

static choir_status add_message(choir__document_parts *p, const choir__data_record_at *at,
    const choir__json *message, bool asked)
{
    const choir__json *role = choir__json_get(message, "role");
    const choir__json *content = choir__json_get(message, "content");
    if (!choir__json_is(role, CHOIR__JSON_STRING) ||
        !choir__json_is(content, CHOIR__JSON_STRING))
        return choir__data_record_wrong(
            at, "messages: expected objects with the texts 'role' and 'content'");
    bool learned = !asked && !strcmp(role->text, "assistant");
    add(p, opens, strlen(opens), false);
    add(p, role->text, role->bytes, false);
    add(p, "\n", 1, false);
    add(p, content->text, content->bytes, learned);
    add(p, closes, strlen(closes), learned);
    add(p, "\n", 1, false);
    return CHOIR_OK;
}

static choir_status write_chat(choir__document_parts *p, const choir__data_record_at *at)
{
    const choir__conversation *c = &p->conversation;
    const choir__chat_input input = {.messages = c->messages,
        .tools = c->tools,
        .count = c->messages->count,
        .asked = c->asked};
    choir_status status = choir__chat_learned(p->chat, &input, &p->work, &p->result);
    p->written = status == CHOIR_OK;
    p->marked = p->written && !p->result.lost_span;
    return status == CHOIR_OK ? status : choir__data_record_wrong(at, "%s", choir__message());
}

static choir_status add_messages(
    choir__document_parts *p, const choir__data_record_at *at, const choir__json *messages)
{
    const choir__json *message = choir__json_first(messages);
    choir_status status = CHOIR_OK;
    for (uint32_t i = 0; i < messages->count && status == CHOIR_OK; i++) {
        status = add_message(p, at, message, i < p->conversation.asked);
        message = choir__json_next(message);
    }
    return status;
}

choir_status choir__document_parts_of(
    const choir__data_record_at *at, const choir__json *record, choir__document_parts *p)
{
    const choir__columns *columns = &p->columns;
    const choir__json *prompt = choir__column(columns, record, prompt);
    const choir__json *completion = choir__column(columns, record, completion);
    const choir__json *text = choir__column(columns, record, text);
    p->text.used = 0;
    p->count = 0;
    p->written = false;
    choir_status status = choir__conversation_of(at, record, columns, &p->conversation);
    if (status != CHOIR_OK)
        return status;
    if (p->conversation.messages)
        return p->chat ? write_chat(p, at) : add_messages(p, at, p->conversation.messages);
    if (prompt && completion) {
        if (prompt->type != CHOIR__JSON_STRING)
            return wrong_column(at, "prompt");
        if (completion->type != CHOIR__JSON_STRING)
            return wrong_column(at, "completion");
        add(p, prompt->text, prompt->bytes, false);
        add(p, completion->text, completion->bytes, true);
        return CHOIR_OK;
    }
    if (!text)
        return choir__data_record_wrong(at,
            "missing the column 'text', or 'prompt' and 'completion', or 'messages', or "
            "'conversations', or 'instruction' and 'output' (--columns text=NAME names one)");
    if (text->type != CHOIR__JSON_STRING)
        return wrong_column(at, "text");
    add(p, text->text, text->bytes, true);
    return CHOIR_OK;
}

static bool is_learned(const choir__document_parts *p, const choir__ids *ids, size_t first)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->part[i].learned)
            return true;
    for (size_t i = first; i < ids->count; i++)
        if (ids->id[i] >= 0)
            return true;
    return false;
}

choir_status choir__document_encode(const choir__data_record_at *at, const choir__json *record,
    const choir_tokenizer *tokenizer, int32_t end, choir__document_parts *p, choir__ids *ids)
{
    const size_t before = ids->count;
    choir_status status = choir__document_parts_of(at, record, p);
    p->silent = false;
    if (status != CHOIR_OK)
        return status;
    if (p->written) {
        status = choir__chat_encode(tokenizer, &p->result, ids);
        p->silent = !is_learned(p, ids, before);
        return status == CHOIR_OK ? status
                                  : choir__data_record_wrong(at, "%s", choir__message());
    }
    for (size_t i = 0, from = 0; i < p->count && status == CHOIR_OK; from = p->part[i++].end) {
        size_t first = ids->count;
        const char *part = p->text.bytes + from;
        const size_t bytes = p->part[i].end - from;
        status = i || p->conversation.messages
                     ? choir__tokenizer_encode(tokenizer, NULL, part, bytes,
                           i ? CHOIR__INSIDE : CHOIR__BEGINNING, ids)
                     : choir__tokenizer_encode_whole(tokenizer, part, bytes, ids);
        for (size_t k = first; k < ids->count && !p->part[i].learned; k++)
            ids->id[k] = -1 - ids->id[k];
    }
    if (status != CHOIR_OK)
        return choir__data_record_wrong(at, "%s", choir__message());
    p->silent = p->conversation.messages && !is_learned(p, ids, before);
    choir__ids_add(ids, end);
    return CHOIR_OK;
}

void choir__document_parts_free(choir__document_parts *p)
{
    free(p->text.bytes);
    free(p->part);
    choir_chat_free(p->chat);
    choir__conversation_free(&p->conversation);
    choir__jinja_result_free(&p->result);
    choir__jinja_result_free(&p->work);
    *p = (choir__document_parts){0};
}
