/* Chat templates: the input is one. It is rendered for a conversation with tools, a call and
 * parts, with and without a prompt; the same text twice. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/chat.h>

static const char *const conversations[] = {
    "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],\"add_generation_prompt\":true}",
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S \"},{\"role\":\"user\",\"content\":[{"
    "\"type\":\"text\",\"text\":\"\xc3\xa9\"}]},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5}}}]},{"
    "\"role\":\"tool\",\"content\":\"2\"},{\"role\":\"assistant\",\"content\":\"B\"}],\"tools\":"
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"bos_token\":"
    "\"<s>\"}",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir_chat *chat;
    if (choir_chat_parse("fuzzed", (const char *)data, size, NULL, &chat) != CHOIR_OK)
        return 0;
    for (size_t i = 0; i < sizeof conversations / sizeof *conversations; i++) {
        char *text = NULL, *again = NULL;
        size_t bytes = 0, more = 0;
        choir_status first = choir_chat_render(chat, conversations[i], 0, &text, &bytes);
        choir_status second = choir_chat_render(chat, conversations[i], 0, &again, &more);
        if (first != second || bytes != more || (text && memcmp(text, again, bytes) != 0)) {
            fprintf(stderr, "a template gives two texts\n");
            abort();
        }
        free(text);
        free(again);
    }
    choir_chat_free(chat);
    return 0;
}
