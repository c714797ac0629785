/* The text as a SentencePiece model sees it: each prefix of the rest is a user-defined symbol,
 * or has a replacement in the table, or is one character; then spaces become U+2581. The order
 * of the rules about spaces is SentencePiece's own (Normalizer::Normalize), and gives its ids.
 */
#include "data/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

enum { MARK = sizeof CHOIR__SPACE_MARK - 1 };

typedef struct prefix {
    const char *text; /* (bytes) what becomes of a prefix */
    size_t bytes, used;
} prefix;

static prefix next_prefix(const choir__sentencepiece *s, const char *at, const char *end)
{
    size_t used = 0;
    uint32_t code;
    if (choir__trie_longest(&s->symbols, at, end, &used) >= 0)
        return (prefix){at, used, used};
    const char *to = choir__charsmap_longest(&s->charsmap, at, end, &used);
    if (to)
        return (prefix){to, strlen(to), used};
    size_t n = (size_t)choir__utf8_decode(at, end, &code);
    return n ? (prefix){at, n, n} : (prefix){"\xef\xbf\xbd", 3, 1}; /* U+FFFD */
}

static void add_prefix(const prefix *p, size_t from, choir__text_buffer *out)
{
    for (size_t i = from; i < p->bytes; i++) {
        bool space = p->text[i] == ' ';
        choir__text_buffer_add(out, space ? CHOIR__SPACE_MARK : p->text + i, space ? MARK : 1);
    }
}

static void prepare(
    choir__sentencepiece *s, const char *text, const char *end, choir__tokenizer_place place)
{
    choir__text_buffer *out = &s->text;
    bool continued = place == CHOIR__CONTINUED, spaces = s->remove_spaces && !continued;
    out->used = 0;
    while (spaces && text < end) {
        prefix p = next_prefix(s, text, end);
        if (p.bytes != 1 || *p.text != ' ')
            break;
        text += p.used;
    }
    if (text < end && s->dummy_prefix && place == CHOIR__BEGINNING)
        choir__text_buffer_add(out, CHOIR__SPACE_MARK, MARK);
    while (text < end) {
        prefix p = next_prefix(s, text, end);
        size_t from = 0;
        while (spaces && from < p.bytes && p.text[from] == ' ')
            from++;
        add_prefix(&p, from, out);
        if (from < p.bytes)
            spaces = s->remove_spaces && p.text[p.bytes - 1] == ' ';
        text += p.used;
    }
    while (s->remove_spaces && out->used >= MARK &&
           !memcmp(out->bytes + out->used - MARK, CHOIR__SPACE_MARK, MARK))
        out->used -= MARK;
}

/* --- the tokenizer --- */

typedef struct sentencepiece {
    choir_tokenizer base;
    choir__sentencepiece s;
} sentencepiece;

/* Encodes a text piece by piece: symbols become ids, and the model encodes the text between
 * them, since no symbol takes part in a merge. */
static void encode_between(
    choir__sentencepiece *s, const char *text, const char *end, bool part, choir__ids *ids)
{
    const char *from = text;
    for (const char *at = text; at < end;) {
        size_t bytes = 0;
        uint32_t code;
        int32_t id = choir__trie_longest(&s->symbols, at, end, &bytes);
        if (id < 0) {
            at += choir__max(choir__utf8_decode(at, end, &code), 1);
            continue;
        }
        if (from < at)
            s->model->ops->encode(s->model, from, at, part, ids);
        choir__ids_add(ids, id);
        at += bytes;
        from = at;
    }
    if (from < end)
        s->model->ops->encode(s->model, from, end, part, ids);
}

/* All characters have an id, the unknown one at least. */
static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    choir__sentencepiece *s = &((sentencepiece *)self)->s;
    prepare(s, text, end, place);
    if (!s->text.used)
        return NULL;
    const char *begin = s->text.bytes, *stop = begin + s->text.used;
    bool part = place == CHOIR__CONTINUED;
    if (s->frozen && s->symbols.node)
        encode_between(s, begin, stop, part, ids);
    else
        s->model->ops->encode(s->model, begin, stop, part, ids);
    return NULL;
}

void choir__sentencepiece_free(choir__sentencepiece *s)
{
    choir__charsmap_free(&s->charsmap);
    choir__trie_free(&s->symbols);
    if (s->model)
        s->model->ops->free(s->model);
    free(s->text.bytes);
    *s = (choir__sentencepiece){0};
}

static void free_sentencepiece(choir_tokenizer *self)
{
    choir__sentencepiece_free(&((sentencepiece *)self)->s);
}

static const choir__tokenizer_ops sentencepiece_ops = {
    .kind = "SentencePiece", .encode = encode, .free = free_sentencepiece};

choir_tokenizer *choir__sentencepiece_tokenizer(
    choir__sentencepiece *s, int64_t size, char cut_before)
{
    sentencepiece *t = choir__calloc(1, sizeof *t);
    t->base.ops = &sentencepiece_ops;
    t->base.size = size;
    t->base.cut_before = cut_before;
    t->s = *s;
    *s = (choir__sentencepiece){0};
    return &t->base;
}
