/* Expressions, parsed by descent: a function per level of the grammar. Words are compared with
 * choices that the parameter can have, so a misspelt one is an error. Evaluation has three
 * values: true, false, and unknown where a parameter is missing. */
#include "tune/space/space.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { LONGEST = 1000 }; /* characters, which bounds the depth of the tree, too */

typedef enum kind {
    NUMBER,
    WORD,
    PARAMETER,
    NEGATE,
    NOT,
    OR,
    AND,
    EQUAL,
    UNEQUAL,
    AT_MOST,
    AT_LEAST,
    LESS,
    GREATER,
    PLUS,
    MINUS,
    TIMES,
    OVER,
    MODULO
} kind;

struct choir__expr {
    kind kind;
    double number;
    char *word;
    int parameter;
    choir__expr *left, *right;
};

/* An operator of two operands; `word` in letters ends where a letter does. */
typedef struct sign {
    const char *text;
    kind kind;
} sign;

typedef struct parser {
    const char *text, *at;
    const choir__expr_names *names;
    choir_status status;
} parser;

static choir__expr *parse_or(parser *p);

/* --- the tree --- */

void choir__expr_free(choir__expr *e)
{
    if (!e)
        return;
    choir__expr_free(e->left);
    choir__expr_free(e->right);
    free(e->word);
    free(e);
}

static choir__expr *node(kind k, choir__expr *left, choir__expr *right)
{
    choir__expr *e = choir__calloc(1, sizeof *e);
    *e = (choir__expr){.kind = k, .left = left, .right = right};
    return e;
}

static void wrong(parser *p, const char *expected)
{
    if (p->status == CHOIR_OK)
        p->status = choir__error(CHOIR_ERR_ARGUMENT, "'%s': expected %s, got '%s'", p->text,
            expected, *p->at ? p->at : "the end");
}

/* --- tokens --- */

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

static void skip_blanks(parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

/* Takes the token if it comes next. */
static bool take(parser *p, const char *token)
{
    skip_blanks(p);
    size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0)
        return false;
    if (isalpha((unsigned char)*token) && is_name(p->at[n]))
        return false;
    p->at += n;
    return true;
}

/* Takes one of the operators; longer ones come first. */
static bool take_sign(parser *p, const sign *signs, size_t count, kind *k)
{
    for (size_t i = 0; i < count; i++)
        if (take(p, signs[i].text)) {
            *k = signs[i].kind;
            return true;
        }
    return false;
}

/* --- operands --- */

static choir__expr *quoted(parser *p)
{
    const char *end = strchr(p->at + 1, *p->at);
    choir__expr *e = node(WORD, NULL, NULL);
    if (!end) {
        wrong(p, "a closing quote");
        return e;
    }
    e->word = choir__format("%.*s", (int)(end - p->at - 1), p->at + 1);
    p->at = end + 1;
    return e;
}

/* A parameter's name, or any other word. A '-' belongs to the name only of a parameter, the
 * longest one that fits: with parameters a and a-b, "a-b-c" is a-b less c. */
static choir__expr *name(parser *p)
{
    size_t shortest = 0, n;
    while (is_name(p->at[shortest]))
        shortest++;
    for (n = shortest; is_name(p->at[n]) || p->at[n] == '-';)
        n++;
    choir__expr *e = node(PARAMETER, NULL, NULL);
    for (;; n--) {
        if (n > shortest && is_name(p->at[n]))
            continue; /* in the midst of a word */
        e->word = choir__format("%.*s", (int)n, p->at);
        e->parameter = p->names->find(p->names->of, e->word);
        if (e->parameter >= 0 || n == shortest)
            break;
        free(e->word);
    }
    p->at += n;
    if (e->parameter < 0)
        e->kind = WORD;
    return e;
}

/* A number, unless letters follow it: "8bit" is a word. */
static choir__expr *number_or_name(parser *p)
{
    char *end;
    double value = choir__number_read(p->at, &end);
    if (end == p->at || is_name(*end))
        return name(p);
    choir__expr *e = node(NUMBER, NULL, NULL);
    e->number = value;
    p->at = end;
    return e;
}

