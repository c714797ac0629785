/* Products of tensors whose dimensions have letters, from left to right. Each product of two is
 * a batch of matrix products: letters of both that are still needed are its batch, letters of
 * both that are not are summed, and the others are rows and columns. The dimensions of "..."
 * have digits as letters, '0' the last. */
#include <stdio.h>
#include <string.h>

#include <choir/select.h>

#include "tensor/handle.h"
#include "tensor/op.h"

enum { LETTERS = CHOIR_MAX_DIMS + 2 }; /* "..." may stand for nothing; and the end */

/* A tensor and the letters of its dimensions. */
typedef struct term {
    choir_tensor *t;
    char letters[LETTERS];
} term;

static const choir__op einsum_op = {.name = "einsum", .any_dtype = true, .composed = true};

static bool has(const char *letters, char c)
{
    return strchr(letters, c) != NULL;
}

static void add_letter(char *letters, char c)
{
    size_t n = strlen(letters);
    letters[n] = c;
    letters[n + 1] = 0;
}

static void drop_letter(char *letters, int i)
{
    memmove(letters + i, letters + i + 1, strlen(letters + i));
}

/* Returns the size of a letter in a term, or 1 if the term lacks it. */
static int64_t size_of(const term *a, char letter)
{
    const char *at = strchr(a->letters, letter);
    return at ? a->t->shape.dim[at - a->letters] : 1;
}

/* --- the equation. Functions return NULL, or the reason why they cannot read it. --- */

