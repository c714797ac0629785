/* Turns rules into a plan: the parameters to distribute, along which dimension, in which units.
 * A linear layer's weight is (out, in) or, as in GPT-2, (in, out); its columns are its outputs
 * in both cases. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "nn/linear.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/held.h"

static const char *style_name(choir_tp_style style)
{
    static const char *const names[] = {"columns", "rows", "heads", "vocabulary"};
    return names[style];
}

/* Returns true if text matches pattern, in which a star stands for any text. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* --- entries --- */

static bool is_planned(const choir__tp_plan *plan, const choir__param *p)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->entries[i].param == p)
            return true;
    return false;
}

/* Returns the error that says which numbers of slices divide the units. p: the parameter that
 * consists of them, or NULL. */
static choir_status indivisible(const choir__tp_plan *plan, const char *path, int64_t units,
    const char *what, const choir__param *p)
{
    char *possible = choir__divisors(units, plan->ranks);
    char *advice = *possible ? choir__format("choose %s slices", possible)
                             : choir__format("choose a number of ranks that divides them");
    char *of = p ? choir__format(" (parameter '%s' %s)", p->name, choir__shape_text(p->whole))
                 : choir__strdup("");
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "tensor_parallel: '%s': %lld %s cannot be divided among %lld slices%s: %s", path,
        (long long)units, what, (long long)plan->slices, of, advice);
    free(of);
    free(advice);
    free(possible);
    return status;
}

/* Rows that are held in blocks are cut between blocks, and between words. */
static choir_status check_blocks(const choir__tp_plan *plan, const choir__tp_entry *e)
{
    const struct choir__held *held = e->param->tensor->held;
    if (!held || e->dim == 0)
        return CHOIR_OK;
    const choir__quant_type *type = &choir__quant_types[held->type];
    int64_t pieces = e->packed * (e->shared ? e->units : plan->slices);
    int64_t size = held->cols / pieces, bytes = size / type->values * type->bytes;
    if (held->cols % pieces == 0 && size % type->values == 0 && bytes % 4 == 0)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "tensor_parallel: '%s': %lld slices of a row of '%s', %lld values, are not whole blocks "
        "of %s, %lld values each: take fewer slices, or hold the weights in another type",
        e->path, (long long)plan->slices, e->param->name, (long long)held->cols, type->name,
        (long long)type->values);
}

/* The number of slices must divide the units. A vocabulary only needs at least one unit per
 * slice, and slices may share key and value heads. */
static choir_status check_units(const choir__tp_plan *plan, const choir__tp_entry *e)
{
    int64_t size = choir__param_values(e->param).dim[e->dim];
    const char *sides = e->dim ? "second" : "first";
    if (*e->widths) /* plan_heads has divided their heads */
        return CHOIR_OK;
    if (size % (e->packed * e->units))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: '%s': the %s dimension of '%s' %s is not %d times %lld units",
            e->path, sides, e->param->name, choir__shape_text(choir__param_values(e->param)),
            e->packed, (long long)e->units);
    if (e->shared && plan->slices % e->units == 0)
        return CHOIR_OK;
    /* norms take rows of a second dimension slice by slice, so these must be equal */
    if (e->style == CHOIR_TP_VOCAB && !e->dim ? e->units >= plan->slices
                                              : e->units % plan->slices == 0)
        return CHOIR_OK;
    return indivisible(plan, e->path, e->units,
        e->units != size / e->packed ? "heads" : style_name(e->style), e->param);
}

static choir_status add_entry(choir__tp_plan *plan, choir__tp_entry e)
{
    if (is_planned(plan, e.param))
        return CHOIR_OK;
    choir_status status = check_units(plan, &e);
    if (status == CHOIR_OK)
        status = check_blocks(plan, &e);
    if (status != CHOIR_OK)
        return status;
    CHOIR__GROW(plan->entries, plan->count);
    plan->entries[plan->count++] = e;
    return CHOIR_OK;
}

/* --- linear layers and embeddings --- */

struct layer {
    const char *path;
    choir_tensor *weight, *bias;
    bool in_out;
};

/* How a layer is cut. */
typedef struct cutting {
    choir_tp_style style;
    int packed;
    int64_t heads; /* 0, or the heads that form the outputs (of a row layer: the inputs) */
    const int64_t *widths; /* NULL, or (packed) the outputs of matrices that are not equal */
} cutting;

