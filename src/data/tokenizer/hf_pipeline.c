/* A tokenizer.json at work. Each step of the pre-tokenizer cuts its text into words and hands
 * each to the next step at once; the last hands them to the model. A step that changes the text
 * (a mark for each space, a space before it) does so in a buffer of its own.
 *
 * The position of a character without a token travels back the same way: each step translates
 * it to its own text. */
#include "data/tokenizer/hf_pipeline.h"

#include <stdlib.h>
#include <string.h>

/* --- a piece of text between added tokens --- */

/* Returns whether a step ends a word before each white space behind a letter or digit. */
static bool ends_words(const choir__word_step *s)
{
    switch (s->kind) {
    case CHOIR__WORDS_METASPACE: return s->divide;
    case CHOIR__WORDS_CUTS: return s->ends_words;
    case CHOIR__WORDS_PATTERN:
    case CHOIR__WORDS_BYTES: return s->split && s->split < CHOIR__SPLIT_DIGIT;
    default: return true;
    }
}

static bool cuts_words(const choir__hf_pipeline *p)
{
    for (int i = 0; i < p->count; i++)
        if (ends_words(&p->step[i]))
            return true;
    return false;
}

static const char *encode_normal(
    const choir__hf_work *w, const char *text, const char *end, choir__tokenizer_place place)
{
    choir__added_walk walk = choir__added_begin(text, end);
    const char *stopped = NULL;
    while (!stopped && choir__added_next(&w->p->added, &walk)) {
        if (walk.piece < walk.piece_end)
            stopped = choir__hf_words(
                w, 0, walk.piece, walk.piece_end, walk.piece == text ? place : CHOIR__INSIDE);
        if (!stopped && walk.token)
            choir__ids_add(w->ids, walk.token->id);
    }
    return stopped;
}

static bool has_bytes(const choir__hf_pipeline *p)
{
    return p->count && p->step[p->count - 1].kind == CHOIR__WORDS_BYTES;
}

typedef struct piped {
    choir_tokenizer base;
    choir__hf_pipeline pipe;
} piped;

static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    choir__hf_pipeline *p = &((piped *)self)->pipe;
    bool continued = place == CHOIR__CONTINUED, whole = true;
    choir__hf_work w = {p, ids, .part = continued && !cuts_words(p)};
    if (!p->normalizer.count && has_bytes(p)) /* any bytes, valid UTF-8 or not */
        return encode_normal(&w, text, end, place);
    choir__normalize(&p->normalizer, text, end, continued, &p->normal, &whole);
    if (place == CHOIR__BEGINNING && !whole)
        place = CHOIR__INSIDE;
    const char *begin = p->normal.used ? p->normal.bytes : "";
    const char *stopped = encode_normal(&w, begin, begin + p->normal.used, place);
    return stopped ? choir__normalize_back(
                         &p->normalizer, text, end, continued, (size_t)(stopped - begin))
                   : NULL;
}

void choir__hf_pipeline_free(choir__hf_pipeline *p)
{
    choir__normalizer_free(&p->normalizer);
    choir__added_set_free(&p->added);
    choir__vocab_free(&p->added_texts);
    for (int i = 0; i < p->count; i++) {
        free(p->step[i].text.bytes);
        choir__cuts_free(&p->step[i].cuts);
    }
    if (p->model)
        p->model->ops->free(p->model);
    free(p->normal.bytes);
    *p = (choir__hf_pipeline){0};
}

bool choir__hf_normalizes(const choir__hf_pipeline *p, choir__normal_kind kind)
{
    for (int i = 0; i < p->normalizer.count; i++)
        if (p->normalizer.step[i].kind == kind)
            return true;
    return false;
}

bool choir__hf_cuts(const choir__hf_pipeline *p, choir__word_kind kind)
{
    for (int i = 0; i < p->count; i++)
        if (p->step[i].kind == kind)
            return true;
    return false;
}

static void free_piped(choir_tokenizer *self)
{
    choir__hf_pipeline_free(&((piped *)self)->pipe);
}

static const choir__tokenizer_ops byte_ops = {
    .kind = "tokenizer.json", .any_bytes = true, .encode = encode, .free = free_piped};
static const choir__tokenizer_ops character_ops = {
    .kind = "tokenizer.json", .encode = encode, .free = free_piped};

choir_tokenizer *choir__hf_pipeline_tokenizer(
    choir__hf_pipeline *p, int64_t size, char cut_before)
{
    piped *t = choir__calloc(1, sizeof *t);
    t->base.ops = has_bytes(p) ? &byte_ops : &character_ops;
    t->base.size = size;
    t->base.cut_before = cut_before;
    t->pipe = *p;
    *p = (choir__hf_pipeline){0};
    return &t->base;
}

/* --- where a long text may be cut --- */

/* Stores what `count` white spaces between two letters or digits become, whichever these are.
 * Returns false if that depends on them, or is nothing. */
