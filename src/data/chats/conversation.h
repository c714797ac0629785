/* Conversations in records, whatever form they have there. */
#ifndef CHOIR_DATA_CONVERSATION_H
#define CHOIR_DATA_CONVERSATION_H

#include "data/chats/columns.h"
#include "data/records.h"

typedef struct choir__conversation {
    const choir__json *messages; /* NULL: the record is no conversation */
    size_t asked;                /* messages of a prompt, which are not learned */
    const choir__json *tools;    /* NULL: none */
    choir__json_nodes made;      /* messages that were made of other columns */
    choir__json_nodes parsed[2]; /* messages and tools that were texts of JSON */
    char *text[3];               /* copies of both, and an instruction with its input */
} choir__conversation;

/* Returns whether a record is a conversation, by its columns. */
bool choir__is_conversation(const choir__json *record, const choir__columns *columns);

/* Finds the messages and tools of a record, which must live as long:
 *
 *     messages        [{"role": R, "content": C, ...}]
 *     conversations   [{"from": "human", "value": C}]        ShareGPT, or as above
 *     instruction, input, output                             Alpaca; input may be missing
 *     prompt, completion                                     arrays of messages
 *
 * The second and the third may have a system message in the column "system". Messages and tools
 * may be texts of JSON. c: zeroed at first, and reused. Errors: format. */
choir_status choir__conversation_of(const choir__data_record_at *at, const choir__json *record,
    const choir__columns *columns, choir__conversation *c);
void choir__conversation_free(choir__conversation *c);

#endif
