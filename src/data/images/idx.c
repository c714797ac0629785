/* Folders of IDX files, MNIST's format.
 *
 *     images   00 00 08 03   count   height   width   pixels, a byte each   (words: big-endian)
 *     labels   00 00 08 01   count   labels, a byte each
 *
 * A header is trusted only if it agrees with the file's length. The uncompressed length of a
 * compressed file is unknown, so memory grows with the data actually read. zlib reads plain
 * files and gzip alike. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/files/file.h"
#include "base/floats.h"
#include "data/dataset.h"

#define IMAGES   "-images-idx3-ubyte"
#define LABELS   "-labels-idx1-ubyte"
#define EXPECTED "*" IMAGES " and *" LABELS ", also .gz"

enum {
    IMAGE_MARK = 0x803,
    LABEL_MARK = 0x801,
    GZIP_BEST = 1032, /* deflate expands by at most this factor */
    GZIP_USUAL = 100, /* images expand by less */
    SMALL = 64 << 20, /* bytes of values that may be any compression of them */
    PIECE = 1 << 20,
    PIXELS_LIMIT = 1 << 26, /* per image */
};

/* A file's values, and their sizes from its header. */
typedef struct idx_file {
    uint32_t dim[3];
    unsigned char *values;
    int64_t count; /* number of samples */
} idx_file;

/* One pair of files in memory. */
typedef struct idx_pair {
    idx_file images, labels;
} idx_pair;

typedef struct idx_dataset {
    choir_dataset base;
    idx_pair pair;
    int64_t first, length; /* samples of this split */
    /* Images of the front that are for validation all the same, ascending: see data/dataset.h.
     */
    int64_t moved[256];
    int moved_count;
    bool training;
    float value[256]; /* value of each level: (level/255 - mean) / deviation */
    double mean, deviation;
} idx_dataset;

/* --- one file --- */

static choir_status read_failed(gzFile file, const char *path)
{
    int code;
    const char *why = gzerror(file, &code);
    if (code == Z_ERRNO)
        return choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    return choir__error(CHOIR_ERR_FORMAT, "%s: the gzip data are damaged or cut short (%s)",
        path, code == Z_OK ? "unexpected end" : why);
}

/* Reads up to `bytes`; *got is less only at the file's end. */
static choir_status read_some(
    gzFile file, const char *path, void *data, size_t bytes, size_t *got)
{
    int n = gzread(file, data, (unsigned)bytes);
    int code = Z_OK;
    if (n >= 0 && (size_t)n < bytes)
        gzerror(file, &code);
    if (n < 0 || code != Z_OK)
        return read_failed(file, path);
    *got = (size_t)n;
    return CHOIR_OK;
}

static uint32_t big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static choir_status read_header(gzFile file, const char *path, uint32_t mark, idx_file *idx)
{
    size_t dims = mark & 0xFF, bytes = 4 + 4 * dims;
    unsigned char header[16];
    size_t got;
    choir_status status = read_some(file, path, header, bytes, &got);
    if (status != CHOIR_OK)
        return status;
    if (got == 0)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: expected an IDX file, got an empty file", path);
    if (got >= 4 && big_endian(header) != mark)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected 0x%08x, the mark of IDX %s, got 0x%08x", path, mark,
            dims == 3 ? "images" : "labels", big_endian(header));
    if (got < bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s ends after %zu bytes, within its header of %zu", path, got, bytes);
    for (size_t i = 0; i < dims; i++)
        idx->dim[i] = big_endian(header + 4 + 4 * i);
    idx->count = idx->dim[0];
    return CHOIR_OK;
}

/* Computes the bytes of values that the header states, and checks them against the file's
 * size. */
