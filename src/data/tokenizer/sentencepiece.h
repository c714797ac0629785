/* A SentencePiece model at work. */
#ifndef CHOIR_DATA_SENTENCEPIECE_H
#define CHOIR_DATA_SENTENCEPIECE_H

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/models.h"
#include "data/tokenizer/trie.h"

typedef struct choir__sentencepiece {
    choir__charsmap charsmap;
    choir__trie symbols; /* user-defined: the normalizer leaves them as they are */
    bool dummy_prefix;   /* a text begins with U+2581 */
    bool remove_spaces;  /* removes spaces at the ends, and all but one in a row */
    bool frozen;         /* the model gets the text between symbols; else they are its pieces */
    choir__model *model;
    choir__tokenizer_buffer text; /* text of the current call, not shared */
} choir__sentencepiece;

/* Takes ownership of all of s. */
choir_tokenizer *choir__sentencepiece_tokenizer(
    choir__sentencepiece *s, int64_t size, char cut_before);
void choir__sentencepiece_free(choir__sentencepiece *s);

#endif
