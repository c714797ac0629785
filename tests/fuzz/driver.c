/* A fuzzer for compilers without libFuzzer. It replays the inputs of its folders, then mutates
 * them; a -seed always gives the same inputs in the same order.
 *
 * Built with gcc's -fsanitize-coverage=trace-pc (script/fuzz), it sees which edges of the code
 * an input reaches, and keeps the inputs that reach new ones to mutate them further. Without
 * that (CTest's short runs) it mutates the given inputs, and now and then stacks mutations.
 *
 *     fuzz_NAME [-runs=N] [-max_total_time=S] [-seed=N] [-max_len=N] FOLDER... (libFuzzer's)
 *     fuzz_NAME FILE...                                            only replays these
 *
 * The time is the processor's, which says what a busy machine gave.
 * With two folders or more, new inputs are written to the first. The current input is in the
 * file fuzz_NAME.input of the working folder, so that it survives any crash. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { EDGES = 1 << 16, MAX_INPUTS = 1 << 16, HANG_S = 25 };

typedef struct input {
    uint8_t *data;
    size_t size;
} input;

static struct {
    input inputs[MAX_INPUTS];
    int count;
    size_t max_len;
    uint64_t random;
    const char *save; /* folder for new inputs; NULL: nowhere */
    long runs, found;
    int current; /* file of the input that runs: it outlives the process */
} f = {.max_len = 1 << 16, .random = 1};

static uint8_t edges[EDGES], known[EDGES];
static _Thread_local uintptr_t last_edge;

/* --- coverage: called by instrumented code at each basic block --- */

void __sanitizer_cov_trace_pc(void);
#if __GNUC__ >= 12 && !defined(__clang__)
__attribute__((no_sanitize_coverage))
#endif
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0) * 0x9E3779B97F4A7C15u >> 48;
    edges[(here ^ last_edge) % EDGES] = 1;
    last_edge = here >> 1;
}

/* Records the edges of the last run. Returns whether any is new. */
static bool is_new(void)
{
    bool fresh = false;
    for (int i = 0; i < EDGES; i++)
        if (edges[i] && !known[i])
            known[i] = fresh = true;
    return fresh;
}

/* --- random numbers: splitmix64 --- */

static uint64_t draw(uint64_t below)
{
    uint64_t z = f.random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

/* --- mutations: of `size` bytes in a buffer of max_len; the new size --- */

static size_t flip_bit(uint8_t *d, size_t size)
{
    if (size)
        d[draw(size)] ^= (uint8_t)(1 << draw(8));
    return size;
}

static size_t set_byte(uint8_t *d, size_t size)
{
    static const uint8_t telling[] = {
        0, 1, 0x7F, 0x80, 0xFF, '"', '{', '}', '[', ',', '-', ' '};
    if (size)
        d[draw(size)] = draw(2) ? (uint8_t)draw(256) : telling[draw(sizeof telling)];
    return size;
}

/* Writes a number of 2, 4 or 8 bytes, in either byte order, at the limits of integer types. */
static size_t set_number(uint8_t *d, size_t size)
{
    static const uint64_t telling[] = {0, 1, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
        0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, INT64_MAX, UINT64_MAX};
    size_t bytes = (size_t)2 << draw(3);
    if (size < bytes)
        return size;
    uint64_t value = telling[draw(sizeof telling / sizeof *telling)] + draw(3) - 1;
    uint8_t *at = d + draw(size - bytes + 1);
    bool big = draw(2);
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * (big ? bytes - 1 - i : i));
    return size;
}

/* Replaces a decimal number at some place by another. */
static size_t set_decimal(uint8_t *d, size_t size)
{
    static const char *const telling[] = {"0", "-1", "1e999", "4294967296",
        "9223372036854775807", "18446744073709551616", "0.5", "null", "true", "\"\"", "[]",
        "{}"};
    if (!size)
        return size;
    size_t at = draw(size), end;
    while (at < size && (d[at] < '0' || d[at] > '9'))
        at++;
    for (end = at; end < size && d[end] >= '0' && d[end] <= '9';)
        end++;
    const char *text = telling[draw(sizeof telling / sizeof *telling)];
    size_t length = strlen(text);
    if (at == end || size - (end - at) + length > f.max_len)
        return size;
    memmove(d + at + length, d + end, size - end);
    memcpy(d + at, text, length);
    return size - (end - at) + length;
}

static size_t cut_out(uint8_t *d, size_t size)
{
    if (size < 2)
        return size;
    size_t at = draw(size), n = 1 + draw(draw(2) ? 4 : size - at);
    n = n < size - at ? n : size - at;
    memmove(d + at, d + at + n, size - at - n);
    return size - n;
}

static size_t cut_short(uint8_t *d, size_t size)
{
    (void)d;
    return size ? draw(size) : 0;
}

static size_t insert(uint8_t *d, size_t size, const uint8_t *what, size_t n)
{
    if (!n || size + n > f.max_len)
        return size;
    size_t at = draw(size + 1);
    memmove(d + at + n, d + at, size - at);
    memcpy(d + at, what, n);
    return size + n;
}

static size_t repeat_part(uint8_t *d, size_t size)
{
    uint8_t part[256];
    if (!size)
        return size;
    size_t at = draw(size), n = 1 + draw(sizeof part);
    n = n < size - at ? n : size - at;
    memcpy(part, d + at, n);
    return insert(d, size, part, n);
}

static size_t insert_noise(uint8_t *d, size_t size)
{
    uint8_t part[16];
    size_t n = 1 + draw(sizeof part);
    for (size_t i = 0; i < n; i++)
        part[i] = (uint8_t)draw(256);
    return insert(d, size, part, n);
}

