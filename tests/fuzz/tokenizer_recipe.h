/* Whole tokenizers out of a fuzzer's bytes. Random changes of a file rarely leave a trie that
 * matches, a merge whose result is a token, or a table of added tokens; here the bytes are
 * decisions, and each sequence of them makes a valid file: tokens and texts of a small
 * alphabet, so that they meet. */
#ifndef CHOIR_FUZZ_TOKENIZER_RECIPE_H
#define CHOIR_FUZZ_TOKENIZER_RECIPE_H

#include <jansson.h>

#include "base/base.h"
#include "recipe.h"

static inline const char *letter(unsigned i)
{
    static const char *const letters[] = {"a", "b", " ", "\xe2\x96\x81", "\n", "\xc3\xa9", "A",
        "\xcc\x81", "\xf0\x9f\x98\x80", "1", "\xe2\x80\x8d", "\xc2\x85", ".", "\xe4\xb8\xad",
        "'s", "\xef\xbf\xbd"};
    return letters[i % 16];
}

/* Appends 1 to `most` letters. */
static inline void append_word(recipe *r, blob *b, unsigned most)
{
    for (unsigned n = 1 + choose(r, most); n; n--)
        append_text(b, letter(choose(r, 16)));
}

/* --- a table of replacements: each node of the trie has a block of 256 units --- */

enum { NODES = 48 };

static inline blob make_charsmap(recipe *r)
{
    uint32_t unit[256 * (NODES + 1)] = {0};
    uint32_t nodes = 1, block[NODES + 1] = {256};
    uint32_t parent_of[256 * (NODES + 1)] = {0}; /* node at a unit + 1 */
    blob map = {0}, texts = {0};
    unit[0] = 256 << 10;
    for (unsigned rules = choose(r, 8); rules; rules--) {
        blob key = {0};
        append_word(r, &key, 3);
        uint32_t node = 0, place = 0;
        for (size_t i = 0; i < key.bytes && nodes < NODES; i++) {
            unsigned char byte = (unsigned char)key.data[i];
            place = block[node] ^ byte;
            if (!parent_of[place]) {
                block[nodes] = 256 * (nodes + 1);
                unit[place] |= byte | (place ^ block[nodes]) << 10;
                parent_of[place] = ++nodes;
            }
            node = parent_of[place] - 1;
        }
        if (place && node) {
            unit[place] |= 1 << 8;
            unit[block[node]] = 1u << 31 | (uint32_t)texts.bytes;
        }
        free(key.data);
        for (unsigned n = choose(r, 3); n; n--)
            for (unsigned times = 1 << choose(r, 7); times; times--)
                append_text(&texts, letter(choose(r, 16)));
        append(&texts, "", 1);
    }
    append(&texts, "", 1);
    uint32_t size = 4 * 256 * (nodes + 1);
    append(&map, &size, 4);
    append(&map, unit, size);
    append(&map, texts.data, texts.bytes);
    free(texts.data);
    return map;
}

/* --- tokenizer.json --- */

static inline json_t *make_normalizer(recipe *r, char *(*base64)(const char *, size_t))
{
    json_t *steps = json_array();
    for (unsigned n = choose(r, 4); n; n--) {
        blob word = {0};
        append_word(r, &word, 2);
        json_t *step = NULL;
        switch (choose(r, 6)) {
        case 0: {
            blob map = make_charsmap(r);
            char *text = base64(map.data, map.bytes);
            step = json_pack("{ss,ss}", "type", "Precompiled", "precompiled_charsmap", text);
            free(text);
            free(map.data);
            break;
        }
        case 1:
            step = json_pack("{ss,sb,sb}", "type", "Strip", "strip_left", choose(r, 2),
                "strip_right", choose(r, 2));
            break;
        case 2:
            step = json_pack("{ss,s{ss},ss}", "type", "Replace", "pattern", "String", word.data,
                "content", letter(choose(r, 16)));
            break;
        case 3:
            step = json_pack("{ss,s{ss},ss}", "type", "Replace", "pattern", "Regex", " {2,}",
                "content", letter(choose(r, 16)));
            break;
        case 4: step = json_pack("{ss,ss}", "type", "Prepend", "prepend", word.data); break;
        default:
            step = json_pack("{ss,sb,sb,sb,sb}", "type", "BertNormalizer", "clean_text",
                choose(r, 2), "handle_chinese_chars", choose(r, 2), "strip_accents",
                choose(r, 2), "lowercase", choose(r, 2));
        }
        if (step)
            json_array_append_new(steps, step);
        free(word.data);
    }
    return json_pack("{ss,so}", "type", "Sequence", "normalizers", steps);
}