static choir_status promised(
    gzFile file, int fd, const char *path, size_t dims, const idx_file *idx, size_t *bytes)
{
    uint64_t each = dims == 3 ? (uint64_t)idx->dim[1] * idx->dim[2] : 1;
    struct stat info;
    if (each == 0 || each > PIXELS_LIMIT)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected images of 1 to %d pixels, got %u x %u", path, PIXELS_LIMIT,
            idx->dim[1], idx->dim[2]);
    if (idx->count == 0)
        return choir__error(CHOIR_ERR_FORMAT, "%s: expected 1 item or more, got none", path);
    *bytes = (size_t)(each * idx->dim[0]); /* below 2^58 */
    if (fstat(fd, &info) != 0)
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, strerror(errno));
    uint64_t size = (uint64_t)info.st_size, header = 4 + 4 * dims;
    if (gzdirect(file) ? size != header + *bytes : *bytes / GZIP_BEST > size)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its header promises %zu bytes of values, which a file of %llu bytes%s cannot"
            " hold; %s",
            path, *bytes, (unsigned long long)size, gzdirect(file) ? "" : ", compressed,",
            size < header + *bytes ? "it is cut short or damaged" : "it has more than that");
    if (!gzdirect(file) && *bytes > SMALL && *bytes / GZIP_USUAL > size)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its header promises %zu bytes of values, over %d times the file's %llu bytes: no "
            "images are that uniform; unpack it if they are",
            path, *bytes, GZIP_USUAL, (unsigned long long)size);
    return CHOIR_OK;
}

static choir_status read_values(gzFile file, const char *path, size_t bytes, idx_file *idx)
{
    size_t room = 0, got;
    choir_status status;
    for (size_t used = 0; used < bytes;) {
        if (used == room) { /* doubles, up to the size that the header states */
            room = room ? 2 * room : PIECE;
            room = room < bytes ? room : bytes;
            unsigned char *more = realloc(idx->values, room);
            if (!more)
                return choir__error(
                    CHOIR_ERR_MEMORY, "%s: no host memory for its %zu bytes", path, bytes);
            idx->values = more;
        }
        size_t piece = room - used < PIECE ? room - used : PIECE;
        if ((status = read_some(file, path, idx->values + used, piece, &got)) != CHOIR_OK)
            return status;
        used += got;
        if (got < piece)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s ends after %zu bytes of values; its header promises %zu", path, used,
                bytes);
    }
    unsigned char more;
    status = read_some(file, path, &more, 1, &got); /* this read also verifies the checksum */
    if (status == CHOIR_OK && got)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s has more than the %zu bytes of values that its header promises", path, bytes);
    return status;
}

static choir_status read_idx(const char *path, uint32_t mark, idx_file *idx)
{
    size_t bytes = 0;
    int fd;
    choir_status status = choir__file_open(path, O_RDONLY, CHOIR__FILE_REGULAR, &fd);
    if (status != CHOIR_OK)
        return status;
    int own = dup(fd); /* gzclose closes this one */
    gzFile file = own < 0 ? NULL : gzdopen(own, "rb");
    if (!file) {
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
        if (own >= 0)
            close(own);
        close(fd);
        return status;
    }
    status = read_header(file, path, mark, idx);
    if (status == CHOIR_OK)
        status = promised(file, fd, path, mark & 0xFF, idx, &bytes);
    if (status == CHOIR_OK)
        status = read_values(file, path, bytes, idx);
    gzclose_r(file);
    close(fd);
    return status;
}

/* --- a pair of files --- */

/* Returns folder/name, or folder/name.gz if only that exists. */
static char *path_of(const char *folder, const char *name, const char *kind)
{
    char *plain = choir__format("%s/%s%s", folder, name, kind);
    char *packed = choir__format("%s.gz", plain);
    bool other = access(plain, F_OK) != 0 && access(packed, F_OK) == 0;
    free(other ? plain : packed);
    return other ? packed : plain;
}

static void free_pair(idx_pair *pair)
{
    free(pair->images.values);
    free(pair->labels.values);
    *pair = (idx_pair){0};
}

static choir_status read_pair(const char *folder, const char *name, idx_pair *pair)
{
    char *images = path_of(folder, name, IMAGES), *labels = path_of(folder, name, LABELS);
    choir_status status = read_idx(images, IMAGE_MARK, &pair->images);
    if (status == CHOIR_OK)
        status = read_idx(labels, LABEL_MARK, &pair->labels);
    if (status == CHOIR_OK && pair->images.count != pair->labels.count)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s holds %lld labels, but %s %lld images: they must be as many", labels,
            (long long)pair->labels.count, images, (long long)pair->images.count);
    free(images);
    free(labels);
    if (status != CHOIR_OK)
        free_pair(pair);
    return status;
}

/* --- a folder of pairs --- */

typedef struct found {
    bool train, t10k;
    int others;
    char *name; /* last match: the text before "-images-..." */
} found;

