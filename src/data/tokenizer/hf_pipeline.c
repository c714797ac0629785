/* A tokenizer.json's "normalizer" and "pre_tokenizer": each is a list of steps. The steps of
 * published models are supported. An unknown step is an error that names it, because leaving it
 * out would silently give other tokens. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

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

/* --- normalizer --- */

static choir_status bert_normalizer(const char *name, json_t *step, choir__hf_pipeline *p)
{
    static const char where[] = "normalizer";
    choir__wordpiece_opts *o = &p->wordpiece;
    p->bert_normalizer = true;
    o->clean = o->chinese = o->lower = true;
    choir_status status = choir__json_flag(name, where, step, "clean_text", &o->clean);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "handle_chinese_chars", &o->chinese);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "lowercase", &o->lower);
    o->strip_accents = o->lower; /* unless specified */
    if (status == CHOIR_OK)
        status = choir__json_flag(name, where, step, "strip_accents", &o->strip_accents);
    return status;
}

static choir_status replace(const char *name, json_t *step, choir__hf_pipeline *p)
{
    json_t *pattern = json_object_get(step, "pattern");
    const char *string = choir__json_text(pattern, "String");
    const char *regex = choir__json_text(pattern, "Regex");
    const char *content = choir__json_text(step, "content");
    bool to_mark = content && !strcmp(content, CHOIR__SPACE_MARK);
    if (string && !strcmp(string, " ") && to_mark)
        p->prep.mark = true;
    else if (regex && !strcmp(regex, " {2,}") && content && (to_mark || !strcmp(content, " ")))
        p->prep.collapse = true;
    else
        return unsupported(name, "normalizer", "pattern", string ? string : regex,
            "a Replace of \" \" by U+2581, or of \" {2,}\" by one space, is known");
    return CHOIR_OK;
}

static choir_status precompiled(const char *name, json_t *step, choir__hf_pipeline *p)
{
    const char *text = choir__json_text(step, "precompiled_charsmap");
    size_t bytes;
    if (!text || p->prep.charsmap)
        return unsupported(name, "normalizer", "precompiled_charsmap", text, "expected one");
    if (!*text)
        return CHOIR_OK;
    char *blob = choir__base64_decode(text, strlen(text), &bytes);
    if (!blob)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: normalizer.precompiled_charsmap is not base64", name);
    choir_status status = choir__prep_set_charsmap(&p->prep, name, blob, bytes);
    free(blob);
    return status;
}

static choir_status strip(const char *name, json_t *step, choir__hf_pipeline *p)
{
    choir_status status =
        choir__json_flag(name, "normalizer", step, "strip_left", &p->prep.strip_left);
    return status == CHOIR_OK
               ? choir__json_flag(name, "normalizer", step, "strip_right", &p->prep.strip_right)
               : status;
}

static choir_status normalizer(const char *name, json_t *step, choir__hf_pipeline *p)
{
    const char *type = choir__json_text(step, "type");
    if (!step || json_is_null(step))
        return CHOIR_OK;
    if (type && !strcmp(type, "Sequence")) {
        choir_status status = CHOIR_OK;
        size_t i;
        json_t *inner;
        json_array_foreach(json_object_get(step, "normalizers"), i, inner)
        {
            const char *kind = choir__json_text(inner, "type");
            if (kind && !strcmp(kind, "Sequence"))
                status = unsupported(
                    name, "normalizer", "type", kind, "a Sequence in a Sequence is not known");
            if (status == CHOIR_OK)
                status = normalizer(name, inner, p);
        }
        return status;
    }
    if (type && !strcmp(type, "BertNormalizer"))
        return bert_normalizer(name, step, p);
    if (type && !strcmp(type, "Replace"))
        return replace(name, step, p);
    if (type && !strcmp(type, "Precompiled"))
        return precompiled(name, step, p);
    if (type && !strcmp(type, "Strip"))
        return strip(name, step, p);
    if (type && !strcmp(type, "Prepend")) {
        const char *text = choir__json_text(step, "prepend");
        if (!text || strcmp(text, CHOIR__SPACE_MARK))
            return unsupported(name, "normalizer", "prepend", text, "U+2581 is known");
        p->prep.prefix = CHOIR__PREFIX_TWICE;
        return CHOIR_OK;
    }
    return unsupported(name, "normalizer", "type", type,
        "BertNormalizer, Precompiled, Prepend, Replace, Strip and a Sequence of them are"
        " known");
}

/* --- pre_tokenizer --- */