/* Appends parts of a regular expression, some of them wrong. */
static inline void append_expression(recipe *r, blob *b)
{
    static const char *const parts[] = {"\\s", "\\S", "\\p{L}", "\\p{^Lu}", "[^a\\s]", ".", "$",
        "(?!\\S)", "(?<=a)", "(?=b", "(?>", "(?i:", "(", ")", ")", "|", "|", "*", "+", "?",
        "{1,3}", "+?", "*+", "\\1", "\\b", "\\G", "^", "[[:alpha:]&&", "]", "\\p{N}"};
    for (unsigned n = 1 + choose(r, 12); n; n--) {
        unsigned part = choose(r, 2 * CHOIR_COUNT(parts));
        append_text(b, part < CHOIR_COUNT(parts) ? parts[part] : letter(part));
    }
}

static inline json_t *make_split(recipe *r)
{
    static const char *const behaviors[] = {
        "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    blob pattern = {0};
    bool literal = choose(r, 3) == 0;
    if (literal)
        append_word(r, &pattern, 2);
    else
        append_expression(r, &pattern);
    const char *behavior = behaviors[choose(r, 5)];
    json_t *step =
        json_pack("{ss,s{ss},ss,sb}", "type", "Split", "pattern", literal ? "String" : "Regex",
            pattern.data, "behavior", behavior, "invert", choose(r, 2));
    if (choose(r, 8) == 0)
        json_object_set_new(step, "type", json_string("Punctuation"));
    free(pattern.data);
    return step;
}

static inline json_t *make_words(recipe *r, unsigned kind)
{
    static const char *const schemes[] = {"always", "first", "never"};
    json_t *steps = json_array();
    for (unsigned n = choose(r, 4); n > 1 && kind != 3; n--)
        json_array_append_new(steps, make_split(r));
    if (choose(r, 2) && kind != 3)
        json_array_append_new(steps, json_pack("{ss}", "type", "WhitespaceSplit"));
    if (choose(r, 2) && kind != 3 && kind != 1)
        json_array_append_new(steps,
            json_pack("{ss,ss,ss,sb}", "type", "Metaspace", "replacement", "\xe2\x96\x81",
                "prepend_scheme", schemes[choose(r, 3)], "split", choose(r, 2)));
    if (kind == 1)
        json_array_append_new(
            steps, json_pack("{ss,sb,sb}", "type", "ByteLevel", "add_prefix_space",
                       choose(r, 2), "use_regex", choose(r, 2)));
    if (kind == 3)
        json_array_append_new(steps, json_pack("{ss}", "type", "BertPreTokenizer"));
    return json_pack("{ss,so}", "type", "Sequence", "pretokenizers", steps);
}

/* Adds tokens, and merges that make new tokens of two. */
static inline json_t *make_vocabulary(recipe *r, unsigned kind, json_t *merges)
{
    json_t *vocab = json_object();
    char *keys[64];
    unsigned count = 0, letters = kind == 1 ? 2 : choose(r, 17);
    json_object_set_new(vocab, "<unk>", json_integer(0));
    for (unsigned i = 0; i < letters; i++)
        keys[count++] = strdup(letter(i));
    for (unsigned n = choose(r, 24); n; n--) {
        blob key = {0};
        if (count > 1 && merges) {
            const char *a = keys[choose(r, count)], *b = keys[choose(r, count)];
            append_text(&key, a);
            append_text(&key, b);
            json_array_append_new(merges, json_pack("[s,s]", a, b));
        } else if (kind == 3 && choose(r, 2)) {
            append_text(&key, "##");
            append_word(r, &key, 3);
        } else
            append_word(r, &key, 4);
        keys[count++] = key.data;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!json_object_get(vocab, keys[i]))
            json_object_set_new(vocab, keys[i], json_integer((int)json_object_size(vocab)));
        free(keys[i]);
    }
    return vocab;
}

