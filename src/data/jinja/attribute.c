/* Parts of values: v.name, v[key] and v[from:to:step], with what Python's sandbox allows.
 *
 * A dot looks for a method first, then for a key; brackets the other way round. What is not
 * there is undefined. */
#include <string.h>

#include "data/jinja/eval.h"

/* --- loops --- */

static choir__jinja_value neighbour(
    choir__jinja_state *s, const choir__jinja_loop *loop, bool next)
{
    if (next ? loop->index + 1 < loop->list->count : loop->index > 0)
        return loop->list->item[next ? loop->index + 1 : loop->index - 1];
    return choir__jinja_undefined(s->r, "there is no %s item", next ? "next" : "previous");
}

static choir__jinja_value of_loop(
    choir__jinja_state *s, const choir__jinja_loop *l, choir__jinja_value name)
{
    static const char *const names[] = {"index", "index0", "revindex", "revindex0", "first",
        "last", "length", "depth", "depth0", "previtem", "nextitem"};
    int64_t at = (int64_t)l->index, count = (int64_t)l->list->count;
    size_t i = 0;
    while (i < CHOIR_COUNT(names) && !choir__jinja_is_text(name, names[i]))
        i++;
    switch (i) {
    case 0: return choir__jinja_int(at + 1);
    case 1: return choir__jinja_int(at);
    case 2: return choir__jinja_int(count - at);
    case 3: return choir__jinja_int(count - at - 1);
    case 4: return choir__jinja_bool(at == 0);
    case 5: return choir__jinja_bool(at == count - 1);
    case 6: return choir__jinja_int(count);
    case 7: return choir__jinja_int(l->depth + 1);
    case 8: return choir__jinja_int(l->depth);
    case 9: return neighbour(s, l, false);
    case 10: return neighbour(s, l, true);
    default: return (choir__jinja_value){0};
    }
}

/* --- by name --- */

/* Returns a bound method, or ABSENT. */
static choir__jinja_value method(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value name)
{
    static const char *const change[] = {"append", "extend", "insert", "remove", "sort",
        "reverse", "clear", "update", "pop", "popitem", "setdefault"};
    const choir__jinja_builtin *f = choir__jinja_find_method(s, v.kind, name);
    bool holds = v.kind == CHOIR__JINJA_LIST || v.kind == CHOIR__JINJA_DICT;
    for (size_t i = v.kind == CHOIR__JINJA_DICT ? 6 : 0; holds && i < CHOIR_COUNT(change); i++)
        if (choir__jinja_is_text(name, change[i]) &&
            (v.kind == CHOIR__JINJA_DICT || i < 7 || !strcmp(change[i], "pop")))
            return choir__jinja_undefined(s->r,
                "'%s' would change a %s, which templates may not do", change[i],
                choir__jinja_type(v));
    if (!f)
        return (choir__jinja_value){0};
    choir__jinja_bound *bound = choir__jinja_get(s->r, sizeof *bound);
    *bound = (choir__jinja_bound){v, f};
    return (choir__jinja_value){CHOIR__JINJA_FUNCTION, {.bound = bound}};
}

static choir__jinja_value missing(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value name)
{
    if (name.kind != CHOIR__JINJA_TEXT)
        return choir__jinja_undefined(
            s->r, "'%s' object has no such element", choir__jinja_type(v));
    return choir__jinja_undefined(s->r, "'%s object' has no attribute '%.*s'",
        choir__jinja_type(v), (int)choir__min(name.as.text->bytes, 100), name.as.text->data);
}

static choir__jinja_value named(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value name)
{
    choir__jinja_value found = method(s, v, name);
    if (found.kind == CHOIR__JINJA_ABSENT && v.kind == CHOIR__JINJA_LOOP)
        found = of_loop(s, v.as.loop, name);
    if (found.kind == CHOIR__JINJA_ABSENT && v.kind == CHOIR__JINJA_MACRO &&
        choir__jinja_is_text(name, "name"))
        found = v.as.macro->name;
    if (found.kind == CHOIR__JINJA_ABSENT && v.kind == CHOIR__JINJA_CYCLER &&
        choir__jinja_is_text(name, "current"))
        found = v.as.list->item[v.as.list->turn % v.as.list->count];
    return found;
}