static void note_name(found *f, const char *file)
{
    const char *mark = strstr(file, IMAGES);
    const char *rest = mark ? mark + strlen(IMAGES) : "";
    if (!mark || mark == file || (*rest && strcmp(rest, ".gz") != 0))
        return;
    size_t length = (size_t)(mark - file);
    if (length == 5 && !strncmp(file, "train", 5))
        f->train = true;
    if (length == 4 && !strncmp(file, "t10k", 4))
        f->t10k = true;
    if (f->name && strlen(f->name) == length && !strncmp(f->name, file, length))
        return; /* plain and .gz of the same file */
    f->others++;
    free(f->name);
    f->name = choir__format("%.*s", (int)length, file);
}

static choir_status look_into(const char *folder, found *f)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return choir__error(
            CHOIR_ERR_IO, "%s: no folder that can be read: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));)
        note_name(f, entry->d_name);
    closedir(dir);
    if (!f->others)
        return choir__error(CHOIR_ERR_IO,
            "%s has no images with classes: expected " EXPECTED
            ", or images in folders of their "
            "classes (CLASS/*.jpg, .jpeg or .png)",
            folder);
    return CHOIR_OK;
}

static void measure(idx_dataset *d, const unsigned char *pixels, int64_t count)
{
    int64_t seen[256] = {0};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++)
        seen[pixels[i]]++;
    for (int i = 0; i < 256; i++) {
        sum += (double)seen[i] * i;
        squares += (double)seen[i] * i * i;
    }
    double mean = sum / (double)count / 255;
    double variance = squares / (double)count / (255.0 * 255) - mean * mean;
    d->mean = mean;
    d->deviation = variance > 1e-12 ? sqrt(variance) : 1; /* 1 if all pixels are equal */
}

static void set_values(idx_dataset *d)
{
    for (int i = 0; i < 256; i++)
        d->value[i] = (float)((i / 255.0 - d->mean) / d->deviation);
}

static void count_classes(idx_dataset *d, const idx_file *labels)
{
    for (int64_t i = 0; i < labels->count; i++)
        d->base.classes = choir__max(d->base.classes, labels->values[i] + 1);
}

static int64_t pixels_of(const idx_pair *pair)
{
    return (int64_t)pair->images.dim[1] * pair->images.dim[2];
}

/* Opens train-* and t10k-*. Both are read: train-* determines the mean, and both the
 * classes. */
static choir_status open_two(const char *folder, choir_split split, idx_dataset *d)
{
    idx_pair train = {0}, test = {0};
    choir_status status = read_pair(folder, "train", &train);
    if (status == CHOIR_OK)
        status = read_pair(folder, "t10k", &test);
    if (status == CHOIR_OK && memcmp(train.images.dim + 1, test.images.dim + 1, 8) != 0)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: training images are %u x %u, those of t10k %u x %u: they must be alike",
            folder, train.images.dim[1], train.images.dim[2], test.images.dim[1],
            test.images.dim[2]);
    if (status != CHOIR_OK)
        goto out;
    measure(d, train.images.values, train.images.count * pixels_of(&train));
    count_classes(d, &train.labels);
    count_classes(d, &test.labels);
    idx_pair *wanted = split == CHOIR_TRAIN ? &train : &test;
    d->pair = *wanted;
    d->length = d->pair.images.count;
    *wanted = (idx_pair){0};
out:
    free_pair(&train);
    free_pair(&test);
    return status;
}

/* Notes the second image of each class that has two or more, and none behind the first
 * `training` images. */
static void move_second_ones(idx_dataset *d, int64_t training)
{
    const unsigned char *labels = d->pair.labels.values;
    bool held[256] = {false};
    int seen[256] = {0};
    for (int64_t i = training; i < d->pair.labels.count; i++)
        held[labels[i]] = true;
    for (int64_t i = 0; i < training; i++)
        if (!held[labels[i]] && ++seen[labels[i]] == 2)
            d->moved[d->moved_count++] = i;
}

/* Returns the place of a sample in the file. */
static int64_t place_of(const idx_dataset *d, int64_t index)
{
    const int64_t behind = d->length - d->moved_count;
    if (!d->training)
        return index < behind ? d->first + index : d->moved[index - behind];
    for (int k = 0; k < d->moved_count && d->moved[k] <= index; k++)
        index++;
    return index;
}