static choir_status plan_linear(choir__tp_plan *plan, const struct layer *l, const cutting *c)
{
    bool by_rows = c->style == CHOIR_TP_ROW;
    choir__tp_entry e = {.param = l->weight->param,
        .path = l->path,
        .style = c->style,
        .dim = by_rows != l->in_out,
        .packed = c->packed > 0 && !by_rows ? c->packed : 1};
    int64_t size = choir__values_shape(l->weight).dim[e.dim] / e.packed;
    e.units = c->heads ? c->heads : size ? size : 1;
    if (c->heads && c->heads < plan->slices && c->style == CHOIR_TP_COLUMN)
        e.shared = plan->slices / c->heads;
    for (int i = 0; c->widths && i < e.packed; i++)
        e.widths[i] = c->widths[i];
    if (c->packed < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: '%s': %d matrices side by side", l->path, c->packed);
    choir_status status = add_entry(plan, e);
    if (status != CHOIR_OK || by_rows || !l->bias)
        return status;
    e.param = l->bias->param;
    e.dim = 0;
    return add_entry(plan, e);
}

/* Plans a linear layer's module. Of an adapter, A is cut as the layer's inputs are, and B as
 * its outputs. */
static choir_status plan_module(
    choir__tp_plan *plan, const char *path, choir_module *m, const cutting *c)
{
    bool in_out;
    const choir__linear *linear = choir__linear_of_module(m, &in_out);
    struct layer l = {path, linear->weight, linear->bias, in_out};
    choir_status status = plan_linear(plan, &l, c);
    if (status != CHOIR_OK || !linear->adapter.a)
        return status;
    l = (struct layer){
        path, c->style == CHOIR_TP_ROW ? linear->adapter.a : linear->adapter.b, NULL, false};
    return plan_linear(plan, &l, c);
}

static choir_status plan_heads(choir__tp_plan *plan, choir_module *m);

choir_status choir__tp_plan_layer(
    choir__tp_plan *plan, choir_module *m, const choir_tp_rule *rule)
{
    bool in_out;
    if (rule->style == CHOIR_TP_HEADS && m->inside->heads)
        return plan_heads(plan, m);
    if (choir__linear_of_module(m, &in_out) && rule->style != CHOIR_TP_HEADS)
        return plan_module(
            plan, m->path, m, &(cutting){.style = rule->style, .packed = rule->packed});
    if (choir__is_embedding(m) && rule->style == CHOIR_TP_VOCAB) {
        struct layer table = {.path = m->path, .weight = choir__embedding_table(m)};
        return plan_linear(plan, &table, &(cutting){.style = rule->style});
    }
    return choir__error(CHOIR_ERR_ARGUMENT,
        "tensor_parallel: the rule '%s' asks for %s of module '%s' (%s): columns and rows are of "
        "linear layers, heads of Choir's attention, a vocabulary of embeddings and linear layers",
        rule->path, style_name(rule->style), m->path, m->type->name);
}

/* --- attention --- */

static choir_module *inside(choir_module *m, const char *name)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD && !strcmp(e->name, name))
            return e->child;
    return NULL;
}

static choir_status plan_projection(
    choir__tp_plan *plan, choir_module *m, const char *name, const cutting *c)
{
    choir_module *layer = name ? inside(m, name) : NULL;
    bool in_out;
    if (!layer || !choir__linear_of_module(layer, &in_out))
        return CHOIR_OK;
    return plan_module(plan, m->path, layer, c);
}

/* The weight of a norm that all heads share: each slice has a copy. */
static choir_status plan_norm_of_heads(choir__tp_plan *plan, choir_module *m, const char *name)
{
    choir_module *norm = name ? inside(m, name) : NULL;
    for (choir__module_entry *e = norm ? norm->inside->entries : NULL; e; e = e->next)
        if (e->kind == CHOIR__PARAM)
            return add_entry(plan, (choir__tp_entry){.param = e->tensor->param,
                                       .path = m->path,
                                       .style = CHOIR_TP_COLUMN,
                                       .packed = 1,
                                       .units = 1,
                                       .shared = plan->slices});
    return CHOIR_OK;
}

static bool one_divides(int64_t a, int64_t b)
{
    return a % b == 0 || b % a == 0;
}

