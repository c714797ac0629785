/* A tokenizer.json's "normalizer" and "pre_tokenizer": each is a list of steps. The steps of
 * published models are supported. An unknown step is an error that names it, because leaving it
 * out would silently give other tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

enum { MOST_GROWTH = 4096 };

choir_status choir__json_flag(
    const char *name, const char *where, json_t *object, const char *key, bool *flag)
{
    json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return CHOIR_OK;
    if (!json_is_boolean(value))
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: %s.%s: expected true or false", name, where, key);
    *flag = json_is_true(value);
    return CHOIR_OK;
}

static choir_status unsupported(
    const char *name, const char *where, const char *key, const char *value, const char *known)
{
    return choir__error(CHOIR_ERR_FORMAT, "%s: %s.%s is \"%.200s\"; %s", name, where, key,
        value ? value : "(missing)", known);
}

static choir_status too_many(const char *name, const char *where)
{
    return choir__error(
        CHOIR_ERR_FORMAT, "%s: %s has more than %d steps", name, where, CHOIR__MOST_STEPS);
}

/* --- normalizer --- */

static choir_status bert_normalizer(const char *name, json_t *step, choir__normal_step *s)
{
    static const char where[] = "normalizer";
    s->kind = CHOIR__NORMAL_BERT;
    s->clean = s->chinese = s->lower = true;
    choir_status status = choir__json_flag(name, where, step, "clean_text", &s->clean);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "handle_chinese_chars", &s->chinese);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "lowercase", &s->lower);
    s->strip_accents = s->lower; /* unless specified */
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "strip_accents", &s->strip_accents);
    return status;
}

static choir_status replace(const char *name, json_t *step, choir__normal_step *s)
{
    json_t *pattern = json_object_get(step, "pattern");
    const char *string = choir__json_text(pattern, "String");
    const char *regex = choir__json_text(pattern, "Regex");
    const char *content = choir__json_text(step, "content");
    bool collapses = regex && !strcmp(regex, " {2,}");
    if (!content || strlen(content) > CHOIR__LONGEST_REPLACEMENT ||
        !((string && *string) || collapses))
        return unsupported(name, "normalizer", "pattern", string ? string : regex,
            "a Replace of a String, or of the Regex \" {2,}\", by at most 256 bytes is known");
    s->kind = collapses ? CHOIR__NORMAL_COLLAPSE : CHOIR__NORMAL_REPLACE;
    s->pattern = string && !collapses ? choir__strdup(string) : NULL;
    s->content = choir__strdup(content);
    return CHOIR_OK;
}

static choir_status precompiled(const char *name, json_t *step, choir__normal_step *s)
{
    const char *text = choir__json_text(step, "precompiled_charsmap");
    size_t bytes;
    s->kind = CHOIR__NORMAL_CHARSMAP;
    if (!text)
        return unsupported(
            name, "normalizer", "precompiled_charsmap", text, "a text is expected");
    if (!*text)
        return CHOIR_OK;
    char *blob = choir__base64_decode(text, strlen(text), &bytes);
    if (!blob)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: normalizer.precompiled_charsmap is not base64", name);
    choir_status status = choir__charsmap_init(&s->charsmap, name, blob, bytes);
    free(blob);
    return status;
}

static choir_status strip(const char *name, json_t *step, choir__normal_step *s)
{
    s->kind = CHOIR__NORMAL_STRIP;
    choir_status status = choir__json_flag(name, "normalizer", step, "strip_left", &s->left);
    return status == CHOIR_OK
               ? choir__json_flag(name, "normalizer", step, "strip_right", &s->right)
               : status;
}

static choir_status prepend(const char *name, json_t *step, choir__normal_step *s)
{
    const char *text = choir__json_text(step, "prepend");
    if (!text || strlen(text) > CHOIR__LONGEST_REPLACEMENT)
        return unsupported(
            name, "normalizer", "prepend", text, "a text of at most 256 bytes is expected");
    s->kind = CHOIR__NORMAL_PREPEND;
    s->content = choir__strdup(text);
    return CHOIR_OK;
}

static choir_status nfc(const char *name, json_t *step, choir__normal_step *s)
{
    (void)name, (void)step;
    s->kind = CHOIR__NORMAL_NFC;
    return CHOIR_OK;
}

