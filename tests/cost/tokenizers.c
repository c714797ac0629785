/* Tokenizers: each is loaded and applied to its own file. */
#include "base/hash.h"
#include "cases.h"

#define BPE                                                                                    \
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\","                                        \
    "\"vocab\":{\"a\":60000,\"b\":60001,\"aa\":60002"
#define TEXT "},\"text\":\""
#define BYTES                                                                                  \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define BERT                                                                                   \
    "\"normalizer\":{\"type\":\"BertNormalizer\"},"                                            \
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
#define PIECES                                                                                 \
    "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"##a\":2"
#define UNIGRAM "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0]"
#define ADDED   "\"merges\":[]},\"added_tokens\":["

/* A protocol buffer of pieces: 1 { 1: text, 2: score, 3: type }. */
static void make_pieces(blob *input, const cost_case *c, size_t n)
{
    char text[64];
    append(input, "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16);
    for (size_t i = 0; i < n; i++) {
        int bytes = snprintf(text, sizeof text, c->unit, i);
        char piece[] = {0x0a, (char)(bytes + 7), 0x0a, (char)bytes};
        append(input, piece, sizeof piece);
        append(input, text, (size_t)bytes);
        append(input, "\x15\0\0\0\xc0", 5);
    }
}

/* vocab.json, the byte 0, and merges.txt. */
static void make_pair(blob *input, const cost_case *c, size_t n)
{
    append_usual(input, c, n);
    append(input, "", 1);
    append_text(input, "a b\n");
}

/* Characters, each of which is merged with the next one, and a text of them. */
static void make_merges(blob *input, const cost_case *c, size_t n)
{
    char unit[128];
    append_text(input, c->begin);
    for (size_t i = 0; i < n; i++) {
        size_t at = 0x4e00 + i, next = at + 1;
        snprintf(unit, sizeof unit, "\"\\u%04zx\":%zu,\"\\u%04zx\\u%04zx\":%zu,", at, 2 * i, at,
            next, 2 * i + 1);
        append_text(input, unit);
    }
    snprintf(unit, sizeof unit, "\"\\u%04zx\":%zu},\"merges\":[", 0x4e00 + n, 2 * n);
    append_text(input, unit);
    for (size_t i = 0; i < n; i++) {
        snprintf(
            unit, sizeof unit, "%s\"\\u%04zx \\u%04zx\"", i ? "," : "", 0x4e00 + i, 0x4e01 + i);
        append_text(input, unit);
    }
    append_text(input, "]},\"text\":\"");
    for (size_t i = 0; i < n; i++) { /* in UTF-8 */
        size_t code = 0x4e00 + i;
        char text[] = {(char)(0xe0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3f)),
            (char)(0x80 | (code & 0x3f))};
        append(input, text, sizeof text);
    }
    append_text(input, c->end);
}

/* Tokens that a table by the usual hash would put into one slot. */
static void make_collisions(blob *input, const cost_case *c, size_t n)
{
    enum { SLOTS = 1 << 12 };
    char token[32], unit[64];
    append_text(input, c->begin);
    for (size_t i = 0, number = 0; i < n; number++) {
        snprintf(token, sizeof token, "t%07zx", number);
        if (choir__hash_slot(choir__hash_text(CHOIR__HASH_SEED, token), SLOTS))
            continue;
        snprintf(unit, sizeof unit, ",\"%s\":%zu", token, 3 + i++);
        append_text(input, unit);
    }
    append_text(input, c->end);
}

