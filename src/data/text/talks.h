/* Counts of a corpus's conversations, for its errors and notes. */
#ifndef CHOIR_DATA_TALKS_H
#define CHOIR_DATA_TALKS_H

#include "data/text/corpus.h"

/* Counts of one split; zeros at first. */
typedef struct choir__talks {
    int64_t chats, marked;          /* chats by a template; marked by it */
    int64_t cut;                    /* chats that are longer than a sample */
    int64_t endless;                /* chats that do not teach where an answer ends */
    int64_t silent;                 /* conversations without a learned word */
    char *silent_at, *silent_roles; /* the place of the first one, and its roles; or NULL */
} choir__talks;

/* Counts the record that the parts are of, if it is a conversation; `tokens`, which it became,
 * are more than a sample has if they exceed `most`. ends: it teaches where an answer ends. */
void choir__talks_count(choir__talks *talks, const choir__data_record_at *at,
    const choir__document_parts *parts, int64_t tokens, int64_t most, bool ends);
/* Refuses a split of `documents` that has nothing but conversations without an answer. split:
 * its name. Error: format. */
choir_status choir__talks_check(
    const choir__talks *talks, int64_t documents, const char *split);
/* Returns which template was chosen, how answers are found, and what does not fit in a sample
 * of `context` tokens; NULL: there is nothing to say. The caller frees it. */
char *choir__talks_say(const choir__talks *talks, int64_t context);
void choir__talks_free(choir__talks *talks);

#endif
