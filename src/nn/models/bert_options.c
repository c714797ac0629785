/* The options of BERT and its relatives: a text such as "roberta:layers=4,classes=2" becomes
 * sizes, and sizes become the description of the model's data. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/named.h"
#include "base/options.h"
#include "nn/models/bert.h"

static const char *const problems[] = {[CHOIR__ONE_CLASS] = "one",
    [CHOIR__NUMBERS] = "regression",
    [CHOIR__SEVERAL_CLASSES] = "multi_label"};

static choir_status find_problem(
    const choir__bert_family *f, const char *word, choir__bert_problem *problem)
{
    for (size_t i = 0; i < CHOIR_COUNT(problems); i++)
        if (!strcmp(word, problems[i])) {
            *problem = (choir__bert_problem)i;
            return CHOIR_OK;
        }
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s: unknown problem '%s': choose one of one, regression, multi_label", f->name,
        word);
}

static choir_status check(const choir__bert_sizes *n)
{
    const char *name = n->family->name;
    if (n->width % n->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: heads=%lld does not divide width=%lld", name, (long long)n->heads,
            (long long)n->width);
    if (n->words && !n->classes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: words=1 gives each word one of the classes: name classes=N, too", name);
    if (n->problem && (n->words || !n->classes))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: problem=%s is for whole texts, with classes=N %s: expected %s", name,
            problems[n->problem], n->problem == CHOIR__NUMBERS ? "numbers" : "classes",
            n->words ? "no words=1" : "classes=N");
    if (n->length > n->context)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: length=%lld: expected at most the %lld positions of context", name,
            (long long)n->length, (long long)n->context);
    if (n->family->after_pad && n->pad < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: expected pad=ID, the token of padding, from which positions are counted",
            name);
    return CHOIR_OK;
}

static choir_status parse(const choir__bert_family *f, const char *text, choir__bert_sizes *n)
{
    char what[64], problem[64] = "one";
    *n = (choir__bert_sizes){.family = f,
        .layers = 12,
        .heads = 12,
        .width = 768,
        .context = 128,
        .types = f->types_here,
        .head_dropout = -1,
        .eps = f->eps,
        .pad = f->pad};
    choir__option known[16] = {{"layers", CHOIR__INT, &n->layers, 1, CHOIR__BERT_LAYERS},
        {"heads", CHOIR__INT, &n->heads, 1, 1024}, {"width", CHOIR__INT, &n->width, 1, 1 << 20},
        {"hidden", CHOIR__INT, &n->hidden, 1, 1 << 22},
        {"context", CHOIR__INT, &n->context, 1, 1 << 20},
        {"vocab", CHOIR__INT, &n->vocab, 1, 1 << 24},
        {"classes", CHOIR__INT, &n->classes, 0, 1 << 24},
        {"dropout", CHOIR__FLOAT, &n->dropout, 0, 0.99},
        {"head_dropout", CHOIR__FLOAT, &n->head_dropout, 0, 0.99},
        {"pad", CHOIR__INT, &n->pad, 0, 1 << 24}, {"words", CHOIR__FLAG, &n->words, 0, 0},
        {"length", CHOIR__INT, &n->length, 0, 1 << 20}, {"problem", CHOIR__WORD, problem, 0, 0},
        {NULL}};
    int count = 13;
    if (f->types)
        known[count++] = (choir__option){"types", CHOIR__INT, &n->types, 1, 1 << 20};
    if (!f->eps_fixed)
        known[count++] = (choir__option){"eps", CHOIR__FLOAT, &n->eps, 0, 0.1};
    snprintf(what, sizeof what, "model %s", f->name);
    choir_status status = choir__options_parse(text, what, known);
    if (!n->hidden)
        n->hidden = 4 * n->width;
    if (status == CHOIR_OK)
        status = find_problem(f, problem, &n->problem);
    return status == CHOIR_OK ? check(n) : status;
}

/* --- the text --- */

typedef struct writer {
    char *text;
    size_t room;
} writer;

static void put(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int used = vsnprintf(w->text, w->room, format, args);
    va_end(args);
    size_t moved = used < 0 ? 0 : (size_t)choir__min(used, (int64_t)w->room - 1);
    w->text += moved;
    w->room -= moved;
}

/* Writes all sizes as the model's text. */
static void write_text(const choir__bert_sizes *n, char *text, size_t room)
{
    writer w = {text, room};
    put(&w, "%s:layers=%lld,heads=%lld,width=%lld,hidden=%lld,context=%lld,vocab=%lld",
        n->family->name, (long long)n->layers, (long long)n->heads, (long long)n->width,
        (long long)n->hidden, (long long)n->context, (long long)n->vocab);
    if (n->family->types)
        put(&w, ",types=%lld", (long long)n->types);
    put(&w, ",classes=%lld,dropout=%g", (long long)n->classes, n->dropout);
    if (!n->family->eps_fixed)
        put(&w, ",eps=%g", n->eps);
    if (n->head_dropout >= 0)
        put(&w, ",head_dropout=%g", n->head_dropout);
    if (n->pad >= 0)
        put(&w, ",pad=%lld", (long long)n->pad);
    if (n->words)
        put(&w, ",words=1");
    if (n->length)
        put(&w, ",length=%lld", (long long)n->length);
    if (n->problem)
        put(&w, ",problem=%s", problems[n->problem]);
}

/* --- describe and build --- */

static void describe_data(const choir__bert_sizes *n, choir_model_info *info)
{
    static const choir_task tasks[] = {[CHOIR__ONE_CLASS] = CHOIR_CLASSIFICATION,
        [CHOIR__NUMBERS] = CHOIR_REGRESSION,
        [CHOIR__SEVERAL_CLASSES] = CHOIR_MULTI_LABEL};
    int64_t length = n->length ? n->length : n->context;
    info->classes = n->classes ? n->classes : n->vocab;
    info->vocab = n->vocab;
    info->masked = !n->classes;
    info->task = n->classes ? tasks[n->problem] : CHOIR_LANGUAGE;
    info->input = choir_dims(length);
    info->output = n->problem ? choir_dims(n->classes)
                   : n->words ? choir_dims(length)
                              : CHOIR_SCALAR;
    info->padded = n->words;
    info->items = n->classes ? 1 : length;
}

choir_status choir__bert_describe(
    const choir__bert_family *f, const char *text, choir_model_info *info)
{
    choir__bert_sizes n;
    choir_status status = parse(f, text, &n);
    if (status != CHOIR_OK)
        return status;
    int64_t tokens = n.classes ? info->vocab : info->classes;
    status = choir__model_vocab(f->name, n.vocab, tokens);
    if (status != CHOIR_OK)
        return status;
    if (!n.vocab)
        n.vocab = tokens ? tokens : 30522;
    if (n.pad >= n.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: pad=%lld is no token of a vocabulary of %lld", f->name, (long long)n.pad,
            (long long)n.vocab);
    describe_data(&n, info);
    write_text(&n, info->config, sizeof info->config);
    return CHOIR_OK;
}

choir_module *choir__bert_build(const choir__bert_family *f, const char *text, choir_scope *run,
    const choir_model_info *info)
{
    choir__bert_sizes n;
    if (parse(f, text, &n) != CHOIR_OK)
        return NULL;
    if (!n.vocab)
        n.vocab = info->vocab;
    if (n.head_dropout < 0)
        n.head_dropout = n.dropout;
    return choir__bert_new(run, &n);
}
