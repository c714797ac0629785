/* The chat template of a tokenizer's folder, with what transformers gives it: special tokens as
 * variables, messages without members that are null, reasoning under all of its names. */
#include "data/chats/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "data/beside.h"
#include "data/tokenizer/tokenizer.h"

#define TEMPLATE_FILE CHOIR__BESIDE_CHAT
#define LEGACY_FILE   "chat_template.json"

struct choir_chat {
    choir__jinja_template *plain, *with_tools; /* with_tools: NULL if `plain` is for both */
    char *text; /* the special tokens as a JSON object, in which `tokens` are */
    choir__json_nodes tokens;
};

/* --- special tokens --- */

static const char *const token_names[] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

static const char *token_text(const json_t *file, const char *name)
{
    return choir__beside_token(json_object_get(file, name));
}

/* Old folders (whose tokenizer_config.json has no "added_tokens_decoder") name tokens in
 * special_tokens_map.json. */
static json_t *special_tokens(const choir_beside *beside)
{
    json_t *words = choir__beside_json(beside, CHOIR__BESIDE_WORDS), *tokens = json_object();
    json_t *names = choir__beside_json(beside, CHOIR__BESIDE_NAMES);
    bool old = !json_object_get(words, "added_tokens_decoder");
    for (size_t i = 0; i < CHOIR_COUNT(token_names); i++) {
        const char *text = old ? token_text(names, token_names[i]) : NULL;
        text = text ? text : token_text(words, token_names[i]);
        if (text)
            json_object_set_new(tokens, token_names[i], json_string(text));
    }
    json_decref(names);
    json_decref(words);
    return tokens;
}

static choir_status parse_tokens(choir_chat *chat, const choir_beside *beside)
{
    const char *where;
    json_t *tokens = special_tokens(beside);
    chat->text = json_dumps(tokens, JSON_COMPACT);
    json_decref(tokens);
    const char *wrong =
        choir__json_parse(&chat->tokens, chat->text, chat->text + strlen(chat->text), &where);
    return wrong ? choir__error(CHOIR_ERR_FORMAT, "special tokens: %s", wrong) : CHOIR_OK;
}

const char *choir__chat_token(const choir_chat *chat, const char *name)
{
    const choir__json *token = choir__json_get(chat->tokens.node, name);
    return choir__json_is(token, CHOIR__JSON_STRING) ? token->text : NULL;
}

/* --- templates --- */

/* Takes a template, or the named ones of a list. file: for messages. */
static choir_status take_templates(choir_chat *chat, const char *file, const json_t *template)
{
    choir_status status = CHOIR_OK;
    if (json_is_string(template))
        return choir__jinja_template_new(
            file, json_string_value(template), json_string_length(template), &chat->plain);
    for (size_t i = 0; i < json_array_size(template) && status == CHOIR_OK; i++) {
        const json_t *one = json_array_get(template, i),
                     *text = json_object_get(one, "template");
        const char *name = json_string_value(json_object_get(one, "name"));
        choir__jinja_template **to = !name                       ? NULL
                                     : !strcmp(name, "default")  ? &chat->plain
                                     : !strcmp(name, "tool_use") ? &chat->with_tools
                                                                 : NULL;
        char *named = choir__format("%s, template '%s'", file, name ? name : "");
        if (to && !*to && json_is_string(text))
            status = choir__jinja_template_new(
                named, json_string_value(text), json_string_length(text), to);
        free(named);
    }
    if (status == CHOIR_OK && template && !chat->plain)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: expected \"chat_template\" to be a text or a list with one that is named "
            "\"default\"",
            file);
    return status;
}

/* Takes the template of a file of its own, and the one for tools beside it. */
static choir_status take_files(
    choir_chat *chat, const choir_beside *beside, const char *text, size_t bytes)
{
    const char *name, *other;
    size_t size;
    choir_status status = choir__jinja_template_new(TEMPLATE_FILE, text, bytes, &chat->plain);
    for (int i = 0;
         status == CHOIR_OK && (other = choir__beside_other(beside, i, &name, &size)); i++)
        if (!strcmp(name, CHOIR__BESIDE_OTHERS "/tool_use" CHOIR__BESIDE_END))
            status = choir__jinja_template_new(name, other, size, &chat->with_tools);
    return status;
}

