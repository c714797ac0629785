/* Whether two spaces are the same. Their parameters come in one order, since draws depend on
 * it; blanks and the form of a number do not matter: uniform(0, 1.0) is uniform(0,1). */
#include <ctype.h>
#include <string.h>

#include "tune/space/space.h"

/* Compares conditions without the blanks outside of quotes. */
static bool same_condition(const char *a, const char *b)
{
    for (char quote = 0;; a++, b++) {
        while (!quote && isspace((unsigned char)*a))
            a++;
        while (!quote && isspace((unsigned char)*b))
            b++;
        if (*a != *b || !*a)
            return *a == *b;
        if (quote ? *a == quote : *a == '\'' || *a == '"')
            quote = quote ? 0 : *a;
    }
}

static bool same_dist(const choir__dist *a, const choir__dist *b)
{
    if (a->kind != b->kind || a->low != b->low || a->high != b->high || a->step != b->step ||
        a->log != b->log || a->choice_count != b->choice_count)
        return false;
    for (int i = 0; i < a->choice_count; i++)
        if (a->choices[i].is_number != b->choices[i].is_number ||
            strcmp(a->choices[i].text, b->choices[i].text))
            return false;
    return true;
}

bool choir__space_same(const choir_space *a, const choir_space *b)
{
    if (a->count != b->count)
        return false;
    for (int i = 0; i < a->count; i++)
        if (strcmp(a->param[i].name, b->param[i].name) ||
            !same_dist(&a->param[i].dist, &b->param[i].dist) ||
            !same_condition(
                choir__space_condition(&a->param[i]), choir__space_condition(&b->param[i])))
            return false;
    return true;
}

bool choir__space_requires_same(const choir_space *a, const choir_space *b)
{
    if (a->require_count != b->require_count)
        return false;
    for (int i = 0; i < a->require_count; i++)
        if (!same_condition(a->require_text[i], b->require_text[i]))
            return false;
    return true;
}