static inline json_t *make_added(recipe *r, size_t size)
{
    json_t *list = json_array();
    for (unsigned n = choose(r, 6); n; n--) {
        blob text = {0};
        append_word(r, &text, 3);
        json_array_append_new(list,
            json_pack("{si,ss,sb,sb,sb}", "id", (int)size++, "content", text.data, "lstrip",
                choose(r, 2), "rstrip", choose(r, 2), "normalized", choose(r, 2)));
        free(text.data);
    }
    return list;
}

static inline json_t *as_list(recipe *r, json_t *vocab)
{
    json_t *list = json_array(), *id;
    const char *key;
    json_object_foreach(vocab, key, id)
        json_array_append_new(list, json_pack("[s,f]", key, -0.5 * choose(r, 32)));
    json_decref(vocab);
    return list;
}

static inline char *make_json(recipe *r, char *(*base64)(const char *, size_t))
{
    static const char *const types[] = {"BPE", "BPE", "Unigram", "WordPiece"};
    unsigned kind = choose(r, 4); /* 1: of bytes */
    json_t *root = json_object(), *merges = json_array();
    json_object_set_new(root, "normalizer", make_normalizer(r, base64));
    json_object_set_new(root, "pre_tokenizer", make_words(r, kind));
    json_t *vocab = make_vocabulary(r, kind, kind < 2 ? merges : NULL);
    json_object_set_new(root, "added_tokens", make_added(r, json_object_size(vocab)));
    vocab = kind == 2 ? as_list(r, vocab) : vocab;
    json_t *model = json_pack("{ss,so,so,sb,sb}", "type", types[kind], "vocab", vocab, "merges",
        merges, "fuse_unk", choose(r, 2), "ignore_merges", choose(r, 2));
    if (kind == 2)
        json_object_set_new(model, "unk_id", json_integer(0));
    else if (kind == 3 || choose(r, 2))
        json_object_set_new(model, "unk_token", json_string("<unk>"));
    json_object_set_new(root, "model", model);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* --- a SentencePiece model --- */

static inline void append_varint(blob *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        append(b, (char[]){(char)(value | 128)}, 1);
    append(b, (char[]){(char)value}, 1);
}

static inline void append_number(blob *b, unsigned field, uint64_t value)
{
    append_varint(b, field << 3);
    append_varint(b, value);
}

static inline void append_field(blob *b, unsigned field, const void *data, size_t bytes)
{
    append_varint(b, field << 3 | 2);
    append_varint(b, bytes);
    append(b, data, bytes);
}

static inline void append_piece(blob *b, const char *text, float score, unsigned type)
{
    blob piece = {0};
    append_field(&piece, 1, text, strlen(text));
    append_varint(&piece, 2 << 3 | 5);
    append(&piece, &score, 4);
    append_number(&piece, 3, type);
    append_field(b, 1, piece.data, piece.bytes);
    free(piece.data);
}

static inline blob make_model(recipe *r)
{
    blob model = {0}, trainer = {0}, normal = {0}, map = make_charsmap(r);
    json_t *vocab = make_vocabulary(r, 0, NULL), *id;
    const char *key;
    json_object_foreach(vocab, key, id)
    {
        unsigned type = json_integer_value(id) == 0 ? 2 : choose(r, 4) ? 1 : 3 + choose(r, 2);
        append_piece(&model, key, -0.5f * (float)choose(r, 32), type);
    }
    json_decref(vocab);
    append_number(&trainer, 3, 1 + choose(r, 2));
    append_field(&model, 2, trainer.data, trainer.bytes);
    append_field(&normal, 2, map.data, map.bytes);
    append_number(&normal, 3, choose(r, 2));
    append_number(&normal, 4, choose(r, 2));
    append_field(&model, 3, normal.data, normal.bytes);
    free(trainer.data);
    free(normal.data);
    free(map.data);
    return model;
}

/* The rest of the decisions, as a text: half of it letters. */
static inline blob make_text(recipe *r)
{
    blob text = {0};
    append(&text, "", 0);
    while (r->at < r->end) {
        uint8_t c = *r->at++;
        if (c & 0x80)
            append_text(&text, letter(c));
        else
            append(&text, &c, 1);
    }
    return text;
}

#endif
