/* Measures the CPU time of reading records, and of changing images.
 *
 *     choir_bench_records FOLDER       one thread; the least of several rounds
 *
 * Writes files of 64 MiB to FOLDER, and reads each record of them; the output has one line
 * each, "name MB/s": JSONL and CSV with texts of about 2000 characters, short ones, and texts
 * with line ends, umlauts, Chinese, and escapes. Then "name milliseconds" for each change of an
 * image of 224 x 224. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <choir/augment.h>
#include "base/rng.h"
#include "data/images/image_ops.h"
#include "data/records.h"

enum { BYTES = 64 << 20, ROUNDS = 5, SIDE = 224, VALUES = 3 * SIDE * SIDE, TIMES = 40 };

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct kind {
    const char *name, *file;
    int length; /* characters of the text */
    int every;  /* the mean distance of `other` characters; 0: there are none */
    const char *other;
} kind;

static const kind kinds[] = {{"jsonl", "a.jsonl", 2000, 0, ""},
    {"jsonl_short", "a.jsonl", 60, 0, ""}, {"jsonl_lines", "a.jsonl", 2000, 60, "\\n"},
    {"jsonl_umlauts", "a.jsonl", 2000, 20, "ö"}, {"jsonl_chinese", "a.jsonl", 2000, 1, "文"},
    {"jsonl_codes", "a.jsonl", 2000, 1, "\\u6587"}, {"csv", "a.csv", 2000, 0, ""},
    {"csv_short", "a.csv", 60, 0, ""}, {"csv_lines", "a.csv", 2000, 60, "\n"},
    {"csv_umlauts", "a.csv", 2000, 20, "ö"}, {"csv_chinese", "a.csv", 2000, 1, "文"},
    {"csv_quotes", "a.csv", 2000, 20, "\"\""}};

/* Writes words of lower-case letters with other characters among them. */
static void write_text(FILE *f, uint64_t *seed, const kind *k)
{
    for (int i = 0; i < k->length; i++) {
        *seed = choir__mix(*seed, 1);
        if (k->every && *seed / 1000 % (unsigned)k->every == 0)
            fputs(k->other, f);
        else
            fputc(*seed % 6 ? 'a' + (int)(*seed % 26) : ' ', f);
    }
}

static void write_file(const kind *k, const char *path)
{
    FILE *f = fopen(path, "wb");
    bool json = strstr(k->file, "json") != NULL;
    uint64_t seed = 1;
    if (!f)
        exit(1);
    if (!json)
        fputs("id,text,label\n", f);
    for (int64_t i = 0; ftell(f) < BYTES; i++) {
        fprintf(f, json ? "{\"id\": %lld, \"text\": \"" : "%lld,\"", (long long)i);
        write_text(f, &seed, k);
        fprintf(f, json ? "\", \"label\": \"%d\"}\n" : "\",%d\n", (int)(seed % 10));
    }
    fclose(f);
}

static choir_status count(void *arg, const choir__data_record_at *at, const choir__json *record)
{
    (void)at;
    *(size_t *)arg += choir__json_get(record, "text")->bytes;
    return CHOIR_OK;
}

static void measure_file(const kind *k, const char *folder)
{
    char *path = choir__format("%s/%s", folder, k->file);
    double least = 1e9;
    write_file(k, path);
    for (int r = 0; r < ROUNDS; r++) {
        size_t bytes = 0;
        double start = cpu_now();
        choir_check(choir__data_records_read(path, count, &bytes));
        double seconds = cpu_now() - start;
        least = seconds < least ? seconds : least;
    }
    printf("%-14s %7.0f MB/s\n", k->name, BYTES / least / 1e6);
    unlink(path);
    free(path);
}

static void measure_change(const char *name, choir_image_op op, double amount)
{
    static float values[2][VALUES], source[VALUES];
    double least = 1e9;
    for (int i = 0; i < VALUES; i++) {
        uint32_t bits[4];
        choir__philox(1, 0, (uint64_t)i, bits);
        source[i] = choir__unit(bits[0]);
    }
    for (int r = 0; r < TIMES; r++) {
        memcpy(values[0], source, sizeof source);
        choir__picture p = {values[0], values[1], SIDE, SIDE, 3, choir__colours_find()};
        double start = cpu_now();
        choir__picture_change(&p, op, amount);
        double seconds = cpu_now() - start;
        least = seconds < least ? seconds : least;
    }
    printf("%-14s %7.3f ms\n", name, 1e3 * least);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        choir_image_op op;
        double amount;
    } changes[] = {{"brightness", CHOIR_IMAGE_BRIGHTNESS, 1.3},
        {"contrast", CHOIR_IMAGE_CONTRAST, 1.3}, {"saturation", CHOIR_IMAGE_SATURATION, 1.3},
        {"hue", CHOIR_IMAGE_HUE, 0.1}, {"sharpness", CHOIR_IMAGE_SHARPNESS, 1.3},
        {"posterize", CHOIR_IMAGE_POSTERIZE, 4}, {"solarize", CHOIR_IMAGE_SOLARIZE, 0.5},
        {"autocontrast", CHOIR_IMAGE_AUTOCONTRAST, 0}, {"equalize", CHOIR_IMAGE_EQUALIZE, 0},
        {"shear", CHOIR_IMAGE_SHEAR_X, 0.1}, {"rotate", CHOIR_IMAGE_ROTATE, 9}};
    if (argc > 1)
        for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
            measure_file(&kinds[i], argv[1]);
    for (size_t i = 0; i < CHOIR_COUNT(changes); i++)
        measure_change(changes[i].name, changes[i].op, changes[i].amount);
    return 0;
}
