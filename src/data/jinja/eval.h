/* A render at work: expressions, statements, and the functions that templates call. */
#ifndef CHOIR_DATA_JINJA_EVAL_H
#define CHOIR_DATA_JINJA_EVAL_H

#include "data/jinja/text.h"
#include "data/jinja/tree.h"

/* Names of a body: the template, a turn of a loop, a macro. The branches of an if have none of
 * their own. */
typedef struct choir__jinja_scope choir__jinja_scope;
struct choir__jinja_scope {
    choir__jinja_dict names;
    choir__jinja_scope *outer;
};

/* Arguments of a call, or, once they are bound, one for each parameter. */
typedef struct choir__jinja_arguments {
    choir__jinja_value self; /* the value before a filter, a test or a method's dot */
    choir__jinja_value *item;
    size_t count, room;
    choir__jinja_dict named;
} choir__jinja_arguments;

typedef struct choir__jinja_state choir__jinja_state;
typedef choir__jinja_value choir__jinja_fn(
    choir__jinja_state *s, const choir__jinja_arguments *a);

typedef struct choir__jinja_builtin {
    const char *name;
    const char *parameters; /* for example "old new count?"; "...": any */
    choir__jinja_fn *fn;
} choir__jinja_builtin;

enum { CHOIR__JINJA_FILTER_FAMILIES = 3 };

/* The builtins that templates may use. */
typedef struct choir__jinja_known {
    const choir__jinja_builtin *filters[CHOIR__JINJA_FILTER_FAMILIES], *tests, *functions;
    const choir__jinja_builtin
        *methods[CHOIR__JINJA_JOINER + 1]; /* one family per kind of value */
} choir__jinja_known;

typedef enum choir__jinja_jump {
    CHOIR__JINJA_GOES_ON,
    CHOIR__JINJA_BREAKS,
    CHOIR__JINJA_CONTINUES
} choir__jinja_jump;

/* The bytes [from, to) of the output are a part that {% generation %} marks. */
typedef struct choir__jinja_span {
    size_t from, to;
} choir__jinja_span;

/* Expressions and statements, for calls: a table, since both need calls themselves. */
typedef struct choir__jinja_engine {
    choir__jinja_value (*eval)(choir__jinja_state *s, const choir__jinja_node *node);
    /* Executes statements in a scope of their own; returns their text. */
    choir__jinja_value (*capture)(
        choir__jinja_state *s, const choir__jinja_node *first, choir__jinja_scope *scope);
    /* Calls a recursive loop by the name `loop`. */
    choir__jinja_value (*loop_again)(
        choir__jinja_state *s, struct choir__jinja_loop *loop, choir__jinja_value over);
} choir__jinja_engine;

struct choir__jinja_state {
    choir__jinja_run *r;
    const choir__jinja_known *known;
    const choir__jinja_engine *engine;
    choir__jinja_scope *scope;
    choir__jinja_out *out, main; /* out: the text at work, such as a macro's */
    choir__jinja_jump jump;
    choir__jinja_span *span; /* (spans) */
    size_t spans, span_room;
    bool lost_span;     /* a {% generation %} stood in a text that was not the output */
    bool any_arguments; /* the template has varargs or kwargs */
    int64_t now;        /* seconds since 1970, UTC, of strftime_now */
};

struct choir__jinja_macro {
    choir__jinja_value name;
    const choir__jinja_node *parameters, *body;
    choir__jinja_scope *scope; /* scope that defines the macro */
};

struct choir__jinja_loop {
    choir__jinja_list *list;
    size_t index;
    int depth;
    const choir__jinja_node *recursive; /* the loop itself, or NULL */
    choir__jinja_scope *scope;          /* scope around the loop */
    choir__jinja_value seen;            /* the arguments of the last changed() */
};

struct choir__jinja_bound {
    choir__jinja_value self;
    const choir__jinja_builtin *of;
};

/* --- eval.c, arithmetic.c, attribute.c --- */

