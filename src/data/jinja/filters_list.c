/* Jinja's filters of lists. Those that are generators in Jinja are streams here, too. */
#include <string.h>

#include "data/jinja/eval.h"

#define FILTER(name)                                                                           \
    static choir__jinja_value name(choir__jinja_state *s, const choir__jinja_arguments *a)

static bool given(choir__jinja_value v)
{
    return v.kind != CHOIR__JINJA_ABSENT && v.kind != CHOIR__JINJA_NONE;
}

/* Returns the part of v by a path such as "function.name" or 0; `otherwise` where a part is
 * undefined. */
static choir__jinja_value by_path(choir__jinja_state *s, choir__jinja_value v,
    choir__jinja_value path, choir__jinja_value otherwise)
{
    choir__jinja_text dot = {".", 1, 1, 0, false};
    if (!given(path))
        return v;
    if (path.kind != CHOIR__JINJA_TEXT)
        return choir__jinja_item(s, v, path);
    choir__jinja_list *parts = choir__jinja_split(s->r, path.as.text, &dot, -1, false).as.list;
    for (size_t i = 0; i < parts->count; i++) {
        const choir__jinja_text *name = parts->item[i].as.text;
        bool digits = name->bytes > 0 && name->bytes < 10;
        int64_t number = 0;
        for (size_t k = 0; k < name->bytes && digits; k++) {
            digits = choir__jinja_is_digit(name->data[k]);
            number = 10 * number + (name->data[k] - '0');
        }
        v = choir__jinja_item(s, v, digits ? choir__jinja_int(number) : parts->item[i]);
        if (v.kind == CHOIR__JINJA_UNDEFINED && given(otherwise))
            v = otherwise;
    }
    return v;
}

static choir__jinja_value ignore_case(choir__jinja_run *r, choir__jinja_value v)
{
    return v.kind == CHOIR__JINJA_TEXT ? choir__jinja_cased(r, v.as.text, CHOIR__JINJA_LOWER)
                                       : v;
}

/* --- parts --- */

FILTER(length)
{
    return choir__jinja_int(choir__jinja_length(s->r, a->self));
}

FILTER(first)
{
    choir__jinja_value v = a->self;
    if (v.kind == CHOIR__JINJA_STREAM && v.as.list->count) { /* takes one item alone */
        v.as.list->count--;
        return *v.as.list->item++;
    }
    const choir__jinja_list *list = choir__jinja_items(s->r, v);
    return list->count ? list->item[0]
                       : choir__jinja_undefined(s->r, "No first item, sequence was empty.");
}

FILTER(last)
{
    if (a->self.kind == CHOIR__JINJA_STREAM)
        choir__jinja_fail(s->r, "last: a generator has no last item: put '|list' before it");
    const choir__jinja_list *list = choir__jinja_items(s->r, a->self);
    return list->count ? list->item[list->count - 1]
                       : choir__jinja_undefined(s->r, "No last item, sequence was empty.");
}

static choir__jinja_value copied(
    choir__jinja_run *r, choir__jinja_value v, choir__jinja_kind kind)
{
    const choir__jinja_list *from = choir__jinja_items(r, v);
    choir__jinja_value list = choir__jinja_list_of(r, kind);
    for (size_t i = 0; i < from->count; i++)
        choir__jinja_append(r, list.as.list, from->item[i]);
    return list;
}

FILTER(list)
{
    return copied(s->r, a->self, CHOIR__JINJA_LIST);
}

FILTER(reverse)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM);
    choir__jinja_out out = {0};
    for (size_t i = from->count; i-- > 0;)
        if (a->self.kind == CHOIR__JINJA_TEXT)
            choir__jinja_print(s->r, &out, from->item[i]);
        else
            choir__jinja_append(s->r, list.as.list, from->item[i]);
    return a->self.kind == CHOIR__JINJA_TEXT ? choir__jinja_taken(s->r, &out) : list;
}

FILTER(join)
{
    const choir__jinja_list *list = choir__jinja_items(s->r, a->self);
    choir__jinja_out out = {0};
    for (size_t i = 0; i < list->count; i++) {
        if (i && a->item[0].kind != CHOIR__JINJA_ABSENT)
            choir__jinja_print(s->r, &out, a->item[0]);
        choir__jinja_print(
            s->r, &out, by_path(s, list->item[i], a->item[1], (choir__jinja_value){0}));
    }
    return choir__jinja_taken(s->r, &out);
}

/* --- order --- */

static choir__jinja_value *keys_of(
    choir__jinja_state *s, const choir__jinja_list *list, choir__jinja_value path, bool exact)
{
    choir__jinja_value *key = choir__jinja_get(s->r, (list->count + 1) * sizeof *key);
    for (size_t i = 0; i < list->count; i++) {
        key[i] = by_path(s, list->item[i], path, (choir__jinja_value){0});
        key[i] = exact ? key[i] : ignore_case(s->r, key[i]);
    }
    return key;
}

