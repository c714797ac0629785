/* Canonical composition (NFC) of a text: each character is decomposed, marks are put in the
 * order of their classes, and a starter is joined with what follows it where Unicode has a
 * character for both. A block of text is a starter and the marks behind it; text without marks
 * and without characters that decompose passes through it one by one. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf_pipeline.h"
#include "data/tokenizer/unicode.h"

enum { CLASSES = 256 };

typedef struct mark {
    uint32_t code;
    int class;
} mark;

typedef struct composer {
    choir__text_buffer *out;
    uint32_t starter;
    bool has_starter, ordered;
    mark *marks, *sorted; /* marks behind the starter, and room for as many */
    int64_t count;
} composer;

/* Puts the marks in the order of their classes; marks of one class keep their order. */
static void order(composer *c)
{
    int64_t first[CLASSES + 1] = {0};
    if (c->ordered)
        return;
    for (int64_t i = 0; i < c->count; i++)
        first[c->marks[i].class + 1]++;
    for (int k = 0; k < CLASSES; k++)
        first[k + 1] += first[k];
    for (int64_t i = 0; i < c->count; i++)
        c->sorted[first[c->marks[i].class]++] = c->marks[i];
    memcpy(c->marks, c->sorted, (size_t)c->count * sizeof *c->marks);
    c->ordered = true;
}

/* Joins marks with the starter where none of their class stands between. */
static void join_marks(composer *c)
{
    int64_t kept = 0;
    int last = 0; /* the class of the last mark that stays */
    order(c);
    for (int64_t i = 0; i < c->count; i++) {
        const mark m = c->marks[i];
        uint32_t both =
            c->has_starter && m.class > last ? choir__unicode_joined(c->starter, m.code) : 0;
        if (both) {
            c->starter = both;
            continue;
        }
        last = m.class;
        c->marks[kept++] = m;
    }
    c->count = kept;
}

static void flush(composer *c)
{
    join_marks(c);
    if (c->has_starter)
        choir__text_buffer_add_code(c->out, c->starter);
    for (int64_t i = 0; i < c->count; i++)
        choir__text_buffer_add_code(c->out, c->marks[i].code);
    c->has_starter = false;
    c->count = 0;
    c->ordered = true;
}

static void add_mark(composer *c, uint32_t code, int class)
{
    CHOIR__GROW(c->marks, c->count);
    CHOIR__GROW(c->sorted, c->count);
    if (c->count && c->marks[c->count - 1].class > class)
        c->ordered = false;
    c->marks[c->count++] = (mark){code, class};
}

static void add_starter(composer *c, uint32_t code)
{
    join_marks(c);
    uint32_t both = c->has_starter && !c->count ? choir__unicode_joined(c->starter, code) : 0;
    if (both) {
        c->starter = both;
        return;
    }
    flush(c);
    c->starter = code;
    c->has_starter = true;
}

void choir__nfc(const char *text, const char *end, choir__text_buffer *out)
{
    composer c = {.out = out, .ordered = true};
    while (text < end) {
        uint32_t code = 0xFFFD, parts[4];
        text += choir__max(choir__utf8_decode(text, end, &code), 1);
        int n = choir__unicode_decomposed(code, parts);
        for (int i = 0; i < n; i++) {
            int class = choir__unicode_mark_class(parts[i]);
            if (class)
                add_mark(&c, parts[i], class);
            else
                add_starter(&c, parts[i]);
        }
    }
    flush(&c);
    free(c.marks);
    free(c.sorted);
}