choir__jinja_value choir__jinja_eval(choir__jinja_state *s, const choir__jinja_node *node);
choir__jinja_value choir__jinja_binary(
    choir__jinja_run *r, const char *sign, choir__jinja_value a, choir__jinja_value b);
/* v.name, and v[key]. */
choir__jinja_value choir__jinja_attribute(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value name);
choir__jinja_value choir__jinja_item(
    choir__jinja_state *s, choir__jinja_value v, choir__jinja_value key);
/* v[from:to:step]; parts may be ABSENT. */
choir__jinja_value choir__jinja_slice(choir__jinja_state *s, choir__jinja_value v,
    choir__jinja_value from, choir__jinja_value to, choir__jinja_value step);

/* --- call.c --- */

choir__jinja_arguments choir__jinja_arguments_of(
    choir__jinja_state *s, choir__jinja_value self, const choir__jinja_node *first);
choir__jinja_value choir__jinja_call(
    choir__jinja_state *s, choir__jinja_value f, choir__jinja_arguments *a);
/* Applies a filter or a test by its name. */
choir__jinja_value choir__jinja_filter(
    choir__jinja_state *s, choir__jinja_value name, choir__jinja_arguments *a);
bool choir__jinja_test(
    choir__jinja_state *s, choir__jinja_value name, choir__jinja_arguments *a);
/* Applies the filters of a block to its text. */
choir__jinja_value choir__jinja_filter_block(
    choir__jinja_state *s, const choir__jinja_node *filters, choir__jinja_value text);

/* --- scope.c --- */

choir__jinja_scope *choir__jinja_scope_new(choir__jinja_state *s, choir__jinja_scope *outer);
void choir__jinja_set(
    choir__jinja_state *s, choir__jinja_scope *scope, const char *name, choir__jinja_value v);
/* Returns the place of a variable, or NULL. */
choir__jinja_value *choir__jinja_find_name(choir__jinja_state *s, choir__jinja_value name);

/* --- execute.c --- */

extern const choir__jinja_engine choir__jinja_engine_of_trees;

void choir__jinja_execute(choir__jinja_state *s, const choir__jinja_node *first);

/* --- lookup.c: builtins by name, or NULL --- */

const choir__jinja_builtin *choir__jinja_find_filter(
    const choir__jinja_state *s, choir__jinja_value name);
const choir__jinja_builtin *choir__jinja_find_test(
    const choir__jinja_state *s, choir__jinja_value name);
const choir__jinja_builtin *choir__jinja_find_function(
    const choir__jinja_state *s, choir__jinja_value name);
const choir__jinja_builtin *choir__jinja_find_method(
    const choir__jinja_state *s, choir__jinja_kind kind, choir__jinja_value name);

/* The families, each ended by a row without a name. */
extern const choir__jinja_builtin choir__jinja_filters_of_texts[],
    choir__jinja_filters_of_lists[], choir__jinja_filters_of_values[], choir__jinja_tests[],
    choir__jinja_functions[], choir__jinja_methods_of_texts[], choir__jinja_methods_of_dicts[],
    choir__jinja_methods_of_lists[], choir__jinja_methods_of_loops[],
    choir__jinja_methods_of_cyclers[];
extern const choir__jinja_known choir__jinja_builtins; /* builtins.c: all of them */

/* --- kinds.c: arguments as builtins take them --- */

choir__jinja_text *choir__jinja_as_text(choir__jinja_run *r, choir__jinja_value v);
int64_t choir__jinja_as_int(choir__jinja_run *r, choir__jinja_value v, int64_t otherwise);

/* --- format.c --- */

/* format % v, and format.format(...). */
choir__jinja_value choir__jinja_percent(
    choir__jinja_run *r, choir__jinja_text *format, choir__jinja_value v);
choir__jinja_value choir__jinja_braces(
    choir__jinja_state *s, choir__jinja_text *format, const choir__jinja_arguments *a);
/* strftime of the C locale. */
choir__jinja_value choir__jinja_time(
    choir__jinja_run *r, choir__jinja_text *format, int64_t now);

#endif
