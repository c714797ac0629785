/* The registry of tokenizers in JSON, by their "type". */
#include "base/named.h"
#include "data/tokenizer/tokenizer.h"

static const choir__tokenizer_kind kinds[] = {
    {"chars", .read = choir__chars_from_json},
    {"bytes", .read = choir__bytes_from_json},
    {"sentencepiece", .read = choir__sentencepiece_from_json},
    {"extended", .read_around = choir__extended_from_json},
};

static const choir__name_table names = CHOIR__NAME_TABLE(kinds);

choir_status choir__tokenizer_kind_find(
    const char *name, const char *type, const choir__tokenizer_kind **kind)
{
    char list[64];
    int at = choir__find_named(&names, type);
    if (at < 0)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: unknown type of tokenizer '%s': choose one of %s", name, type,
            choir__list_names(&names, list, sizeof list));
    *kind = &kinds[at];
    return CHOIR_OK;
}
