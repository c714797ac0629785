/* Added tokens in a text. The rules follow Hugging Face's tokenizers: the search continues at
 * the token's end, even if the token takes white space after it, too. */
#include "data/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/tokenizer/unicode.h"

void choir__added_set_init(choir__added_set *set, choir__added *tokens, size_t count)
{
    choir__trie_key *keys = choir__alloc((count + 1) * sizeof *keys);
    *set = (choir__added_set){.token = tokens, .count = count};
    for (size_t i = 0; i < count; i++)
        keys[i] = (choir__trie_key){tokens[i].text, tokens[i].bytes, (int32_t)i};
    choir__trie_init(&set->trie, keys, count);
    free(keys);
}

void choir__added_set_free(choir__added_set *set)
{
    choir__trie_free(&set->trie);
    free(set->token);
    *set = (choir__added_set){0};
}

static const char *skip_spaces(const char *at, const char *end)
{
    uint32_t code;
    for (int n; at < end; at += n) {
        n = choir__utf8_decode(at, end, &code);
        if (!n || choir__unicode_class(code) != CHOIR__SPACE)
            break;
    }
    return at;
}

/* Returns where the white space before `at` begins. */
static const char *skip_spaces_back(const char *begin, const char *at)
{
    while (at > begin) {
        uint32_t code;
        const char *p = at - 1;
        while (p > begin && at - p < CHOIR__LONGEST_UTF8 && ((unsigned char)*p & 0xC0) == 0x80)
            p--;
        if (choir__utf8_decode(p, at, &code) != at - p ||
            choir__unicode_class(code) != CHOIR__SPACE)
            break;
        at = p;
    }
    return at;
}

choir__added_walk choir__added_begin(const char *text, const char *end)
{
    return (choir__added_walk){.from = text, .search = text, .end = end};
}

bool choir__added_next(const choir__added_set *set, choir__added_walk *w)
{
    size_t bytes = 0;
    int32_t found = -1;
    if (!w->from)
        return false;
    for (; set->count && w->search < w->end; w->search++)
        if ((found = choir__trie_longest(&set->trie, w->search, w->end, &bytes)) >= 0)
            break;
    w->piece = w->piece_end = w->from;
    w->token = NULL;
    if (found < 0) {
        w->piece_end = w->end;
        w->from = NULL;
        return true;
    }
    w->token = &set->token[found];
    const char *at = w->search, *stop = at + bytes;
    w->search = stop;
    if (w->token->strip_left && at > w->from)
        at = skip_spaces_back(w->from, at);
    if (w->token->strip_right)
        stop = skip_spaces(stop, w->end);
    w->piece_end = at > w->from ? at : w->from;
    w->from = stop;
    return true;
}

bool choir__text_crosses(const char *text, size_t bytes, const char *space)
{
    size_t n = strlen(space);
    for (size_t i = 0; i + n < bytes; i++)
        if (choir__is_plain(text[i]) && !memcmp(text + i + 1, space, n))
            return true;
    return false;
}

bool choir__added_crosses(const choir__added_set *set, const char *space)
{
    for (size_t i = 0; i < set->count; i++) {
        const choir__added *a = &set->token[i];
        if (choir__text_crosses(a->text, a->bytes, space) ||
            (a->strip_right && choir__is_plain(a->text[a->bytes - 1])))
            return true;
    }
    return false;
}

bool choir__added_ends(const choir__added_set *set, const char *text, const char *at)
{
    for (size_t i = 0; i < set->count; i++) {
        const choir__added *a = &set->token[i];
        if ((size_t)(at - text) >= a->bytes && !memcmp(at - a->bytes, a->text, a->bytes))
            return true;
    }
    return false;
}
