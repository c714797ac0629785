/* The steps of a normalizer, with the results of Hugging Face's tokenizers, which define what
 * the files mean. */
#include "data/tokenizer/hf_pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_CLUSTER = 6 }; /* bytes */

void choir__normalizer_free(choir__normalizer *n)
{
    for (int i = 0; i < n->count; i++) {
        choir__charsmap_free(&n->step[i].charsmap);
        free(n->step[i].pattern);
        free(n->step[i].content);
    }
    free(n->between[0].bytes);
    free(n->between[1].bytes);
    *n = (choir__normalizer){0};
}

static void add(choir__text_buffer *out, const char *text)
{
    choir__text_buffer_add(out, text, strlen(text));
}

static size_t space_at(const char *at, const char *end)
{
    uint32_t code;
    int n = choir__utf8_decode(at, end, &code);
    return n && choir__unicode_class(code) == CHOIR__SPACE ? (size_t)n : 0;
}

/* --- steps --- */

/* Appends the characters one by one, each replaced if it has a replacement. */
static void replace_characters(
    const choir__charsmap *m, const char *at, const char *end, choir__text_buffer *out)
{
    while (at < end) {
        uint32_t code;
        size_t n = (size_t)choir__max(choir__utf8_decode(at, end, &code), 1), used;
        const char *to = choir__charsmap_shortest(m, at, at + n, &used);
        if (to)
            add(out, to);
        else
            choir__text_buffer_add(out, at, n);
        at += n;
    }
}

/* A short cluster is replaced as a whole, marks included, by what its shortest prefix becomes.
 */
static void replace_clusters(
    const choir__charsmap *m, const char *text, const char *end, choir__text_buffer *out)
{
    while (text < end) {
        size_t n = choir__unicode_cluster(text, end), used;
        const char *to =
            n < SHORT_CLUSTER ? choir__charsmap_shortest(m, text, text + n, &used) : NULL;
        if (to)
            add(out, to);
        else
            replace_characters(m, text, text + n, out);
        text += n;
    }
}

static void strip(const choir__normal_step *s, const char *text, const char *end,
    bool continued, choir__text_buffer *out, bool *whole)
{
    const char *last = text;
    size_t n;
    if (s->left && !continued)
        while (text < end && (n = space_at(text, end))) {
            text += n;
            *whole = false;
        }
    last = s->right ? text : end;
    for (const char *at = text; at < end && s->right;) {
        uint32_t code;
        n = space_at(at, end);
        at += n ? n : (size_t)choir__max(choir__utf8_decode(at, end, &code), 1);
        last = n ? last : at;
    }
    choir__text_buffer_add(out, text, (size_t)(last - text));
}

/* Most patterns are one byte, which memchr finds faster. */
static const char *find(const char *text, const char *end, const char *pattern, size_t n)
{
    size_t bytes = (size_t)(end - text);
    return n == 1 ? memchr(text, *pattern, bytes) : memmem(text, bytes, pattern, n);
}

static void replace(const choir__normal_step *s, const char *text, const char *end,
    choir__text_buffer *out, bool *whole)
{
    size_t n = strlen(s->pattern);
    uint32_t code;
    bool one = n == (size_t)choir__utf8_decode(s->pattern, s->pattern + n, &code);
    const char *from = text, *at;
    while ((at = find(from, end, s->pattern, n))) {
        /* The new text stands where the last of the replaced characters stood. */
        if (at == text && (!*s->content || !one))
            *whole = false;
        choir__text_buffer_add(out, from, (size_t)(at - from));
        add(out, s->content);
        from = at + n;
    }
    choir__text_buffer_add(out, from, (size_t)(end - from));
}

static void collapse(const choir__normal_step *s, const char *text, const char *end,
    choir__text_buffer *out, bool *whole)
{
    for (const char *at = text; at < end;) {
        const char *stop = at;
        while (stop < end && *stop == ' ')
            stop++;
        if (stop - at >= 2) {
            *whole &= at > text;
            add(out, s->content);
        } else {
            while (stop < end && (*stop != ' ' || stop == at))
                stop++;
            choir__text_buffer_add(out, at, (size_t)(stop - at));
        }
        at = stop;
    }
}

/* --- BERT's step: cleaned, spaces around ideographs, decomposed without accents, lower case
 * --- */

enum { MOST_MARKS = 64 }; /* marks that follow one character and are put in order */

typedef struct bert_text {
    const choir__normal_step *step;
    choir__text_buffer *out;
    uint32_t mark[MOST_MARKS]; /* (marks) by combining class */
    int marks;
} bert_text;

static void add_lower(bert_text *b, uint32_t code)
{
    uint32_t lower[4] = {code};
    int n = b->step->lower ? choir__unicode_lower(code, lower) : 1;
    for (int i = 0; i < n; i++)
        choir__text_buffer_add_code(b->out, lower[i]);
}

static void flush_marks(bert_text *b)
{
    for (int i = 0; i < b->marks; i++)
        add_lower(b, b->mark[i]);
    b->marks = 0;
}

