/* Reading other processes' boards.
 *
 * A board is read, not mapped, so its owner can do no harm to the reader. It is read twice:
 * bytes that are equal in both reads were not being written in between. All offsets, sizes and
 * counts are checked before they are used. */
#include "base/board/board.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/board/board_layout.h"
#include "base/secret.h"

struct choir__board {
    size_t bytes;
    char *first, *second; /* the two reads */
};

/* --- /proc --- */

/* Copies the value of `field` in /proc/PID/status to text; returns false if it cannot be
 * read. */
static bool status_field(int pid, const char *field, char text[128])
{
    char path[64], line[256];
    bool found = false;
    size_t length = strlen(field);
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        if (!strncmp(line, field, length) && line[length] == ':') {
            snprintf(text, 128, "%.127s", line + length + 1);
            found = true;
        }
    if (f)
        fclose(f);
    return found;
}

char choir__process_state(int pid)
{
    char text[128], state = 0;
    return status_field(pid, "State", text) && sscanf(text, " %c", &state) == 1 ? state : 0;
}

/* Returns the process's number in its innermost namespace, which it uses for itself. */
static int own_number(int pid)
{
    char text[128];
    if (!status_field(pid, "NSpid", text))
        return pid;
    text[strcspn(text, "\n")] = '\0';
    const char *last = strrchr(text, '\t');
    return last ? atoi(last + 1) : pid;
}

void choir__process_command(int pid, char *text, size_t room)
{
    char path[64], words[4096];
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    FILE *f = fopen(path, "re");
    size_t got = f ? fread(words, 1, sizeof words - 1, f) : 0;
    if (f)
        fclose(f);
    while (got && !words[got - 1])
        got--;
    for (size_t i = 0; i < got; i++)
        words[i] = words[i] ? words[i] : ' ';
    words[got] = '\0';
    choir__hide_passwords(words);
    choir__board_text(text, room, words, choir__min((int64_t)strlen(words), 256));
}

static bool is_board(int folder, const char *name)
{
    static const char wanted[] = "/memfd:" CHOIR__BOARD_NAME " (deleted)";
    char target[sizeof wanted + 1];
    ssize_t length = readlinkat(folder, name, target, sizeof target);
    return length == (ssize_t)strlen(wanted) && !memcmp(target, wanted, (size_t)length);
}

/* Opens the file of a process's board; -1 if this user may not read it or it does not exist. */
static int open_board(int pid)
{
    char path[64];
    int fd = -1;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *folder = opendir(path);
    if (!folder)
        return -1;
    for (struct dirent *e; fd < 0 && (e = readdir(folder));)
        if (is_board(dirfd(folder), e->d_name))
            fd = openat(dirfd(folder), e->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    closedir(folder);
    return fd;
}

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int choir__board_processes(int **pids)
{
    int count = 0;
    DIR *folder = opendir("/proc");
    *pids = NULL;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        struct stat file;
        int fd = *end || pid <= 0 || pid > INT32_MAX ? -1 : open_board((int)pid);
        if (fd < 0)
            continue;
        bool ours = fstat(fd, &file) == 0 && file.st_uid == geteuid();
        close(fd);
        if (!ours)
            continue;
        CHOIR__GROW(*pids, count);
        (*pids)[count++] = (int)pid;
    }
    if (folder)
        closedir(folder);
    if (count)
        qsort(*pids, (size_t)count, sizeof **pids, ascending);
    return count;
}

/* --- contents --- */

static const choir__board_page *page_of(const choir__board *board)
{
    return (const choir__board_page *)board->first;
}

/* Returns the entry's record if it is inside the board. */
static const void *record_at(const choir__board *board, const choir__board_entry *e)
{
    bool fits = e->offset % 64 == 0 && e->offset >= CHOIR__BOARD_RECORDS &&
                e->offset <= board->bytes && e->bytes <= board->bytes - e->offset;
    return fits ? board->first + e->offset : NULL;
}

/* Takes ownership of both reads, which are freed if they are not a board. */
static choir__board *checked(char *first, char *second, size_t bytes)
{
    const choir__board_page *page = (const choir__board_page *)first;
    choir__board *board = NULL;
    if (page->magic == CHOIR__BOARD_MAGIC && page->version == CHOIR__BOARD_VERSION) {
        board = choir__alloc(sizeof *board);
        *board = (choir__board){bytes, first, second};
    } else {
        free(first);
        free(second);
    }
    return board;
}

