/* Boards as a stream: the writer prints a mark, then every second a round with each process's
 * board as it was read twice. The reader skips a banner before the mark, bounds every size, and
 * interprets the bytes by the code that reads boards of this machine. */
#include "cli/snapshot_stream.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "line/say.h"

static const char mark[] = "choir boards 1\n";
static const double default_s = 1;
enum { MOST_BANNER = 64 * 1024 }; /* bytes before the mark */
static const size_t most_bytes = (size_t)256 << 20;

/* --- writing --- */

static void put_process(choir__text_buffer *out, int pid)
{
    char head[64], command[128];
    const char *reads[2];
    choir__board *board = choir__board_read(pid);
    char state = choir__process_state(pid);
    if (!board)
        return;
    choir__process_command(pid, command, sizeof command);
    size_t bytes = choir__board_reads(board, reads);
    snprintf(head, sizeof head, "process %d %c %.9f %zu ", pid, state ? state : '?',
        choir__now(), bytes);
    choir__text_buffer_put(out, head);
    choir__text_buffer_put(out, command);
    choir__text_buffer_put(out, "\n");
    choir__text_buffer_add(out, reads[0], bytes);
    choir__text_buffer_add(out, reads[1], bytes);
    choir__board_free(board);
}

static void put_round(choir__text_buffer *out)
{
    int *pids = NULL, count = choir__board_processes(&pids);
    choir__text_buffer_clear(out);
    for (int i = 0; i < count; i++)
        put_process(out, pids[i]);
    free(pids);
}

/* Waits; returns false at once when the reader has gone. */
static bool pause_for(double seconds)
{
    struct pollfd reader = {.fd = STDOUT_FILENO};
    return poll(&reader, 1, (int)(1e3 * seconds)) == 0;
}

int choir__snapshot_stream_command(int argc, char **argv)
{
    choir__text_buffer out = {0};
    double seconds = argc > 2 ? choir__number_read(argv[2], NULL) : 0;
    seconds = seconds >= 0.05 && seconds <= 3600 ? seconds : default_s;
    printf("%s", mark);
    do {
        put_round(&out);
        printf("round %zu\n", out.used);
        if (out.used)
            fwrite(out.bytes, 1, out.used, stdout);
    } while (choir__line_flush() == CHOIR_OK && pause_for(seconds));
    choir__text_buffer_free(&out);
    return CHOIR__EXIT_OK;
}

/* --- reading --- */

static choir_status no_stream(const char *text, size_t count)
{
    char line[80];
    choir__board_text(line, sizeof line, text, choir__min(count, strcspn(text, "\n")));
    return choir__error(CHOIR_ERR_IO, "expected the output of choir __boards, got '%s'", line);
}

/* Fails if more bytes came than the longest line has, without the expected one. */
static choir_status too_long(const char *text, size_t count)
{
    return count > MOST_BANNER ? no_stream(text, count) : CHOIR_OK;
}

choir_status choir__snapshot_stream_mark(const choir__text_buffer *stream, size_t *end)
{
    const char *found = stream->used ? strstr(stream->bytes, mark) : NULL;
    *end = found ? (size_t)(found - stream->bytes) + strlen(mark) : 0;
    return found ? CHOIR_OK : too_long(stream->bytes, stream->used);
}

choir_status choir__snapshot_stream_find(
    const choir__text_buffer *stream, size_t from, choir__round *found)
{
    static const char word[] = "round ";
    *found = (choir__round){.end = from};
    if (from == stream->used)
        return CHOIR_OK;
    const char *at = stream->bytes + from, *line = memchr(at, '\n', stream->used - from);
    if (!line)
        return too_long(at, stream->used - from);
    char *end = NULL;
    size_t count = strncmp(at, word, strlen(word)) ? 0 : strtoul(at + strlen(word), &end, 10);
    if (end != line || count > most_bytes)
        return no_stream(at, stream->used - from);
    size_t body = (size_t)(line + 1 - stream->bytes);
    if (stream->used - body >= count)
        *found = (choir__round){stream->bytes + body, count, body + count};
    return CHOIR_OK;
}

/* Interprets the process at `at`; returns the beginning of the next one, or NULL if `at` is not
 * a process. */
static const char *take_process(const char *at, const char *end, choir__snapshot *looks)
{
    int pid, behind = 0;
    char state, head[256];
    double when;
    size_t bytes;
    const char *line = memchr(at, '\n', (size_t)(end - at));
    if (!line || line - at >= (ptrdiff_t)sizeof head)
        return NULL;
    snprintf(head, sizeof head, "%.*s", (int)(line - at), at);
    if (sscanf(head, "process %d %c %lf %zu %n", &pid, &state, &when, &bytes, &behind) != 4 ||
        !isfinite(when) || !behind || (size_t)(end - line - 1) / 2 < bytes)
        return NULL;
    choir__board *board = choir__board_parse(line + 1, line + 1 + bytes, bytes);
    if (board) {
        choir__seen *seen = choir__flight_parse(board, pid, when);
        seen->state = state == '?' ? '\0' : state;
        choir__board_text(
            seen->command, sizeof seen->command, head + behind, strlen(head + behind));
        choir__snapshot_add(looks, seen);
        choir__board_free(board);
    }
    return line + 1 + 2 * bytes;
}

choir__snapshot choir__snapshot_stream_parse(const char *bytes, size_t count)
{
    choir__snapshot looks = {0};
    const char *at = bytes, *end = bytes + count;
    while (at && at != end)
        at = take_process(at, end, &looks);
    return looks;
}
