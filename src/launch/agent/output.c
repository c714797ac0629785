/* The workers' output on its way to the terminal and to log files; see output.h.
 *
 *   worker --pipe--> stream: line so far --whole lines--> console: pending --> stdout, stderr
 *                       |  \--> tail (last bytes, for the report)
 *                       \--> log file
 *
 * The agent must never block on a stopped terminal, because it has to react to signals and
 * deaths. So a console buffers text that it could not write yet, and while that is much, its
 * streams are not read. Workers that write too fast therefore block, as they would without an
 * agent. */
#include "launch/agent/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "launch/process/job.h"

enum {
    READ_BYTES = 1 << 16,
    LINE_MAX_BYTES = 1 << 20, /* a longer line is forwarded in parts */
    PENDING_MAX = 1 << 18,
    TAIL_BYTES = 4096,
    TAIL_LINES = 10
};

typedef struct stream {
    int from; /* the pipe's read end; -1: none, or at its end */
    int to;   /* the pipe's write end or the log; open until all have started */
    int log;  /* -1: none */
    bool shown;
    choir__text_buffer line; /* incomplete */
    char tail[TAIL_BYTES];   /* a ring of the last bytes */
    size_t written;
    char *path; /* path of the log file */
} stream;

struct choir__output {
    int count, first_rank;
    bool prefixed;
    char **prefixes; /* (count) "[rank3]:" */
    stream *streams; /* (count, 2): stdout, stderr */
    choir__console consoles[2];
};

/* --- opening --- */

static choir_status make_folders(char *path)
{
    for (char *slash = path; slash;) {
        if ((slash = strchr(slash + 1, '/')))
            *slash = '\0';
        int made = mkdir(path, 0777), why = errno;
        if (slash)
            *slash = '/';
        if (made && why != EEXIST)
            return choir__error(CHOIR_ERR_IO, "cannot make the folder %s of log files: %s",
                path, choir__why(why));
    }
    return CHOIR_OK;
}

static choir_status open_log(stream *s, const char *folder, int rank, bool is_stderr)
{
    char *place = choir__format("%s/%d", folder, rank);
    choir_status status = make_folders(place);
    s->path = choir__format("%s/%s.log", place, is_stderr ? "stderr" : "stdout");
    free(place);
    if (status != CHOIR_OK)
        return status;
    s->log =
        choir__file_try(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, CHOIR__FILE_OUTPUT);
    return s->log >= 0 ? CHOIR_OK
                       : choir__error(CHOIR_ERR_IO, "cannot write the log file %s: %s", s->path,
                             choir__why(errno));
}