static bool fitting(int64_t bytes)
{
    return bytes >= CHOIR__BOARD_RECORDS && bytes <= CHOIR__BOARD_BYTES;
}

choir__board *choir__board_parse(const void *first, const void *second, size_t bytes)
{
    if (bytes > INT32_MAX || !fitting((int64_t)bytes))
        return NULL;
    return checked(memcpy(choir__alloc(bytes), first, bytes),
        memcpy(choir__alloc(bytes), second, bytes), bytes);
}

size_t choir__board_reads(const choir__board *board, const char *reads[2])
{
    const choir__board_page *page = page_of(board);
    size_t bytes = CHOIR__BOARD_RECORDS;
    for (int i = 0; i < CHOIR__BOARD_ENTRIES; i++) {
        const choir__board_entry *e = &page->directory[i];
        if (record_at(board, e) && e->offset + e->bytes > bytes)
            bytes = e->offset + e->bytes;
    }
    reads[0] = board->first;
    reads[1] = board->second;
    return bytes;
}

/* Reads the same bytes of the file into both copies, one right after the other. */
static bool read_twice(int fd, char *first, char *second, size_t at, size_t bytes)
{
    return pread(fd, first + at, bytes, (off_t)at) == (ssize_t)bytes &&
           pread(fd, second + at, bytes, (off_t)at) == (ssize_t)bytes;
}

/* Reads record by record, since a group's log may wrap within a quarter of a millisecond. */
static choir__board *look_twice(int fd)
{
    struct stat file;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode) || !fitting(file.st_size))
        return NULL;
    size_t bytes = (size_t)file.st_size;
    char *first = choir__calloc(1, bytes), *second = choir__calloc(1, bytes);
    bool good = read_twice(fd, first, second, 0, CHOIR__BOARD_RECORDS);
    choir__board *board = checked(first, second, bytes);
    const choir__board_page *page = board ? page_of(board) : NULL;
    for (int i = 0; i < CHOIR__BOARD_ENTRIES && board && good; i++) {
        const choir__board_entry *e = &page->directory[i];
        if (e->kind != CHOIR__BOARD_FREE && record_at(board, e))
            good = read_twice(fd, first, second, e->offset, e->bytes);
    }
    if (good)
        return board;
    choir__board_free(board);
    return NULL;
}

choir__board *choir__board_read(int pid)
{
    int fd = open_board(pid);
    if (fd < 0)
        return NULL;
    choir__board *board = look_twice(fd);
    close(fd);
    if (board && page_of(board)->pid != own_number(pid)) { /* inherited by accident */
        choir__board_free(board);
        return NULL;
    }
    return board;
}

void choir__board_free(choir__board *board)
{
    if (!board)
        return;
    free(board->first);
    free(board->second);
    free(board);
}

void choir__board_text(char *to, size_t room, const char *from, size_t bytes)
{
    size_t n = 0;
    for (; n + 1 < room && n < bytes && from[n]; n++)
        to[n] = from[n] >= ' ' && from[n] < 127 ? from[n] : '?';
    to[n] = '\0';
}

choir__board_who choir__board_who_is(const choir__board *board)
{
    const choir__board_page *page = page_of(board);
    choir__board_who who = {.job = page->job,
        .pid = page->pid,
        .rank = page->rank,
        .world = page->world,
        .generation = page->generation,
        .started = isfinite(page->started) ? page->started : 0,
        .beats = page->beats,
        .steps = page->steps};
    choir__board_text(who.host, sizeof who.host, page->host, sizeof page->host);
    choir__board_text(who.program, sizeof who.program, page->program, sizeof page->program);
    return who;
}

const void *choir__board_record(
    const choir__board *board, choir__board_kind kind, int index, size_t bytes)
{
    const choir__board_page *page = page_of(board);
    for (int i = 0; i < CHOIR__BOARD_ENTRIES; i++) {
        const choir__board_entry *e = &page->directory[i];
        const void *record = e->kind == (uint32_t)kind ? record_at(board, e) : NULL;
        if (record && e->bytes >= bytes && index-- == 0)
            return record;
    }
    return NULL;
}

bool choir__board_settled(const choir__board *board, const void *at, size_t bytes)
{
    size_t offset = (size_t)((const char *)at - board->first);
    return memcmp(at, board->second + offset, bytes) == 0;
}