/* Returns a bound on the bytes that a step makes of each byte. */
static double growth_of(const choir__normal_step *s)
{
    switch (s->kind) {
    case CHOIR__NORMAL_CHARSMAP: return fmax(1, (double)s->charsmap.longest);
    case CHOIR__NORMAL_REPLACE:
        return fmax(1, (double)strlen(s->content) / (double)strlen(s->pattern));
    case CHOIR__NORMAL_COLLAPSE: return fmax(1, (double)strlen(s->content) / 2);
    case CHOIR__NORMAL_PREPEND: return 1 + (double)strlen(s->content);
    case CHOIR__NORMAL_BERT: return 6; /* accents are split off, spaces stand around a sign */
    case CHOIR__NORMAL_NFC: return 3;  /* U+1D160 and the like become several characters */
    case CHOIR__NORMAL_STRIP: break;
    }
    return 1;
}

/* Each step is bounded, but steps multiply: eight of them would make a file of some bytes eat
 * all memory. */
static choir_status add_growth(const char *name, choir__normalizer *n)
{
    n->growth = fmax(1, n->growth) * growth_of(&n->step[n->count - 1]);
    return n->growth <= MOST_GROWTH
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: expected a normalizer whose steps make a text at most %d times as "
                     "long, got %.0f times",
                     name, MOST_GROWTH, n->growth);
}

static choir_status normalizer_step(const char *name, json_t *step, void *arg)
{
    choir__normalizer *n = arg;
    static const struct {
        const char *type;
        choir_status (*read)(const char *name, json_t *step, choir__normal_step *s);
    } known[] = {{"BertNormalizer", bert_normalizer}, {"NFC", nfc},
        {"Precompiled", precompiled}, {"Prepend", prepend}, {"Replace", replace},
        {"Strip", strip}};
    const char *type = choir__json_text(step, "type");
    for (size_t i = 0; i < CHOIR_COUNT(known); i++)
        if (type && !strcmp(type, known[i].type)) {
            if (n->count == CHOIR__MOST_STEPS)
                return too_many(name, "normalizer");
            choir_status status = known[i].read(name, step, &n->step[n->count++]);
            return status == CHOIR_OK ? add_growth(name, n) : status;
        }
    return unsupported(name, "normalizer", "type", type,
        "BertNormalizer, NFC, Precompiled, Prepend, Replace, Strip and a Sequence of them are"
        " known");
}

/* --- pre_tokenizer --- */

static choir_status byte_level(const char *name, json_t *step, choir__word_step *s)
{
    bool prefix = true, use_regex = true;
    choir_status status =
        choir__json_flag(name, "pre_tokenizer", step, "add_prefix_space", &prefix);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, "pre_tokenizer", step, "use_regex", &use_regex);
    s->kind = CHOIR__WORDS_BYTES;
    s->prefix = prefix ? CHOIR__PREFIX_ALWAYS : CHOIR__PREFIX_NONE;
    s->split = use_regex ? CHOIR__SPLIT_GPT2 : CHOIR__SPLIT_NONE;
    return status;
}

static choir_status digits(const char *name, json_t *step, choir__word_step *s)
{
    bool each = false;
    s->kind = CHOIR__WORDS_PATTERN;
    choir_status status =
        choir__json_flag(name, "pre_tokenizer", step, "individual_digits", &each);
    s->split = each ? CHOIR__SPLIT_DIGIT : CHOIR__SPLIT_DIGITS;
    return status;
}

static const char *const behaviors[] = {[CHOIR__CUT_ISOLATED] = "Isolated",
    [CHOIR__CUT_REMOVED] = "Removed",
    [CHOIR__CUT_PREVIOUS] = "MergedWithPrevious",
    [CHOIR__CUT_NEXT] = "MergedWithNext",
    [CHOIR__CUT_CONTIGUOUS] = "Contiguous"};

/* Reads "behavior" and "invert" of a step that cuts at matches. */
static choir_status read_behavior(const char *name, json_t *step, choir__word_step *s)
{
    const char *behavior = choir__json_text(step, "behavior");
    size_t b = 0;
    while (b < CHOIR_COUNT(behaviors) && (!behavior || strcmp(behavior, behaviors[b]) != 0))
        b++;
    if (b == CHOIR_COUNT(behaviors))
        return unsupported(name, "pre_tokenizer", "behavior", behavior,
            "Isolated, Removed, MergedWithPrevious, MergedWithNext and Contiguous are known");
    s->kind = CHOIR__WORDS_CUTS;
    s->cuts.behavior = (choir__cut_behavior)b;
    return choir__json_flag(name, "pre_tokenizer", step, "invert", &s->cuts.invert);
}

