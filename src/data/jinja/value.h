/* Values of templates: the values of Python that Jinja's expressions know.
 *
 * All memory of a render is one arena with a limit, and its work is counted in steps with a
 * limit, so a hostile template ends with a sentence. A failure leaves from any depth by
 * longjmp, since the arena alone holds memory; functions here therefore return no status.
 * Values never change, except namespaces. */
#ifndef CHOIR_DATA_JINJA_VALUE_H
#define CHOIR_DATA_JINJA_VALUE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "data/json.h"

typedef enum choir__jinja_kind {
    CHOIR__JINJA_ABSENT, /* an argument that was not given; never a value of a template */
    CHOIR__JINJA_UNDEFINED,
    CHOIR__JINJA_NONE,
    CHOIR__JINJA_BOOL,
    CHOIR__JINJA_INT,
    CHOIR__JINJA_REAL,
    CHOIR__JINJA_TEXT,
    CHOIR__JINJA_LIST,
    CHOIR__JINJA_TUPLE,
    CHOIR__JINJA_RANGE,  /* a list of numbers */
    CHOIR__JINJA_VIEW,   /* keys, values or items of a dict: no index, but a length */
    CHOIR__JINJA_STREAM, /* Python's generators: neither index nor length, always true */
    CHOIR__JINJA_DICT,
    CHOIR__JINJA_NAMESPACE,
    CHOIR__JINJA_LOOP,
    CHOIR__JINJA_MACRO,
    CHOIR__JINJA_FUNCTION, /* global functions and bound methods of the library */
    CHOIR__JINJA_CYCLER,
    CHOIR__JINJA_JOINER
} choir__jinja_kind;

typedef struct choir__jinja_text {
    const char *data;
    size_t bytes;
    size_t chars;  /* code points */
    uint64_t hash; /* 0: not computed yet */
    bool safe;     /* Jinja's Markup, which escapes a text that is added */
} choir__jinja_text;

typedef struct choir__jinja_list choir__jinja_list;
typedef struct choir__jinja_dict choir__jinja_dict;
typedef struct choir__jinja_bound choir__jinja_bound;
typedef struct choir__jinja_macro choir__jinja_macro;
typedef struct choir__jinja_loop choir__jinja_loop;

typedef struct choir__jinja_value {
    choir__jinja_kind kind;
    union {
        int64_t whole; /* also BOOL */
        double real;
        const char *why; /* UNDEFINED: "'x' is undefined" */
        choir__jinja_text *text;
        choir__jinja_list *list; /* LIST to STREAM, CYCLER */
        choir__jinja_dict *dict; /* DICT, NAMESPACE */
        choir__jinja_loop *loop;
        choir__jinja_macro *macro;
        choir__jinja_bound *bound; /* FUNCTION */
    } as;
} choir__jinja_value;

struct choir__jinja_list {
    choir__jinja_value *item; /* (count) */
    size_t count, room;
    const char *name; /* VIEW: as printed, such as "dict_items"; else unused */
    size_t turn;      /* CYCLER, JOINER: the next one */
};

struct choir__jinja_dict {
    choir__jinja_value *key, *value; /* (count), in the order in which they were added */
    size_t count, room;
    uint32_t *slot; /* (slots) index + 1, by hash; NULL while there are few */
    size_t slots;
};

/* One render, or one parse, with its limits. */
typedef struct choir__jinja_run {
    choir__arena arena;
    size_t memory, most_memory; /* bytes */
    uint64_t steps, most_steps;
    int depth;        /* nested constructs around the one at work */
    const char *name; /* the template's name, for messages */
    int line;         /* line of the construct at work */
    uint64_t secret;  /* the seed of hashes */
    jmp_buf leave;    /* after a failure, whose message is set */
} choir__jinja_run;

/* --- life: memory.c --- */

