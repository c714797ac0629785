/* Chat templates: their grammar, and renders whose work follows from their length. */
#include "cases.h"

#include <stdlib.h>
#include <choir/chat.h>

/* A conversation of the input's length. */
static int read_conversation(const uint8_t *data, size_t size)
{
    static const char turns[] =
        "{% for m in messages %}{% if m.role == 'user' %}<{{ m.content | trim }}>{% else %}"
        "{% generation %}{{ m['content'].strip() ~ eos_token }}{% endgeneration %}{% endif %}"
        "{{ m | tojson }}{% endfor %}";
    choir_chat *chat;
    char *text = NULL;
    size_t bytes;
    (void)size;
    if (choir_chat_parse("turns", turns, sizeof turns - 1, NULL, &chat) != CHOIR_OK)
        return 0;
    (void)!choir_chat_render(chat, (const char *)data, 0, &text, &bytes);
    free(text);
    choir_chat_free(chat);
    return 0;
}

static const cost_case cases[] = {
    {"chat: text", read_chat, "", "a text ", "", 2000, .memory = 512},
    {"chat: prints", read_chat, "", "{{ x%zu }}", "", 500, .memory = 4096},
    {"chat: sets", read_chat, "", "{%% set x%zu = 1 %%}", "", 500, .memory = 4096},
    {"chat: braces", read_chat, "", "{ ", "", 4000, .memory = 512},
    {"chat: comments", read_chat, "", "{# a #} ", "", 1000, .memory = 512},
    {"chat: comments without end", read_chat, "", "{# a ", "", 1000, .memory = 512},
    {"chat: raw without end", read_chat, "", "{%% raw %%} ", "", 500, .memory = 512},
    {"chat: white space", read_chat, "a", " \n ", "{%- if x %}{% endif %}", 4000,
        .memory = 512},
    {"chat: brackets", read_chat, "{{ ", "(", "1 }}", 2000, .memory = 4096},
    {"chat: a sum", read_chat, "{{ 1", " + 1", " }}", 1000, .memory = 4096},
    {"chat: parts", read_chat, "{{ 1", " ~ 1", " }}", 1000, .memory = 4096},
    {"chat: filters", read_chat, "{{ 'a'", "|trim", " }}", 1000, .memory = 4096},
    {"chat: a list", read_chat, "{{ ['z'", ",'a%zu'", "] | sort }}", 500, .memory = 4096},
    {"chat: a dict", read_chat, "{{ {'z':1", ",'a%zu':1", "} | dictsort }}", 500,
        .memory = 4096},
    {"chat: texts side by side", read_chat, "{{ ", "'a' ", "}}", 1000, .memory = 4096},
    {"chat: branches", read_chat, "{% if x %}", "{%% elif x%zu %%}b", "{% endif %}", 500,
        .memory = 4096},
    {"chat: nested ifs", read_chat, "", "{%% if 1 %%}", "", 500, .memory = 4096},
    {"chat: a text to split", read_chat, "{{ '", "a b ", "'.split() | join }}", 1000,
        .memory = 2048},
    {"chat: a text to replace", read_chat, "{{ '", "ab", "'.replace('a', 'cc') }}", 2000,
        .memory = 2048},
    {"conversation: messages", read_conversation, "{\"messages\":[",
        "{\"role\":\"user\",\"content\":\" a%zu \"},{\"role\":\"b\",\"content\":\"c\"},",
        "{\"role\":\"user\",\"content\":\"a\"}]}", 200, .memory = 1024},
    {"conversation: a long message", read_conversation,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\\u00e9 a", "\"}]}", 2000,
        .memory = 1024},
    {"conversation: members", read_conversation,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"", ",\"k%zu\":null,\"l%zu\":1",
        "}]}", 300, .memory = 2048},
};

const cost_table cost_chats = COST_TABLE(cases);
