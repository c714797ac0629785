/* Running a regular expression: alternatives in order, repeats from the longest or the shortest
 * on. The choices that are still open are a stack, one entry for each instruction that chooses.
 */
#include "data/tokenizer/regex_program.h"

#include <stdlib.h>

#include "data/tokenizer/unicode.h"

bool choir__regex_has(const choir__regex *r, const choir__regex_set *s, uint32_t code)
{
    uint32_t category = 1u << choir__unicode_category(code);
    bool found = false;
    for (int32_t i = s->item; i < s->item + s->count && !found; i++) {
        const choir__regex_item *item = &r->item[i];
        bool in = item->mask    ? (item->mask & category) != 0
                  : item->space ? choir__unicode_class(code) == CHOIR__SPACE
                                : code >= item->first && code <= item->last;
        found = in != item->without;
    }
    return found != s->without;
}

/* Returns the position behind a character of the set, or NULL. */
static const char *one(const choir__regex *r, int32_t set, const char *at, const char *end)
{
    const choir__regex_set *s = &r->set[set];
    unsigned char byte = at < end ? (unsigned char)*at : 0;
    if (at == end)
        return NULL;
    if (byte < 128)
        return s->ascii[byte / 64] >> byte % 64 & 1 ? at + 1 : NULL;
    uint32_t code;
    int n = choir__utf8_decode(at, end, &code);
    return choir__regex_has(r, s, n ? code : 0xFFFD) ? at + (n ? n : 1) : NULL;
}

/* Returns the position of the character before `at`, which begins at `low` or behind it. */
static const char *back(const char *low, const char *at)
{
    const char *p = at - 1;
    uint32_t code;
    while (p > low && ((unsigned char)*p & 0xC0) == 0x80 && at - p < 4)
        p--;
    return p + choir__utf8_decode(p, at, &code) == at ? p : at - 1;
}

/* The way out if the rest does not match: the code continues at `code` from `at`, or a repeat
 * has one character less or more. */
typedef struct choice {
    int32_t code;
    const char *low, *at; /* low: the end of a repeat's least number of characters */
    int32_t count;        /* characters so far, where few are taken */
} choice;

typedef struct run {
    const choir__regex *r;
    const char *end;
    uint64_t *steps;
} run;

static bool may_step(const run *u)
{
    if (!*u->steps)
        return false;
    --*u->steps;
    return true;
}

/* Takes characters from *at on: the least number, and then as many as possible unless few are
 * taken. *low: the end of the least number. Returns false if the text has fewer. */
static bool repeat(const run *u, const choir__regex_code *k, const char **at, const char **low)
{
    const char *p = *at, *next;
    int32_t n = 0, most = k->mode == CHOIR__REGEX_LAZY ? k->b : k->c;
    if (n == k->b)
        *low = p;
    for (; n != most && may_step(u) && (next = one(u->r, k->a, p, u->end)); p = next)
        if (++n == k->b)
            *low = next;
    *at = p;
    return n >= k->b;
}

static const char *match(const run *u, int32_t pc, const char *at);

/* Returns whether what follows is as an instruction says. */
static bool ahead(const run *u, int32_t pc, const char *at)
{
    return (match(u, pc + 1, at) != NULL) != u->r->code[pc].b;
}

/* Goes back to the last open choice; returns false without one. */
static bool retry(const run *u, choice *stack, int *open, int32_t *pc, const char **at)
{
    while (*open) {
        choice *c = &stack[*open - 1];
        const choir__regex_code *k = &u->r->code[c->code];
        const char *next = NULL;
        if (k->op == CHOIR__REGEX_SPLIT) {
            *pc = c->code + k->a;
            *at = c->at;
            --*open;
            return true;
        }
        if (k->mode == CHOIR__REGEX_GREEDY && c->at > c->low)
            next = back(c->low, c->at);
        else if (k->mode == CHOIR__REGEX_LAZY && c->count != k->c)
            next = one(u->r, k->a, c->at, u->end);
        if (next) {
            *pc = c->code + 1;
            *at = c->at = next;
            c->count++;
            return true;
        }
        --*open;
    }
    return false;
}

static const char *match(const run *u, int32_t pc, const char *at)
{
    choice stack[CHOIR__REGEX_CHOICES];
    int open = 0;
    for (;;) {
        const choir__regex_code *k = &u->r->code[pc];
        const char *from = at, *low = at;
        bool good = may_step(u);
        if (!good)
            return NULL;
        switch (k->op) {
        case CHOIR__REGEX_DONE: return at;
        case CHOIR__REGEX_CHAR:
            at = one(u->r, k->a, at, u->end);
            good = at != NULL;
            pc++;
            break;
        case CHOIR__REGEX_REPEAT:
            good = repeat(u, k, &at, &low);
            if (good && k->mode != CHOIR__REGEX_KEEPS)
                stack[open++] = (choice){pc, low, at, k->b};
            pc++;
            break;
        case CHOIR__REGEX_SPLIT:
            stack[open++] = (choice){pc, from, from, 0};
            pc++;
            break;
        case CHOIR__REGEX_JUMP: pc += k->a; break;
        case CHOIR__REGEX_AHEAD:
            good = ahead(u, pc, at);
            pc += k->a;
            break;
        case CHOIR__REGEX_LINE:
            good = at == u->end || *at == '\n';
            pc++;
            break;
        }
        if (!good && !retry(u, stack, &open, &pc, &at))
            return NULL;
    }
}

const char *choir__regex_match(
    const choir__regex *r, const char *at, const char *end, uint64_t *steps)
{
    return match(&(run){r, end, steps}, 0, at);
}

void choir__regex_free(choir__regex *r)
{
    if (!r)
        return;
    free(r->code);
    free(r->set);
    free(r->item);
    free(r);
}
