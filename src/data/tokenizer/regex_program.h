/* The program of a regular expression, which regex_parse.c writes and regex.c runs. It repeats
 * only single characters, so each instruction that chooses has one open choice at most. Places
 * in the code are counted from the instruction. */
#ifndef CHOIR_DATA_REGEX_PROGRAM_H
#define CHOIR_DATA_REGEX_PROGRAM_H

#include "data/tokenizer/regex.h"

enum { CHOIR__REGEX_CHOICES = 128 };

typedef enum choir__regex_op {
    CHOIR__REGEX_CHAR,   /* a character of set `a` */
    CHOIR__REGEX_REPEAT, /* b to c of them */
    CHOIR__REGEX_SPLIT,  /* continues with the next, or else at a */
    CHOIR__REGEX_JUMP,   /* continues at a */
    CHOIR__REGEX_AHEAD,  /* what follows matches the code before a (b: does not) */
    CHOIR__REGEX_LINE,   /* the end of the text or of a line */
    CHOIR__REGEX_DONE
} choir__regex_op;

typedef enum choir__regex_mode {
    CHOIR__REGEX_GREEDY,
    CHOIR__REGEX_LAZY,
    CHOIR__REGEX_KEEPS /* possessive */
} choir__regex_mode;

typedef struct choir__regex_code {
    choir__regex_op op;
    choir__regex_mode mode;
    int32_t a, b, c; /* c -1: any number */
} choir__regex_code;

/* Characters [first, last], or of one of the categories in `mask`, or white space; or not. */
typedef struct choir__regex_item {
    uint32_t first, last, mask;
    bool space, without;
} choir__regex_item;

typedef struct choir__regex_set {
    int32_t item, count; /* items of the set */
    bool without;        /* all characters but these */
    uint64_t ascii[2];   /* which of the first 128 characters it has */
} choir__regex_set;

struct choir__regex {
    choir__regex_code *code;
    choir__regex_set *set;
    choir__regex_item *item;
    int32_t codes, sets, items, choices;
};

/* Returns whether the set has the character, by its items. */
bool choir__regex_has(const choir__regex *r, const choir__regex_set *s, uint32_t code);

#endif