/* A file of its own wins over tokenizer_config.json, and that over the older file. */
static choir_status find_templates(choir_chat *chat, const choir_beside *beside)
{
    static const char *const files[] = {CHOIR__BESIDE_WORDS, LEGACY_FILE};
    size_t bytes;
    const char *text = choir__beside_text(beside, TEMPLATE_FILE, &bytes);
    if (text)
        return take_files(chat, beside, text, bytes);
    choir_status status = CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(files) && status == CHOIR_OK && !chat->plain; i++) {
        json_t *root = choir__beside_json(beside, files[i]);
        const json_t *template = json_object_get(root, "chat_template");
        if (json_is_string(template) || json_is_array(template))
            status = take_templates(chat, files[i], template);
        json_decref(root);
    }
    if (status == CHOIR_OK && !chat->plain)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "the tokenizer's folder has no chat template: neither " TEMPLATE_FILE
            " nor \"chat_template\" in " CHOIR__BESIDE_WORDS);
    return status;
}

choir_status choir_chat_of(const choir_tokenizer *tokenizer, choir_chat **chat)
{
    CHOIR__DEFAULT_FLOATS;
    if (!tokenizer || !chat)
        return choir__missing(__func__, tokenizer ? "chat" : "tokenizer");
    choir_chat *c = choir__calloc(1, sizeof *c);
    choir_status status = find_templates(c, tokenizer->beside);
    if (status == CHOIR_OK)
        status = parse_tokens(c, tokenizer->beside);
    if (status == CHOIR_OK)
        *chat = c;
    else
        choir_chat_free(c);
    return status;
}

choir_status choir_chat_parse(const char *name, const char *text, size_t bytes,
    const choir_tokenizer *tokenizer, choir_chat **chat)
{
    CHOIR__DEFAULT_FLOATS;
    if (!text || !chat)
        return choir__missing(__func__, text ? "chat" : "text");
    choir_chat *c = choir__calloc(1, sizeof *c);
    choir_status status =
        choir__jinja_template_new(name ? name : "the chat template", text, bytes, &c->plain);
    if (status == CHOIR_OK)
        status = parse_tokens(c, tokenizer ? tokenizer->beside : NULL);
    if (status == CHOIR_OK)
        *chat = c;
    else
        choir_chat_free(c);
    return status;
}

void choir_chat_free(choir_chat *chat)
{
    if (!chat)
        return;
    choir__jinja_template_free(chat->plain);
    choir__jinja_template_free(chat->with_tools);
    choir__json_nodes_free(&chat->tokens);
    free(chat->text);
    free(chat);
}

bool choir_chat_marks(const choir_chat *chat)
{
    return !choir__lacks(chat, __func__, "chat") &&
           choir__jinja_template_generates(chat->plain);
}

bool choir__chat_exists(const choir_tokenizer *tokenizer)
{
    static const char *const files[] = {CHOIR__BESIDE_WORDS, LEGACY_FILE};
    size_t bytes;
    bool is = choir__beside_text(tokenizer->beside, TEMPLATE_FILE, &bytes);
    for (size_t i = 0; i < CHOIR_COUNT(files) && !is; i++) {
        json_t *root = choir__beside_json(tokenizer->beside, files[i]);
        const json_t *template = json_object_get(root, "chat_template");
        is = json_is_string(template) || json_is_array(template);
        json_decref(root);
    }
    return is;
}

/* --- rendering --- */

static const choir__jinja_template *template_for(
    const choir_chat *chat, const choir__chat_input *input)
{
    return input->tools && chat->with_tools ? chat->with_tools : chat->plain;
}

bool choir__chat_marks(const choir_chat *chat, const choir__chat_input *input)
{
    return choir__jinja_template_generates(template_for(chat, input));
}

choir_status choir__chat_render(const choir_chat *chat, const choir__chat_input *input,
    int64_t now, choir__jinja_result *result)
{
    const choir__jinja_template *t = template_for(chat, input);
    const choir__jinja_input in = {.messages = input->messages,
        .count = input->count,
        .tools = input->tools,
        .more = {chat->tokens.node, input->others},
        .prompts = input->prompts,
        .now = now};
    return choir__jinja_render(t, &in, result);
}
