/* Cutting a text into words as byte-level models do. */
#ifndef CHOIR_DATA_SPLIT_H
#define CHOIR_DATA_SPLIT_H

typedef enum choir__tokenizer_split {
    CHOIR__SPLIT_NONE,
    CHOIR__SPLIT_GPT2,
    CHOIR__SPLIT_LLAMA3, /* numbers in groups of three digits */
    CHOIR__SPLIT_QWEN2   /* like Llama 3, but digits one by one */
} choir__tokenizer_split;

/* Returns the pattern that a file's regular expression means, or -1. */
int choir__tokenizer_split_of(const char *regex);

/* Returns the end of the word at `at` < end. */
const char *choir__tokenizer_split_next(
    choir__tokenizer_split split, const char *at, const char *end);

#endif
