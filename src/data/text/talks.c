/* Conversations are counted as they are read: a split without any answer has no targets, and is
 * refused before the training starts; single conversations without one are noted. */
#include "data/text/talks.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Returns the names of the roles, each once; the caller frees them. */
static char *roles_of(const choir__conversation *c)
{
    enum { MOST = 4 };
    const choir__json *message = choir__json_first(c->messages), *role[MOST];
    choir__text_buffer list = {0};
    uint32_t count = 0;
    choir__text_buffer_put(&list, "");
    for (uint32_t i = 0; i < c->messages->count && count < MOST; i++) {
        uint32_t k = 0;
        role[count] = choir__json_get(message, "role");
        message = choir__json_next(message);
        if (!choir__json_is(role[count], CHOIR__JSON_STRING))
            continue;
        while (strcmp(role[k]->text, role[count]->text) != 0)
            k++;
        if (k == count)
            choir__text_format(&list, "%s'%.40s'", count ? ", " : "", role[count]->text);
        count += k == count;
    }
    return list.bytes;
}

void choir__talks_count(choir__talks *t, const choir__data_record_at *at,
    const choir__document_parts *parts, int64_t tokens, int64_t most, bool ends)
{
    if (parts->silent && !t->silent++) {
        t->silent_at = choir__data_record_place(at);
        t->silent_roles = roles_of(&parts->conversation);
    }
    if (!parts->written)
        return;
    t->chats++;
    t->marked += parts->marked;
    t->cut += tokens > most;
    t->endless += !ends;
}

choir_status choir__talks_check(const choir__talks *t, int64_t documents, const char *split)
{
    if (!t->silent || t->silent < documents)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: expected words of the role 'assistant', which alone are learned, got messages %s%s, "
        "and the %s split has no others",
        t->silent_at, *t->silent_roles ? "of " : "without a role", t->silent_roles, split);
}

static char *say_template(const choir__talks *t, int64_t context)
{
    char *cut = t->cut ? choir__format(
                             "; %lld are longer than the %lld tokens of a sample, and are cut",
                             (long long)t->cut, (long long)context)
                       : choir__strdup("");
    char *text = choir__format("%lld conversations are written by the chat template of the "
                               "tokenizer's folder; what the assistant says is learned%s%s%s",
        (long long)t->chats,
        t->marked == t->chats ? ", as the template marks it"
                              : ", where it adds to the messages before it",
        cut,
        t->endless == t->chats
            ? "; no token that ends a turn or a text is learned, so answers will not end by "
              "themselves: let the template write one behind an answer, and mark it"
            : "");
    free(cut);
    return text;
}

char *choir__talks_say(const choir__talks *t, int64_t context)
{
    char *text = t->chats ? say_template(t, context) : NULL;
    if (!t->silent)
        return text;
    char *more =
        choir__format("%s%sthe assistant says nothing in %lld conversation%s, first in "
                      "%s: nothing of such a conversation is learned",
            text ? text : "", text ? "; " : "", (long long)t->silent, t->silent > 1 ? "s" : "",
            t->silent_at);
    free(text);
    return more;
}

void choir__talks_free(choir__talks *t)
{
    free(t->silent_at);
    free(t->silent_roles);
    *t = (choir__talks){0};
}
