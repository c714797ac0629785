/* The headers of a tar, 512 bytes each in front of a member's bytes, which fill whole blocks of
 * 512. A tar ends with two blocks of zeros, so one that is cut between two members is noticed,
 * too. */
#include "data/loading/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "data/dataset.h"

enum {
    BLOCK = 512,
    LONGEST_NAME = 1 << 16,
    NAME = 0,
    SIZE = 124,
    SUM = 148,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345
};

choir_status choir__tar_open(choir__tar *t, const char *path)
{
    struct stat info;
    *t = (choir__tar){.path = path, .fd = -1};
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &t->fd);
    if (status == CHOIR_OK && fstat(t->fd, &info) != 0)
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (status == CHOIR_OK)
        t->size = info.st_size;
    return status;
}

void choir__tar_close(choir__tar *t)
{
    if (t->fd >= 0)
        close(t->fd);
    free(t->name);
    *t = (choir__tar){.fd = -1};
}

/* Reads exactly `bytes` bytes. Error: io. */
static choir_status read_at(int fd, const char *path, int64_t at, int64_t bytes, char *data)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, data, (size_t)bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return choir__error(CHOIR_ERR_IO, "%s: cannot be read at byte %lld: %s", path,
                (long long)at, n ? strerror(errno) : "the file has become shorter");
        at += n;
        data += n;
        bytes -= n;
    }
    return CHOIR_OK;
}

choir_status choir__tar_read(int fd, const char *path, int64_t at, int64_t bytes, char **data)
{
    char *room = malloc((size_t)bytes + 1);
    if (!room)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for a member of %lld bytes",
            path, (long long)bytes);
    room[bytes] = '\0';
    choir_status status = read_at(fd, path, at, bytes, room);
    if (status == CHOIR_OK)
        *data = room;
    else
        free(room);
    return status;
}

static choir_status damaged(const choir__tar *t, int64_t at, const char *what)
{
    return choir__error(CHOIR_ERR_FORMAT, "%s, byte %lld: %s", t->path, (long long)at, what);
}

/* --- one header --- */

/* Reads octal digits, or, if the first bit is set, a binary number; -1: neither. */
static int64_t number(const unsigned char *field, int bytes)
{
    int64_t n = 0;
    if (field[0] & 0x80) {
        for (int i = 1; i < bytes; i++) {
            if (n >> 55)
                return -1;
            n = n << 8 | field[i];
        }
        return field[0] == 0x80 ? n : -1;
    }
    int i = 0;
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++)
        n = n << 3 | (field[i] - '0');
    return i == bytes || field[i] == ' ' || !field[i] ? n : -1;
}

/* The sum of all bytes, with blanks in place of the sum itself. */
static bool has_sum(const unsigned char *header)
{
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM && i < SUM + 8 ? ' ' : header[i];
    return sum == number(header + SUM, 8);
}

static bool is_zero(const unsigned char *header)
{
    for (int i = 0; i < BLOCK; i++)
        if (header[i])
            return false;
    return true;
}

static char *short_name(const unsigned char *h)
{
    const char *text = (const char *)h;
    bool posix = !memcmp(text + MAGIC, "ustar", 6) && text[PREFIX];
    return posix ? choir__format("%.155s/%.100s", text + PREFIX, text + NAME)
                 : choir__format("%.100s", text + NAME);
}

/* Takes the path and the size from the records of a pax header, "LENGTH KEY=VALUE\n". */
static bool read_pax(char *text, int64_t bytes, char **name, int64_t *size)
{
    for (char *at = text, *end = text + bytes; at < end;) {
        char *key;
        long length = strtol(at, &key, 10);
        if (key == at || *key != ' ' || length < key - at + 3 || length > end - at ||
            at[length - 1] != '\n')
            return false;
        key++;
        char *equals = memchr(key, '=', (size_t)(at + length - key));
        if (!equals)
            return false;
        at[length - 1] = '\0';
        if (!strncmp(key, "path=", 5)) {
            free(*name);
            *name = choir__strdup(equals + 1);
        } else if (!strncmp(key, "size=", 5)) {
            char *last;
            *size = strtoll(equals + 1, &last, 10);
            if (*last || *size < 0)
                return false;
        }
        at += length;
    }
    return true;
}

/* --- members --- */

/* Reads a header at t->next and the size of its bytes; *end: it is the tar's end. */
static choir_status read_header(
    choir__tar *t, unsigned char header[BLOCK], int64_t *bytes, bool *end)
{
    static const char cut[] = "the tar is cut short: expected another member, or its end";
    *end = false;
    *bytes = 0;
    if (t->size - t->next < BLOCK)
        return damaged(t, t->size, cut);
    choir_status status = read_at(t->fd, t->path, t->next, BLOCK, (char *)header);
    if (status != CHOIR_OK)
        return status;
    if (is_zero(header)) {
        *end = true;
        return CHOIR_OK;
    }
    if (!has_sum(header))
        return damaged(t, t->next, "expected the header of a member: its checksum is another");
    *bytes = number(header + SIZE, 12);
    return *bytes < 0 ? damaged(t, t->next, "the size of a member is no number") : CHOIR_OK;
}

static choir_status check_bytes(const choir__tar *t, const char *name, int64_t bytes)
{
    if (bytes <= t->size - t->next - BLOCK)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s is cut short: its member '%.200s' has %lld bytes, of which %lld are there", t->path,
        name, (long long)bytes, (long long)(t->size - t->next - BLOCK));
}

/* Reads a header that extends the next one: a long name, or pax records. */
static choir_status read_extension(
    choir__tar *t, char type, int64_t bytes, char **name, int64_t *size)
{
    char *data;
    if (bytes > LONGEST_NAME)
        return damaged(t, t->next, "a name of more than 65536 bytes");
    choir_status status = check_bytes(t, "(a long name)", bytes);
    if (status == CHOIR_OK)
        status = choir__tar_read(t->fd, t->path, t->next + BLOCK, bytes, &data);
    if (status != CHOIR_OK)
        return status;
    if (type == 'L') {
        free(*name);
        *name = data;
        return CHOIR_OK;
    }
    bool good = read_pax(data, bytes, name, size);
    free(data);
    return good ? CHOIR_OK : damaged(t, t->next, "a pax header: expected LENGTH KEY=VALUE");
}

static void step_over(choir__tar *t, int64_t bytes)
{
    t->next += BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

choir_status choir__tar_next(choir__tar *t, choir__tar_member *member)
{
    char *name = NULL;
    int64_t size = -1, bytes;
    bool end;
    *member = (choir__tar_member){0};
    for (;;) {
        unsigned char header[BLOCK];
        choir_status status = read_header(t, header, &bytes, &end);
        char type = (char)header[TYPE];
        if (status == CHOIR_OK && !end && (type == 'L' || type == 'x')) {
            status = read_extension(t, type, bytes, &name, &size);
            if (status == CHOIR_OK) {
                step_over(t, bytes);
                continue;
            }
        }
        if (status != CHOIR_OK || end) {
            free(name);
            return status;
        }
        free(t->name);
        t->name = name ? name : short_name(header);
        name = NULL;
        bytes = size >= 0 ? size : bytes;
        size = -1;
        bool file = type == '0' || !type || type == '7';
        status = check_bytes(t, t->name, bytes);
        if (status != CHOIR_OK)
            return status;
        *member = (choir__tar_member){t->name, t->next + BLOCK, bytes};
        step_over(t, bytes);
        if (file)
            return CHOIR_OK;
        *member = (choir__tar_member){0};
    }
}