/* Fails with "NAME, line N: ..." and does not return. */
void choir__jinja_fail(choir__jinja_run *r, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void choir__jinja_step(choir__jinja_run *r, size_t steps);
/* Returns zeroed memory of the run. */
void *choir__jinja_get(choir__jinja_run *r, size_t bytes);
/* Enters a nested construct, and fails if it is too deep; the caller decrements `depth` later.
 */
void choir__jinja_deeper(choir__jinja_run *r);
/* Returns the array with room for one item more; see CHOIR__JINJA_GROW. */
void *choir__jinja_grow(
    choir__jinja_run *r, void *items, size_t count, size_t *room, size_t bytes);
#define CHOIR__JINJA_GROW(r, items, count, room)                                               \
    ((items) = choir__jinja_grow((r), (items), (count), &(room), sizeof *(items)))

/* A text that grows. */
typedef struct choir__jinja_out {
    char *data;
    size_t bytes, room;
} choir__jinja_out;

void choir__jinja_put(
    choir__jinja_run *r, choir__jinja_out *out, const char *text, size_t bytes);
void choir__jinja_puts(choir__jinja_run *r, choir__jinja_out *out, const char *text);
void choir__jinja_put_code(choir__jinja_run *r, choir__jinja_out *out, uint32_t code);

/* --- making values --- */

static inline choir__jinja_value choir__jinja_bool(bool is)
{
    return (choir__jinja_value){CHOIR__JINJA_BOOL, {.whole = is}};
}
static inline choir__jinja_value choir__jinja_int(int64_t whole)
{
    return (choir__jinja_value){CHOIR__JINJA_INT, {.whole = whole}};
}
static inline choir__jinja_value choir__jinja_real(double real)
{
    return (choir__jinja_value){CHOIR__JINJA_REAL, {.real = real}};
}
static inline choir__jinja_value choir__jinja_none(void)
{
    return (choir__jinja_value){CHOIR__JINJA_NONE, {0}};
}
choir__jinja_value choir__jinja_undefined(choir__jinja_run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Copies the bytes; choir__jinja_borrow refers to them, so they must live as long as the run.
 */
choir__jinja_value choir__jinja_text_of(choir__jinja_run *r, const char *data, size_t bytes);
choir__jinja_value choir__jinja_borrow(choir__jinja_run *r, const char *data, size_t bytes);
choir__jinja_value choir__jinja_taken(choir__jinja_run *r, const choir__jinja_out *out);
choir__jinja_value choir__jinja_list_of(choir__jinja_run *r, choir__jinja_kind kind);
void choir__jinja_append(
    choir__jinja_run *r, choir__jinja_list *list, choir__jinja_value value);
choir__jinja_value choir__jinja_pair(
    choir__jinja_run *r, choir__jinja_value first, choir__jinja_value second);
choir__jinja_value choir__jinja_dict_of(choir__jinja_run *r);
/* choir__jinja_safe returns v as Markup; choir__jinja_escape escapes it first. */
choir__jinja_value choir__jinja_safe(choir__jinja_run *r, choir__jinja_value v);
choir__jinja_value choir__jinja_escape(choir__jinja_run *r, choir__jinja_value v);
choir__jinja_value choir__jinja_from_json(choir__jinja_run *r, const choir__json *json);

/* --- dicts: dict.c --- */

/* Returns the hash of a key, which a text keeps. Fails if the value can be no key. */
uint64_t choir__jinja_hash(choir__jinja_run *r, choir__jinja_value key);

void choir__jinja_dict_set(choir__jinja_run *r, choir__jinja_dict *dict, choir__jinja_value key,
    choir__jinja_value value);
/* Returns the value, or NULL. */
choir__jinja_value *choir__jinja_dict_get(
    choir__jinja_run *r, const choir__jinja_dict *dict, choir__jinja_value key);
choir__jinja_value *choir__jinja_dict_named(
    choir__jinja_run *r, const choir__jinja_dict *dict, const char *name);

/* --- questions: kinds.c, dict.c (equality), compare.c --- */

bool choir__jinja_is_text(choir__jinja_value v, const char *text);
bool choir__jinja_truth(choir__jinja_value v);
bool choir__jinja_is_number(choir__jinja_value v);   /* BOOL too, as in Python */
bool choir__jinja_is_sequence(choir__jinja_value v); /* LIST to STREAM */
bool choir__jinja_equal(choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b);
/* Returns <0, 0 or >0; fails if the values have no order. sign: "<" or alike, for the message.
 */
int choir__jinja_compare(
    choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b, const char *sign);
/* Returns the places of the keys in rising order, or falling; equal ones keep their order. */
size_t *choir__jinja_order(
    choir__jinja_run *r, const choir__jinja_value *key, size_t count, bool falls);
bool choir__jinja_contains(choir__jinja_run *r, choir__jinja_value in, choir__jinja_value v);
double choir__jinja_number(choir__jinja_value v);
/* Returns the name of Python's type. */
const char *choir__jinja_type(choir__jinja_value v);
/* Returns the items over which a loop goes, or fails. */
choir__jinja_list *choir__jinja_items(choir__jinja_run *r, choir__jinja_value v);
int64_t choir__jinja_length(choir__jinja_run *r, choir__jinja_value v);

/* --- texts of values: print.c, json_text.c --- */

/* str(v) and repr(v) of Python. */
void choir__jinja_print(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v);
void choir__jinja_repr(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v);
choir__jinja_text *choir__jinja_str(choir__jinja_run *r, choir__jinja_value v);
void choir__jinja_print_real(choir__jinja_run *r, choir__jinja_out *out, double real);

typedef struct choir__jinja_json_form {
    bool ascii, sorted;
    const char *indent; /* the margin per level; NULL: all on one line */
    choir__jinja_text *between, *colon;
} choir__jinja_json_form;

/* json.dumps of Python. */
void choir__jinja_json(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v,
    const choir__jinja_json_form *form);

#endif
