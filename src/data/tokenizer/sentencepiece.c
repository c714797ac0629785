/* SentencePiece's .model: a protobuf message with the pieces, their training settings, and the
 * text's normalisation, which sentencepiece_text.c applies. Unigram and BPE models are
 * supported. Not supported: models of words and of characters, white space as a suffix. A
 * checkpoint stores the file as base64 in JSON. */
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"
#include "data/tokenizer/charsmap.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
enum { UNIGRAM = 1, BPE = 2 };

/* --- protobuf: a field is a number, a wire type, and a value --- */

typedef struct field {
    int number;
    uint64_t value;   /* value of varints and fixed fields */
    const char *data; /* (bytes) a text or a message; NULL: another kind of field */
    size_t bytes;
} field;

typedef struct cursor {
    const char *at, *end;
} cursor;

static bool varint(cursor *c, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        unsigned char b = (unsigned char)*c->at++;
        *value |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80))
            return true;
    }
    return false;
}

/* Reads a field. Returns 1: a field; 0: the end; -1: damaged. */
static int next_field(cursor *c, field *f)
{
    uint64_t key;
    *f = (field){0};
    if (c->at == c->end)
        return 0;
    if (!varint(c, &key) || key >> 3 == 0 || key >> 3 > 1 << 29)
        return -1;
    f->number = (int)(key >> 3);
    int wire = (int)(key & 7);
    if (wire == 0)
        return varint(c, &f->value) ? 1 : -1;
    if (wire == 2) {
        if (!varint(c, &f->value) || f->value > (uint64_t)(c->end - c->at))
            return -1;
        f->data = c->at;
        f->bytes = (size_t)f->value;
        c->at += f->bytes;
        return 1;
    }
    size_t n = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    if (!n || (size_t)(c->end - c->at) < n)
        return -1;
    memcpy(&f->value, c->at, n); /* little-endian, like this machine */
    c->at += n;
    return 1;
}

/* --- the message --- */

typedef struct piece {
    const char *text;
    size_t bytes;
    float score;
    int type;
} piece;

typedef struct spm {
    const char *name;
    piece *pieces;
    size_t count;
    int model, unknown;
    bool byte_fallback, suffix, dummy_prefix, remove_spaces, escape;
    const char *charsmap;
    size_t charsmap_bytes;
} spm;

static choir_status damaged(const spm *m, size_t offset)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: no SentencePiece model, or a damaged one (at byte %zu, %zu pieces before)",
        m->name, offset, m->count);
}

static int read_piece(spm *m, const field *from)
{
    cursor c = {from->data, from->data + from->bytes};
    piece p = {.text = "", .type = NORMAL};
    field f;
    int more;
    while ((more = next_field(&c, &f)) > 0) {
        if (f.number == 1 && f.data) {
            p.text = f.data;
            p.bytes = f.bytes;
        } else if (f.number == 2 && !f.data) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&p.score, &bits, 4);
        } else if (f.number == 3 && !f.data)
            p.type = (int)f.value;
    }
    CHOIR__GROW(m->pieces, m->count);
    m->pieces[m->count++] = p;
    return more;
}

static int read_trainer(spm *m, const field *from)
{
    cursor c = {from->data, from->data + from->bytes};
    field f;
    int more;
    while ((more = next_field(&c, &f)) > 0) {
        if (f.number == 3)
            m->model = (int)f.value;
        else if (f.number == 24)
            m->suffix = f.value;
        else if (f.number == 35)
            m->byte_fallback = f.value;
    }
    return more;
}

static int read_normalizer(spm *m, const field *from)
{
    cursor c = {from->data, from->data + from->bytes};
    field f;
    int more;
    while ((more = next_field(&c, &f)) > 0) {
        if (f.number == 2 && f.data) {
            m->charsmap = f.data;
            m->charsmap_bytes = f.bytes;
        } else if (f.number == 3)
            m->dummy_prefix = f.value;
        else if (f.number == 4)
            m->remove_spaces = f.value;
        else if (f.number == 5)
            m->escape = f.value;
    }
    return more;
}

static choir_status read_model(spm *m, const char *data, size_t bytes)
{
    cursor c = {data, data + bytes};
    field f;
    int more;
    while ((more = next_field(&c, &f)) > 0) {
        int good = f.number == 1 && f.data   ? read_piece(m, &f)
                   : f.number == 2 && f.data ? read_trainer(m, &f)
                   : f.number == 3 && f.data ? read_normalizer(m, &f)
                                             : 0;
        if (good < 0)
            return damaged(m, (size_t)(f.data - data));
        if (m->count >= CHOIR__MOST_TOKENS)
            return choir__error(
                CHOIR_ERR_FORMAT, "%s has more than %d pieces", m->name, CHOIR__MOST_TOKENS);
    }
    return more < 0 || !m->count ? damaged(m, (size_t)(c.at - data)) : CHOIR_OK;
}