/* A published expression has a function of its own (split.c), which is faster and needs no
 * Oniguruma; any other is a regular expression. */
static choir_status set_split(const char *name, const char *regex, choir__word_step *s)
{
    int split = choir__tokenizer_split_of(regex);
    bool every = choir__tokenizer_split_is_known(regex); /* leaves no gap */
    bool matches =
        s->cuts.behavior == (s->cuts.invert ? CHOIR__CUT_REMOVED : CHOIR__CUT_ISOLATED);
    if (split >= 0 && matches) {
        *s = (choir__word_step){
            .kind = CHOIR__WORDS_PATTERN, .split = (choir__tokenizer_split)split};
        return CHOIR_OK;
    }
    s->ends_words = every && matches;
    return choir__regex_new(name, regex, &s->cuts.regex);
}

static choir_status set_literal(const char *name, const char *string, choir__word_step *s)
{
    if (!*string)
        return unsupported(
            name, "pre_tokenizer", "pattern", string, "a String that is not empty is known");
    if (!strcmp(string, " ") && s->cuts.behavior == CHOIR__CUT_PREVIOUS && !s->cuts.invert)
        *s = (choir__word_step){.kind = CHOIR__WORDS_PATTERN, .split = CHOIR__SPLIT_SPACES};
    else
        s->cuts.literal = choir__strdup(string);
    return CHOIR_OK;
}

static choir_status split_step(const char *name, json_t *step, choir__word_step *s)
{
    const char *string = choir__json_text(json_object_get(step, "pattern"), "String");
    const char *regex = choir__json_text(json_object_get(step, "pattern"), "Regex");
    choir_status status = read_behavior(name, step, s);
    if (status == CHOIR_OK && !string && !regex)
        return unsupported(
            name, "pre_tokenizer", "pattern", NULL, "a String and a Regex are known");
    if (status != CHOIR_OK)
        return status;
    return string ? set_literal(name, string, s) : set_split(name, regex, s);
}

static choir_status at_delimiter(const char *name, json_t *step, choir__word_step *s)
{
    const char *delimiter = choir__json_text(step, "delimiter");
    if (!delimiter || !*delimiter)
        return unsupported(
            name, "pre_tokenizer", "delimiter", delimiter, "a character is expected");
    s->kind = CHOIR__WORDS_CUTS;
    s->cuts =
        (choir__cuts){.literal = choir__strdup(delimiter), .behavior = CHOIR__CUT_REMOVED};
    return CHOIR_OK;
}

static choir_status at_punctuation(const char *name, json_t *step, choir__word_step *s)
{
    s->kind = CHOIR__WORDS_CUTS;
    s->cuts = (choir__cuts){.is = choir__unicode_punctuation};
    return json_object_get(step, "behavior") ? read_behavior(name, step, s) : CHOIR_OK;
}

/* Keeps words, and signs between them, without white space. The class is Rust's \w. */
static choir_status whitespace(const char *name, json_t *step, choir__word_step *s)
{
    static const char word[] =
        "[\\p{Alphabetic}\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\p{Join_Control}]+|"
        "[^\\p{Alphabetic}\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\p{Join_Control}\\s]+";
    (void)step;
    s->kind = CHOIR__WORDS_CUTS;
    s->cuts = (choir__cuts){.behavior = CHOIR__CUT_REMOVED, .invert = true};
    s->ends_words = true;
    return choir__regex_new(name, word, &s->cuts.regex);
}