FILTER(sort)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    const choir__jinja_value *key =
        keys_of(s, from, a->item[2], choir__jinja_truth(a->item[1]));
    const size_t *order =
        choir__jinja_order(s->r, key, from->count, choir__jinja_truth(a->item[0]));
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST);
    for (size_t i = 0; i < from->count; i++)
        choir__jinja_append(s->r, list.as.list, from->item[order[i]]);
    return list;
}

FILTER(unique)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    const choir__jinja_value *key =
        keys_of(s, from, a->item[1], choir__jinja_truth(a->item[0]));
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM);
    choir__jinja_dict seen = {0};
    for (size_t i = 0; i < from->count; i++) {
        if (!choir__jinja_dict_get(s->r, &seen, key[i]))
            choir__jinja_append(s->r, list.as.list, from->item[i]);
        choir__jinja_dict_set(s->r, &seen, key[i], key[i]);
    }
    return list;
}

static choir__jinja_value extreme(
    choir__jinja_state *s, const choir__jinja_arguments *a, bool most)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    const choir__jinja_value *key =
        keys_of(s, from, a->item[1], choir__jinja_truth(a->item[0]));
    size_t best = 0;
    for (size_t i = 1; i < from->count; i++) {
        int order = choir__jinja_compare(s->r, key[i], key[best], most ? ">" : "<");
        best = (most ? order > 0 : order < 0) ? i : best;
    }
    return from->count
               ? from->item[best]
               : choir__jinja_undefined(s->r, "No aggregated item, sequence was empty.");
}

FILTER(min)
{
    return extreme(s, a, false);
}

FILTER(max)
{
    return extreme(s, a, true);
}

FILTER(sum)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    choir__jinja_value all = given(a->item[1]) ? a->item[1] : choir__jinja_int(0);
    for (size_t i = 0; i < from->count; i++)
        all = choir__jinja_binary(
            s->r, "+", all, by_path(s, from->item[i], a->item[0], (choir__jinja_value){0}));
    return all;
}

/* --- dicts --- */

static choir__jinja_value pairs_of(
    choir__jinja_run *r, const choir__jinja_dict *dict, choir__jinja_kind kind)
{
    choir__jinja_value list = choir__jinja_list_of(r, kind);
    for (size_t i = 0; i < dict->count; i++)
        choir__jinja_append(
            r, list.as.list, choir__jinja_pair(r, dict->key[i], dict->value[i]));
    return list;
}

static const choir__jinja_dict *as_dict(choir__jinja_run *r, choir__jinja_value v)
{
    if (v.kind != CHOIR__JINJA_DICT)
        choir__jinja_fail(r, "expected a dict, got '%s'", choir__jinja_type(v));
    return v.as.dict;
}

FILTER(items)
{
    if (a->self.kind == CHOIR__JINJA_UNDEFINED)
        return choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM);
    return pairs_of(s->r, as_dict(s->r, a->self), CHOIR__JINJA_STREAM);
}

FILTER(dictsort)
{
    const choir__jinja_dict *dict = as_dict(s->r, a->self);
    bool exact = choir__jinja_truth(a->item[0]);
    bool by_value = choir__jinja_is_text(a->item[1], "value");
    if (given(a->item[1]) && !by_value && !choir__jinja_is_text(a->item[1], "key"))
        choir__jinja_fail(s->r, "dictsort: expected 'key' or 'value' for 'by'");
    const choir__jinja_list *all = pairs_of(s->r, dict, CHOIR__JINJA_LIST).as.list;
    choir__jinja_value *key = choir__jinja_get(s->r, (all->count + 1) * sizeof *key);
    for (size_t i = 0; i < all->count; i++) {
        key[i] = by_value ? dict->value[i] : dict->key[i];
        key[i] = exact ? key[i] : ignore_case(s->r, key[i]);
    }
    const size_t *order =
        choir__jinja_order(s->r, key, all->count, choir__jinja_truth(a->item[2]));
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST);
    for (size_t i = 0; i < all->count; i++)
        choir__jinja_append(s->r, list.as.list, all->item[order[i]]);
    return list;
}

/* --- map, select and their like --- */

/* Arguments from number `from` on, of another filter or test on v. */
static choir__jinja_arguments passed_on(
    const choir__jinja_arguments *a, size_t from, choir__jinja_value v)
{
    return (choir__jinja_arguments){
        .self = v, .item = a->item + from, .count = a->count - from, .named = a->named};
}

/* Returns the items of a value; one that is false, such as none, has no items. */
static const choir__jinja_list *some_items(choir__jinja_run *r, choir__jinja_value v)
{
    return choir__jinja_items(r, choir__jinja_truth(v) ? v : choir__jinja_undefined(r, "none"));
}

