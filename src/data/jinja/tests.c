/* Jinja's tests: v is NAME. */
#include <string.h>

#include "data/jinja/eval.h"

#define IS(name, condition)                                                                    \
    static choir__jinja_value is_##name(                                                       \
        choir__jinja_state *s, const choir__jinja_arguments *a)                                \
    {                                                                                          \
        const choir__jinja_value v = a->self;                                                  \
        (void)s;                                                                               \
        (void)v;                                                                               \
        return choir__jinja_bool(condition);                                                   \
    }
#define ARG             a->item[0]
#define KIND(kind_name) (v.kind == CHOIR__JINJA_##kind_name)

static bool is_iterable_value(choir__jinja_value v)
{
    return KIND(TEXT) || KIND(DICT) || KIND(UNDEFINED) || KIND(LOOP) ||
           choir__jinja_is_sequence(v);
}

/* Returns whether Python can count and index the value. */
static bool is_counted(choir__jinja_value v)
{
    return KIND(TEXT) || KIND(DICT) || KIND(UNDEFINED) ||
           (choir__jinja_is_sequence(v) && v.kind < CHOIR__JINJA_VIEW);
}

static int64_t rest(choir__jinja_state *s, choir__jinja_value v, choir__jinja_value by)
{
    choir__jinja_value left = choir__jinja_binary(s->r, "%", v, by);
    return left.kind == CHOIR__JINJA_REAL ? left.as.real != 0 : left.as.whole;
}

IS(defined, v.kind != CHOIR__JINJA_UNDEFINED)
IS(undefined, KIND(UNDEFINED))
IS(none, KIND(NONE))
IS(boolean, KIND(BOOL))
IS(true, KIND(BOOL) && v.as.whole)
IS(false, KIND(BOOL) && !v.as.whole)
IS(integer, KIND(INT))
IS(float, KIND(REAL))
IS(number, choir__jinja_is_number(v))
IS(string, KIND(TEXT))
IS(mapping, KIND(DICT))
IS(sequence, is_counted(v))
IS(iterable, is_iterable_value(v))
IS(callable, KIND(MACRO) || KIND(FUNCTION) || KIND(JOINER) || KIND(LOOP) || KIND(UNDEFINED))
IS(escaped, KIND(TEXT) && v.as.text->safe)
IS(odd, rest(s, v, choir__jinja_int(2)) == 1)
IS(even, rest(s, v, choir__jinja_int(2)) == 0)
IS(divisible, rest(s, v, ARG) == 0)
IS(equal, choir__jinja_equal(s->r, v, ARG))
IS(unequal, !choir__jinja_equal(s->r, v, ARG))
IS(less, choir__jinja_compare(s->r, v, ARG, "<") < 0)
IS(at_most, choir__jinja_compare(s->r, v, ARG, "<=") <= 0)
IS(greater, choir__jinja_compare(s->r, v, ARG, ">") > 0)
IS(at_least, choir__jinja_compare(s->r, v, ARG, ">=") >= 0)
IS(in, choir__jinja_contains(s->r, ARG, v))
IS(lower, choir__jinja_is_lower(choir__jinja_str(s->r, v)))
IS(upper, choir__jinja_is_upper(choir__jinja_str(s->r, v)))
IS(filter, choir__jinja_find_filter(s, v) != NULL)
IS(test, choir__jinja_find_test(s, v) != NULL)
/* One object: texts and numbers that are equal are, in what templates compare. */
IS(same, v.kind == ARG.kind && choir__jinja_equal(s->r, v, ARG))

const choir__jinja_builtin choir__jinja_tests[] = {{"defined", "", is_defined},
    {"undefined", "", is_undefined}, {"none", "", is_none}, {"boolean", "", is_boolean},
    {"true", "", is_true}, {"false", "", is_false}, {"integer", "", is_integer},
    {"float", "", is_float}, {"number", "", is_number}, {"string", "", is_string},
    {"mapping", "", is_mapping}, {"sequence", "", is_sequence}, {"iterable", "", is_iterable},
    {"callable", "", is_callable}, {"escaped", "", is_escaped}, {"odd", "", is_odd},
    {"even", "", is_even}, {"divisibleby", "num", is_divisible}, {"eq", "other", is_equal},
    {"equalto", "other", is_equal}, {"==", "other", is_equal}, {"ne", "other", is_unequal},
    {"!=", "other", is_unequal}, {"lt", "other", is_less}, {"lessthan", "other", is_less},
    {"<", "other", is_less}, {"le", "other", is_at_most}, {"<=", "other", is_at_most},
    {"gt", "other", is_greater}, {"greaterthan", "other", is_greater},
    {">", "other", is_greater}, {"ge", "other", is_at_least}, {">=", "other", is_at_least},
    {"in", "seq", is_in}, {"lower", "", is_lower}, {"upper", "", is_upper},
    {"filter", "", is_filter}, {"test", "", is_test}, {"sameas", "other", is_same}, {0}};
