/* Jinja's filters of single values: defaults, numbers, JSON. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/number.h"
#include "data/jinja/eval.h"

#define FILTER(name)                                                                           \
    static choir__jinja_value name(choir__jinja_state *s, const choir__jinja_arguments *a)

static bool given(choir__jinja_value v)
{
    return v.kind != CHOIR__JINJA_ABSENT && v.kind != CHOIR__JINJA_NONE;
}

FILTER(defaulted)
{
    bool missing = a->self.kind == CHOIR__JINJA_UNDEFINED ||
                   (choir__jinja_truth(a->item[1]) && !choir__jinja_truth(a->self));
    if (!missing)
        return a->self;
    return a->item[0].kind == CHOIR__JINJA_ABSENT ? choir__jinja_borrow(s->r, "", 0)
                                                  : a->item[0];
}

/* attr(name): an attribute of the value. A key of a dict is no attribute. */
FILTER(attr)
{
    choir__jinja_value name = {CHOIR__JINJA_TEXT, {.text = choir__jinja_str(s->r, a->item[0])}};
    if (a->self.kind == CHOIR__JINJA_DICT && !choir__jinja_find_method(s, a->self.kind, name))
        return choir__jinja_undefined(s->r, "'dict object' has no such attribute");
    return choir__jinja_attribute(s, a->self, name);
}

/* --- numbers --- */

/* Reads a number that fills the text but for white space. */
static bool read_real(choir__jinja_run *r, choir__jinja_value v, double *real)
{
    char text[64], *end;
    if (choir__jinja_is_number(v)) {
        *real = choir__jinja_number(v);
        return true;
    }
    if (v.kind != CHOIR__JINJA_TEXT)
        return false;
    v = choir__jinja_strip(r, v.as.text, NULL, CHOIR__JINJA_BOTH);
    if (!v.as.text->bytes || v.as.text->bytes >= sizeof text ||
        strspn(v.as.text->data, "0123456789+-.eE_infatyINFATY") < v.as.text->bytes)
        return false;
    memcpy(text, v.as.text->data, v.as.text->bytes);
    text[v.as.text->bytes] = '\0';
    *real = choir__number_read(text, &end);
    return !*end;
}

static bool read_whole(choir__jinja_run *r, choir__jinja_value v, int base, int64_t *whole)
{
    char text[80], *end;
    v = choir__jinja_strip(r, v.as.text, NULL, CHOIR__JINJA_BOTH);
    if (!v.as.text->bytes || v.as.text->bytes >= sizeof text)
        return false;
    memcpy(text, v.as.text->data, v.as.text->bytes);
    text[v.as.text->bytes] = '\0';
    errno = 0;
    *whole = strtoll(text, &end, base);
    return !*end && !errno;
}

