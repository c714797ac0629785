/* Global functions, and the methods of their results. */
#include <string.h>

#include "data/jinja/eval.h"

#define FUNCTION(name)                                                                         \
    static choir__jinja_value name(choir__jinja_state *s, const choir__jinja_arguments *a)

enum { MOST_RANGE = 100000 }; /* as in Jinja's sandbox */

FUNCTION(range)
{
    choir__jinja_value v = choir__jinja_list_of(s->r, CHOIR__JINJA_RANGE);
    bool one = a->item[1].kind == CHOIR__JINJA_ABSENT;
    int64_t from = one ? 0 : choir__jinja_as_int(s->r, a->item[0], 0);
    int64_t to = choir__jinja_as_int(s->r, one ? a->item[0] : a->item[1], 0);
    int64_t by = choir__jinja_as_int(s->r, a->item[2], 1);
    if (!by)
        choir__jinja_fail(s->r, "range: the step is 0");
    for (; by > 0 ? from < to : from > to;) {
        if (v.as.list->count == MOST_RANGE)
            choir__jinja_fail(s->r, "range: more than %d numbers", MOST_RANGE);
        choir__jinja_append(s->r, v.as.list, choir__jinja_int(from));
        if (__builtin_add_overflow(from, by, &from))
            break;
    }
    return v;
}

static void add_all(choir__jinja_state *s, choir__jinja_dict *to, choir__jinja_value from)
{
    if (from.kind == CHOIR__JINJA_DICT) {
        for (size_t i = 0; i < from.as.dict->count; i++)
            choir__jinja_dict_set(s->r, to, from.as.dict->key[i], from.as.dict->value[i]);
        return;
    }
    const choir__jinja_list *pairs = choir__jinja_items(s->r, from);
    for (size_t i = 0; i < pairs->count; i++) {
        const choir__jinja_list *pair = choir__jinja_items(s->r, pairs->item[i]);
        if (pair->count != 2)
            choir__jinja_fail(s->r, "dict: expected pairs, got %zu values", pair->count);
        choir__jinja_dict_set(s->r, to, pair->item[0], pair->item[1]);
    }
}

FUNCTION(dict)
{
    choir__jinja_value v = choir__jinja_dict_of(s->r);
    for (size_t i = 0; i < a->count; i++)
        add_all(s, v.as.dict, a->item[i]);
    for (size_t i = 0; i < a->named.count; i++)
        choir__jinja_dict_set(s->r, v.as.dict, a->named.key[i], a->named.value[i]);
    return v;
}

FUNCTION(namespace)
{
    choir__jinja_value v = dict(s, a);
    v.kind = CHOIR__JINJA_NAMESPACE;
    return v;
}

FUNCTION(raise_exception)
{
    const choir__jinja_text *why = choir__jinja_str(s->r, a->item[0]);
    choir__jinja_fail(s->r, "the chat template refuses the conversation: %.*s",
        (int)choir__min(why->bytes, 600), why->data);
}

FUNCTION(strftime_now)
{
    return choir__jinja_time(s->r, choir__jinja_as_text(s->r, a->item[0]), s->now);
}

FUNCTION(joiner)
{
    choir__jinja_value v = choir__jinja_list_of(s->r, CHOIR__JINJA_JOINER);
    choir__jinja_append(s->r, v.as.list,
        a->item[0].kind == CHOIR__JINJA_ABSENT ? choir__jinja_borrow(s->r, ", ", 2)
                                               : a->item[0]);
    return v;
}

FUNCTION(cycler)
{
    choir__jinja_value v = choir__jinja_list_of(s->r, CHOIR__JINJA_CYCLER);
    if (!a->count)
        choir__jinja_fail(s->r, "cycler: expected one or more values");
    for (size_t i = 0; i < a->count; i++)
        choir__jinja_append(s->r, v.as.list, a->item[i]);
    return v;
}

const choir__jinja_builtin choir__jinja_functions[] = {{"range", "start stop? step?", range},
    {"dict", "...", dict}, {"namespace", "...", namespace},
    {"raise_exception", "message", raise_exception}, {"strftime_now", "format", strftime_now},
    {"joiner", "sep?", joiner}, {"cycler", "...", cycler}, {0}};

FUNCTION(next)
{
    choir__jinja_list *list = a->self.as.list;
    (void)s;
    return list->item[list->turn++ % list->count];
}

FUNCTION(reset)
{
    (void)s;
    a->self.as.list->turn = 0;
    return choir__jinja_none();
}

const choir__jinja_builtin choir__jinja_methods_of_cyclers[] = {
    {"next", "", next}, {"reset", "", reset}, {0}};

FUNCTION(cycle)
{
    if (!a->count)
        choir__jinja_fail(s->r, "loop.cycle: expected one or more values");
    return a->item[a->self.as.loop->index % a->count];
}

FUNCTION(changed)
{
    choir__jinja_loop *loop = a->self.as.loop;
    choir__jinja_value now = choir__jinja_list_of(s->r, CHOIR__JINJA_TUPLE);
    for (size_t i = 0; i < a->count; i++)
        choir__jinja_append(s->r, now.as.list, a->item[i]);
    bool same = loop->seen.kind == now.kind && choir__jinja_equal(s->r, loop->seen, now);
    loop->seen = now;
    return choir__jinja_bool(!same);
}

const choir__jinja_builtin choir__jinja_methods_of_loops[] = {
    {"cycle", "...", cycle}, {"changed", "...", changed}, {0}};
