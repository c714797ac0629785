/* Operators between two values, as Python has them: whole numbers divide towards minus
 * infinity, lists and texts join and repeat. Python's numbers have no limit; here an
 * overflow of 64 bits is an error of the template rather than a wrong number. */
#include <math.h>
#include <string.h>

#include "base/math/functions.h"
#include "data/jinja/eval.h"

static void no_operator(choir__jinja_run *r, const char *sign, choir__jinja_value a,
    choir__jinja_value b) __attribute__((noreturn));
static void no_operator(
    choir__jinja_run *r, const char *sign, choir__jinja_value a, choir__jinja_value b)
{
    if (a.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "%s", a.as.why);
    if (b.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "%s", b.as.why);
    choir__jinja_fail(r, "'%s' is not defined for '%s' and '%s'", sign, choir__jinja_type(a),
        choir__jinja_type(b));
}

static int64_t floor_quotient(int64_t x, int64_t y)
{
    int64_t q = x / y;
    return q - (x % y != 0 && (x < 0) != (y < 0));
}

static bool power(int64_t x, int64_t n, int64_t *out)
{
    *out = 1;
    if (x == 1 || x == 0 || x == -1) {
        *out = n == 0 ? 1 : x == -1 && n % 2 == 0 ? 1 : x;
        return true;
    }
    for (; n > 0; n--)
        if (__builtin_mul_overflow(*out, x, out))
            return false;
    return true;
}

static choir__jinja_value whole(choir__jinja_run *r, const char *sign, int64_t x, int64_t y)
{
    int64_t out = 0;
    bool fits = true, divides = !strcmp(sign, "//") || *sign == '%' || *sign == '/';
    if (divides && !y)
        choir__jinja_fail(r, "division by zero");
    if (!strcmp(sign, "+"))
        fits = !__builtin_add_overflow(x, y, &out);
    else if (!strcmp(sign, "-"))
        fits = !__builtin_sub_overflow(x, y, &out);
    else if (!strcmp(sign, "*"))
        fits = !__builtin_mul_overflow(x, y, &out);
    else if (!strcmp(sign, "**"))
        fits = power(x, y, &out);
    else if (y == -1 && x == INT64_MIN)
        fits = false;
    else if (!strcmp(sign, "//"))
        out = floor_quotient(x, y);
    else
        out = x - y * floor_quotient(x, y);
    if (!fits)
        choir__jinja_fail(r, "'%s' gives a number of more than 64 bits", sign);
    return choir__jinja_int(out);
}

static choir__jinja_value real(choir__jinja_run *r, const char *sign, double x, double y)
{
    bool divides = *sign == '/' || *sign == '%';
    if (divides && y == 0)
        choir__jinja_fail(r, "division by zero");
    if (!strcmp(sign, "+"))
        return choir__jinja_real(x + y);
    if (!strcmp(sign, "-"))
        return choir__jinja_real(x - y);
    if (!strcmp(sign, "*"))
        return choir__jinja_real(x * y);
    if (!strcmp(sign, "**"))
        return choir__jinja_real(choir__pow(x, y));
    if (!strcmp(sign, "/"))
        return choir__jinja_real(x / y);
    double rest = fmod(x, y);
    if (rest != 0 && (rest < 0) != (y < 0))
        rest += y;
    return choir__jinja_real(*sign == '%' ? rest : floor((x - rest) / y + 0.5));
}

static choir__jinja_value numbers(
    choir__jinja_run *r, const char *sign, choir__jinja_value a, choir__jinja_value b)
{
    bool wholes = a.kind != CHOIR__JINJA_REAL && b.kind != CHOIR__JINJA_REAL &&
                  strcmp(sign, "/") != 0 && !(!strcmp(sign, "**") && b.as.whole < 0);
    return wholes ? whole(r, sign, a.as.whole, b.as.whole)
                  : real(r, sign, choir__jinja_number(a), choir__jinja_number(b));
}

static choir__jinja_value joined_lists(choir__jinja_run *r, choir__jinja_kind kind,
    const choir__jinja_list *a, const choir__jinja_list *b)
{
    choir__jinja_value v = choir__jinja_list_of(r, kind);
    for (int second = 0; second < 2; second++) {
        const choir__jinja_list *from = second ? b : a;
        for (size_t i = 0; i < from->count; i++)
            choir__jinja_append(r, v.as.list, from->item[i]);
    }
    return v;
}

static choir__jinja_value repeated(choir__jinja_run *r, choir__jinja_value v, int64_t times)
{
    choir__jinja_out out = {0};
    choir__jinja_value all = choir__jinja_list_of(r, v.kind);
    for (; times > 0; times--) {
        choir__jinja_step(r, 1);
        if (v.kind == CHOIR__JINJA_TEXT)
            choir__jinja_put(r, &out, v.as.text->data, v.as.text->bytes);
        else
            for (size_t i = 0; i < v.as.list->count; i++)
                choir__jinja_append(r, all.as.list, v.as.list->item[i]);
    }
    return v.kind == CHOIR__JINJA_TEXT ? choir__jinja_taken(r, &out) : all;
}

static bool repeats(choir__jinja_value v, choir__jinja_value times)
{
    return (v.kind == CHOIR__JINJA_TEXT || v.kind == CHOIR__JINJA_LIST ||
               v.kind == CHOIR__JINJA_TUPLE) &&
           (times.kind == CHOIR__JINJA_INT || times.kind == CHOIR__JINJA_BOOL);
}

static choir__jinja_value joined_texts(
    choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b)
{
    choir__jinja_out out = {0};
    bool safe = a.as.text->safe || b.as.text->safe;
    choir__jinja_print(r, &out, safe ? choir__jinja_escape(r, a) : a);
    choir__jinja_print(r, &out, safe ? choir__jinja_escape(r, b) : b);
    choir__jinja_value text = choir__jinja_taken(r, &out);
    return safe ? choir__jinja_safe(r, text) : text;
}

choir__jinja_value choir__jinja_binary(
    choir__jinja_run *r, const char *sign, choir__jinja_value a, choir__jinja_value b)
{
    if (choir__jinja_is_number(a) && choir__jinja_is_number(b))
        return numbers(r, sign, a, b);
    if (!strcmp(sign, "+") && a.kind == b.kind && a.kind == CHOIR__JINJA_TEXT)
        return joined_texts(r, a, b);
    if (!strcmp(sign, "+") && a.kind == b.kind &&
        (a.kind == CHOIR__JINJA_LIST || a.kind == CHOIR__JINJA_TUPLE))
        return joined_lists(r, a.kind, a.as.list, b.as.list);
    if (!strcmp(sign, "*") && repeats(a, b))
        return repeated(r, a, b.as.whole);
    if (!strcmp(sign, "*") && repeats(b, a))
        return repeated(r, b, a.as.whole);
    if (*sign == '%' && a.kind == CHOIR__JINJA_TEXT)
        return choir__jinja_percent(r, a.as.text, b);
    no_operator(r, sign, a, b);
}