/* Fills in the outputs of queries, of keys and of values in the matrix for all of them. */
static void widths_of(
    choir_module *m, const choir__heads_of *h, int64_t widths[CHOIR__TP_PIECES])
{
    bool in_out;
    const choir__linear *all = choir__linear_of_module(inside(m, h->qkv), &in_out);
    const int64_t one = choir__linear_out(all, in_out) / (h->heads + 2 * h->kv_heads);
    widths[0] = one * h->heads;
    widths[1] = widths[2] = one * h->kv_heads;
}

static choir_status plan_heads(choir__tp_plan *plan, choir_module *m)
{
    const choir__heads_of *h = m->inside->heads;
    choir_status status = CHOIR_OK;
    if (h->heads % plan->slices)
        return indivisible(plan, m->path, h->heads, "heads", NULL);
    const bool few = h->qkv && h->heads != h->kv_heads;
    if (few && h->kv_heads % plan->slices) /* slices would share keys within the matrix */
        return indivisible(plan, m->path, h->kv_heads,
            "heads of keys and values, in one matrix with the queries,", NULL);
    if (!one_divides(h->kv_heads, plan->slices) || !one_divides(h->kv_heads, plan->ranks))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: '%s': %lld key and value heads cannot be divided among %lld slices "
            "on %d ranks: one number must divide the other",
            m->path, (long long)h->kv_heads, (long long)plan->slices, plan->ranks);
    int64_t widths[CHOIR__TP_PIECES] = {0};
    if (few)
        widths_of(m, h, widths);
    const struct {
        const char *name;
        cutting cut;
    } parts[] = {{h->qkv, {CHOIR_TP_COLUMN, 3, h->heads, few ? widths : NULL}},
        {h->q, {CHOIR_TP_COLUMN, 1, h->heads, NULL}},
        {h->k, {CHOIR_TP_COLUMN, 1, h->kv_heads, NULL}},
        {h->v, {CHOIR_TP_COLUMN, 1, h->kv_heads, NULL}},
        {h->out, {CHOIR_TP_ROW, 1, h->heads, NULL}}};
    for (size_t i = 0; i < CHOIR_COUNT(parts) && status == CHOIR_OK; i++)
        status = plan_projection(plan, m, parts[i].name, &parts[i].cut);
    if (status == CHOIR_OK)
        status = plan_norm_of_heads(plan, m, h->q_norm);
    return status == CHOIR_OK ? plan_norm_of_heads(plan, m, h->k_norm) : status;
}

/* --- rules --- */

/* Plans a parameter that its module passes to choir_linear or choir_embedding itself: (out,
 * in). */
static choir_status plan_param(choir__tp_plan *plan, choir__param *p, const choir_tp_rule *rule)
{
    struct layer l = {.path = p->name, .weight = p->tensor};
    int ndim = p->whole.ndim;
    if (ndim != 2 && !(ndim == 1 && rule->style != CHOIR_TP_ROW))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: the rule '%s' asks for %s of parameter '%s' %s: weights are of two "
            "dimensions, biases of one",
            rule->path, style_name(rule->style), p->name, choir__shape_text(p->whole));
    if (rule->style == CHOIR_TP_HEADS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: the rule '%s' asks for heads of parameter '%s': they are of Choir's "
            "attention modules",
            rule->path, p->name);
    return plan_linear(plan, &l, &(cutting){.style = rule->style, .packed = rule->packed});
}

static choir_status walk(
    choir__tp_plan *plan, choir_module *m, const choir_tp_rule *rule, int *found)
{
    choir_status status = CHOIR_OK;
    if (matches(rule->path, m->path) && (*m->path || m == plan->module)) {
        ++*found;
        return choir__tp_plan_layer(plan, m, rule);
    }
    for (choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK; e = e->next) {
        if (e->kind == CHOIR__CHILD)
            status = walk(plan, e->child, rule, found);
        if (e->kind == CHOIR__PARAM && matches(rule->path, e->tensor->param->name)) {
            ++*found;
            status = plan_param(plan, e->tensor->param, rule);
        }
    }
    return status;
}

choir_status choir__tp_plan_rules(
    choir__tp_plan *plan, const choir_tp_rule *rules, int count, bool optional)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        int found = 0;
        if (!rules[i].path || rules[i].style < CHOIR_TP_COLUMN ||
            rules[i].style > CHOIR_TP_VOCAB)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "tensor_parallel: rule %d: expected a path and a known style", i);
        status = walk(plan, plan->module, &rules[i], &found);
        if (status == CHOIR_OK && !found && !optional)
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "tensor_parallel: the rule '%s' matches no module and no parameter of the model",
                rules[i].path);
    }
    return status;
}
