/* A parsed template: tokens and the tree that they form. */
#ifndef CHOIR_DATA_JINJA_TREE_H
#define CHOIR_DATA_JINJA_TREE_H

#include "data/jinja/value.h"

/* --- tokens: tokens.c --- */

typedef enum choir__jinja_token_kind {
    CHOIR__JINJA_END, /* the template's end */
    CHOIR__JINJA_DATA,
    CHOIR__JINJA_OPENS_TAG,
    CHOIR__JINJA_CLOSES_TAG,
    CHOIR__JINJA_OPENS_PRINT,
    CHOIR__JINJA_CLOSES_PRINT,
    CHOIR__JINJA_NAME,
    CHOIR__JINJA_CONST, /* a text or a number */
    CHOIR__JINJA_SIGN   /* an operator or bracket of one or two characters */
} choir__jinja_token_kind;

typedef struct choir__jinja_token {
    choir__jinja_token_kind kind;
    int line;
    char sign[3];
    choir__jinja_value value; /* DATA, NAME, CONST */
} choir__jinja_token;

/* Cuts a template, whose line ends become \n, into tokens; the last one is END. */
choir__jinja_token *choir__jinja_tokens(choir__jinja_run *r, const char *text, size_t bytes);

/* --- the tree: parse.c, parse_expression.c --- */

typedef enum choir__jinja_node_kind {
    /* Expressions. Members that are not named here are unused. */
    CHOIR__JINJA_E_CONST,   /* value */
    CHOIR__JINJA_E_NAME,    /* value: the name */
    CHOIR__JINJA_E_LIST,    /* a: the first part; part->a: an item */
    CHOIR__JINJA_E_TUPLE,   /* a: the first part; part->a: an item */
    CHOIR__JINJA_E_DICT,    /* a: the first part; part->a: a key, part->b: its value */
    CHOIR__JINJA_E_ATTR,    /* a.value */
    CHOIR__JINJA_E_ITEM,    /* a[b] */
    CHOIR__JINJA_E_SLICE,   /* a:b:c; each may be NULL */
    CHOIR__JINJA_E_CALL,    /* a(b), b: the first argument */
    CHOIR__JINJA_E_FILTER,  /* a|value(b); a: NULL in the filter of a block */
    CHOIR__JINJA_E_TEST,    /* a is value(b) */
    CHOIR__JINJA_E_AND,     /* a, b */
    CHOIR__JINJA_E_OR,      /* a, b */
    CHOIR__JINJA_E_NOT,     /* a */
    CHOIR__JINJA_E_MINUS,   /* a */
    CHOIR__JINJA_E_PLUS,    /* a */
    CHOIR__JINJA_E_BINARY,  /* a sign b */
    CHOIR__JINJA_E_CONCAT,  /* a: the first part; part->a: an operand */
    CHOIR__JINJA_E_COMPARE, /* a, b: the first operand; operand->a with operand->sign */
    CHOIR__JINJA_E_IF,      /* a if b else c; c may be NULL */
    CHOIR__JINJA_E_FIELD,   /* value.name, as the target of a set */
    /* Parts of lists and arguments of calls: a, and the name of a keyword in value */
    CHOIR__JINJA_E_ARGUMENT,
    CHOIR__JINJA_E_KEYWORD,
    CHOIR__JINJA_E_STAR,
    CHOIR__JINJA_E_STARS,
    CHOIR__JINJA_E_OPERAND,
    CHOIR__JINJA_E_PARAMETER, /* value: the name, a: the default or NULL */

    /* Statements. */
    CHOIR__JINJA_S_DATA,       /* value */
    CHOIR__JINJA_S_PRINT,      /* a */
    CHOIR__JINJA_S_SET,        /* a = b */
    CHOIR__JINJA_S_SET_BLOCK,  /* a = b, filtered by c */
    CHOIR__JINJA_S_FOR,        /* for a in b if c: d, else e */
    CHOIR__JINJA_S_IF,         /* a: the first branch */
    CHOIR__JINJA_S_BRANCH,     /* if a: b; a is NULL in an else */
    CHOIR__JINJA_S_MACRO,      /* value(a): b */
    CHOIR__JINJA_S_CALL,       /* a: the call, b: the parameters, c: the body */
    CHOIR__JINJA_S_FILTER,     /* b, filtered by c */
    CHOIR__JINJA_S_WITH,       /* a: the first target, target->a: its value; b: the body */
    CHOIR__JINJA_S_GENERATION, /* b */
    CHOIR__JINJA_S_BREAK,
    CHOIR__JINJA_S_CONTINUE
} choir__jinja_node_kind;

typedef struct choir__jinja_node choir__jinja_node;
struct choir__jinja_node {
    choir__jinja_node_kind kind;
    int line;
    char sign[3];
    bool recursive; /* FOR */
    choir__jinja_value value, name;
    choir__jinja_node *a, *b, *c, *d, *e;
    choir__jinja_node *next; /* the next one of a list */
};

/* Tokens that are read. */
typedef struct choir__jinja_reader {
    choir__jinja_run *r;
    choir__jinja_token *at;
    bool generates;     /* there is a {% generation %} */
    bool any_arguments; /* there is a variable varargs or kwargs */
    int loops;          /* loops around the place */
} choir__jinja_reader;

choir__jinja_node *choir__jinja_node_new(choir__jinja_reader *p, choir__jinja_node_kind kind,
    choir__jinja_node *a, choir__jinja_node *b);
bool choir__jinja_sees(const choir__jinja_reader *p, const char *sign);
bool choir__jinja_sees_name(const choir__jinja_reader *p, const char *name);
/* Steps over the sign or name, if it is there. */
bool choir__jinja_skip(choir__jinja_reader *p, const char *sign);
bool choir__jinja_skip_name(choir__jinja_reader *p, const char *name);
void choir__jinja_expect(choir__jinja_reader *p, const char *sign);
choir__jinja_value choir__jinja_expect_name(choir__jinja_reader *p);
/* Fails: "expected WHAT, got ...". */
void choir__jinja_unexpected(choir__jinja_reader *p, const char *what)
    __attribute__((noreturn));

choir__jinja_node *choir__jinja_expression(choir__jinja_reader *p, bool with_if);
/* An expression or, if commas follow, a tuple. */
choir__jinja_node *choir__jinja_tuple(choir__jinja_reader *p, bool with_if);
/* `|name(...)` and so on, from the name on if `inside`. Returns `of` itself if no filter
 * follows. */
choir__jinja_node *choir__jinja_filters(
    choir__jinja_reader *p, choir__jinja_node *of, bool inside);

/* Parses a template to its first statement; NULL: it is empty. */
choir__jinja_node *choir__jinja_parse(choir__jinja_reader *p);

#endif
