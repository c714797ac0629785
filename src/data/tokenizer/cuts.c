/* Cutting a text at matches. The text between two matches is a gap. */
#include "data/tokenizer/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void choir__cuts_free(choir__cuts *cuts)
{
    choir__regex_free(cuts->regex);
    free(cuts->literal);
    *cuts = (choir__cuts){0};
}

choir__cut_walk choir__cut_begin(const choir__cuts *cuts, const char *text, const char *end)
{
    return (choir__cut_walk){
        .cuts = cuts, .text = choir__regex_text_of(text, end), .at = text, .next = text};
}

static const char *behind(const char *at, const char *end)
{
    return at + choir__max(choir__utf8_length(at, end), 1);
}

/* --- searching --- */

/* Finds the next match of the regular expression. One that is empty, where the last match
 * ends, is passed over. */
static choir__cut_piece search_regex(choir__cut_walk *w)
{
    const char *end = w->text.end, *from, *to, *last = w->matched ? w->next : NULL;
    while (w->next) {
        w->status = choir__regex_search(w->cuts->regex, &w->text, w->next, &from, &to);
        if (w->status != CHOIR_OK || !from)
            break;
        w->next = to;
        w->matched = true;
        if (from != to || to != last)
            return (choir__cut_piece){from, to, true};
        w->next = to < end ? behind(to, end) : NULL;
    }
    w->next = NULL;
    return (choir__cut_piece){end, end, true};
}

static choir__cut_piece search_literal(const choir__cut_walk *w)
{
    size_t n = strlen(w->cuts->literal);
    const char *end = w->text.end,
               *found = memmem(w->at, (size_t)(end - w->at), w->cuts->literal, n);
    return found ? (choir__cut_piece){found, found + n, true}
                 : (choir__cut_piece){end, end, true};
}

static choir__cut_piece search_class(const choir__cut_walk *w)
{
    const char *at = w->at, *end = w->text.end;
    for (uint32_t code; at < end; at = behind(at, end))
        if (choir__utf8_decode(at, end, &code) && w->cuts->is(code))
            return (choir__cut_piece){at, behind(at, end), true};
    return (choir__cut_piece){end, end, true};
}

static choir__cut_piece search(choir__cut_walk *w)
{
    return w->cuts->regex     ? search_regex(w)
           : w->cuts->literal ? search_literal(w)
                              : search_class(w);
}

/* --- pieces and words --- */

/* Returns the next gap or match. */
static bool next_piece(choir__cut_walk *w, choir__cut_piece *piece)
{
    if (w->at == w->text.end)
        return false;
    if (!w->found.to)
        w->found = search(w);
    if (w->status != CHOIR_OK)
        return false;
    if (w->at < w->found.from) {
        *piece = (choir__cut_piece){w->at, w->found.from, false};
    } else {
        *piece = w->found;
        w->found.to = NULL;
    }
    w->at = piece->to;
    piece->match ^= w->cuts->invert;
    return true;
}

/* Returns whether a piece continues the held word. */
static bool joins(const choir__cut_walk *w, const choir__cut_piece *piece)
{
    switch (w->cuts->behavior) {
    case CHOIR__CUT_PREVIOUS: return piece->match && !w->after_match;
    case CHOIR__CUT_NEXT: return !piece->match && w->after_match;
    case CHOIR__CUT_CONTIGUOUS: return piece->match == w->after_match;
    default: return false;
    }
}

bool choir__cut_next(choir__cut_walk *w, const char **from, const char **to)
{
    choir__cut_piece piece;
    for (;;) {
        bool more = next_piece(w, &piece);
        if (w->status != CHOIR_OK)
            return false;
        if (more && piece.match && w->cuts->behavior == CHOIR__CUT_REMOVED)
            continue;
        choir__cut_piece word = w->held;
        if (more && word.to && joins(w, &piece)) {
            w->held.to = piece.to;
            w->after_match = piece.match;
            continue;
        }
        w->held = more ? piece : (choir__cut_piece){0};
        w->after_match = more && piece.match;
        if (!word.to && more)
            continue;
        *from = word.from;
        *to = word.to;
        return word.to != NULL;
    }
}