FILTER(integer)
{
    double real;
    int64_t whole, base = choir__jinja_as_int(s->r, a->item[1], 10);
    choir__jinja_value otherwise = given(a->item[0]) ? a->item[0] : choir__jinja_int(0);
    if (a->self.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s", a->self.as.why);
    if (a->self.kind == CHOIR__JINJA_TEXT && (base == 0 || (base >= 2 && base <= 36)) &&
        read_whole(s->r, a->self, (int)base, &whole))
        return choir__jinja_int(whole);
    if (a->self.kind == CHOIR__JINJA_INT)
        return a->self;
    bool fits = read_real(s->r, a->self, &real) && fabs(real) < 9e18;
    return fits ? choir__jinja_int((int64_t)real) : otherwise;
}

FILTER(floating)
{
    double real;
    if (a->self.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(s->r, "%s", a->self.as.why);
    if (read_real(s->r, a->self, &real))
        return choir__jinja_real(real);
    return given(a->item[0]) ? a->item[0] : choir__jinja_real(0.0);
}

static void want_number(choir__jinja_run *r, const char *name, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "%s: %s", name, v.as.why);
    if (!choir__jinja_is_number(v))
        choir__jinja_fail(r, "%s: expected a number, got '%s'", name, choir__jinja_type(v));
}

FILTER(absolute)
{
    want_number(s->r, "abs", a->self);
    if (a->self.kind == CHOIR__JINJA_REAL)
        return choir__jinja_real(fabs(a->self.as.real));
    return a->self.as.whole >= 0 ? choir__jinja_int(a->self.as.whole)
                                 : choir__jinja_binary(s->r, "-", choir__jinja_int(0), a->self);
}

/* The decimal that is nearest to the number, as Python's round gives it; ties are decided by
 * the number's exact value. */
static double rounded(double real, int64_t digits)
{
    char text[400];
    if (digits > 22 || !isfinite(real))
        return real;
    if (digits < 0) {
        double unit = choir__pow(10.0, (double)-digits);
        return rint(real / unit) * unit;
    }
    choir__number_print(text, sizeof text, "%.*f", (int)digits, real);
    return choir__number_read(text, NULL);
}

FILTER(rounding)
{
    int64_t digits = choir__jinja_as_int(s->r, a->item[0], 0);
    want_number(s->r, "round", a->self);
    double real = choir__jinja_number(a->self);
    if (!given(a->item[1]) || choir__jinja_is_text(a->item[1], "common")) {
        if (a->self.kind == CHOIR__JINJA_INT)
            return digits >= 0 ? a->self : choir__jinja_int((int64_t)rounded(real, digits));
        return choir__jinja_real(rounded(real, digits));
    }
    double unit = choir__pow(10.0, (double)digits);
    if (choir__jinja_is_text(a->item[1], "ceil"))
        return choir__jinja_real(ceil(real * unit) / unit);
    if (choir__jinja_is_text(a->item[1], "floor"))
        return choir__jinja_real(floor(real * unit) / unit);
    choir__jinja_fail(s->r, "round: expected the method common, ceil or floor");
}

/* --- JSON --- */

FILTER(tojson)
{
    choir__jinja_out out = {0};
    choir__jinja_text comma = {",", 1, 1, 0, false}, comma_blank = {", ", 2, 2, 0, false},
                      colon = {": ", 2, 2, 0, false};
    choir__jinja_json_form form = {.ascii = choir__jinja_truth(a->item[0]),
        .sorted = choir__jinja_truth(a->item[3]),
        .colon = &colon};
    if (a->item[1].kind == CHOIR__JINJA_TEXT)
        form.indent =
            choir__jinja_text_of(s->r, a->item[1].as.text->data, a->item[1].as.text->bytes)
                .as.text->data;
    else if (given(a->item[1])) {
        choir__jinja_value blank = choir__jinja_borrow(s->r, " ", 1);
        blank = choir__jinja_binary(
            s->r, "*", blank, choir__jinja_int(choir__jinja_as_int(s->r, a->item[1], 0)));
        form.indent =
            choir__jinja_text_of(s->r, blank.as.text->data, blank.as.text->bytes).as.text->data;
    }
    form.between = form.indent ? &comma : &comma_blank;
    if (given(a->item[2])) {
        const choir__jinja_list *two = choir__jinja_items(s->r, a->item[2]);
        if (two->count != 2)
            choir__jinja_fail(s->r, "tojson: expected two separators, got %zu", two->count);
        form.between = choir__jinja_as_text(s->r, two->item[0]);
        form.colon = choir__jinja_as_text(s->r, two->item[1]);
    }
    choir__jinja_json(s->r, &out, a->self, &form);
    return choir__jinja_taken(s->r, &out);
}

FILTER(pprint)
{
    choir__jinja_out out = {0};
    choir__jinja_repr(s->r, &out, a->self);
    return choir__jinja_taken(s->r, &out);
}

const choir__jinja_builtin choir__jinja_filters_of_values[] = {
    {"default", "default_value? boolean?", defaulted},
    {"d", "default_value? boolean?", defaulted}, {"attr", "name", attr},
    {"int", "default? base?", integer}, {"float", "default?", floating}, {"abs", "", absolute},
    {"round", "precision? method?", rounding},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson}, {"pprint", "", pprint},
    {0}};