static bool form_of(choir__normalizer *n, char space, int count, choir__text_buffer *form)
{
    choir__text_buffer out = {0};
    bool same = true;
    form->used = 0;
    for (int c = '0'; c <= 'z' && same; c++) {
        char text[] = {(char)c, space, count > 1 ? space : (char)c, (char)c};
        if (!choir__is_plain((char)c))
            continue;
        choir__normalize(n, text, text + count + 2, true, &out, NULL);
        same = out.used > 2 && choir__is_plain(out.bytes[0]) &&
               choir__is_plain(out.bytes[out.used - 1]) &&
               (!form->used || (form->used == out.used - 2 &&
                                   !memcmp(form->bytes, out.bytes + 1, form->used)));
        if (same && !form->used)
            choir__text_buffer_add(form, out.bytes + 1, out.used - 2);
    }
    if (same)
        choir__text_buffer_add(form, "", 1);
    free(out.bytes);
    return same;
}

static bool space_at_start(const char *text)
{
    uint32_t code;
    return choir__utf8_decode(text, text + strlen(text), &code) &&
           choir__unicode_class(code) == CHOIR__SPACE;
}

/* Returns whether a pattern can match nothing but a space, or text without letters, digits and
 * spaces. */
static bool keeps_cuts(const char *pattern)
{
    if (!pattern || !strcmp(pattern, " "))
        return true;
    for (; *pattern; pattern++)
        if (choir__is_plain(*pattern) || *pattern == ' ' || *pattern == '\n')
            return false;
    return true;
}

/* Returns whether a step may match across a place between a letter and white space, or behind
 * it depend on what stands before it. */
static bool looks_across(const choir__word_step *s)
{
    return s->kind == CHOIR__WORDS_CUTS && !s->ends_words &&
           (s->cuts.regex || !keeps_cuts(s->cuts.literal));
}

/* Returns whether a word ends between a letter and this text; *across: a step before may look
 * across. */
static bool divides_before(const choir__hf_pipeline *p, const char *form, bool *across)
{
    bool space = space_at_start(form),
         mark = *form == ' ' || !strncmp(form, CHOIR__SPACE_MARK, strlen(CHOIR__SPACE_MARK));
    *across = false;
    for (int i = 0; i < p->count && !*across; i++) {
        if (ends_words(&p->step[i]) &&
            (p->step[i].kind == CHOIR__WORDS_METASPACE ? mark : space))
            return true;
        *across = looks_across(&p->step[i]);
    }
    return false;
}

/* A model that sees the whole text must have no key that crosses the place, and no run of
 * unknown characters, which is one token, may do so either. */
static bool splits_model(const choir__hf_pipeline *p, const choir__vocab *keys,
    const char *form, choir__word_needs needs)
{
    bool marks = choir__hf_cuts(p, CHOIR__WORDS_METASPACE) && *form == ' ';
    const char *first = marks ? CHOIR__SPACE_MARK : form;
    uint32_t code;
    int n = has_bytes(p) ? 1 : choir__utf8_decode(first, first + strlen(first), &code);
    char key[CHOIR__LONGEST_UTF8 + 1] = "";
    memcpy(key, first, (size_t)n);
    return n && needs != CHOIR__NEEDS_WORD && !choir__vocab_crosses(keys, key) &&
           (needs == CHOIR__NEEDS_NOTHING || choir__vocab_find(keys, key, (size_t)n) >= 0);
}

/* Returns whether a step adds a space behind an added token, though not where a text was cut.
 */
static bool prefixes(const choir__hf_pipeline *p)
{
    for (int i = 0; i < p->count; i++)
        if (p->step[i].prefix == CHOIR__PREFIX_ALWAYS)
            return true;
    return false;
}

static bool ends_plain(const choir__added_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (choir__is_plain(set->token[i].text[set->token[i].bytes - 1]))
            return true;
    return false;
}

/* Returns whether no token may cross the place before this form of white space. */
static bool divides(const choir__hf_pipeline *p, const choir__vocab *keys, const char *form,
    choir__word_needs needs)
{
    bool across;
    return !choir__added_crosses(&p->added, form) &&
           (divides_before(p, form, &across) ||
               (!across && splits_model(p, keys, form, needs)));
}

/* A collapsing step also replaces spaces that an earlier step has made of other characters, so
 * its content must divide words as well. */
static bool may_cut(choir__hf_pipeline *p, const choir__vocab *keys,
    const choir__added_set *raw, choir__word_needs needs, char space)
{
    choir__text_buffer form = {0};
    bool may = !choir__added_crosses(raw, (char[]){space, 0}) &&
               !(prefixes(p) && ends_plain(&p->added));
    for (int i = 0; i < p->normalizer.count && may; i++) {
        const choir__normal_step *step = &p->normalizer.step[i];
        may = keeps_cuts(step->pattern) && choir__charsmap_keeps_cuts(&step->charsmap, space) &&
              (step->kind != CHOIR__NORMAL_COLLAPSE || divides(p, keys, step->content, needs));
    }
    for (int n = 1; n <= 2 && may; n++)
        may = form_of(&p->normalizer, space, n, &form) && divides(p, keys, form.bytes, needs);
    free(form.bytes);
    return may;
}

char choir__hf_pipeline_cut(choir__hf_pipeline *p, const choir__vocab *keys,
    const choir__added_set *raw, choir__word_needs needs)
{
    bool lines = has_bytes(p) && may_cut(p, keys, raw, needs, '\n');
    return lines                                ? '\n'
           : may_cut(p, keys, raw, needs, ' ')  ? ' '
           : may_cut(p, keys, raw, needs, '\n') ? '\n'
                                                : 0;
}
