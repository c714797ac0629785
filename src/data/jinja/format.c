/* Texts with places for values: format % v, format.format(...) and strftime.
 *
 * Of Python's forms these have what templates use: flags, a width, a precision, and %s %r %d
 * %i %f %e %g %x %X %o %c %%; of braces {}, {0}, {name} and {{ }}. Others are refused. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/number.h"
#include "data/jinja/eval.h"

/* --- percent --- */

typedef struct place {
    bool left, zero, plus, blank, other; /* flags - 0 + blank # */
    int64_t width, precision;            /* precision < 0: none */
    char form;
} place;

static const char *read_number(const char *at, const char *end, int64_t *number)
{
    for (*number = 0; at < end && choir__jinja_is_digit(*at) && *number < 10000; at++)
        *number = 10 * *number + (*at - '0');
    return at;
}

static const char *read_place(const char *at, const char *end, place *p)
{
    *p = (place){.precision = -1};
    for (; at < end && *at && strchr("-0+ #", *at); at++) {
        p->left |= *at == '-';
        p->zero |= *at == '0';
        p->plus |= *at == '+';
        p->blank |= *at == ' ';
        p->other |= *at == '#';
    }
    at = read_number(at, end, &p->width);
    if (at < end && *at == '.')
        at = read_number(at + 1, end, &p->precision);
    if (at < end)
        p->form = *at++;
    return at;
}

/* Writes a text with blanks up to the width; zeros stand behind a sign. */
static void put_padded(choir__jinja_run *r, choir__jinja_out *out, const place *p,
    choir__jinja_text *t, bool number)
{
    int64_t more = p->width - (int64_t)t->chars;
    bool zeros = p->zero && number && !p->left;
    size_t sign = zeros && t->bytes && strchr("+- ", t->data[0]) != NULL;
    choir__jinja_put(r, out, t->data, sign);
    for (int64_t i = 0; i < more && !p->left; i++)
        choir__jinja_puts(r, out, zeros ? "0" : " ");
    choir__jinja_put(r, out, t->data + sign, t->bytes - sign);
    for (int64_t i = 0; i < more && p->left; i++)
        choir__jinja_puts(r, out, " ");
}

static choir__jinja_value number_text(choir__jinja_run *r, const place *p, choir__jinja_value v)
{
    char text[512];
    const char *sign = p->plus ? "+" : p->blank ? " " : "";
    if (!choir__jinja_is_number(v))
        choir__jinja_fail(
            r, "%%%c: expected a number, got '%s'", p->form, choir__jinja_type(v));
    if (strchr("di", p->form))
        snprintf(text, sizeof text, "%lld",
            (long long)(v.kind == CHOIR__JINJA_REAL ? (int64_t)v.as.real : v.as.whole));
    else if (strchr("xXo", p->form)) {
        uint64_t size = v.as.whole < 0 ? -(uint64_t)v.as.whole : (uint64_t)v.as.whole;
        if (v.kind == CHOIR__JINJA_REAL)
            choir__jinja_fail(r, "%%%c: expected a whole number", p->form);
        const char *minus = v.as.whole < 0 ? "-" : "";
        if (p->form == 'o')
            snprintf(text, sizeof text, "%s%llo", minus, (unsigned long long)size);
        else if (p->form == 'x')
            snprintf(text, sizeof text, "%s%llx", minus, (unsigned long long)size);
        else
            snprintf(text, sizeof text, "%s%llX", minus, (unsigned long long)size);
    } else {
        int64_t digits = p->precision < 0 ? 6 : choir__min(p->precision, 100);
        switch (p->form) {
        case 'f':
        case 'F':
            choir__number_print(text, sizeof text, "%.*f", (int)digits, choir__jinja_number(v));
            break;
        case 'e':
            choir__number_print(text, sizeof text, "%.*e", (int)digits, choir__jinja_number(v));
            break;
        default:
            choir__number_print(text, sizeof text, "%.*g", (int)digits, choir__jinja_number(v));
        }
    }
    choir__jinja_out out = {0};
    if (text[0] != '-')
        choir__jinja_puts(r, &out, sign);
    choir__jinja_puts(r, &out, text);
    return choir__jinja_taken(r, &out);
}

static void put_value(
    choir__jinja_run *r, choir__jinja_out *out, const place *p, choir__jinja_value v)
{
    choir__jinja_out own = {0};
    if (p->other || !p->form || !strchr("srdifFegxXoc", p->form))
        choir__jinja_fail(r, "the form %%%c of a text is outside of what templates use",
            p->form ? p->form : '%');
    if (strchr("src", p->form)) {
        if (p->form == 'r')
            choir__jinja_repr(r, &own, v);
        else if (p->form == 'c' && v.kind == CHOIR__JINJA_INT && v.as.whole > 0 &&
                 v.as.whole < 0xD800)
            choir__jinja_put_code(r, &own, (uint32_t)v.as.whole);
        else
            choir__jinja_print(r, &own, v);
        choir__jinja_value text = choir__jinja_taken(r, &own);
        if (p->precision >= 0)
            text = choir__jinja_part(
                r, text.as.text, 0, choir__min(p->precision, (int64_t)text.as.text->chars));
        put_padded(r, out, p, text.as.text, false);
        return;
    }
    put_padded(r, out, p, number_text(r, p, v).as.text, true);
}

