/* Raft's messages as bytes. Numbers are little-endian, as in the store's protocol.
 *
 * A message that was read owns its memory, from raft_malloc: libraft takes it over with the
 * message. */
#ifndef CHOIR_LAUNCH_RAFT_WIRE_H
#define CHOIR_LAUNCH_RAFT_WIRE_H

#include <raft.h>

#include "launch/store/bytes.h"

/* Bytes that are read one after another; `bad` once they were too few, and zeros from then on.
 */
typedef struct choir__reader {
    const uint8_t *at, *end;
    bool bad;
} choir__reader;

uint64_t choir__read_number(choir__reader *r); /* 8 bytes */
/* Returns a text's first byte, and its length; the text stays in the reader's memory. */
const char *choir__read_text(choir__reader *r, size_t *bytes);
/* Copies a text into `room` bytes; a longer one is bad. */
void choir__copy_text(choir__reader *r, char *to, size_t room);

void choir__write_number(choir__bytes *b, uint64_t value);
void choir__write_text(choir__bytes *b, const void *text, size_t bytes);

/* Appends the message, without its server_id and server_address. */
void choir__raft_write(choir__bytes *to, const struct raft_message *message);
/* Returns false, without memory left, if the bytes are no message. */
bool choir__raft_read(choir__reader *from, struct raft_message *message);

#endif
