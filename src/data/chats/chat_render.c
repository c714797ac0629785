/* choir_chat_render: a program's conversation, given as JSON, becomes the text that the
 * model's chat template makes of it, as transformers' apply_chat_template does. */
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "data/chats/chat.h"

static const choir__json *array_or_null(const choir__json *value)
{
    return choir__json_is(value, CHOIR__JSON_ARRAY) ? value : NULL;
}

static choir_status find_input(const choir__json *root, choir__chat_input *input)
{
    const choir__json *prompts = choir__json_get(root, "add_generation_prompt");
    *input = (choir__chat_input){.messages = array_or_null(choir__json_get(root, "messages")),
        .tools = array_or_null(choir__json_get(root, "tools")),
        .others = root,
        .prompts = choir__json_is(prompts, CHOIR__JSON_TRUE)};
    if (!input->messages || !input->messages->count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a chat: expected \"messages\" to be an array of one or more objects");
    input->count = input->messages->count;
    return CHOIR_OK;
}

choir_status choir_chat_render(
    const choir_chat *chat, const char *variables, int64_t now, char **text, size_t *bytes)
{
    CHOIR__DEFAULT_FLOATS;
    if (!chat || !variables || !text || !bytes)
        return choir__missing(__func__, !chat        ? "chat"
                                        : !variables ? "variables"
                                        : !text      ? "text"
                                                     : "bytes");
    choir__json_nodes nodes = {0};
    choir__jinja_result result = {0};
    choir__chat_input input;
    const char *where;
    char *copy = choir__strdup(variables);
    const char *wrong = choir__json_parse(&nodes, copy, copy + strlen(copy), &where);
    choir_status status =
        wrong ? choir__error(CHOIR_ERR_ARGUMENT, "a chat: its variables are no JSON: %s", wrong)
              : find_input(nodes.node, &input);
    if (status == CHOIR_OK)
        status = choir__chat_render(chat, &input, now, &result);
    if (status == CHOIR_OK) {
        *text = result.text;
        *bytes = result.bytes;
        result.text = NULL;
    }
    choir__jinja_result_free(&result);
    choir__json_nodes_free(&nodes);
    free(copy);
    return status;
}
