/* Samples of encoded texts, as models such as BERT read them:
 *
 *   sequence   [CLS] t1 t2 ... [SEP] [PAD] ...                 types 0 ...
 *   pair       [CLS] a1 a2 ... [SEP] b1 b2 ... [SEP] [PAD] ... types 0 ... 0 1 ... 1 0 ...
 *   words      [CLS] w1 w2 w2 ... [SEP] [PAD] ...              a label for each word's first
 * token
 *
 * A tokenizer without these tokens has <s>, </s> and <pad>, as RoBERTa's: two </s> are between
 * the texts of a pair, all of whose tokens have type 0.
 *
 * A text that is too long loses its last tokens; in a pair, the longer text loses tokens first:
 * what transformers calls longest_first. */
#ifndef CHOIR_DATA_ENCODED_H
#define CHOIR_DATA_ENCODED_H

#include "data/dataset.h"

enum { CHOIR__ENCODED_ROWS = 3 }; /* rows of x: ids, types, mask */

typedef struct choir__encoded_sample {
    int64_t at;     /* offset of its tokens in ids and, for words, in labels */
    int32_t length; /* tokens, [CLS] and [SEP] included */
    int32_t first;  /* tokens of the first text, its [SEP] included: the others have type 1 */
    int64_t label;  /* label of a sequence or pair */
    int64_t record; /* the reader's number of its record */
} choir__encoded_sample;

typedef struct choir__encoded {
    const choir_tokenizer *tokenizer; /* used while samples are added */
    int64_t context;
    int64_t cls, sep, pad; /* ids */
    bool roberta;          /* samples have RoBERTa's form */
    choir__encoded_sample *samples;
    int64_t count;
    int64_t *ids, *labels; /* labels: NULL unless words have them */
    int64_t used, token_room;
} choir__encoded;

/* A part of a text, which need not end with '\0'. */
typedef struct choir__piece {
    const char *text; /* NULL: none */
    size_t bytes;
} choir__piece;

/* Begins without samples. of: a path, for messages. Error: argument (a tokenizer without the
 * tokens of either form; a context below 4, or 5 of RoBERTa's form). */
choir_status choir__encoded_init(choir__encoded *e, const choir_tokenizer *tokenizer,
    int64_t context, bool words, const char *of);
void choir__encoded_free(choir__encoded *e);

/* Add a sample: a text, with the second text of a pair if any; or words with a label each,
 * where words that do not fit are left out. Errors: the tokenizer's. */
choir_status choir__encoded_text(
    choir__encoded *e, choir__piece text, choir__piece pair, int64_t label);
choir_status choir__encoded_words(
    choir__encoded *e, const choir__piece *words, size_t count, const int64_t *labels);

/* Drops sample i where dropped[i] (count) is true. */
void choir__encoded_drop(choir__encoded *e, const bool *dropped);

/* Writes a sample: x (3, context). */
void choir__encoded_get(const choir__encoded *e, int64_t index, int64_t *x);
/* Returns the label of token i of a sample, CHOIR_IGNORED where no word begins. */
int64_t choir__encoded_label(const choir__encoded *e, int64_t index, int64_t i);

#endif