/* Reads letters up to a comma, an arrow or the end; "..." becomes one '.'. */
static const char *read_letters(const char **equation, char *letters)
{
    const char *c = *equation;
    for (letters[0] = 0; *c && *c != ',' && *c != '-'; c++) {
        bool dots = c[0] == '.' && c[1] == '.' && c[2] == '.' && !has(letters, '.');
        if (*c == ' ')
            continue;
        if (!dots && !((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z')))
            return "expected letters, '...', commas and '->'";
        if (strlen(letters) == LETTERS - 1)
            return "expected fewer letters per operand";
        add_letter(letters, *c);
        c += dots ? 2 : 0;
    }
    *equation = c;
    return NULL;
}

/* Replaces '.' by `count` digits. */
static const char *expand_dots(char *letters, int count)
{
    char rest[LETTERS], *dots = strchr(letters, '.');
    if (!dots)
        return NULL;
    strcpy(rest, dots + 1);
    if (strlen(letters) - 1 + (size_t)count > CHOIR_MAX_DIMS)
        return "expected fewer dimensions";
    for (*dots = 0; count > 0; count--)
        add_letter(letters, (char)('0' + count - 1));
    strcat(letters, rest);
    return NULL;
}

static const char *read_term(const char **equation, term *a, int *dots)
{
    const char *why = read_letters(equation, a->letters);
    if (why)
        return why;
    bool some = has(a->letters, '.');
    int named = (int)strlen(a->letters) - some, rest = a->t->shape.ndim - named;
    if (rest < 0 || (rest > 0 && !some))
        return "expected a letter for each dimension of an operand";
    if (some && rest > *dots)
        *dots = rest;
    return expand_dots(a->letters, rest);
}

/* The result without an arrow: "...", then the letters that occur once, in order. */
static const char *implied_result(const term *terms, int count, char *result)
{
    strcpy(result, ".");
    for (char letter = 'A'; letter <= 'z'; letter++) {
        int seen = 0;
        for (int i = 0; i < count; i++)
            for (const char *c = terms[i].letters; *c; c++)
                seen += *c == letter;
        if (seen == 1 && strlen(result) == LETTERS - 1)
            return "expected fewer dimensions of the result";
        if (seen == 1)
            add_letter(result, letter);
    }
    return NULL;
}

static const char *read_result(const char *equation, const term *terms, int count, char *result)
{
    const char *why = read_letters(&equation, result);
    if (why || *equation)
        return why ? why : "expected one result";
    for (const char *c = result; *c; c++) {
        bool known = *c == '.';
        for (int i = 0; i < count; i++)
            known |= has(terms[i].letters, *c);
        if (!known || has(c + 1, *c))
            return "expected letters of the operands in the result, each once";
    }
    return NULL;
}

static const char *read_equation(const char *equation, term *terms, int count, char *result)
{
    const char *why = NULL;
    int dots = 0; /* the most dimensions of a "..." */
    for (int i = 0; i < count && !why; i++) {
        why = read_term(&equation, &terms[i], &dots);
        if (!why && (*equation == ',') != (i + 1 < count))
            return "expected one list of letters for each operand";
        equation += !why && *equation == ',';
    }
    if (why)
        return why;
    if (equation[0] && equation[1] != '>')
        return "expected letters, '...', commas and '->'";
    why = *equation ? read_result(equation + 2, terms, count, result)
                    : implied_result(terms, count, result);
    if (!why)
        why = expand_dots(result, dots);
    return why || strlen(result) <= CHOIR_MAX_DIMS ? why
                                                   : "expected fewer dimensions of the result";
}

/* --- one operand --- */

/* Returns t, whose dimensions have a's letters, with the dimensions as in `letters`. */
static choir_tensor *ordered(const term *a, const char *letters)
{
    choir_shape order = {.ndim = (int)strlen(letters)};
    bool same = true;
    for (int i = 0; i < order.ndim; i++) {
        order.dim[i] = strchr(a->letters, letters[i]) - a->letters;
        same = same && order.dim[i] == i;
    }
    return same || a->t->poisoned ? a->t : choir_permute(a->t, order);
}

static choir_tensor *shaped(choir_tensor *t, choir_shape shape)
{
    return t->poisoned || choir__same_shape(t->shape, shape) ? t : choir_reshape(t, shape);
}

/* Takes the diagonal of dimensions i < j, which have one letter, as the last dimension: with n
 * entries added to their n x n, n + 1 entries lie from one of the diagonal to the next. */
static void take_diagonal(term *a, int i, int j)
{
    char letter = a->letters[i];
    choir_shape order = {.ndim = a->t->shape.ndim}, shape;
    int at = 0, last = order.ndim - 1;
    for (int d = 0; d < order.ndim; d++)
        if (d != i && d != j)
            order.dim[at++] = d;
    order.dim[at++] = i, order.dim[at] = j;
    choir_tensor *t = choir_permute(a->t, order);
    shape = t->shape;
    int64_t n = shape.dim[last];
    shape.ndim = last;
    shape.dim[last - 1] = n * n;
    t = choir_pad(choir_reshape(t, shape), (int64_t[]){0, n}, 2, 0);
    shape.ndim = last + 1;
    shape.dim[last - 1] = n, shape.dim[last] = n + 1;
    t = choir_narrow(choir_reshape(t, shape), last, 0, 1);
    shape.ndim = last;
    a->t = choir_reshape(t, shape);
    drop_letter(a->letters, j);
    drop_letter(a->letters, i);
    add_letter(a->letters, letter);
}

static const char *take_diagonals(term *a)
{
    for (int i = 0; a->letters[i] && !a->t->poisoned; i++) {
        const char *twin = strchr(a->letters + i + 1, a->letters[i]);
        int j = twin ? (int)(twin - a->letters) : 0;
        if (!twin)
            continue;
        if (a->t->shape.dim[i] != a->t->shape.dim[j])
            return "expected one size for each letter";
        take_diagonal(a, i, j);
        i = -1; /* the letters have moved */
    }
    return NULL;
}

/* Removes dimensions of size 1 whose letter has another size elsewhere: they broadcast. */
static const char *fit_sizes(term *terms, int count)
{
    for (int i = 0; i < count; i++)
        for (int d = (int)strlen(terms[i].letters) - 1; d >= 0; d--) {
            term *a = &terms[i];
            int64_t size = a->t->shape.dim[d], most = size;
            for (int j = 0; j < count; j++) {
                int64_t other = size_of(&terms[j], a->letters[d]);
                if (other != size && other != 1 && size != 1)
                    return "expected one size for each letter";
                most = other == 1 ? most : other;
            }
            if (most == size)
                continue;
            choir_shape shape = a->t->shape;
            memmove(&shape.dim[d], &shape.dim[d + 1],
                (size_t)(--shape.ndim - d) * sizeof shape.dim[0]);
            a->t = choir_reshape(a->t, shape);
            drop_letter(a->letters, d);
            if (a->t->poisoned)
                return NULL;
        }
    return NULL;
}

/* Sums over the letters that neither list has. */
static void sum_others(term *a, const char *first, const char *second)
{
    for (int i = (int)strlen(a->letters) - 1; i >= 0; i--)
        if (!has(first, a->letters[i]) && !has(second, a->letters[i])) {
            a->t = choir_sum_dim(a->t, i);
            drop_letter(a->letters, i);
        }
}

/* --- a product of two --- */

/* The letters of a product, by their role. */
typedef struct parts {
    char batch[LETTERS], left[LETTERS], right[LETTERS], inner[LETTERS]; /* inner: summed */
    char all[3 * LETTERS]; /* all letters of the product */
} parts;

static parts parts_of(const term *a, const term *b, const char *needed)
{
    parts p = {0};
    for (const char *c = a->letters; *c; c++)
        add_letter(!has(b->letters, *c) ? p.left : has(needed, *c) ? p.batch : p.inner, *c);
    for (const char *c = b->letters; *c; c++)
        if (!has(a->letters, *c))
            add_letter(p.right, *c);
    snprintf(p.all, sizeof p.all, "%s%s%s", p.batch, p.left, p.right);
    return p;
}

static int64_t count_of(const term *a, const char *letters)
{
    int64_t n = 1;
    for (; *letters; letters++)
        n *= size_of(a, *letters);
    return n;
}

/* Returns the sizes of the product's letters in a, 1 for those that a lacks. */
static choir_shape sizes_in(const term *a, const parts *p)
{
    choir_shape shape = {.ndim = (int)strlen(p->all)};
    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = size_of(a, p->all[i]);
    return shape;
}

static choir_tensor *product(const term *a, const term *b, const parts *p)
{
    char left[3 * LETTERS], right[3 * LETTERS];
    choir_shape shape = sizes_in(a, p), shape_b = sizes_in(b, p);
    snprintf(left, sizeof left, "%s%s%s", p->batch, p->left, p->inner);
    snprintf(right, sizeof right, "%s%s%s", p->batch, p->inner, p->right);
    choir_tensor *x = ordered(a, left), *y = ordered(b, right);
    if (!p->inner[0])
        return choir_mul(shaped(x, shape), shaped(y, shape_b));
    int64_t batch = count_of(a, p->batch), m = count_of(a, p->left);
    int64_t k = count_of(a, p->inner), n = count_of(b, p->right);
    bool one = !p->batch[0];
    x = shaped(x, one ? choir_dims(m, k) : choir_dims(batch, m, k));
    y = shaped(y, one ? choir_dims(k, n) : choir_dims(batch, k, n));
    for (int i = 0; i < shape.ndim; i++)
        if (has(p->right, p->all[i]))
            shape.dim[i] = shape_b.dim[i];
    return shaped(choir_matmul(x, y), shape);
}

/* Multiplies all terms into the first. */
static const char *multiply(term *terms, int count, const char *result)
{
    term *a = &terms[0];
    for (int i = 1; i < count && !a->t->poisoned; i++) {
        char needed[(CHOIR__MAX_IN + 1) * LETTERS] = ""; /* letters needed by the rest */
        term *b = &terms[i];
        strcat(needed, result);
        for (int j = i + 1; j < count; j++)
            strcat(needed, terms[j].letters);
        sum_others(a, b->letters, needed);
        sum_others(b, a->letters, needed);
        parts p = parts_of(a, b, needed);
        if (strlen(p.all) > CHOIR_MAX_DIMS)
            return "expected fewer dimensions of a product; another order may help";
        if (a->t->poisoned || b->t->poisoned)
            a->t = a->t->poisoned ? a->t : b->t;
        else
            a->t = product(a, b, &p);
        strcpy(a->letters, p.all);
    }
    sum_others(a, result, "");
    return NULL;
}

choir_tensor *choir_einsum(const char *equation, choir_tensor *const *operands, int count)
{
    term terms[CHOIR__MAX_IN];
    choir_tensor *in[CHOIR__MAX_IN], *poisoned;
    char result[LETTERS] = "";
    if (!operands)
        return choir__poison_missing(NULL, __func__, "operands");
    if (count > CHOIR__MAX_IN)
        return choir__poison(choir__sound(operands[0], __func__)->scope, CHOIR_ERR_ARGUMENT,
            "einsum: expected 1 to %d operands, got %d", CHOIR__MAX_IN, count);
    if (count > 0)
        memcpy(in, operands, (size_t)count * sizeof *in);
    choir_scope *scope = choir__begin(&einsum_op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    if (!equation)
        return choir__poison_missing(scope, __func__, "equation");
    for (int i = 0; i < count; i++)
        terms[i] = (term){.t = in[i]};
    const char *why = read_equation(equation, terms, count, result);
    for (int i = 0; i < count && !why; i++)
        why = take_diagonals(&terms[i]);
    if (!why)
        why = fit_sizes(terms, count);
    if (!why)
        why = multiply(terms, count, result);
    if (why)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT, "einsum '%s': %s", equation, why);
    return ordered(&terms[0], result);
}
