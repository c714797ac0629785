/* Windows of a file of token ids. Each window is read when it is requested, from the pages that
 * the system keeps in memory while it has room. A mapped file would spare the copy, but a file
 * that becomes shorter meanwhile would then end the process. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "data/dataset.h"
#include "data/text/tokens.h"

typedef struct token_file {
    const char *name;
    int fd;
    size_t bytes, begin;       /* begin: offset of the ids */
    int width;                 /* bytes per id */
    int64_t count, vocabulary; /* vocabulary 0: the file does not state it */
} token_file;

typedef struct token_dataset {
    choir_dataset base;
    token_file file;
    char *name;
    int64_t context, stride, length, first; /* first: id of the split, in the file */
} token_dataset;

/* Reads bytes at an offset. Error: io. */
static choir_status read_at(const token_file *f, size_t offset, void *data, size_t bytes)
{
    for (char *to = data; bytes;) {
        ssize_t n = pread(f->fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return choir__error(CHOIR_ERR_IO, "%s: cannot be read at byte %zu: %s", f->name,
                offset, n ? strerror(errno) : "the file has become shorter");
        to += n;
        offset += (size_t)n;
        bytes -= (size_t)n;
    }
    return CHOIR_OK;
}

static choir_status read_ids(const token_file *f, int64_t first, int64_t count, void *packed)
{
    size_t width = (size_t)f->width;
    return read_at(f, f->begin + (size_t)first * width, packed, (size_t)count * width);
}

static inline int64_t id_at(const token_file *f, const void *packed, int64_t i)
{
    const unsigned char *at = (const unsigned char *)packed + (size_t)i * (size_t)f->width;
    return f->width == 2 ? at[0] | at[1] << 8
                         : (int64_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 |
                                     (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
}

/* --- reading the header --- */

static bool ends_in_bin(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".bin");
}

/* Finds the format in the file's first bytes; returns false if they state none. */
static bool find_format(token_file *f, const void *first, size_t bytes)
{
    choir__tokens_header h = {0};
    uint32_t llmc[3];
    if (bytes >= sizeof h.magic && !memcmp(first, CHOIR__TOKENS_MAGIC, sizeof h.magic)) {
        memcpy(&h, first, bytes < sizeof h ? bytes : sizeof h);
        f->begin = sizeof h;
        f->width = f->bytes >= sizeof h && h.version == 1 && (h.width == 2 || h.width == 4)
                       ? (int)h.width
                       : 0;
        f->count = h.count > INT64_MAX / 8 ? -1 : (int64_t)h.count;
        f->vocabulary = h.vocabulary && h.vocabulary <= 1u << 31 ? (int64_t)h.vocabulary : -1;
        return true;
    }
    if (bytes < sizeof llmc)
        return false;
    memcpy(llmc, first, sizeof llmc);
    if (llmc[0] != CHOIR__LLMC_GPT2 && llmc[0] != CHOIR__LLMC_LLAMA3)
        return false;
    f->begin = CHOIR__LLMC_BYTES;
    f->width = llmc[0] == CHOIR__LLMC_GPT2 && llmc[1] == 1     ? 2
               : llmc[0] == CHOIR__LLMC_LLAMA3 && llmc[1] == 7 ? 4
                                                               : 0;
    f->count = llmc[2];
    return true;
}

static choir_status check_header(const char *path, token_file *f)
{
    char first[sizeof(choir__tokens_header)];
    size_t bytes = f->bytes < sizeof first ? f->bytes : sizeof first;
    choir_status status = read_at(f, 0, first, bytes);
    if (status != CHOIR_OK)
        return status;
    if (!find_format(f, first, bytes)) {
        if (!ends_in_bin(path))
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: expected a file of token ids, with their header or with a name that "
                "ends in .bin",
                path);
        if (f->bytes % 2)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: without a header it is u16 ids, but it has an odd %zu bytes", path,
                f->bytes);
        f->width = 2;
        f->count = (int64_t)(f->bytes / 2);
        return CHOIR_OK;
    }
    if (!f->width || f->vocabulary < 0 || f->count < 0)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its header has an unknown version or impossible sizes", path);
    size_t room = f->bytes > f->begin ? f->bytes - f->begin : 0;
    if ((uint64_t)f->count * (uint64_t)f->width != room)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its header says %lld ids of %d bytes, and %zu bytes follow: it is truncated,"
            " or was written to after",
            path, (long long)f->count, f->width, room);
    return CHOIR_OK;
}

static choir_status open_file(const char *path, token_file *f)
{
    struct stat info;
    *f = (token_file){.name = path};
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &f->fd);
    if (status != CHOIR_OK)
        return status;
    if (fstat(f->fd, &info) != 0)
        return choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (!info.st_size)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: expected token ids, got an empty file", path);
    f->bytes = (size_t)info.st_size;
    return CHOIR_OK;
}

bool choir__is_token_file(const char *path)
{
    char first[8] = {0};
    uint32_t magic;
    struct stat info;
    if (stat(path, &info) != 0 ||
        !S_ISREG(info.st_mode)) /* opening a FIFO would take its writer */
        return false;
    int fd = choir__file_try(path, O_RDONLY, CHOIR__FILE_REGULAR);
    ssize_t n = fd >= 0 ? read(fd, first, sizeof first) : -1;
    if (fd >= 0)
        close(fd);
    memcpy(&magic, first, sizeof magic);
    return n > 0 && (ends_in_bin(path) || !memcmp(first, CHOIR__TOKENS_MAGIC, sizeof first) ||
                        magic == CHOIR__LLMC_GPT2 || magic == CHOIR__LLMC_LLAMA3);
}