static choir_status metaspace(const char *name, json_t *step, choir__word_step *s)
{
    const char *mark = choir__json_text(step, "replacement");
    const char *scheme = choir__json_text(step, "prepend_scheme");
    bool prefix = true;
    s->divide = true;
    choir_status status =
        choir__json_flag(name, "pre_tokenizer", step, "add_prefix_space", &prefix);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, "pre_tokenizer", step, "split", &s->divide);
    if (status != CHOIR_OK)
        return status;
    if (!mark || strcmp(mark, CHOIR__SPACE_MARK))
        return unsupported(name, "pre_tokenizer", "replacement", mark, "U+2581 is known");
    if (!scheme)
        scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return unsupported(name, "pre_tokenizer", "prepend_scheme", scheme,
            "\"always\", \"first\" and \"never\" are known");
    s->kind = CHOIR__WORDS_METASPACE;
    s->prefix = *scheme == 'a'   ? CHOIR__PREFIX_ALWAYS
                : *scheme == 'f' ? CHOIR__PREFIX_FIRST
                                 : CHOIR__PREFIX_NONE;
    return CHOIR_OK;
}

static choir_status bert_words(const char *name, json_t *step, choir__word_step *s)
{
    (void)name, (void)step;
    s->kind = CHOIR__WORDS_BERT;
    return CHOIR_OK;
}

static choir_status at_spaces(const char *name, json_t *step, choir__word_step *s)
{
    (void)name, (void)step;
    s->kind = CHOIR__WORDS_SPACE;
    return CHOIR_OK;
}

static choir_status pre_tokenizer_step(const char *name, json_t *step, void *arg)
{
    choir__hf_pipeline *p = arg;
    static const struct {
        const char *type;
        choir_status (*read)(const char *name, json_t *step, choir__word_step *s);
    } known[] = {{"BertPreTokenizer", bert_words}, {"ByteLevel", byte_level},
        {"CharDelimiterSplit", at_delimiter}, {"Digits", digits}, {"Metaspace", metaspace},
        {"Punctuation", at_punctuation}, {"Split", split_step}, {"Whitespace", whitespace},
        {"WhitespaceSplit", at_spaces}};
    const char *type = choir__json_text(step, "type");
    if (choir__hf_cuts(p, CHOIR__WORDS_BYTES))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: pre_tokenizer has a step behind ByteLevel, which must be the last", name);
    for (size_t i = 0; i < CHOIR_COUNT(known); i++) {
        if (!type || strcmp(type, known[i].type) != 0)
            continue;
        if (p->count == CHOIR__MOST_STEPS)
            return too_many(name, "pre_tokenizer");
        choir__word_step *s = &p->step[p->count++];
        choir_status status = known[i].read(name, step, s);
        /* "first" depends on a piece's place in the original text, which is unknown by then */
        if (status == CHOIR_OK && p->count > 1 && s->prefix == CHOIR__PREFIX_FIRST)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "%s: pre_tokenizer has Metaspace with prepend_scheme \"first\" behind another "
                "step: expected it as the first step, or \"always\" or \"never\"",
                name);
        return status;
    }
    return unsupported(name, "pre_tokenizer", "type", type,
        "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Split, "
        "Whitespace, WhitespaceSplit and a Sequence of them are known");
}

/* --- both --- */

/* Reads root[part]: nothing, one step, or the steps that a Sequence has under the key `list`.
 */
static choir_status read_steps(const char *name, const json_t *root, const char *part,
    const char *list, choir_status (*read)(const char *name, json_t *step, void *arg),
    void *arg)
{
    json_t *step = json_object_get(root, part), *inner;
    const char *type = choir__json_text(step, "type");
    choir_status status = CHOIR_OK;
    size_t i;
    if (!step || json_is_null(step))
        return CHOIR_OK;
    if (!type || strcmp(type, "Sequence") != 0)
        return read(name, step, arg);
    json_array_foreach(json_object_get(step, list), i, inner)
    {
        const char *kind = choir__json_text(inner, "type");
        if (kind && !strcmp(kind, "Sequence"))
            status =
                unsupported(name, part, "type", kind, "a Sequence in a Sequence is not known");
        if (status == CHOIR_OK && inner && !json_is_null(inner))
            status = read(name, inner, arg);
    }
    return status;
}

choir_status choir__hf_steps_parse(const char *name, json_t *root, choir__hf_pipeline *p)
{
    choir_status status =
        read_steps(name, root, "normalizer", "normalizers", normalizer_step, &p->normalizer);
    if (status == CHOIR_OK)
        status =
            read_steps(name, root, "pre_tokenizer", "pretokenizers", pre_tokenizer_step, p);
    return status;
}