static const cost_case cases[] = {
    {"wordpiece: tokens of one hash", read_tokenizer, PIECES, .end = "}}," BERT "}", .n = 700,
        .make = make_collisions},
    {"bpe: merges of a text", read_tokenizer,
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"\\u4e00\",\"vocab\":{", .end = "\"}",
        .n = 400, .make = make_merges},
    {"bpe: tokens", read_tokenizer, BPE, ",\"t%zu\":%zu", "},\"merges\":[\"a a\"]}}", 2000},
    {"bpe: falling ids", read_tokenizer, BPE, ",\"t%zu\":%zu", "},\"merges\":[\"a a\"]}}", 2000,
        .falling = true},
    {"bpe: merges", read_tokenizer, BPE "},\"merges\":[\"a a\"", ",\"a a\"", "]}}", 2000},
    {"bpe: a long word", read_tokenizer, BPE "},\"merges\":[\"a a\"]" TEXT, "aaaaaaaa", "\"}",
        700},
    {"bpe: bytes of a long word", read_tokenizer,
        BPE "},\"merges\":[\"a a\"]}," BYTES ",\"text\":\"", "aaaaaaaa", "\"}", 700},
    {"bpe: bytes of many words", read_tokenizer,
        BPE "},\"merges\":[\"a a\"]}," BYTES ",\"text\":\"", " aaaaaa", "\"}", 700},
    {"bpe: bytes of many different words", read_tokenizer,
        BPE "},\"merges\":[\"a a\"]}," BYTES ",\"text\":\"", " a%zua", "\"}", 700},
    {"bpe: blanks", read_tokenizer, BPE "},\"merges\":[\"a a\"]}," BYTES ",\"text\":\"",
        "        ", "\"}", 700},
    {"bpe: an expression that looks far ahead", read_tokenizer,
        BPE
        "},\"merges\":[\"a a\"]},\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
        "\"pattern\":{\"Regex\":\"\\\\s*x|\\\\s*\\\\s*y|a\"}},\"text\":\"",
        "        ", "\"}", 700},
    {"added tokens", read_tokenizer, BPE "}," ADDED "{\"id\":0,\"content\":\"a\"}",
        ",{\"id\":%zu,\"content\":\"<%zu>\"}", "]}", 1000, .memory = 256},
    {"added tokens, normalized", read_tokenizer, BPE "}," ADDED "{\"id\":0,\"content\":\"a\"}",
        ",{\"id\":%zu,\"content\":\"<%zu>\",\"normalized\":true}", "]}", 1000, .memory = 256},
    {"added tokens of one text", read_tokenizer, BPE "}," ADDED "{\"id\":0,\"content\":\"a\"}",
        ",{\"id\":%zu,\"content\":\"aaaaaaaaaaaaaaaa\"}", "]}", 1000, .memory = 256},
    {"added tokens, stripped", read_tokenizer,
        BPE "}," ADDED
            "{\"id\":0,\"content\":\"aa\",\"lstrip\":true,\"rstrip\":true}],\"text\":\"",
        "    aa   ", "\"}", 2000},
    {"a long added token", read_tokenizer, BPE "}," ADDED "{\"id\":0,\"content\":\"", "a",
        "b\"}]}", 2000},
    {"wordpiece: tokens", read_tokenizer,
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":9999",
        ",\"t%zu\":%zu", "}}," BERT "}", 1000},
    {"wordpiece: a long word", read_tokenizer, PIECES "}}," BERT ",\"text\":\"", "aaaaaaaa",
        "\"}", 700},
    {"wordpiece: the longest word", read_tokenizer,
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"max_input_chars_per_word\":10000,"
        "\"vocab\":{\"u\":0,\"a\":1,\"##a\":2}}," BERT ",\"text\":\"",
        "a", "\"}", 4500},
    {"wordpiece: words", read_tokenizer, PIECES "}}," BERT ",\"text\":\"", "aaaaaaaab ", "\"}",
        700},
    {"wordpiece: accents", read_tokenizer, PIECES "}}," BERT ",\"text\":\"",
        "a\xcc\x81\xcc\x80\xcc\xa3", "\"}", 700},
    {"unigram: tokens", read_tokenizer, UNIGRAM, ",[\"t%zu\",-1]", "]}}", 2000},
    {"unigram: a long word", read_tokenizer,
        UNIGRAM ",[\"a\",-1],[\"aa\",-2],[\"aaaa\",-3]]" TEXT, "aaaaaaaa", "\"}", 2000},
    {"normalizer: replacements", read_tokenizer,
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"aab\"},"
        "\"content\":\"aaaaaaaa\"},\"model\":{\"type\":\"BPE\",\"merges\":[],"
        "\"unk_token\":\"a\",\"vocab\":{\"a\":0}}"
        ",\"text\":\"",
        "aaaaaaab", "\"}", 700},
    {"normalizer: a long pattern", read_tokenizer,
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"merges\":[],\"vocab\":{\"u\":0}},"
        "\"normalizer\":{\"type\":\"Replace\",\"content\":\"u\",\"pattern\":{\"String\":\"",
        "a", "b\"}}}", 2000},
    {"tokenizer: nested lists", read_tokenizer, "{\"model\":", "[", "", 2000},
    {"sentencepiece: pieces", read_tokenizer, "", "t%zu", "", 2000, .memory = 256,
        .make = make_pieces},
    {"sentencepiece: pieces with a beginning in common", read_tokenizer, "",
        "a_beginning_that_all_of_these_names_have_%zu", "", 1000, .make = make_pieces},
    {"gpt2: tokens", read_tokenizer, "{\"a\":60000,\"b\":60001,\"ab\":60002", ",\"t%zu\":%zu",
        "}", 2000, .make = make_pair},
};

const cost_table cost_tokenizers = COST_TABLE(cases);