/* --- the dataset --- */

static int64_t tokens_length(const choir_dataset *self)
{
    return ((const token_dataset *)self)->length;
}

/* The packed ids of a window, one more than the context, fit into y. */
static choir_status tokens_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const token_dataset *d = (const token_dataset *)self;
    int64_t from = d->first + index * d->stride, *in = x, *out = y, last = 0;
    choir_status status = read_ids(&d->file, from, d->context + 1, y);
    if (status != CHOIR_OK)
        return status;
    for (int64_t i = 0; i <= d->context; i++) {
        int64_t id = id_at(&d->file, y, i);
        if (id >= self->classes)
            return choir__error(CHOIR_ERR_RANGE,
                "%s: token %lld is %lld, outside the vocabulary of %lld: encode the text with"
                " the model's tokenizer, or give the model a larger vocabulary",
                d->name, (long long)(from + i), (long long)id, (long long)self->classes);
        *(i < d->context ? &in[i] : &last) = id;
    }
    memcpy(out, in + 1, (size_t)(d->context - 1) * sizeof *out);
    out[d->context - 1] = last;
    return CHOIR_OK;
}

static bool tokens_place(
    const choir_dataset *self, int64_t index, int64_t part, choir_sample_place *place)
{
    const token_dataset *d = (const token_dataset *)self;
    place->file = d->name;
    place->first = d->first + index * d->stride;
    place->count = d->context;
    return part == 0;
}

static void tokens_free(choir_dataset *self)
{
    token_dataset *d = (token_dataset *)self;
    close(d->file.fd);
    free(d->name);
    free(d);
}

static const choir_dataset_ops tokens_ops = {
    .length = tokens_length, .get = tokens_get, .free = tokens_free, .place = tokens_place};

/* Finds the largest id of a file that does not state its vocabulary, by one pass over it. */
static choir_status needed_vocabulary(const token_file *f, int64_t *vocabulary)
{
    enum { AT_ONCE = 1 << 16 };
    char *packed = choir__alloc(AT_ONCE * (size_t)f->width);
    choir_status status = CHOIR_OK;
    int64_t largest = 0;
    for (int64_t first = 0; first < f->count && status == CHOIR_OK; first += AT_ONCE) {
        int64_t n = choir__min(f->count - first, AT_ONCE);
        status = read_ids(f, first, n, packed);
        for (int64_t i = 0; i < n && status == CHOIR_OK; i++)
            largest = choir__max(largest, id_at(f, packed, i));
    }
    free(packed);
    *vocabulary = largest + 1;
    return status;
}

static choir_status check_arguments(const char *path, const token_file *f, int64_t context,
    choir_split split, double held, int64_t vocabulary)
{
    if (context < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a context of 1 token or more, got %lld", path, (long long)context);
    if (vocabulary < 0 || (vocabulary && f->vocabulary > vocabulary))
        return choir__error(CHOIR_ERR_RANGE,
            "%s has ids of a vocabulary of %lld, the model's has %lld", path,
            (long long)f->vocabulary, (long long)vocabulary);
    choir_status status = choir__holdout_check(path, held);
    return status == CHOIR_OK ? choir__check_splits(path, f->count, split, held, context)
                              : status;
}

choir_status choir_dataset_tokens(const char *path, int64_t context, choir_split split,
    int64_t vocabulary, choir_dataset **dataset)
{
    if (!path || !dataset)
        return choir__missing(__func__, path ? "dataset" : "path");
    return choir__dataset_tokens(path, context, split, 0, vocabulary, dataset);
}

choir_status choir__dataset_tokens(const char *path, int64_t context, choir_split split,
    double held, int64_t vocabulary, choir_dataset **dataset)
{
    token_file f;
    if (split != CHOIR_TRAIN && split != CHOIR_VALIDATION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: unknown split %d: choose CHOIR_TRAIN or CHOIR_VALIDATION", path, (int)split);
    choir_status status = open_file(path, &f);
    if (status == CHOIR_OK)
        status = check_header(path, &f);
    if (status == CHOIR_OK)
        status = check_arguments(path, &f, context, split, held, vocabulary);
    if (status == CHOIR_OK && !vocabulary)
        vocabulary = f.vocabulary;
    if (status == CHOIR_OK && !vocabulary)
        status = needed_vocabulary(&f, &vocabulary);
    if (status != CHOIR_OK) {
        if (f.fd >= 0)
            close(f.fd);
        return status;
    }
    posix_fadvise(f.fd, 0, 0, split == CHOIR_TRAIN ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
    int64_t training = choir__training_part(held, f.count);
    int64_t kept = split == CHOIR_TRAIN ? training : f.count - training;
    token_dataset *d = choir__calloc(1, sizeof *d);
    d->file = f;
    d->file.name = d->name = choir__strdup(path);
    d->context = context;
    d->stride = split == CHOIR_TRAIN ? 1 : context;
    d->first = split == CHOIR_TRAIN ? 0 : training;
    d->length = (kept - 1 - context) / d->stride + 1;
    d->base = (choir_dataset){.ops = &tokens_ops,
        .x_dtype = CHOIR_I64,
        .y_dtype = CHOIR_I64,
        .x_shape = choir_dims(context),
        .y_shape = choir_dims(context),
        .classes = vocabulary,
        .held_out = split == CHOIR_VALIDATION};
    *dataset = &d->base;
    return CHOIR_OK;
}
