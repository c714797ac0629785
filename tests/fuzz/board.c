/* The boards of other processes, which may contain anything: a valid one, with a device and two
 * groups, that the input patches. A patch is an offset (two bytes; with the highest bit set,
 * only the second look sees it), a length n (one byte), and n bytes. */
#include "fuzz.h"

#include "own_board.h"

static void patch(char *first, char *second, const uint8_t *data, size_t size)
{
    while (size > 3) {
        size_t at = (size_t)(data[0] | (data[1] & 0x7f) << 8) % BYTES, n = data[2];
        n = n > size - 3 ? size - 3 : n;
        n = n > BYTES - at ? BYTES - at : n;
        memcpy(second + at, data + 3, n);
        if (!(data[1] & 0x80))
            memcpy(first + at, data + 3, n);
        data += 3 + n;
        size -= 3 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char first[BYTES], second[BYTES];
    const char *reads[2];
    char *text = NULL;
    double now = choir__now();
    size_t length;
    make_whole();
    memcpy(first, whole, BYTES);
    memcpy(second, whole, BYTES);
    patch(first, second, data, size);
    size_t bytes = size && data[0] == 255 ? BYTES / 2 : BYTES; /* cut off */
    choir__board *board = choir__board_parse(first, second, bytes);
    if (!board)
        return 0;
    if (choir__board_reads(board, reads) > bytes)
        abort();
    choir__seen *seen = choir__flight_parse(board, 7, now),
                *again = choir__flight_parse(board, 7, now);
    FILE *out = open_memstream(&text, &length);
    choir__seen_print(seen, out);
    choir__seen_json(seen, again, out);
    choir__seen_calls_json(seen, out);
    fclose(out);
    for (size_t i = 0; i < length; i++) /* for a terminal */
        if ((text[i] < ' ' && text[i] != '\n') || text[i] == 127)
            abort();
    free(text);
    choir__seen_free(seen);
    choir__seen_free(again);
    choir__board_free(board);
    return 0;
}