static choir__expr *operand(parser *p)
{
    skip_blanks(p);
    if (take(p, "(")) {
        choir__expr *e = parse_or(p);
        if (p->status == CHOIR_OK && !take(p, ")"))
            wrong(p, "')'");
        return e;
    }
    if (*p->at == '\'' || *p->at == '"')
        return quoted(p);
    if (isdigit((unsigned char)*p->at) || *p->at == '.')
        return number_or_name(p);
    if (is_name(*p->at))
        return name(p);
    wrong(p, "a number, a name or '('");
    return node(NUMBER, NULL, NULL);
}

/* --- operators --- */

/* Refuses a word where only numbers and truths have a meaning: it is a misspelt name. */
static choir__expr *no_word(parser *p, choir__expr *e)
{
    if (p->status == CHOIR_OK && e->kind == WORD)
        p->status = choir__error(
            CHOIR_ERR_ARGUMENT, "'%s': there is no parameter '%s' before it", p->text, e->word);
    return e;
}

static choir__expr *unary(parser *p)
{
    int minus = 0;
    while (take(p, "-"))
        minus++;
    choir__expr *e = operand(p);
    if (!minus)
        return e;
    no_word(p, e);
    return minus % 2 ? node(NEGATE, e, NULL) : e;
}

/* Operators of one rank, from left to right. */
static choir__expr *chain(
    parser *p, choir__expr *next(parser *), const sign *signs, size_t count)
{
    choir__expr *e = next(p);
    for (kind k; p->status == CHOIR_OK && take_sign(p, signs, count, &k);) {
        no_word(p, e);
        e = node(k, e, next(p));
        no_word(p, e->right);
    }
    return e;
}

static choir__expr *product(parser *p)
{
    static const sign signs[] = {{"*", TIMES}, {"/", OVER}, {"%", MODULO}};
    return chain(p, unary, signs, CHOIR_COUNT(signs));
}

static choir__expr *sum(parser *p)
{
    static const sign signs[] = {{"+", PLUS}, {"-", MINUS}};
    return chain(p, product, signs, CHOIR_COUNT(signs));
}

/* Refuses a word that the parameter beside it never is. */
static void check_word(parser *p, const choir__expr *parameter, choir__expr *word)
{
    if (p->status == CHOIR_OK && word->kind == WORD && parameter->kind != PARAMETER)
        no_word(p, word);
    else if (p->status == CHOIR_OK && word->kind == WORD &&
             !p->names->can_be(p->names->of, parameter->parameter, word->word))
        p->status = choir__error(CHOIR_ERR_ARGUMENT,
            "'%s': %s is never '%s', which is no parameter before it, either", p->text,
            parameter->word, word->word);
}

static choir__expr *compare(parser *p)
{
    static const sign signs[] = {{"==", EQUAL}, {"!=", UNEQUAL}, {"<=", AT_MOST},
        {">=", AT_LEAST}, {"<", LESS}, {">", GREATER}};
    choir__expr *e = sum(p);
    kind k;
    if (p->status != CHOIR_OK || !take_sign(p, signs, CHOIR_COUNT(signs), &k))
        return e;
    choir__expr *right = sum(p);
    check_word(p, right, e);
    check_word(p, e, right);
    const char *next = p->at;
    if (p->status == CHOIR_OK && take_sign(p, signs, CHOIR_COUNT(signs), &(kind){0})) {
        p->at = next;
        wrong(p, "'and' or 'or' between comparisons");
    }
    return node(k, e, right);
}

static choir__expr *negation(parser *p)
{
    skip_blanks(p);
    if (take(p, "not") || (p->at[0] == '!' && p->at[1] != '=' && take(p, "!")))
        return node(NOT, no_word(p, negation(p)), NULL);
    return compare(p);
}