/* Returns the value of %(name)..., and steps over the name. */
static choir__jinja_value by_name(
    choir__jinja_run *r, const char **at, const char *end, choir__jinja_value v)
{
    const char *close = memchr(*at, ')', (size_t)(end - *at));
    if (!close || v.kind != CHOIR__JINJA_DICT)
        choir__jinja_fail(r, "%%(name): expected a dict of values");
    choir__jinja_value name = choir__jinja_borrow(r, *at + 1, (size_t)(close - *at - 1));
    const choir__jinja_value *found = choir__jinja_dict_get(r, v.as.dict, name);
    if (!found)
        choir__jinja_fail(r, "%%(%.*s): there is no such value",
            (int)choir__min(name.as.text->bytes, 60), name.as.text->data);
    *at = close + 1;
    return *found;
}

choir__jinja_value choir__jinja_percent(
    choir__jinja_run *r, choir__jinja_text *format, choir__jinja_value v)
{
    choir__jinja_out out = {0};
    const char *at = format->data, *end = at + format->bytes, *next;
    bool several = v.kind == CHOIR__JINJA_TUPLE, named = false;
    size_t count = several ? v.as.list->count : 1, used = 0;
    while (at < end && (next = memchr(at, '%', (size_t)(end - at)))) {
        place p;
        choir__jinja_value one = {0};
        choir__jinja_put(r, &out, at, (size_t)(next - at));
        at = next + 1;
        if (at < end && *at == '(') {
            one = by_name(r, &at, end, v);
            named = true;
        }
        at = read_place(at, end, &p);
        if (p.form == '%') {
            choir__jinja_puts(r, &out, "%");
            continue;
        }
        if (one.kind == CHOIR__JINJA_ABSENT && used >= count)
            choir__jinja_fail(r, "a text has more places (%%) than values");
        if (one.kind == CHOIR__JINJA_ABSENT)
            one = several ? v.as.list->item[used++] : (used++, v);
        put_value(r, &out, &p, one);
    }
    if (used < count && !named && v.kind != CHOIR__JINJA_DICT)
        choir__jinja_fail(r, "a text has fewer places (%%) than values");
    choir__jinja_put(r, &out, at, (size_t)(end - at));
    return choir__jinja_taken(r, &out);
}

/* --- braces --- */

static choir__jinja_value braced(choir__jinja_state *s, const char *from, const char *to,
    const choir__jinja_arguments *a, size_t *next)
{
    int64_t index = 0;
    const choir__jinja_value *found = NULL;
    if (from == to)
        index = (int64_t)(*next)++;
    else if (read_number(from, to, &index) != to) {
        found = choir__jinja_dict_get(
            s->r, &a->named, choir__jinja_borrow(s->r, from, (size_t)(to - from)));
        index = -1;
    }
    if (index >= 0 && (size_t)index < a->count)
        found = &a->item[index];
    if (!found)
        choir__jinja_fail(s->r,
            "format: {%.*s} has no value, or a form outside of what "
            "templates use",
            (int)choir__min(to - from, 60), from);
    return *found;
}

choir__jinja_value choir__jinja_braces(
    choir__jinja_state *s, choir__jinja_text *format, const choir__jinja_arguments *a)
{
    choir__jinja_out out = {0};
    size_t next = 0;
    for (const char *at = format->data, *end = at + format->bytes; at < end; at++) {
        bool brace = *at == '{' || *at == '}';
        if (!brace || (at + 1 < end && at[1] == *at)) {
            choir__jinja_put(s->r, &out, at, 1);
            at += brace;
            continue;
        }
        const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
        if (!close)
            choir__jinja_fail(s->r, "format: a brace stands alone");
        choir__jinja_print(s->r, &out, braced(s, at + 1, close, a, &next));
        at = close;
    }
    return choir__jinja_taken(s->r, &out);
}

/* --- time --- */

static const char *const days[] = {
    "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December"};

/* Writes one field; names are English whatever the locale. bare: without leading zeros. */
static void put_field(
    choir__jinja_run *r, choir__jinja_out *out, char form, bool bare, const struct tm *t)
{
    char text[32] = "";
    int number = 0, digits = 2, hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    switch (form) {
    case 'd': number = t->tm_mday; break;
    case 'm': number = t->tm_mon + 1; break;
    case 'y': number = t->tm_year % 100; break;
    case 'H': number = t->tm_hour; break;
    case 'I': number = hour; break;
    case 'M': number = t->tm_min; break;
    case 'S': number = t->tm_sec; break;
    case 'Y': number = t->tm_year + 1900, digits = 4; break;
    case 'j': number = t->tm_yday + 1, digits = 3; break;
    case 'B': choir__jinja_puts(r, out, months[t->tm_mon]); return;
    case 'b': choir__jinja_put(r, out, months[t->tm_mon], 3); return;
    case 'A': choir__jinja_puts(r, out, days[t->tm_wday]); return;
    case 'a': choir__jinja_put(r, out, days[t->tm_wday], 3); return;
    case 'p': choir__jinja_puts(r, out, t->tm_hour < 12 ? "AM" : "PM"); return;
    case '%': choir__jinja_puts(r, out, "%"); return;
    default:
        choir__jinja_fail(r, "strftime_now: the form %%%c is outside of what templates use",
            form ? form : '%');
    }
    snprintf(text, sizeof text, "%0*d", bare ? 1 : digits, number);
    choir__jinja_puts(r, out, text);
}

choir__jinja_value choir__jinja_time(
    choir__jinja_run *r, choir__jinja_text *format, int64_t now)
{
    choir__jinja_out out = {0};
    time_t seconds = (time_t)now;
    struct tm t = {0};
    gmtime_r(&seconds, &t);
    for (const char *at = format->data, *end = at + format->bytes; at < end; at++) {
        if (*at != '%') {
            choir__jinja_put(r, &out, at, 1);
            continue;
        }
        bool bare = at + 2 < end && at[1] == '-';
        at += bare ? 2 : 1;
        put_field(r, &out, at < end ? *at : 0, bare, &t);
    }
    return choir__jinja_taken(r, &out);
}