static choir_status check(spm *m)
{
    m->unknown = -1;
    for (size_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[i];
        if (!p->bytes || p->bytes > CHOIR__LONGEST_TOKEN || memchr(p->text, 0, p->bytes) ||
            !isfinite(p->score) || p->type < NORMAL || p->type > BYTE)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: piece %zu is damaged (%zu bytes, score %g, type %d)", m->name, i, p->bytes,
                (double)p->score, p->type);
        if (p->type == UNUSED && m->model == BPE)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: piece %zu is unused, which is supported in Unigram models alone", m->name,
                i);
        if (p->type == UNKNOWN)
            m->unknown = (int)i;
    }
    if (m->model != UNIGRAM && m->model != BPE)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: trainer_spec.model_type is %d; 1 (unigram) and 2 (BPE) are known", m->name,
            m->model);
    if (m->suffix || !m->escape)
        return choir__error(CHOIR_ERR_FORMAT, "%s: %s is %s, which is not supported", m->name,
            m->suffix ? "trainer_spec.treat_whitespace_as_suffix"
                      : "normalizer_spec.escape_whitespaces",
            m->suffix ? "true" : "false");
    if (m->unknown < 0)
        return choir__error(CHOIR_ERR_FORMAT, "%s has no unknown piece", m->name);
    return CHOIR_OK;
}

/* --- to a tokenizer --- */

static void decode_piece(const piece *p, choir__text_buffer *out)
{
    out->used = 0;
    if (p->type == BYTE && p->bytes == 6) {
        char hex[3] = {p->text[3], p->text[4]};
        choir__text_buffer_add(out, (char[]){(char)strtol(hex, NULL, 16)}, 1);
        return;
    }
    for (const char *at = p->text, *end = at + p->bytes; at < end;) {
        bool mark = end - at >= 3 && !memcmp(at, CHOIR__SPACE_MARK, 3);
        choir__text_buffer_add(out, mark ? " " : at, 1);
        at += mark ? 3 : 1;
    }
}

static choir_status add_pieces(const spm *m, choir__vocab *keys, choir__vocab *texts)
{
    choir__text_buffer text = {0};
    choir_status status = CHOIR_OK;
    choir__vocab_init(keys, (int64_t)m->count);
    choir__vocab_init(texts, (int64_t)m->count);
    for (size_t i = 0; i < m->count && status == CHOIR_OK; i++) {
        const piece *p = &m->pieces[i];
        choir__vocab_set(keys, (int64_t)i, p->text, p->bytes);
        decode_piece(p, &text);
        choir__vocab_set(texts, (int64_t)i, text.bytes, text.used);
        bool found = p->type == NORMAL || p->type == BYTE || p->type == USER_DEFINED;
        if (found && choir__vocab_index(keys, (int64_t)i) >= 0)
            status = choir__error(CHOIR_ERR_FORMAT, "%s: piece %zu, '%.*s', is there twice",
                m->name, i, (int)p->bytes, p->text);
    }
    free(text.bytes);
    return status;
}

