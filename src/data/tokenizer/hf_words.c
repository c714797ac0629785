/* The steps of a pre-tokenizer: each cuts a text into words, or changes it, and hands its words
 * on to the next step. The last hands them to the model. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf_pipeline.h"

enum { MARK = sizeof CHOIR__SPACE_MARK - 1 };

/* Hands on the word [at, end) of a text: the first one may stand at the beginning of all. */
static const char *pass_on(const choir__hf_work *w, int step, const char *text, const char *at,
    const char *end, choir__tokenizer_place place)
{
    if (at == end)
        return NULL;
    bool first = at == text && place == CHOIR__BEGINNING;
    return choir__hf_words(w, step + 1, at, end, first ? CHOIR__BEGINNING : CHOIR__INSIDE);
}

/* --- steps --- */

static const char *by_pattern(const choir__hf_work *w, int step, choir__tokenizer_split split,
    const char *text, const char *end, choir__tokenizer_place place)
{
    const char *stopped = NULL;
    for (const char *at = text, *next; at < end && !stopped; at = next) {
        next = choir__tokenizer_split_next(split, at, end);
        stopped = pass_on(w, step, text, at, next, place);
    }
    return stopped;
}

/* A position in a text, and the same one in its copy with U+FFFD in place of bytes that are not
 * UTF-8. */
typedef struct twin {
    const char *at, *copy;
} twin;

/* Moves on to a later position in the copy. */
static const char *follow(twin *t, const char *end, const char *copy)
{
    while (t->copy < copy) {
        int n = choir__utf8_length(t->at, end);
        t->copy += n ? n : (int)sizeof CHOIR__UNKNOWN_CHARACTER - 1;
        t->at += n ? n : 1;
    }
    return t->at;
}

static const char *by_cuts(const choir__hf_work *w, int step, const char *text, const char *end,
    choir__tokenizer_place place)
{
    choir__word_step *s = &w->p->step[step];
    const char *begin = text, *last = end, *from, *to, *stopped = NULL;
    if (!choir__is_utf8(text, (size_t)(end - text))) {
        choir__copy_valid(text, end, &s->text);
        begin = s->text.bytes;
        last = begin + s->text.used;
    }
    choir__cut_walk walk = choir__cut_begin(&s->cuts, begin, last);
    twin pair = {text, begin};
    while (!stopped && choir__cut_next(&walk, &from, &to)) {
        from = begin == text ? from : follow(&pair, end, from);
        to = begin == text ? to : follow(&pair, end, to);
        stopped = pass_on(w, step, text, from, to, place);
    }
    if (walk.status != CHOIR_OK)
        w->ids->status = walk.status;
    return walk.status != CHOIR_OK ? text : stopped;
}

static bool has_prefix(choir__prefix prefix, choir__tokenizer_place place)
{
    return prefix == CHOIR__PREFIX_ALWAYS  ? place != CHOIR__CONTINUED
           : prefix == CHOIR__PREFIX_FIRST ? place == CHOIR__BEGINNING
                                           : false;
}

static const char *bytes(const choir__hf_work *w, int step, const char *text, const char *end,
    choir__tokenizer_place place)
{
    choir__word_step *s = &w->p->step[step];
    if (!has_prefix(s->prefix, place) || *text == ' ')
        return by_pattern(w, step, s->split, text, end, place);
    s->text.used = 0;
    choir__text_buffer_add(&s->text, " ", 1);
    choir__text_buffer_add(&s->text, text, (size_t)(end - text));
    const char *begin = s->text.bytes;
    const char *stopped = by_pattern(w, step, s->split, begin, begin + s->text.used, place);
    return !stopped ? NULL : stopped == begin ? text : text + (stopped - begin) - 1;
}

/* Returns the position in the text of the character at the byte `offset` of its marked form. */
static const char *mark_back(const char *text, bool prefix, size_t offset)
{
    size_t at = prefix ? MARK : 0;
    while (at + (*text == ' ' ? MARK : 1) <= offset)
        at += *text++ == ' ' ? MARK : 1;
    return text;
}

static bool is_mark(const char *at, const char *end)
{
    return end - at >= MARK && !memcmp(at, CHOIR__SPACE_MARK, MARK);
}

static const char *metaspace(const choir__hf_work *w, int step, const char *text,
    const char *end, choir__tokenizer_place place)
{
    choir__word_step *s = &w->p->step[step];
    bool prefix = has_prefix(s->prefix, place) && *text != ' ' && !is_mark(text, end);
    s->text.used = 0;
    if (prefix)
        choir__text_buffer_add(&s->text, CHOIR__SPACE_MARK, MARK);
    for (const char *at = text, *stop; at < end; at = stop) {
        stop = memchr(at, ' ', (size_t)(end - at));
        choir__text_buffer_add(&s->text, at, (size_t)((stop ? stop : end) - at));
        if (stop)
            choir__text_buffer_add(&s->text, CHOIR__SPACE_MARK, MARK);
        stop = stop ? stop + 1 : end;
    }
    const char *begin = s->text.bytes, *last = begin + s->text.used, *stopped = NULL;
    if (!s->divide)
        stopped = choir__hf_words(w, step + 1, begin, last, place);
    for (const char *at = begin, *next; s->divide && at < last && !stopped; at = next) {
        for (next = at + 1; next < last && !is_mark(next, last);)
            next++;
        stopped = pass_on(w, step, begin, at, next, place);
    }
    return stopped ? mark_back(text, prefix, (size_t)(stopped - begin)) : NULL;
}

/* White space is dropped; with alone, punctuation is a word for each character. */
static const char *at_spaces(const choir__hf_work *w, int step, bool alone, const char *text,
    const char *end, choir__tokenizer_place place)
{
    const char *from = text, *stopped = NULL;
    for (const char *at = text, *next; at < end && !stopped; at = next) {
        uint32_t code = 0xFFFD;
        next = at + choir__max(choir__utf8_decode(at, end, &code), 1);
        bool space = choir__unicode_class(code) == CHOIR__SPACE;
        if (!space && !(alone && choir__unicode_punctuation(code)))
            continue;
        stopped = pass_on(w, step, text, from, at, place);
        if (!stopped && !space)
            stopped = pass_on(w, step, text, at, next, place);
        from = next;
    }
    return stopped ? stopped : pass_on(w, step, text, from, end, place);
}

const char *choir__hf_words(const choir__hf_work *w, int step, const char *text,
    const char *end, choir__tokenizer_place place)
{
    choir__hf_pipeline *p = w->p;
    if (step == p->count)
        return p->model->ops->encode(p->model, text, end, w->part, w->ids);
    switch (p->step[step].kind) {
    case CHOIR__WORDS_PATTERN:
        return by_pattern(w, step, p->step[step].split, text, end, place);
    case CHOIR__WORDS_CUTS: return by_cuts(w, step, text, end, place);
    case CHOIR__WORDS_BYTES: return bytes(w, step, text, end, place);
    case CHOIR__WORDS_METASPACE: return metaspace(w, step, text, end, place);
    case CHOIR__WORDS_SPACE: return at_spaces(w, step, false, text, end, place);
    default: return at_spaces(w, step, true, text, end, place);
    }
}