static choir_status open_one(
    const char *folder, const char *name, choir_split split, double held, idx_dataset *d)
{
    choir_status status = choir__holdout_check(folder, held);
    if (status == CHOIR_OK)
        status = read_pair(folder, name, &d->pair);
    if (status != CHOIR_OK)
        return status;
    int64_t count = d->pair.images.count, training = choir__training_part(held, count);
    if (training == 0 && (held != 1 || split == CHOIR_TRAIN))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: %s" IMAGES " holds %lld image%s: none of them would be left to train on",
            folder, name, (long long)count, count == 1 ? "" : "s");
    measure(d, d->pair.images.values, (training ? training : count) * pixels_of(&d->pair));
    count_classes(d, &d->pair.labels);
    move_second_ones(d, training);
    d->training = split == CHOIR_TRAIN;
    d->first = d->training ? 0 : training;
    d->length = d->training ? training - d->moved_count : count - training + d->moved_count;
    d->base.held_out = !d->training;
    return CHOIR_OK;
}

/* --- the dataset --- */

static int64_t idx_length(const choir_dataset *self)
{
    return ((const idx_dataset *)self)->length;
}

static choir_status idx_get(choir_dataset *self, int64_t index, void *x, void *y)
{
    const idx_dataset *d = (const idx_dataset *)self;
    int64_t n = pixels_of(&d->pair), sample = place_of(d, index);
    const unsigned char *pixels = d->pair.images.values + sample * n;
    float *out = x;
    for (int64_t i = 0; i < n; i++)
        out[i] = d->value[pixels[i]];
    *(int64_t *)y = d->pair.labels.values[sample];
    return CHOIR_OK;
}

static void idx_free(choir_dataset *self)
{
    free_pair(&((idx_dataset *)self)->pair);
    free(self);
}

static void idx_normalized(const choir_dataset *self, float mean[3], float std[3])
{
    const idx_dataset *d = (const idx_dataset *)self;
    for (int c = 0; c < 3; c++) {
        mean[c] = (float)d->mean;
        std[c] = (float)d->deviation;
    }
}

static const choir_dataset_ops idx_ops = {
    .length = idx_length, .get = idx_get, .free = idx_free, .normalized = idx_normalized};

choir_status choir_dataset_idx(const char *folder, choir_split split, choir_dataset **dataset)
{
    if (!folder)
        return choir__missing(__func__, "folder");
    return choir__dataset_idx(folder, split, 0, 0, 0, dataset);
}

void choir__idx_brightness(
    const choir_dataset *dataset, double *pixel_mean, double *pixel_deviation)
{
    const idx_dataset *d = (const idx_dataset *)dataset;
    if (dataset->ops != &idx_ops)
        return;
    *pixel_mean = d->mean;
    *pixel_deviation = d->deviation;
}

choir_status choir__dataset_idx(const char *folder, choir_split split, double held,
    double pixel_mean, double pixel_deviation, choir_dataset **dataset)
{
    CHOIR__DEFAULT_FLOATS;
    if (split != CHOIR_TRAIN && split != CHOIR_VALIDATION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: unknown split %d: choose CHOIR_TRAIN or CHOIR_VALIDATION", folder, (int)split);
    idx_dataset *d = choir__calloc(1, sizeof *d);
    d->base = (choir_dataset){.ops = &idx_ops, .x_dtype = CHOIR_F32, .y_dtype = CHOIR_I64};
    found f = {0};
    choir_status status = look_into(folder, &f);
    if (status != CHOIR_OK)
        goto out;
    if (f.train && f.t10k)
        status = open_two(folder, split, d);
    else if (f.others == 1)
        status = open_one(folder, f.name, split, held, d);
    else
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a single set of images, or train-* and t10k-*, got several (%s" IMAGES
            " is one)",
            folder, f.name);
    if (status != CHOIR_OK)
        goto out;
    if (pixel_deviation > 0) {
        d->mean = pixel_mean;
        d->deviation = pixel_deviation;
    }
    set_values(d);
    d->base.x_shape = choir_dims(1, d->pair.images.dim[1], d->pair.images.dim[2]);
    *dataset = &d->base;
    d = NULL;
out:
    free(f.name);
    if (d)
        idx_free(&d->base);
    return status;
}
