/* The chain of hashes of an audited run (audit/chain.h), as the page shows and compares it. */
#ifndef CHOIR_CLI_WATCH_CHAIN_H
#define CHOIR_CLI_WATCH_CHAIN_H

#include <stdint.h>

#include "base/text.h"
#include "checkpoint/format/sha256.h"
#include "cli/watch/tail.h"

enum {
    CHOIR__WATCH_LINKS = 256
}; /* steps that are kept from the beginning, and up to the end */

typedef struct choir__watch_chain {
    choir__tail lines;
    char link[CHOIR__SHA256_HEX]; /* link of the last line */
    int64_t count, broken;        /* lines so far; the first one that does not follow, or 0 */
    int64_t steps;                /* lines of steps so far */
    char *head;                   /* members of the last beginning, as JSON; NULL: none */
    int version;                  /* changes with the head, and where the chain breaks */
    char *first[CHOIR__WATCH_LINKS];
    char *newest[CHOIR__WATCH_LINKS]; /* step n, behind the first ones, at n % their number */
} choir__watch_chain;

void choir__watch_chain_open(choir__watch_chain *c, const char *folder);
void choir__watch_chain_close(choir__watch_chain *c);
/* Forgets all lines, and begins at the start again. */
void choir__watch_chain_rewind(choir__watch_chain *c);
choir__tail_state choir__watch_chain_look(choir__watch_chain *c);

/* The knowledge of one reader of the page. */
typedef struct choir__watch_chain_known {
    int version;
    int64_t steps;
} choir__watch_chain_known;

/* Adds the news since `known`: members of an object, from "from" on. A hash is short there: a
 * list of hashes is one of all of them, and four digits of each. Returns false without news. */
bool choir__watch_chain_news(
    const choir__watch_chain *c, choir__watch_chain_known *known, choir__text_buffer *out);

#endif