static choir__jinja_value *key_of(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value key)
{
    bool can = key.kind == CHOIR__JINJA_TEXT || key.kind == CHOIR__JINJA_NONE ||
               choir__jinja_is_number(key) || key.kind == CHOIR__JINJA_TUPLE;
    return can ? choir__jinja_dict_get(s->r, v.as.dict, key) : NULL;
}

choir__jinja_value choir__jinja_attribute(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value name)
{
    if (v.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s, and has no attribute '%.*s'", v.as.why,
            (int)choir__min(name.as.text->bytes, 100), name.as.text->data);
    choir__jinja_value found = named(s, v, name);
    if (found.kind != CHOIR__JINJA_ABSENT)
        return found;
    const choir__jinja_value *key =
        v.kind == CHOIR__JINJA_DICT || v.kind == CHOIR__JINJA_NAMESPACE ? key_of(s, v, name)
                                                                        : NULL;
    return key ? *key : missing(s, v, name);
}

/* --- by key --- */

static bool is_index(choir__jinja_value key)
{
    return key.kind == CHOIR__JINJA_INT || key.kind == CHOIR__JINJA_BOOL;
}

static bool has_index(choir__jinja_value v)
{
    return v.kind >= CHOIR__JINJA_LIST && v.kind <= CHOIR__JINJA_RANGE;
}

choir__jinja_value choir__jinja_item(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value key)
{
    if (v.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s, and has no elements", v.as.why);
    if ((has_index(v) || v.kind == CHOIR__JINJA_TEXT) && is_index(key)) {
        int64_t count = choir__jinja_length(s->r, v), at = key.as.whole;
        at += at < 0 ? count : 0;
        if (at < 0 || at >= count)
            return missing(s, v, key);
        return v.kind == CHOIR__JINJA_TEXT ? choir__jinja_part(s->r, v.as.text, at, at + 1)
                                           : v.as.list->item[at];
    }
    choir__jinja_value *found = v.kind == CHOIR__JINJA_DICT ? key_of(s, v, key) : NULL;
    if (found)
        return *found;
    if (key.kind == CHOIR__JINJA_TEXT)
        return choir__jinja_attribute(s, v, key);
    return missing(s, v, key);
}

/* --- slices --- */

static int64_t bound(
    choir__jinja_state *s, choir__jinja_value v, int64_t otherwise, int64_t count, bool back)
{
    int64_t least = back ? -1 : 0, most = back ? count - 1 : count;
    if (v.kind == CHOIR__JINJA_ABSENT || v.kind == CHOIR__JINJA_NONE)
        return otherwise;
    if (!is_index(v))
        choir__jinja_fail(
            s->r, "a slice: expected whole numbers, got '%s'", choir__jinja_type(v));
    int64_t at = v.as.whole < 0 ? v.as.whole + count : v.as.whole;
    return at < least ? least : at > most ? most : at;
}

choir__jinja_value choir__jinja_slice(choir__jinja_state *s, choir__jinja_value v,
    choir__jinja_value from, choir__jinja_value to, choir__jinja_value step)
{
    if (v.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s, and has no elements", v.as.why);
    if (!has_index(v) && v.kind != CHOIR__JINJA_TEXT)
        return missing(s, v, (choir__jinja_value){0});
    int64_t count = choir__jinja_length(s->r, v);
    int64_t by = choir__jinja_as_int(s->r, step, 1);
    bool back = by < 0;
    if (!by)
        choir__jinja_fail(s->r, "the step of a slice is 0");
    int64_t first = bound(s, from, back ? count - 1 : 0, count, back);
    int64_t last = bound(s, to, back ? -1 : count, count, back);
    if (v.kind == CHOIR__JINJA_TEXT && by == 1)
        return choir__jinja_part(s->r, v.as.text, first, last);
    by = by > count ? count + 1 : by < -count ? -count - 1 : by;
    choir__jinja_list *all = choir__jinja_items(s->r, v);
    choir__jinja_value some =
        choir__jinja_list_of(s->r, v.kind == CHOIR__JINJA_TEXT ? CHOIR__JINJA_LIST : v.kind);
    choir__jinja_out out = {0};
    for (; back ? first > last : first < last; first += by)
        if (v.kind == CHOIR__JINJA_TEXT)
            choir__jinja_print(s->r, &out, all->item[first]);
        else
            choir__jinja_append(s->r, some.as.list, all->item[first]);
    return v.kind == CHOIR__JINJA_TEXT ? choir__jinja_taken(s->r, &out) : some;
}