static choir_status byte_level(const char *name, json_t *step, choir__hf_pipeline *p)
{
    p->byte_level = p->use_regex = p->prefix_space = true;
    choir_status status =
        choir__json_flag(name, "pre_tokenizer", step, "add_prefix_space", &p->prefix_space);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, "pre_tokenizer", step, "use_regex", &p->use_regex);
    if (status == CHOIR_OK && p->use_regex && p->split != CHOIR__SPLIT_NONE)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: pre_tokenizer has a Split, and ByteLevel.use_regex is true: one pattern alone"
            " is known",
            name);
    if (p->use_regex)
        p->split = CHOIR__SPLIT_GPT2;
    return status;
}

static choir_status split_step(const char *name, json_t *step, choir__hf_pipeline *p)
{
    const char *regex = choir__json_text(json_object_get(step, "pattern"), "Regex");
    const char *behavior = choir__json_text(step, "behavior");
    bool invert = false;
    choir_status status = choir__json_flag(name, "pre_tokenizer", step, "invert", &invert);
    if (status != CHOIR_OK)
        return status;
    int split = regex ? choir__tokenizer_split_of(regex) : -1;
    if (split < 0 || p->split != CHOIR__SPLIT_NONE)
        return unsupported(name, "pre_tokenizer", "pattern.Regex", regex,
            "the patterns of GPT-2, Llama 3 and Qwen2 are known, one of them");
    /* The pattern matches everything, so "Removed" and "Isolated" give the same result. */
    bool isolated = behavior && !strcmp(behavior, "Isolated") && !invert;
    bool removed = behavior && !strcmp(behavior, "Removed") && invert;
    if (!isolated && !removed)
        return unsupported(
            name, "pre_tokenizer", "behavior", behavior, "\"Isolated\" is known");
    p->split = (choir__tokenizer_split)split;
    return CHOIR_OK;
}

static choir_status metaspace(const char *name, json_t *step, choir__hf_pipeline *p)
{
    const char *mark = choir__json_text(step, "replacement");
    const char *scheme = choir__json_text(step, "prepend_scheme");
    bool prefix = true, split = true;
    choir_status status =
        choir__json_flag(name, "pre_tokenizer", step, "add_prefix_space", &prefix);
    if (status == CHOIR_OK)
        status = choir__json_flag(name, "pre_tokenizer", step, "split", &split);
    if (status != CHOIR_OK)
        return status;
    if (!mark || strcmp(mark, CHOIR__SPACE_MARK))
        return unsupported(name, "pre_tokenizer", "replacement", mark, "U+2581 is known");
    if (!scheme)
        scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return unsupported(name, "pre_tokenizer", "prepend_scheme", scheme,
            "\"always\", \"first\" and \"never\" are known");
    p->prep.mark = true;
    p->prep.prefix = *scheme == 'a'   ? CHOIR__PREFIX_ALWAYS
                     : *scheme == 'f' ? CHOIR__PREFIX_FIRST
                                      : CHOIR__PREFIX_NONE;
    p->prep.words = p->prep.single_mark = split;
    return CHOIR_OK;
}

static choir_status pre_tokenizer(const char *name, json_t *step, choir__hf_pipeline *p)
{
    const char *type = choir__json_text(step, "type");
    if (!step || json_is_null(step))
        return CHOIR_OK;
    if (type && !strcmp(type, "Sequence")) {
        choir_status status = CHOIR_OK;
        size_t i;
        json_t *inner;
        json_array_foreach(json_object_get(step, "pretokenizers"), i, inner)
        {
            const char *kind = choir__json_text(inner, "type");
            if (kind && !strcmp(kind, "Sequence"))
                status = unsupported(name, "pre_tokenizer", "type", kind,
                    "a Sequence in a Sequence is not known");
            if (status == CHOIR_OK)
                status = pre_tokenizer(name, inner, p);
        }
        return status;
    }
    if (type && !strcmp(type, "ByteLevel"))
        return byte_level(name, step, p);
    if (type && !strcmp(type, "Split"))
        return split_step(name, step, p);
    if (type && !strcmp(type, "Metaspace"))
        return metaspace(name, step, p);
    if (type && !strcmp(type, "BertPreTokenizer")) {
        p->bert_words = true;
        return CHOIR_OK;
    }
    if (type && !strcmp(type, "WhitespaceSplit")) {
        p->prep.any_space = p->prep.collapse = p->prep.words = true;
        p->prep.strip_left = p->prep.strip_right = true;
        return CHOIR_OK;
    }
    return unsupported(name, "pre_tokenizer", "type", type,
        "BertPreTokenizer, ByteLevel, Metaspace, Split, WhitespaceSplit and a Sequence of them"
        " are known");
}

choir_status choir__hf_pipeline_parse(const char *name, json_t *root, choir__hf_pipeline *p)
{
    choir_status status = normalizer(name, json_object_get(root, "normalizer"), p);
    if (status == CHOIR_OK)
        status = pre_tokenizer(name, json_object_get(root, "pre_tokenizer"), p);
    return status;
}