/* Adds a decomposed character; marks are put in their canonical order. */
static void add_ordered(bert_text *b, uint32_t code)
{
    int level = choir__unicode_combining(code), i = b->marks;
    if (!level || b->marks == MOST_MARKS)
        flush_marks(b);
    if (!level) {
        add_lower(b, code);
        return;
    }
    for (i = b->marks++; i && choir__unicode_combining(b->mark[i - 1]) > level; i--)
        b->mark[i] = b->mark[i - 1];
    b->mark[i] = code;
}

static void add_bare(bert_text *b, uint32_t code)
{
    uint32_t bare[4] = {code};
    int n = b->step->strip_accents ? choir__unicode_bare(code, bare) : 1;
    for (int i = 0; i < n; i++) {
        if (b->step->strip_accents)
            add_ordered(b, bare[i]);
        else
            add_lower(b, bare[i]);
    }
}

static void bert(
    const choir__normal_step *s, const char *text, const char *end, choir__text_buffer *out)
{
    bert_text b = {.step = s, .out = out};
    while (text < end) {
        uint32_t code = 0xFFFD;
        text += choir__max(choir__utf8_decode(text, end, &code), 1);
        if (s->clean && (!code || code == 0xFFFD || choir__unicode_control(code)))
            continue;
        if (s->clean && choir__unicode_class(code) == CHOIR__SPACE)
            code = ' ';
        bool apart = s->chinese && choir__unicode_chinese(code);
        if (apart)
            add_bare(&b, ' ');
        add_bare(&b, code);
        if (apart)
            add_bare(&b, ' ');
    }
    flush_marks(&b);
}

/* --- all --- */

static void run(const choir__normal_step *s, const char *text, const char *end, bool continued,
    choir__text_buffer *out, bool *whole)
{
    out->used = 0;
    switch (s->kind) {
    case CHOIR__NORMAL_CHARSMAP: replace_clusters(&s->charsmap, text, end, out); return;
    case CHOIR__NORMAL_STRIP: strip(s, text, end, continued, out, whole); return;
    case CHOIR__NORMAL_REPLACE: replace(s, text, end, out, whole); return;
    case CHOIR__NORMAL_COLLAPSE: collapse(s, text, end, out, whole); return;
    case CHOIR__NORMAL_BERT: bert(s, text, end, out); return;
    case CHOIR__NORMAL_NFC: choir__nfc(text, end, out); return;
    case CHOIR__NORMAL_PREPEND:
        if (text < end && !continued)
            add(out, s->content);
        choir__text_buffer_add(out, text, (size_t)(end - text));
        return;
    }
}

void choir__copy_valid(const char *text, const char *end, choir__text_buffer *out)
{
    out->used = 0;
    const char *from = text;
    uint32_t code;
    while (text < end) {
        int n = choir__utf8_decode(text, end, &code);
        if (!n) {
            choir__text_buffer_add(out, from, (size_t)(text - from));
            add(out, CHOIR__UNKNOWN_CHARACTER);
            from = text + 1;
        }
        text += n ? n : 1;
    }
    choir__text_buffer_add(out, from, (size_t)(end - from));
}

void choir__normalize(choir__normalizer *n, const char *text, const char *end, bool continued,
    choir__text_buffer *out, bool *whole)
{
    bool ignored = true;
    choir__text_buffer *to = n->count ? &n->between[0] : out;
    choir__copy_valid(text, end, to);
    for (int i = 0; i < n->count; i++) {
        const choir__text_buffer *from = to;
        to = i + 1 == n->count ? out : &n->between[(i + 1) % 2];
        const char *begin = from->used ? from->bytes : "";
        run(&n->step[i], begin, begin + from->used, continued, to, whole ? whole : &ignored);
    }
}

/* The shortest beginning of the text whose normal form goes beyond the offset ends with the
 * character. White space at the end of a beginning is not stripped, since the text continues;
 * so a longer one never has a shorter form. */
const char *choir__normalize_back(
    choir__normalizer *n, const char *text, const char *end, bool continued, size_t offset)
{
    choir__text_buffer normal = {0};
    bool strips[CHOIR__MOST_STEPS];
    for (int i = 0; i < n->count; i++) {
        strips[i] = n->step[i].right;
        n->step[i].right = false;
    }
    const char *low = text, *high = end; /* low is too short, high is not */
    for (;;) {
        const char *middle = low + (high - low) / 2;
        while (middle > low && ((unsigned char)*middle & 0xC0) == 0x80)
            middle--;
        uint32_t code;
        if (middle == low) /* a single character is left, or others follow it */
            middle += choir__max(choir__utf8_decode(low, end, &code), 1);
        if (middle >= high)
            break;
        choir__normalize(n, text, middle, continued, &normal, NULL);
        if (normal.used > offset)
            high = middle;
        else
            low = middle;
    }
    for (int i = 0; i < n->count; i++)
        n->step[i].right = strips[i];
    free(normal.bytes);
    return low;
}
