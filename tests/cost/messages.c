/* Messages of other processes and machines: boards, those of the store, and the file by which
 * ranks meet. */
#include "cases.h"

/* Plain requests of a client to a store, behind a valid greeting. */
static void make_requests(blob *b, const cost_case *c, size_t n)
{
    char key[64], request[128];
    append(b, "\2", 1);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)snprintf(key, sizeof key, c->unit, i);
        uint32_t length = (uint32_t)(20 + bytes + (*c->end ? 5 : 0));
        memset(request, 0, sizeof request);
        memcpy(request, &length, 4); /* little-endian, as the protocol is */
        request[4] = *c->begin;      /* the operation */
        request[6] = *c->end ? 2 : 1;
        request[12] = 1;
        request[20] = (char)bytes;
        memcpy(request + 24, key, bytes);
        request[24 + bytes] = 1; /* a value of a byte */
        append(b, request, length + 4);
    }
}

/* A round of many processes without a board. */
static void make_round(blob *b, const cost_case *c, size_t n)
{
    char head[64];
    snprintf(head, sizeof head, "=choir boards 1\nround %zu\n", n * strlen(c->unit));
    append_text(b, head);
    for (size_t i = 0; i < n; i++)
        append_text(b, c->unit);
}

/* Whole messages with a two-byte length each. */
static void make_answers(blob *b, const cost_case *c, size_t n)
{
    append(b, "\1", 1);
    for (size_t i = 0; i < n; i++)
        append(b, c->unit, 18);
}

static const cost_case cases[] = {
    {"store: keys", read_store_server, "\1", "key %zu", "v", .n = 500, .make = make_requests,
        .memory = 512},
    {"store: one key again and again", read_store_server, "\1", "key", "v", .n = 500,
        .make = make_requests, .memory = 512},
    {"store: counters", read_store_server, "\4", "n%zu", "", .n = 500, .make = make_requests,
        .memory = 512},
    {"store: no requests", read_store_server, "\2", "aaaa", "", 2000},
    {"store: answers", read_store_client, .unit = "\x10\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0",
        .n = 500, .make = make_answers},
    {"board: patches", read_board, "", "aaaaaaaa", "", 2000},
    {"boards: processes", read_boards, .unit = "process 1 R 0 0 a\n", .n = 2000,
        .make = make_round},
    {"boards: rounds", read_boards, "=choir boards 1\n", "round 0\n", "", 500},
    {"boards: a banner", read_boards, "=", "welcome\n", "choir boards 1\n", 5000},
    {"boards: a line", read_boards, "=choir boards 1\nround ", "1", "", 5000},
    {"meet: a note", read_meet_file, "choir ", "1 ", "\n", 5000},
};

const cost_table cost_messages = COST_TABLE(cases);
