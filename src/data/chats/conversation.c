/* Conversations of records as messages with a role and a content, which templates read. Other
 * forms become new nodes of JSON that refer to the record's texts. */
#include "data/chats/conversation.h"

#include <stdlib.h>
#include <string.h>

bool choir__is_conversation(const choir__json *record, const choir__columns *columns)
{
    return choir__column(columns, record, messages) ||
           choir__column(columns, record, conversations) ||
           (choir__column(columns, record, instruction) &&
               choir__column(columns, record, output)) ||
           (choir__json_is(choir__column(columns, record, prompt), CHOIR__JSON_ARRAY) &&
               choir__json_is(choir__column(columns, record, completion), CHOIR__JSON_ARRAY));
}

void choir__conversation_free(choir__conversation *c)
{
    choir__json_nodes_free(&c->made);
    for (size_t i = 0; i < CHOIR_COUNT(c->parsed); i++)
        choir__json_nodes_free(&c->parsed[i]);
    for (size_t i = 0; i < CHOIR_COUNT(c->text); i++)
        free(c->text[i]);
    *c = (choir__conversation){0};
}

/* --- values that are texts of JSON --- */

/* Stores an array, which may be a text of JSON, as files of tables have it. which: 0, messages;
 * 1, tools. */
static choir_status find_array(const choir__data_record_at *at, const char *name,
    const choir__json *value, int which, choir__conversation *c, const choir__json **array)
{
    const char *where, *wrong = NULL;
    *array = value;
    if (choir__json_is(value, CHOIR__JSON_STRING)) {
        free(c->text[which]);
        c->text[which] = choir__alloc(value->bytes + 1);
        memcpy(c->text[which], value->text, value->bytes + 1);
        wrong = choir__json_parse(
            &c->parsed[which], c->text[which], c->text[which] + value->bytes, &where);
        *array = c->parsed[which].node;
    }
    if (wrong)
        return choir__data_record_wrong(at, "%s: expected an array, or JSON: %s", name, wrong);
    if ((*array)->type != CHOIR__JSON_ARRAY || (which == 0 && !(*array)->count))
        return choir__data_record_wrong(
            at, "%s: expected an array%s", name, which ? "" : " of one or more");
    return CHOIR_OK;
}

/* --- making messages --- */

static void add_text(choir__json_nodes *n, const char *text, size_t bytes)
{
    choir__json_add(
        n, (choir__json){.type = CHOIR__JSON_STRING, .nodes = 1, .text = text, .bytes = bytes});
}

static void add_word(choir__json_nodes *n, const char *word)
{
    add_text(n, word, strlen(word));
}

/* Adds {"role": role, "content": content}. */
static void add_message(choir__json_nodes *n, const char *role, const choir__json *content)
{
    enum { OWN = 4 }; /* the object, two names and the role */
    choir__json_add(n,
        (choir__json){.type = CHOIR__JSON_OBJECT, .count = 2, .nodes = OWN + content->nodes});
    add_word(n, "role");
    add_word(n, role);
    add_word(n, "content");
    for (uint32_t i = 0; i < content->nodes; i++)
        choir__json_add(n, content[i]);
}

static void begin(choir__conversation *c, const choir__json *system)
{
    c->made.count = 0;
    choir__json_add(&c->made, (choir__json){.type = CHOIR__JSON_ARRAY, .nodes = 1});
    if (choir__json_is(system, CHOIR__JSON_STRING) && system->bytes)
        add_message(&c->made, "system", system);
}

static void end(choir__conversation *c, uint32_t count)
{
    c->made.node[0].nodes = (uint32_t)c->made.count;
    c->made.node[0].count = count;
    c->messages = c->made.node;
}

/* --- ShareGPT --- */

