/* Cutting a text at the matches of a regular expression. A search begins at each character
 * until something matches; the text between two matches is a gap.
 *
 * A hostile file may have an expression that looks far ahead at each character. So a text
 * allows a number of steps for each byte, and no published expression comes near to it; without
 * any left, the rest of the text is a gap. */
#include "data/tokenizer/regex_split.h"

#include "base/utf8.h"

enum { STEPS = 1024, LEAST_STEPS = 1 << 16 };

choir__regex_walk choir__regex_split_begin(
    const choir__regex_split *split, const char *text, const char *end)
{
    return (choir__regex_walk){.split = split,
        .at = text,
        .end = end,
        .steps = LEAST_STEPS + STEPS * (uint64_t)(end - text)};
}

/* Finds the first match that begins at `at` or behind it; at the end if nothing matches. */
static choir__regex_piece search(choir__regex_walk *w)
{
    const char *at = w->at;
    while (at < w->end && w->steps) {
        const char *to = choir__regex_match(w->split->regex, at, w->end, &w->steps);
        uint32_t code;
        if (to)
            return (choir__regex_piece){at, to, true};
        at += choir__max(choir__utf8_decode(at, w->end, &code), 1);
    }
    return (choir__regex_piece){w->end, w->end, true};
}

/* Returns the next gap or match. */
static bool next_piece(choir__regex_walk *w, choir__regex_piece *piece)
{
    if (w->at == w->end)
        return false;
    if (!w->found.to)
        w->found = search(w);
    if (w->at < w->found.from) {
        *piece = (choir__regex_piece){w->at, w->found.from, false};
    } else {
        *piece = w->found;
        w->found.to = NULL;
    }
    w->at = piece->to;
    piece->match ^= w->split->invert;
    return true;
}

/* Returns whether a piece continues the held word. */
static bool joins(const choir__regex_walk *w, const choir__regex_piece *piece)
{
    switch (w->split->behavior) {
    case CHOIR__REGEX_PREVIOUS: return piece->match && !w->after_match;
    case CHOIR__REGEX_NEXT: return !piece->match && w->after_match;
    case CHOIR__REGEX_CONTIGUOUS: return piece->match == w->after_match;
    default: return false;
    }
}

bool choir__regex_split_next(choir__regex_walk *w, const char **from, const char **to)
{
    choir__regex_piece piece;
    for (;;) {
        bool more = next_piece(w, &piece);
        if (more && piece.match && w->split->behavior == CHOIR__REGEX_REMOVED)
            continue;
        choir__regex_piece word = w->held;
        if (more && word.to && joins(w, &piece)) {
            w->held.to = piece.to;
            w->after_match = piece.match;
            continue;
        }
        w->held = more ? piece : (choir__regex_piece){0};
        w->after_match = more && piece.match;
        if (!word.to && more)
            continue;
        *from = word.from;
        *to = word.to;
        return word.to != NULL;
    }
}
