/* The boards of another machine's processes, as a stream (cli/snapshot_stream.h). The first
 * byte says how the stream is made: '=' takes the rest as it is. Otherwise each further line
 * becomes a round with one process: its words stand in the process's line, before the sizes and
 * a valid board, and the line's length modulo 7 may make the round's size wrong. The stream is
 * read as it would come: in pieces. */
#include "fuzz.h"

#include "own_board.h"

#include "cli/snapshot_stream.h"

enum { MOST_ROUNDS = 4 };

static void add_round(choir__text_buffer *stream, const char *words, size_t count)
{
    char size[32];
    choir__text_buffer round = {0};
    choir__text_buffer_put(&round, "process ");
    choir__text_buffer_add(&round, words, count);
    snprintf(size, sizeof size, " %d choir train\n", BYTES);
    choir__text_buffer_put(&round, size);
    choir__text_buffer_add(&round, whole, BYTES);
    choir__text_buffer_add(&round, whole, BYTES);
    snprintf(size, sizeof size, "round %zu\n", round.used - (count % 7 == 6));
    choir__text_buffer_put(stream, size);
    choir__text_buffer_add(stream, round.bytes, round.used);
    choir__text_buffer_free(&round);
}

static void make_stream(choir__text_buffer *stream, const uint8_t *data, size_t size)
{
    if (size && *data == '=') {
        choir__text_buffer_add(stream, (const char *)data + 1, size - 1);
        return;
    }
    choir__text_buffer_put(stream, "a banner\nchoir boards 1\n");
    for (int i = 0; i < MOST_ROUNDS && size; i++) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t count = end ? (size_t)(end - data) : size;
        add_round(stream, (const char *)data, count);
        size -= count + (end != NULL);
        data += count + (end != NULL);
    }
}

static void read_round(const choir__round *round)
{
    char *text = NULL;
    size_t length;
    choir__snapshot looks = choir__snapshot_stream_parse(round->bytes, round->count);
    FILE *out = open_memstream(&text, &length);
    for (int i = 0; i < looks.count; i++)
        choir__seen_json(looks.seen[i], NULL, out);
    fclose(out);
    free(text);
    choir__snapshot_free(&looks);
}

/* Reads the bytes that have come; returns false at an error. */
static bool read_stream(choir__text_buffer *come, bool *marked)
{
    choir__round round = {0};
    size_t at = 0;
    if (!*marked && choir__snapshot_stream_mark(come, &at) != CHOIR_OK)
        return false;
    *marked |= at > 0;
    while (*marked) {
        if (choir__snapshot_stream_find(come, at, &round) != CHOIR_OK)
            return false;
        if (!round.bytes)
            break;
        if (round.end <= at || round.end > come->used)
            abort();
        read_round(&round);
        at = round.end;
    }
    choir__text_buffer_drop(come, at);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__text_buffer stream = {0}, come = {0};
    bool marked = false;
    make_whole();
    make_stream(&stream, data, size);
    size_t piece = stream.used / 3 + 1;
    for (size_t at = 0; at < stream.used; at += piece) {
        choir__text_buffer_add(&come, stream.bytes + at, choir__min(piece, stream.used - at));
        if (!read_stream(&come, &marked))
            break;
    }
    choir__text_buffer_free(&come);
    choir__text_buffer_free(&stream);
    return 0;
}
