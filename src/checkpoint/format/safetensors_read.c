/* Reading safetensors: map the file, parse the header, trust nothing.
 *
 * The header's claims about a tensor are checked against the file before they are used: offsets
 * are within the data, agree with dtype and shape (safetensors_header.c), and together cover
 * the data once, without overlap or gap. So a truncated or inconsistent file is an error here,
 * and never an invalid read later. */
#include "base/files/file.h"
#include "checkpoint/format/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 100000000 };

/* --- all tensors together --- */

static int by_offset(const void *a, const void *b)
{
    const choir__st_tensor *x = a, *y = b;
    const char *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first, because they overlap nothing */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const choir__st_tensor *)a)->name, ((const choir__st_tensor *)b)->name);
}

static choir_status check_cover(choir__st_file *f)
{
    const char *data = f->map + CHOIR__ST_LENGTH + f->header_bytes;
    size_t data_bytes = f->size - CHOIR__ST_LENGTH - f->header_bytes, covered = 0;
    if (f->count)
        qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_offset);
    for (int i = 0; i < f->count; i++) {
        const choir__st_tensor *t = &f->tensors[i];
        size_t begin = (size_t)((const char *)t->data - data);
        if (begin < covered)
            return choir__error(CHOIR_ERR_FORMAT, CHOIR__ST_TENSOR "overlaps tensor '%.200s'",
                f->path, t->name, f->tensors[i - 1].name);
        if (begin > covered)
            return choir__error(CHOIR_ERR_FORMAT,
                CHOIR__ST_TENSOR
                "begins at byte %zu of the data; bytes %zu to %zu belong to no tensor",
                f->path, t->name, begin, covered, begin);
        covered = begin + t->bytes;
    }
    if (covered != data_bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: %zu bytes behind the last tensor belong to no tensor", f->path,
            data_bytes - covered);
    return CHOIR_OK;
}

void choir__st_sort(choir__st_file *f)
{
    if (f->count)
        qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_name);
}

static choir_status check_names(choir__st_file *f)
{
    choir__st_sort(f);
    for (int i = 1; i < f->count; i++)
        if (!strcmp(f->tensors[i].name, f->tensors[i - 1].name))
            return choir__error(CHOIR_ERR_FORMAT,
                CHOIR__ST_TENSOR "is a duplicate: it is described twice", f->path,
                f->tensors[i].name);
    return CHOIR_OK;
}

static choir_status read_length(choir__st_file *f)
{
    uint64_t length = 0;
    for (int i = CHOIR__ST_LENGTH; i-- > 0;)
        length = length << 8 | (unsigned char)f->map[i];
    if (length > MAX_HEADER)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the header would have %llu bytes; at most %d are allowed: this is no safetensors "
            "file, or it is damaged",
            f->path, (unsigned long long)length, MAX_HEADER);
    if (length > f->size - CHOIR__ST_LENGTH)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the header should have %llu bytes, but the file ends after %zu: it is truncated",
            f->path, (unsigned long long)length, f->size - CHOIR__ST_LENGTH);
    f->header_bytes = (size_t)length;
    return CHOIR_OK;
}

static choir_status map_file(choir__st_file *f)
{
    struct stat info;
    int fd;
    choir_status status = choir__file_open(f->path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    if (fstat(fd, &info) != 0) {
        status =
            choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", f->path, strerror(errno));
    } else if (info.st_size < CHOIR__ST_LENGTH) {
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: %lld bytes are no safetensors file: it begins "
            "with the %d bytes of a length",
            f->path, (long long)info.st_size, CHOIR__ST_LENGTH);
    } else {
        f->size = (size_t)info.st_size;
        void *map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            status = choir__error(
                CHOIR_ERR_IO, "%s: cannot be mapped: %s", f->path, strerror(errno));
        else
            f->map = map;
    }
    if (fd >= 0)
        close(fd);
    return status;
}

choir_status choir__st_open(const char *path, choir__st_file **file)
{
    choir__st_file *f = choir__calloc(1, sizeof *f);
    f->path = choir__strdup(path);
    choir_status status = map_file(f);
    if (status == CHOIR_OK)
        status = read_length(f);
    if (status == CHOIR_OK)
        status = choir__st_read_header(f);
    if (status == CHOIR_OK)
        status = check_names(f);
    if (status == CHOIR_OK)
        status = check_cover(f);
    if (status != CHOIR_OK) {
        choir__st_close(f);
        return status;
    }
    choir__st_sort(f);
    *file = f;
    return CHOIR_OK;
}

void choir__st_close(choir__st_file *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->count; i++) {
        free(f->tensors[i].name);
        free(f->tensors[i].own);
    }
    free(f->tensors);
    json_decref(f->metadata);
    if (f->map)
        munmap(f->map, f->size);
    free(f->path);
    free(f);
}

int choir__st_count(const choir__st_file *f)
{
    return f->count;
}

const choir__st_tensor *choir__st_get(const choir__st_file *f, int i)
{
    return i >= 0 && i < f->count ? &f->tensors[i] : NULL;
}

const char *choir__st_metadata(const choir__st_file *f, const char *key)
{
    return json_string_value(json_object_get(f->metadata, key));
}
