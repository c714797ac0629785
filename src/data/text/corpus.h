/* Documents of a language model: their tokens, one after another. */
#ifndef CHOIR_DATA_CORPUS_H
#define CHOIR_DATA_CORPUS_H

#include "data/chats/conversation.h"
#include "data/chats/learned.h"
#include "data/json.h"
#include "data/records.h"
#include "data/tokenizer/tokenizer.h"

#define CHOIR__CHAT_OPENS  "<|im_start|>"
#define CHOIR__CHAT_CLOSES "<|im_end|>"

/* Counts the changes of the ids of documents. 2: the tokenizer's token stands in front. */
enum { CHOIR__DOCUMENTS = 2 };

/* The text of a document in parts; a part is learned, or only read. */
typedef struct choir__document_parts {
    choir__text_buffer text;
    struct choir__document_part {
        size_t end; /* in text */
        bool learned;
    } * part; /* (count) */
    size_t count;
    /* How records become texts; all zeros: by the usual columns, and chats in ChatML. */
    choir__columns columns;
    choir_chat *chat; /* the template of chats */
    bool asked;       /* the tokenizer's folder was asked for a template */
    int64_t turn_end; /* the token with which the template ends answers; -1: no token */
    /* The current conversation, if a template writes it. */
    bool written;
    choir__conversation conversation;
    choir__jinja_result result, work;
    bool marked; /* the template marks the parts that are learned */
    bool silent; /* the record is a conversation, and nothing of it is learned */
} choir__document_parts;

/* Fills in the parts of a record: of a text, of a prompt and its completion, or of a chat in
 * ChatML; or `result`, if a template writes the chat. Errors: format. */
choir_status choir__document_parts_of(
    const choir__data_record_at *at, const choir__json *record, choir__document_parts *parts);
/* Encodes a record's document, with `end` behind it unless a template writes it, and adds the
 * ids; id i of a token that is not learned is -1 - i. parts: room that is reused. Errors:
 * format, naming the record. */
choir_status choir__document_encode(const choir__data_record_at *at, const choir__json *record,
    const choir_tokenizer *tokenizer, int32_t end, choir__document_parts *parts,
    choir__ids *ids);

static inline int32_t choir__document_token(int32_t id)
{
    return id < 0 ? -1 - id : id;
}

/* --- tokens that documents need: end_of_text.c --- */

/* Returns the id of the token that ends a text; -1: the tokenizer has none. */
int64_t choir__end_of_text(const choir_tokenizer *tokenizer);

/* Returns the id of the token that files say ends a text; -1: they name none. */
int64_t choir__end_named(const choir_tokenizer *tokenizer, const choir_beside *beside);

/* Adds a token that ends a text to a tokenizer without one, which becomes another object and
 * owns the first. fixed: it may not have more tokens. path: for the message. Errors: argument.
 */
choir_status choir__settle_end_of_text(
    const char *path, bool fixed, choir_tokenizer **tokenizer);

/* Finds the template of chats in the tokenizer's folder, if the record is the first chat. A
 * folder without one has ChatML: its markers are added, if *settled is false, to a tokenizer
 * without them, or, if that is fixed, the record is refused. Errors: format, argument. */
choir_status choir__settle_chat(const choir__data_record_at *at, const choir__json *record,
    bool fixed, choir_tokenizer **tokenizer, bool *settled, choir__document_parts *parts);

/* Like choir_stream_open, but a tokenizer without a token that ends a text, or without the
 * markers of a chat that is among the first samples, gets them if the stream has documents and
 * `fixed` is false; *tokenizer is then another object. */
struct choir_stream;
struct choir_stream_opts;
choir_status choir__gpu_stream_open(int fd, const char *name, choir_tokenizer **tokenizer,
    bool fixed, const struct choir_stream_opts *opts, struct choir_stream **stream);

void choir__document_parts_free(choir__document_parts *parts);

#endif