/* Returns the role for a name in "from"; an unknown name stays itself. */
static const char *role_of(const char *from)
{
    static const struct {
        const char *from, *role;
    } names[] = {{"human", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"},
        {"bing", "assistant"}, {"bard", "assistant"}, {"model", "assistant"},
        {"function_call", "assistant"}, {"observation", "tool"}, {"function", "tool"},
        {"function_response", "tool"}};
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        if (!strcmp(from, names[i].from))
            return names[i].role;
    return from;
}

static choir_status from_turns(const choir__data_record_at *at, const choir__json *turns,
    const choir__json *system, choir__conversation *c)
{
    const choir__json *turn = choir__json_first(turns);
    if (choir__json_get(turn, "role") && !system) {
        c->messages = turns;
        return CHOIR_OK;
    }
    begin(c, system);
    uint32_t count = c->made.count > 1;
    for (uint32_t i = 0; i < turns->count; i++, turn = choir__json_next(turn)) {
        const choir__json *from = choir__json_get(turn, "from");
        const choir__json *value = choir__json_get(turn, "value");
        from = from ? from : choir__json_get(turn, "role");
        value = value ? value : choir__json_get(turn, "content");
        if (!choir__json_is(from, CHOIR__JSON_STRING) || !value)
            return choir__data_record_wrong(
                at, "conversations: expected objects with 'from' and 'value'");
        add_message(&c->made, role_of(from->text), value);
    }
    end(c, count + turns->count);
    return CHOIR_OK;
}

/* --- Alpaca --- */

/* Returns the instruction; an input follows two lines below. */
static choir__json asked(
    choir__conversation *c, const choir__json *instruction, const choir__json *input)
{
    if (!choir__json_is(input, CHOIR__JSON_STRING) || !input->bytes)
        return *instruction;
    choir__json both = *instruction;
    both.bytes = instruction->bytes + 2 + input->bytes;
    free(c->text[2]);
    c->text[2] = choir__alloc(both.bytes + 1);
    memcpy(c->text[2], instruction->text, instruction->bytes);
    memcpy(c->text[2] + instruction->bytes, "\n\n", 2);
    memcpy(c->text[2] + instruction->bytes + 2, input->text, input->bytes + 1);
    both.text = c->text[2];
    return both;
}

static choir_status from_instruction(const choir__data_record_at *at, const choir__json *record,
    const choir__columns *columns, choir__conversation *c)
{
    const choir__json *instruction = choir__column(columns, record, instruction);
    const choir__json *output = choir__column(columns, record, output);
    if (instruction->type != CHOIR__JSON_STRING || output->type != CHOIR__JSON_STRING)
        return choir__data_record_wrong(
            at, "columns 'instruction' and 'output': expected texts");
    choir__json question = asked(c, instruction, choir__column(columns, record, input));
    begin(c, choir__column(columns, record, system));
    uint32_t count = c->made.count > 1;
    add_message(&c->made, "user", &question);
    add_message(&c->made, "assistant", output);
    end(c, count + 2);
    return CHOIR_OK;
}

/* --- a prompt's messages and a completion's --- */

static void add_all(choir__json_nodes *n, const choir__json *array)
{
    for (uint32_t i = 1; i < array->nodes; i++)
        choir__json_add(n, array[i]);
}

static void from_prompt(
    const choir__json *prompt, const choir__json *completion, choir__conversation *c)
{
    begin(c, NULL);
    add_all(&c->made, prompt);
    add_all(&c->made, completion);
    end(c, prompt->count + completion->count);
    c->asked = prompt->count;
}

choir_status choir__conversation_of(const choir__data_record_at *at, const choir__json *record,
    const choir__columns *columns, choir__conversation *c)
{
    const choir__json *messages = choir__column(columns, record, messages), *found;
    const choir__json *turns = choir__column(columns, record, conversations);
    const choir__json *tools = choir__column(columns, record, tools);
    choir_status status = CHOIR_OK;
    c->messages = c->tools = NULL;
    c->asked = 0;
    if (tools && !(choir__json_is(tools, CHOIR__JSON_STRING) && !tools->bytes))
        status = find_array(at, "tools", tools, 1, c, &c->tools);
    if (status == CHOIR_OK && c->tools && !c->tools->count)
        c->tools = NULL;
    if (status != CHOIR_OK)
        return status;
    if (messages) {
        status = find_array(at, "messages", messages, 0, c, &c->messages);
        const choir__json *first = status == CHOIR_OK ? choir__json_first(c->messages) : NULL;
        bool turns_there = !choir__json_get(first, "role") && choir__json_get(first, "from");
        return turns_there ? from_turns(at, c->messages, NULL, c) : status;
    }
    if (turns) {
        status = find_array(at, "conversations", turns, 0, c, &found);
        return status == CHOIR_OK
                   ? from_turns(at, found, choir__column(columns, record, system), c)
                   : status;
    }
    const choir__json *prompt = choir__column(columns, record, prompt);
    const choir__json *completion = choir__column(columns, record, completion);
    if (choir__json_is(prompt, CHOIR__JSON_ARRAY) &&
        choir__json_is(completion, CHOIR__JSON_ARRAY)) {
        if (!prompt->count || !completion->count)
            return choir__data_record_wrong(
                at, "prompt and completion: expected arrays of one message or more");
        from_prompt(prompt, completion, c);
        return CHOIR_OK;
    }
    return choir__is_conversation(record, columns) ? from_instruction(at, record, columns, c)
                                                   : CHOIR_OK;
}