static size_t insert_other(uint8_t *d, size_t size)
{
    const input *other = &f.inputs[draw((uint64_t)f.count)];
    if (!other->size)
        return size;
    size_t at = draw(other->size);
    return insert(d, size, other->data + at, 1 + draw(other->size - at));
}

static size_t (*const mutations[])(uint8_t *, size_t) = {flip_bit, set_byte, set_number,
    set_decimal, cut_out, cut_short, repeat_part, insert_noise, insert_other};

static size_t mutate(uint8_t *d)
{
    const input *from = &f.inputs[draw((uint64_t)f.count)];
    size_t size = from->size < f.max_len ? from->size : f.max_len;
    memcpy(d, from->data, size);
    for (uint64_t n = (uint64_t)1 << draw(5); n; n--)
        size = mutations[draw(sizeof mutations / sizeof *mutations)](d, size);
    return size;
}

/* --- inputs --- */

static void add_input(const uint8_t *data, size_t size)
{
    if (f.count == MAX_INPUTS)
        return;
    input *in = &f.inputs[f.count++];
    in->data = malloc(size + 1);
    memcpy(in->data, data, size);
    in->size = size;
}

static void save_input(const uint8_t *data, size_t size)
{
    char path[4096];
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 0x100000001B3u;
    snprintf(path, sizeof path, "%s/%016llx", f.save, (unsigned long long)hash);
    FILE *file = fopen(path, "wb");
    if (!file)
        return;
    fwrite(data, 1, size, file);
    fclose(file);
}

/* Ends the process after so long in one run, 0: never. A busy machine may leave a run without a
 * core for long: a reader that hangs takes this much of the processor's time, or waits ten
 * times as long for a file. */
static void limit(int seconds)
{
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
    alarm(10 * (unsigned)seconds);
}

/* The heap copy has the input's exact size, so that reading past its end is noticed. */
static bool run(const uint8_t *data, size_t size)
{
    if (pwrite(f.current, data, size, 0) != (ssize_t)size || ftruncate(f.current, (off_t)size))
        perror("the current input cannot be kept");
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    memset(edges, 0, sizeof edges);
    last_edge = 0;
    limit(HANG_S);
    LLVMFuzzerTestOneInput(copy, size);
    limit(0);
    free(copy);
    f.runs++;
    return is_new();
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_file(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    uint8_t *data = malloc(f.max_len);
    FILE *file = fopen(path, "rb");
    if (file) {
        add_input(data, fread(data, 1, f.max_len, file));
        fclose(file);
    }
    free(data);
}

static void read_folder(const char *folder)
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, by_name);
    if (n < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        read_file(path);
        free(names[i]);
    }
    free(names);
}

static void keep_current(const char *program)
{
    const char *slash = strrchr(program, '/');
    char name[256];
    snprintf(name, sizeof name, "%s.input", slash ? slash + 1 : program);
    f.current = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f.current < 0) {
        perror(name);
        exit(2);
    }
}

/* --- the program --- */

typedef struct wanted {
    long runs, seconds; /* runs -1: as many as the time allows */
    const char *folders[16];
    int count;
} wanted;

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool parse(int argc, char **argv, wanted *w)
{
    for (int i = 1; i < argc; i++) {
        unsigned long long n;
        if (sscanf(argv[i], "-runs=%llu", &n) == 1)
            w->runs = (long)n;
        else if (sscanf(argv[i], "-max_total_time=%llu", &n) == 1)
            w->seconds = (long)n;
        else if (sscanf(argv[i], "-seed=%llu", &n) == 1)
            f.random = n;
        else if (sscanf(argv[i], "-max_len=%llu", &n) == 1 && n > 0)
            f.max_len = n;
        else if (*argv[i] != '-' && w->count < 16)
            w->folders[w->count++] = argv[i];
        else {
            fprintf(stderr, "%s: %s makes no sense\n", argv[0], argv[i]);
            return false;
        }
    }
    if (w->runs < 0 && !w->seconds)
        w->runs = 1000;
    return true;
}

static time_t processor_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec;
}

static void mutate_on(const wanted *w)
{
    uint8_t *d = malloc(f.max_len);
    while ((w->runs < 0 || f.runs < w->runs) &&
           (!w->seconds || processor_seconds() < w->seconds)) {
        size_t size = mutate(d);
        if (!run(d, size))
            continue;
        f.found++;
        add_input(d, size);
        if (f.save)
            save_input(d, size);
    }
    free(d);
}

static void report(int given)
{
    int covered = 0;
    for (int i = 0; i < EDGES; i++)
        covered += known[i];
    printf("%ld runs of %d inputs in %ld s", f.runs, given, (long)processor_seconds());
    if (covered)
        printf(", %ld new ones, %d edges of the code", f.found, covered);
    printf("\n");
}

int main(int argc, char **argv)
{
    wanted w = {.runs = -1};
    if (!parse(argc, argv, &w))
        return 2;
    bool folders = false;
    for (int i = 0; i < w.count; i++)
        if (is_folder(w.folders[i])) {
            read_folder(w.folders[i]);
            folders = true;
        } else
            read_file(w.folders[i]);
    f.save = w.count > 1 && is_folder(w.folders[0]) ? w.folders[0] : NULL;
    keep_current(argv[0]);
    if (!f.count)
        add_input((const uint8_t *)"", 0);
    int given = f.count;
    for (int i = 0; i < given; i++)
        run(f.inputs[i].data, f.inputs[i].size);
    if (folders || !w.count) /* files alone are replayed, and that is all */
        mutate_on(&w);
    report(given);
    for (int i = 0; i < f.count; i++)
        free(f.inputs[i].data);
    return 0;
}