static choir_status open_stream(
    stream *s, const choir__routes *routes, const char *folder, int rank, bool is_stderr)
{
    int ends[2], bit = is_stderr ? 2 : 1;
    s->shown = routes->shown & bit;
    if (routes->file & bit) {
        choir_status status = open_log(s, folder, rank, is_stderr);
        if (status != CHOIR_OK)
            return status;
        if (!s->shown) {
            s->to = s->log; /* directly, without the agent */
            return CHOIR_OK;
        }
    }
    if (pipe2(ends, O_CLOEXEC))
        return choir__error(CHOIR_ERR_IO, "no pipe for rank %d: %s", rank, choir__why(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s->from = ends[0];
    s->to = ends[1];
    return CHOIR_OK;
}

/* Fills in torchrun's form of a prefix. */
static char *prefix_of(const char *form, int rank, int local_rank, const char *role)
{
    choir__text_buffer text = {0};
    char number[2][16], host[CHOIR__HOST_TEXT] = "?";
    gethostname(host, sizeof host - 1);
    snprintf(number[0], sizeof number[0], "%d", rank);
    snprintf(number[1], sizeof number[1], "%d", local_rank);
    const char *const names[] = {"${rank}", "${local_rank}", "${role_name}", "${hostname}"},
                      *values[] = {number[0], number[1], role, host};
    while (*form) {
        size_t length = 1;
        const char *value = form;
        for (size_t i = 0; i < CHOIR_COUNT(names); i++)
            if (!strncmp(form, names[i], strlen(names[i]))) {
                length = strlen(names[i]);
                value = values[i];
            }
        choir__text_buffer_add(&text, value, value == form ? 1 : strlen(value));
        form += length;
    }
    choir__text_buffer_put(&text, "");
    return text.bytes;
}

choir_status choir__output_open(const choir__routes *routes, int count, int first_rank,
    const char *prefix, const char *role, const char *folder, choir__output **output)
{
    choir__output *o = choir__calloc(1, sizeof *o);
    choir_status status = CHOIR_OK;
    int shown = 0;
    *o = (choir__output){.count = count,
        .first_rank = first_rank,
        .prefixes = choir__calloc((size_t)count, sizeof *o->prefixes),
        .streams = choir__calloc(2 * (size_t)count, sizeof *o->streams)};
    for (int i = 0; i < count; i++)
        o->prefixes[i] = prefix_of(prefix ? prefix : "[rank${rank}]:", first_rank + i, i, role);
    choir__console_open(&o->consoles[0], STDOUT_FILENO);
    choir__console_open(&o->consoles[1], STDERR_FILENO);
    for (int i = 0; i < 2 * count; i++)
        o->streams[i].from = o->streams[i].to = o->streams[i].log = -1;
    for (int i = 0; i < 2 * count && status == CHOIR_OK; i++)
        status = open_stream(&o->streams[i], &routes[i / 2], folder, first_rank + i / 2, i % 2);
    for (int i = 0; i < count; i++)
        shown += routes[i].shown != 0;
    o->prefixed = shown > 1;
    if (status != CHOIR_OK)
        choir__output_close(o);
    else
        *output = o;
    return status;
}

void choir__output_close(choir__output *o)
{
    if (!o)
        return;
    choir__output_started(o);
    for (int i = 0; i < 2 * o->count; i++) {
        stream *s = &o->streams[i];
        if (s->from >= 0)
            close(s->from);
        if (s->log >= 0)
            close(s->log);
        choir__text_buffer_free(&s->line);
        free(s->path);
    }
    for (int c = 0; c < 2; c++)
        choir__text_buffer_free(&o->consoles[c].pending);
    for (int i = 0; i < o->count; i++)
        free(o->prefixes[i]);
    free(o->prefixes);
    free(o->streams);
    free(o);
}

void choir__output_redirect(const choir__output *o, int worker)
{
    dup2(o->streams[2 * worker].to, STDOUT_FILENO);
    dup2(o->streams[2 * worker + 1].to, STDERR_FILENO);
}

void choir__output_started(choir__output *o)
{
    for (int i = 0; i < 2 * o->count; i++) {
        stream *s = &o->streams[i];
        if (s->to >= 0)
            close(s->to);
        if (s->to == s->log)
            s->log = -1;
        s->to = -1;
    }
}

/* --- forwarding --- */

static void remember(stream *s, const char *text, size_t bytes)
{
    if (bytes > TAIL_BYTES) {
        text += bytes - TAIL_BYTES;
        s->written += bytes - TAIL_BYTES;
        bytes = TAIL_BYTES;
    }
    for (size_t i = 0; i < bytes; i++)
        s->tail[s->written++ % TAIL_BYTES] = text[i];
}

static void put_line(choir__output *o, int i, const char *text, size_t bytes)
{
    choir__console *c = &o->consoles[i % 2];
    int rank = o->first_rank + i / 2;
    char *prefix = c->colour
                       ? choir__format("\033[3%dm%s\033[0m ", 1 + rank % 6, o->prefixes[i / 2])
                       : choir__format("%s ", o->prefixes[i / 2]);
    choir__console_put(c, prefix, strlen(prefix));
    free(prefix);
    choir__console_put(c, text, bytes);
    if (!bytes || text[bytes - 1] != '\n')
        choir__console_put(c, "\n", 1);
}

/* Forwards the complete lines; with `all`, or if the line is too long, the rest as well. */
static void put_lines(choir__output *o, int i, bool all)
{
    choir__text_buffer *line = &o->streams[i].line;
    size_t at = 0;
    for (char *end; (end = memchr(line->bytes + at, '\n', line->used - at));) {
        size_t next = (size_t)(end - line->bytes) + 1;
        put_line(o, i, line->bytes + at, next - at);
        at = next;
    }
    if (line->used - at && (all || line->used - at > LINE_MAX_BYTES)) {
        put_line(o, i, line->bytes + at, line->used - at);
        at = line->used;
    }
    choir__text_buffer_drop(line, at);
}

/* Reports that a log cannot be written (a full disk, say), and continues without it. */
static void lose_log(choir__output *o, stream *s)
{
    char *text = choir__format(
        "choir run: cannot write on to the log file %s: %s", s->path, choir__why(errno));
    choir__output_say(o, STDERR_FILENO, text);
    free(text);
    close(s->log);
    s->log = -1;
}

static void take(choir__output *o, int i, const char *text, size_t bytes)
{
    stream *s = &o->streams[i];
    remember(s, text, bytes);
    for (size_t at = 0; s->log >= 0 && at < bytes;) {
        ssize_t n = write(s->log, text + at, bytes - at);
        if (n < 0 && errno != EINTR)
            lose_log(o, s);
        at += n > 0 ? (size_t)n : 0;
    }
    if (!s->shown)
        return;
    if (!o->prefixed) {
        choir__console_put(&o->consoles[i % 2], text, bytes);
        return;
    }
    choir__text_buffer_add(&s->line, text, bytes);
    put_lines(o, i, false);
}

static void end(choir__output *o, int i)
{
    stream *s = &o->streams[i];
    close(s->from);
    s->from = -1;
    if (s->line.used)
        put_lines(o, i, true);
}

/* Returns false if there is nothing now, or no more. */
static bool read_some(choir__output *o, int i)
{
    char text[READ_BYTES];
    stream *s = &o->streams[i];
    ssize_t n = s->from >= 0 ? read(s->from, text, sizeof text) : -1;
    if (n > 0)
        take(o, i, text, (size_t)n);
    else if (s->from >= 0 && (n == 0 || (errno != EAGAIN && errno != EINTR)))
        end(o, i);
    return n > 0;
}

int choir__output_polls(int workers)
{
    return 2 * workers + 2;
}

void choir__output_poll(choir__output *o, struct pollfd *polled)
{
    for (int i = 0; i < 2 * o->count; i++) {
        bool waits = o->consoles[i % 2].pending.used > PENDING_MAX && o->streams[i].shown;
        polled[i] = (struct pollfd){.fd = waits ? -1 : o->streams[i].from, .events = POLLIN};
    }
    for (int c = 0; c < 2; c++)
        polled[2 * o->count + c] = (struct pollfd){
            .fd = o->consoles[c].pending.used ? o->consoles[c].fd : -1, .events = POLLOUT};
}

/* Stops reading streams whose reader is gone. Unless it has a log, the worker notices as it
 * would without an agent, by SIGPIPE. */
static void hang_up(choir__output *o, int which)
{
    for (int i = which; i < 2 * o->count; i += 2) {
        stream *s = &o->streams[i];
        if (s->shown && s->log < 0 && s->from >= 0)
            end(o, i);
    }
}

void choir__output_pump(choir__output *o, const struct pollfd *polled)
{
    for (int i = 0; i < 2 * o->count; i++)
        if (polled[i].revents)
            read_some(o, i);
    for (int c = 0; c < 2; c++) {
        if (polled[2 * o->count + c].revents)
            choir__console_write(&o->consoles[c]);
        if (o->consoles[c].lost == EPIPE)
            hang_up(o, c);
    }
}

void choir__output_say(choir__output *o, int descriptor, const char *text)
{
    size_t bytes = strlen(text);
    choir__console *c = &o->consoles[descriptor == STDERR_FILENO];
    choir__console_put(c, text, bytes);
    if (!bytes || text[bytes - 1] != '\n')
        choir__console_put(c, "\n", 1);
}

void choir__output_drain(choir__output *o, int worker)
{
    for (int i = 2 * worker; i < 2 * worker + 2; i++)
        while (read_some(o, i)) {
        }
}

choir_status choir__output_finish(choir__output *o)
{
    for (int i = 0; i < 2 * o->count; i++) {
        while (read_some(o, i))
            choir__console_flush(&o->consoles[i % 2]);
        if (o->streams[i].from >= 0)
            end(o, i);
    }
    choir__console_flush(&o->consoles[0]);
    choir__console_flush(&o->consoles[1]);
    return !o->consoles[0].lost
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_IO,
                     "cannot write to standard output: %s; some of it was lost",
                     choir__why(o->consoles[0].lost));
}

/* --- the last lines --- */

/* Reads the last bytes of a log that the worker wrote directly. */
static size_t tail_of_file(const char *path, char text[TAIL_BYTES])
{
    int fd = choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR);
    if (fd < 0)
        return 0;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, TAIL_BYTES, size > TAIL_BYTES ? size - TAIL_BYTES : 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

static size_t tail_of(const stream *s, char text[TAIL_BYTES])
{
    if (!s->written)
        return s->path ? tail_of_file(s->path, text) : 0;
    size_t n = s->written < TAIL_BYTES ? s->written : TAIL_BYTES;
    for (size_t i = 0; i < n; i++)
        text[i] = s->tail[(s->written - n + i) % TAIL_BYTES];
    return n;
}

/* Returns where the last lines begin; skips a first line whose beginning is lost. */
static size_t last_lines(const char *tail, size_t n)
{
    size_t from = n;
    int ends = 0;
    while (from && (tail[from - 1] != '\n' || ++ends < TAIL_LINES))
        from--;
    if (!from && n == TAIL_BYTES) {
        const char *next = memchr(tail, '\n', n);
        from = next ? (size_t)(next - tail) + 1 : 0;
    }
    return from;
}

void choir__output_tail(
    const choir__output *o, int worker, const char *indent, char *text, size_t bytes)
{
    char tail[TAIL_BYTES + 1] = "";
    size_t used = strlen(text), n = tail_of(&o->streams[2 * worker + 1], tail);
    if (!n)
        n = tail_of(&o->streams[2 * worker], tail);
    while (n && tail[n - 1] == '\n')
        n--;
    for (size_t at = last_lines(tail, n); at < n && used < bytes - 1;) {
        size_t length = strcspn(tail + at, "\n");
        if (length > n - at)
            length = n - at;
        snprintf(text + used, bytes - used, "\n%s%.*s", indent, (int)length, tail + at);
        used += strlen(text + used);
        at += length + 1;
    }
}

const char *choir__output_log(const choir__output *o, int worker)
{
    const stream *s = &o->streams[2 * worker];
    return s[1].path ? s[1].path : s[0].path;
}