static int by_score(const void *a, const void *b, void *model)
{
    const spm *m = model;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    float p = m->pieces[x].score, q = m->pieces[y].score;
    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

/* A pair may merge if the result is a piece; the piece's score determines the rank. */
static choir__merge *find_merges(const spm *m, const choir__vocab *keys, size_t *count)
{
    int32_t *order = choir__alloc(m->count * sizeof *order);
    choir__merge *merges = NULL;
    size_t n = 0;
    int32_t rank = 0;
    for (size_t i = 0; i < m->count; i++)
        order[i] = (int32_t)i;
    qsort_r(order, m->count, sizeof *order, by_score, (void *)m);
    for (size_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[order[i]];
        rank += i && p->score < m->pieces[order[i - 1]].score;
        if (p->type != NORMAL)
            continue;
        for (size_t cut = 1; cut < p->bytes; cut++) {
            if (((unsigned char)p->text[cut] & 0xC0) == 0x80)
                continue;
            int64_t a = choir__vocab_find(keys, p->text, cut);
            int64_t b = a < 0 ? -1 : choir__vocab_find(keys, p->text + cut, p->bytes - cut);
            if (b < 0 || m->pieces[a].type != NORMAL || m->pieces[b].type != NORMAL)
                continue;
            CHOIR__GROW(merges, n);
            merges[n++] = (choir__merge){(int32_t)a, (int32_t)b, order[i], rank};
        }
    }
    free(order);
    *count = n;
    return merges;
}

static choir_status make_bpe(
    const spm *m, choir__vocab *keys, const choir__unknown *unknown, choir__model **model)
{
    size_t count;
    choir__merge *merges = find_merges(m, keys, &count);
    choir__bpe_opts o = {.unknown = *unknown};
    choir_status status = choir__bpe_new(m->name, keys, merges, count, &o, model);
    free(merges);
    return status;
}

/* A user-defined piece of n bytes has the score 0.1 (n - 1), which no other way to cut its text
 * reaches: SentencePiece 0.2.3's. (Before 0.2.1 it was about -0.1.) */
static choir__model *make_unigram(
    const spm *m, choir__vocab *keys, const choir__unknown *unknown)
{
    double *scores = choir__alloc(m->count * sizeof *scores);
    float lowest = FLT_MAX;
    for (size_t i = 0; i < m->count; i++)
        if (m->pieces[i].type == NORMAL)
            lowest = fminf(lowest, m->pieces[i].score);
    for (size_t i = 0; i < m->count; i++) {
        const piece *p = &m->pieces[i];
        scores[i] = p->type == NORMAL         ? (double)p->score
                    : p->type == USER_DEFINED ? (double)(float)((double)p->bytes * 0.1 - 0.1)
                                              : (double)NAN;
    }
    choir__unigram_opts o = {
        .unknown = *unknown, .unknown_score = (double)(lowest - 10), .sentencepiece = true};
    return choir__unigram_new(keys, scores, &o);
}

static choir_status make_model(const spm *m, choir__vocab *keys, choir__model **model)
{
    choir__unknown unknown = {.id = m->unknown, .fuse = true};
    unknown.byte[0] = -1;
    if (m->byte_fallback && !choir__unknown_bytes(&unknown, keys))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: byte_fallback is true, but not all of <0x00> ... <0xFF> are pieces", m->name);
    if (m->model == BPE)
        return make_bpe(m, keys, &unknown, model);
    *model = make_unigram(m, keys, &unknown);
    return CHOIR_OK;
}

static void find_symbols(const spm *m, const choir__vocab *keys, choir__trie *symbols)
{
    choir__trie_key *list = choir__alloc(m->count * sizeof *list);
    size_t count = 0, bytes;
    for (size_t i = 0; i < m->count; i++)
        if (m->pieces[i].type == USER_DEFINED) {
            const char *text = choir__vocab_text(keys, (int64_t)i, &bytes);
            list[count++] = (choir__trie_key){text, (uint32_t)bytes, (int32_t)i};
        }
    choir__trie_init(symbols, list, count);
    free(list);
}

/* Returns the character before which a long text may be cut: no piece crosses the place, and no
 * run of unknown characters, which is one token. */
static char cut_before(const spm *m, const choir__sentencepiece *s, const choir__vocab *keys)
{
    bool known = m->byte_fallback ||
                 choir__vocab_find(keys, CHOIR__SPACE_MARK, strlen(CHOIR__SPACE_MARK)) >= 0;
    return known && choir__charsmap_keeps_cuts(&s->charsmap, ' ') &&
                   !choir__vocab_crosses(keys, " ") &&
                   !choir__vocab_crosses(keys, CHOIR__SPACE_MARK)
               ? ' '
               : 0;
}

choir_status choir__sentencepiece_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer)
{
    spm m = {.name = name,
        .model = UNIGRAM,
        .dummy_prefix = true,
        .remove_spaces = true,
        .escape = true};
    choir__vocab keys = {0}, texts = {0};
    choir__sentencepiece s = {0};
    char cut = 0;
    choir_status status = read_model(&m, data, bytes);
    if (status == CHOIR_OK)
        status = check(&m);
    if (status == CHOIR_OK)
        status = add_pieces(&m, &keys, &texts);
    if (status == CHOIR_OK && m.charsmap_bytes)
        status = choir__charsmap_init(&s.charsmap, name, m.charsmap, m.charsmap_bytes);
    if (status == CHOIR_OK) {
        s.dummy_prefix = m.dummy_prefix;
        s.remove_spaces = m.remove_spaces;
        s.frozen = m.model == BPE;
        find_symbols(&m, &keys, &s.symbols);
        cut = cut_before(&m, &s, &keys);
        status = make_model(&m, &keys, &s.model);
    }
    if (status == CHOIR_OK) {
        choir_tokenizer *t = choir__sentencepiece_tokenizer(&s, (int64_t)m.count, cut);
        char *text = choir__base64_encode(data, bytes);
        t->decoded = texts;
        texts = (choir__vocab){0};
        t->source = choir__format("{\"type\":\"sentencepiece\",\"model\":\"%s\"}", text);
        t->source_bytes = strlen(t->source);
        free(text);
        *tokenizer = t;
    } else
        choir__sentencepiece_free(&s);
    choir__vocab_free(&keys);
    choir__vocab_free(&texts);
    free(m.pieces);
    return status;
}

choir_status choir__sentencepiece_from_json(
    const char *name, json_t *root, choir_tokenizer **tokenizer)
{
    const char *text = choir__json_text(root, "model");
    size_t bytes;
    char *data = text ? choir__base64_decode(text, strlen(text), &bytes) : NULL;
    if (!data)
        return choir__error(CHOIR_ERR_FORMAT, "%s: \"model\": expected base64", name);
    choir_status status = choir__sentencepiece_parse(name, data, bytes, tokenizer);
    free(data);
    return status;
}
