/* SentencePiece's compiled table of replacements (nmt_nfkc and similar rules): from a prefix of
 * a text to the text that replaces it. */
#ifndef CHOIR_DATA_CHARSMAP_H
#define CHOIR_DATA_CHARSMAP_H

#include "data/tokenizer/models.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/trie.h"

/* The limit on a replacement, in bytes; it bounds how much longer a text can become. The
 * longest of the published rules has 33. */
enum { CHOIR__LONGEST_REPLACEMENT = 256 };

typedef struct choir__charsmap {
    char *data; /* NULL: no table */
    size_t bytes;
    size_t longest; /* bytes of its longest replacement */
} choir__charsmap;

/* Checks a table and takes a copy. Error: format. */
choir_status choir__charsmap_init(
    choir__charsmap *m, const char *name, const char *blob, size_t bytes);
void choir__charsmap_free(choir__charsmap *m);

/* Return the replacement of the longest or shortest prefix of the text that has one, or NULL.
 * *used: length of the prefix. */
const char *choir__charsmap_longest(
    const choir__charsmap *m, const char *text, const char *end, size_t *used);
const char *choir__charsmap_shortest(
    const choir__charsmap *m, const char *text, const char *end, size_t *used);

/* Returns whether a text may be cut between a letter or digit of ASCII and a white space: no
 * key has both, the white space stays or becomes ' ' whatever follows it, and what stands for
 * the letter ends with one. */
bool choir__charsmap_keeps_cuts(const choir__charsmap *m, char space);

/* A SentencePiece model at work. */

typedef struct choir__sentencepiece {
    choir__charsmap charsmap;
    choir__trie symbols; /* user-defined: the normalizer leaves them as they are */
    bool dummy_prefix;   /* a text begins with U+2581 */
    bool remove_spaces;  /* removes spaces at the ends, and all but one in a row */
    bool frozen;         /* the model gets the text between symbols; else they are its pieces */
    choir__model *model;
    choir__text_buffer text; /* text of the current call, not shared */
} choir__sentencepiece;

/* Takes ownership of all of s. */
choir_tokenizer *choir__sentencepiece_tokenizer(
    choir__sentencepiece *s, int64_t size, char cut_before);
void choir__sentencepiece_free(choir__sentencepiece *s);

#endif