FILTER(map)
{
    const choir__jinja_list *from = some_items(s->r, a->self);
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM);
    const choir__jinja_value *path = choir__jinja_dict_named(s->r, &a->named, "attribute");
    const choir__jinja_value *otherwise = choir__jinja_dict_named(s->r, &a->named, "default");
    if (!path && !a->count)
        choir__jinja_fail(s->r, "map: expected the name of a filter, or attribute=...");
    for (size_t i = 0; i < from->count; i++) {
        choir__jinja_value v = from->item[i];
        if (path && !a->count)
            v = by_path(s, v, *path, otherwise ? *otherwise : (choir__jinja_value){0});
        else {
            choir__jinja_arguments more = passed_on(a, 1, v);
            v = choir__jinja_filter(s, a->item[0], &more);
        }
        choir__jinja_append(s->r, list.as.list, v);
    }
    return list;
}

/* Keeps the items that pass a test, or whose attribute passes it; if not `keeps`, the others.
 */
static choir__jinja_value chosen(
    choir__jinja_state *s, const choir__jinja_arguments *a, bool attribute, bool keeps)
{
    const choir__jinja_list *from = some_items(s->r, a->self);
    choir__jinja_value list = choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM);
    if (attribute && !a->count)
        choir__jinja_fail(s->r, "expected the name of an attribute");
    for (size_t i = 0; i < from->count; i++) {
        choir__jinja_value v = from->item[i];
        if (attribute)
            v = by_path(s, v, a->item[0], (choir__jinja_value){0});
        bool is = choir__jinja_truth(v);
        if (a->count > attribute) {
            choir__jinja_arguments more = passed_on(a, 1 + attribute, v);
            is = choir__jinja_test(s, a->item[attribute], &more);
        }
        if (is == keeps)
            choir__jinja_append(s->r, list.as.list, from->item[i]);
    }
    return list;
}

FILTER(selecting)
{
    return chosen(s, a, false, true);
}

FILTER(reject)
{
    return chosen(s, a, false, false);
}

FILTER(selectattr)
{
    return chosen(s, a, true, true);
}

FILTER(rejectattr)
{
    return chosen(s, a, true, false);
}

/* --- groups --- */

FILTER(groupby)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    choir__jinja_value *real = choir__jinja_get(s->r, (from->count + 1) * sizeof *real);
    choir__jinja_value *key = choir__jinja_get(s->r, (from->count + 1) * sizeof *key);
    bool exact = choir__jinja_truth(a->item[2]);
    for (size_t i = 0; i < from->count; i++) {
        real[i] = by_path(s, from->item[i], a->item[0], a->item[1]);
        key[i] = exact ? real[i] : ignore_case(s->r, real[i]);
    }
    const size_t *order = choir__jinja_order(s->r, key, from->count, false);
    choir__jinja_value groups = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST), members = {0};
    for (size_t i = 0; i < from->count; i++) {
        if (!i || !choir__jinja_equal(s->r, key[order[i]], key[order[i - 1]])) {
            members = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST);
            choir__jinja_append(
                s->r, groups.as.list, choir__jinja_pair(s->r, real[order[i]], members));
        }
        choir__jinja_append(s->r, members.as.list, from->item[order[i]]);
    }
    return groups;
}

FILTER(batch)
{
    const choir__jinja_list *from = choir__jinja_items(s->r, a->self);
    int64_t count = choir__jinja_as_int(s->r, a->item[0], 0);
    choir__jinja_value all = choir__jinja_list_of(s->r, CHOIR__JINJA_STREAM), one = {0};
    if (count < 1)
        choir__jinja_fail(s->r, "batch: expected 1 or more, got %lld", (long long)count);
    for (size_t i = 0; i < from->count; i++) {
        if (i % (uint64_t)count == 0) {
            one = choir__jinja_list_of(s->r, CHOIR__JINJA_LIST);
            choir__jinja_append(s->r, all.as.list, one);
        }
        choir__jinja_append(s->r, one.as.list, from->item[i]);
    }
    while (one.as.list && given(a->item[1]) && (int64_t)one.as.list->count < count)
        choir__jinja_append(s->r, one.as.list, a->item[1]);
    return all;
}

const choir__jinja_builtin choir__jinja_filters_of_lists[] = {{"length", "", length},
    {"count", "", length}, {"first", "", first}, {"last", "", last}, {"list", "", list},
    {"reverse", "", reverse}, {"join", "d? attribute?", join},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"unique", "case_sensitive? attribute?", unique},
    {"min", "case_sensitive? attribute?", min}, {"max", "case_sensitive? attribute?", max},
    {"sum", "attribute? start?", sum}, {"items", "", items},
    {"dictsort", "case_sensitive? by? reverse?", dictsort}, {"map", "...", map},
    {"select", "...", selecting}, {"reject", "...", reject}, {"selectattr", "...", selectattr},
    {"rejectattr", "...", rejectattr},
    {"groupby", "attribute default? case_sensitive?", groupby},
    {"batch", "linecount fill_with?", batch}, {0}};
