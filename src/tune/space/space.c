/* Spaces: parameters in the order in which they were added, and conditions on them. A parameter
 * may depend on earlier ones; a requirement is checked when all have values, and one whose
 * value is unknown is met. */
#include "tune/space/space.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MOST_CONDITIONS = 256 };

choir_space *choir_space_new(void)
{
    return choir__calloc(1, sizeof(choir_space));
}

void choir_space_free(choir_space *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->count; i++) {
        free(s->param[i].name);
        free(s->param[i].text);
        choir__dist_free(&s->param[i].dist);
        choir__expr_free(s->param[i].only_if);
    }
    for (int i = 0; i < s->require_count; i++) {
        free(s->require_text[i]);
        choir__expr_free(s->require[i]);
    }
    free(s->param);
    free(s->require);
    free(s->require_text);
    free(s);
}

int choir_space_count(const choir_space *space)
{
    return choir__lacks(space, __func__, "space") ? 0 : space->count;
}

const char *choir_space_name(const choir_space *space, int i)
{
    if (choir__lacks(space, __func__, "space"))
        return NULL;
    return i >= 0 && i < space->count ? space->param[i].name : NULL;
}

int choir__space_find(const choir_space *space, const char *name)
{
    for (int i = 0; i < space->count; i++)
        if (!strcmp(space->param[i].name, name))
            return i;
    return -1;
}

/* --- expressions about the space --- */

static int find(const void *of, const char *name)
{
    return choir__space_find(of, name);
}

static bool can_be(const void *of, int parameter, const char *word)
{
    const choir_space *space = of;
    double value;
    return choir__dist_read(&space->param[parameter].dist, "", word, &value) == CHOIR_OK;
}

static choir_status parse(const choir_space *space, const char *text, choir__expr **expr)
{
    choir__expr_names about = {.of = space, .find = find, .can_be = can_be};
    return choir__expr_parse(text, &about, expr);
}

/* The values of the first `count` parameters, as expressions see them. */
static void as_expression_values(
    const choir_space *space, int count, const double *values, choir__expr_value *out)
{
    for (int i = 0; i < count; i++) {
        const choir__dist *d = &space->param[i].dist;
        out[i] = (choir__expr_value){.missing = isnan(values[i]), .number = values[i]};
        if (out[i].missing || d->kind != CHOIR__CHOICE)
            continue;
        const choir__choice *c = &d->choices[(int)values[i]];
        out[i].word = c->is_number ? NULL : c->text;
        out[i].number = c->number;
    }
}

bool choir__space_active(const choir_space *space, int i, const double *values)
{
    choir__expr_value seen[CHOIR_SPACE_MAX];
    if (!space->param[i].only_if)
        return true;
    as_expression_values(space, i, values, seen);
    return choir__expr_true(space->param[i].only_if, seen, false);
}

int choir__space_broken(const choir_space *space, const double *values)
{
    choir__expr_value seen[CHOIR_SPACE_MAX];
    if (!space->require_count)
        return -1;
    as_expression_values(space, space->count, values, seen);
    for (int i = 0; i < space->require_count; i++)
        if (!choir__expr_true(space->require[i], seen, true))
            return i;
    return -1;
}

bool choir__space_allows(const choir_space *space, const double *values)
{
    return choir__space_broken(space, values) < 0;
}

/* --- building --- */

static choir_status check_name(const choir_space *space, const char *name)
{
    bool good = isalpha((unsigned char)*name) || *name == '_';
    for (const char *c = name; *c; c++)
        good = good && (isalnum((unsigned char)*c) || strchr("_-.", *c));
    if (!good || strlen(name) > 255)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected a parameter's name of letters, digits, '_', '-' and '.', got '%s'", name);
    if (choir__space_find(space, name) >= 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "parameter %s is in the space twice", name);
    return CHOIR_OK;
}

choir_status choir__space_take(
    choir_space *space, const char *name, const char *text, choir__dist *dist)
{
    if (space->count == CHOIR_SPACE_MAX)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "expected at most %d parameters", CHOIR_SPACE_MAX);
    CHOIR__GROW(space->param, space->count);
    space->param[space->count++] =
        (choir__hyper){.name = choir__strdup(name), .text = choir__strdup(text), .dist = *dist};
    *dist = (choir__dist){0};
    return CHOIR_OK;
}

/* Returns where " if CONDITION" begins outside of parentheses and quotes, or the text's end. */
static const char *find_if(const char *text)
{
    int depth = 0;
    char quote = 0;
    for (; *text; text++) {
        if (quote)
            quote = *text == quote ? 0 : quote;
        else if (*text == '\'' || *text == '"')
            quote = *text;
        else if (*text == '(' || *text == ')')
            depth += *text == '(' ? 1 : -1;
        else if (depth == 0 && isspace((unsigned char)text[0]) && !strncmp(text + 1, "if", 2) &&
                 isspace((unsigned char)text[3]))
            break;
    }
    return text;
}

const char *choir__space_condition(const choir__hyper *param)
{
    return find_if(param->text);
}

choir_status choir_space_add(choir_space *space, const char *name, const char *distribution)
{
    if (choir__lacks(space, __func__, "space") || choir__lacks(name, __func__, "name") ||
        choir__lacks(distribution, __func__, "distribution"))
        return CHOIR_ERR_ARGUMENT;
    const char *condition = find_if(distribution);
    choir__dist dist = {0};
    choir__expr *only_if = NULL;
    choir_status status = check_name(space, name);
    if (status == CHOIR_OK && !choir__is_utf8(distribution, strlen(distribution)))
        status = choir__error(CHOIR_ERR_ARGUMENT, "parameter %s: expected text in UTF-8", name);
    if (status == CHOIR_OK)
        status = choir__dist_parse(name, distribution, condition, &dist);
    if (status == CHOIR_OK && *condition)
        status = parse(space, condition + 4, &only_if);
    if (status == CHOIR_OK)
        status = choir__space_take(space, name, distribution, &dist);
    if (status == CHOIR_OK) {
        space->param[space->count - 1].only_if = only_if;
        return CHOIR_OK;
    }
    choir__expr_free(only_if);
    choir__dist_free(&dist);
    return status;
}

choir_status choir_space_require(choir_space *space, const char *condition)
{
    if (choir__lacks(space, __func__, "space") ||
        choir__lacks(condition, __func__, "condition"))
        return CHOIR_ERR_ARGUMENT;
    if (space->require_count == MOST_CONDITIONS)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "expected at most %d conditions", MOST_CONDITIONS);
    if (!choir__is_utf8(condition, strlen(condition)))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "expected a condition in UTF-8, got '%s'", condition);
    choir__expr *e;
    choir_status status = parse(space, condition, &e);
    if (status != CHOIR_OK)
        return status;
    CHOIR__GROW(space->require, space->require_count);
    CHOIR__GROW(space->require_text, space->require_count);
    space->require[space->require_count] = e;
    space->require_text[space->require_count++] = choir__strdup(condition);
    return CHOIR_OK;
}

/* Texts that were added to one space parse again in another. */
choir_space *choir__space_copy(const choir_space *space)
{
    choir_space *copy = choir_space_new();
    choir_status status = CHOIR_OK;
    for (int i = 0; i < space->count && status == CHOIR_OK; i++)
        status = choir_space_add(copy, space->param[i].name, space->param[i].text);
    for (int i = 0; i < space->require_count && status == CHOIR_OK; i++)
        status = choir_space_require(copy, space->require_text[i]);
    return copy;
}