static choir__expr *parse_and(parser *p)
{
    static const sign signs[] = {{"and", AND}, {"&&", AND}};
    return chain(p, negation, signs, CHOIR_COUNT(signs));
}

static choir__expr *parse_or(parser *p)
{
    static const sign signs[] = {{"or", OR}, {"||", OR}};
    return chain(p, parse_and, signs, CHOIR_COUNT(signs));
}

static bool names_a_parameter(const choir__expr *e)
{
    return e &&
           (e->kind == PARAMETER || names_a_parameter(e->left) || names_a_parameter(e->right));
}

choir_status choir__expr_parse(
    const char *text, const choir__expr_names *names, choir__expr **expr)
{
    if (strlen(text) > LONGEST)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected an expression of at most %d characters, got %zu", LONGEST, strlen(text));
    parser p = {.text = text, .at = text, .names = names};
    choir__expr *e = no_word(&p, parse_or(&p));
    skip_blanks(&p);
    if (*p.at)
        wrong(&p, "an operator");
    if (p.status == CHOIR_OK && !names_a_parameter(e))
        p.status = choir__error(
            CHOIR_ERR_ARGUMENT, "'%s' names no parameter: it is always the same", text);
    if (p.status == CHOIR_OK)
        *expr = e;
    else
        choir__expr_free(e);
    return p.status;
}

/* --- evaluation --- */

static choir__expr_value number(double x)
{
    return (choir__expr_value){.number = x};
}

/* Words differ from numbers, unless they are written like them. */
static bool equal(choir__expr_value a, choir__expr_value b)
{
    if (a.word && b.word)
        return !strcmp(a.word, b.word);
    if (!a.word && !b.word)
        return a.number == b.number;
    char *end;
    const char *word = a.word ? a.word : b.word;
    double value = choir__number_read(word, &end);
    return *word && !*end && value == (a.word ? b.number : a.number);
}

static double arithmetic(kind k, double a, double b)
{
    switch (k) {
    case AT_MOST: return a <= b;
    case AT_LEAST: return a >= b;
    case LESS: return a < b;
    case GREATER: return a > b;
    case PLUS: return a + b;
    case MINUS: return a - b;
    case TIMES: return a * b;
    case OVER: return a / b;
    default: return fmod(a, b);
    }
}

/* A word where a number is needed is not a number, which no comparison holds for. */
static double as_number(choir__expr_value v)
{
    return v.word ? (double)NAN : v.number;
}

static bool truth(choir__expr_value v)
{
    double x = as_number(v);
    return x < 0 || x > 0;
}

/* "or" and "and": one side may decide although the other one is missing. */
static choir__expr_value join(kind k, choir__expr_value a, choir__expr_value b)
{
    bool decides = k == OR;
    if ((!a.missing && truth(a) == decides) || (!b.missing && truth(b) == decides))
        return number(decides);
    return a.missing ? a : b.missing ? b : number(!decides);
}

static choir__expr_value evaluate(const choir__expr *e, const choir__expr_value *values)
{
    switch (e->kind) {
    case NUMBER: return number(e->number);
    case WORD: return (choir__expr_value){.word = e->word};
    case PARAMETER: return values[e->parameter];
    default: break;
    }
    choir__expr_value a = evaluate(e->left, values);
    if (e->kind == OR || e->kind == AND)
        return join(e->kind, a, evaluate(e->right, values));
    if (a.missing)
        return a;
    if (e->kind == NEGATE)
        return number(-as_number(a));
    if (e->kind == NOT)
        return number(!truth(a));
    choir__expr_value b = evaluate(e->right, values);
    if (b.missing)
        return b;
    if (e->kind == EQUAL || e->kind == UNEQUAL)
        return number(equal(a, b) == (e->kind == EQUAL));
    return number(arithmetic(e->kind, as_number(a), as_number(b)));
}

bool choir__expr_true(const choir__expr *expr, const choir__expr_value *values, bool if_missing)
{
    choir__expr_value v = evaluate(expr, values);
    return v.missing ? if_missing : truth(v);
}
