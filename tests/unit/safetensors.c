/* The safetensors format: what we write is what the format says, and a reader that is lied
 * to says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors.h"

static char folder[] = "/tmp/choir-safetensors-XXXXXX";
static char path[256];

static int set_up(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails if any test left a file behind */
}

static void put_bytes(const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* A file with this header, as long as it says it is, and so many bytes of data. */
static void put_header(uint64_t length, const char *header, size_t data_bytes)
{
    size_t header_bytes = strlen(header), total = 8 + header_bytes + data_bytes;
    unsigned char *file = calloc(1, total + 1);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, header_bytes);
    put_bytes(file, total);
    free(file);
}

static unsigned char *get_bytes(size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *data = calloc(1, 1 << 16);
    *bytes = fread(data, 1, 1 << 16, f);
    fclose(f);
    return data;
}

/* It fails as malformed, and the message has the path and `part`. */
static void assert_refused(const char *part)
{
    choir__st_file *file = NULL;
    assert_int_equal(choir__st_open(path, &file), CHOIR_ERR_FORMAT);
    assert_null(file);
    if (!strstr(choir_error_message(), path) || !strstr(choir_error_message(), part))
        fail_msg("'%s' has not '%s'", choir_error_message(), part);
}

/* Reads every byte that a tensor claims, for the sanitizers. */
static unsigned touch_all(const choir__st_file *file)
{
    unsigned sum = 0;
    for (int i = 0; i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        for (size_t k = 0; k < t->bytes; k++)
            sum += ((const unsigned char *)t->data)[k];
    }
    return sum;
}

/* --- writing ------------------------------------------------------------------------------ */

static const float f32s[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const double f64s[1] = {2.5};
static const uint16_t halves[3] = {0x3C00, 0xC000, 0x0001};
static const uint8_t bytes5[5] = {1, 0, 1, 1, 0};
static const choir__st_tensor samples[] = {
    {"mask", CHOIR_BOOL, {1, {5}}, bytes5, 5},
    {"b.weight", CHOIR_F32, {2, {2, 3}}, f32s, 24},
    {"a.weight", CHOIR_F32, {2, {3, 2}}, f32s, 24},
    {"half \"quoted\" \xC3\xA9", CHOIR_BF16, {1, {3}}, halves, 6},
    {"scalar", CHOIR_F64, {0, {0}}, f64s, 8},
    {"empty", CHOIR_I32, {3, {4, 0, 2}}, f32s, 0},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static const char *const metadata[] = {"step", "12", "note", "caf\xC3\xA9", NULL};

static void write_samples(void **state)
{
    (void)state;
    assert_int_equal(choir__st_write(path, samples, SAMPLES, metadata), CHOIR_OK);
}

static void read_samples(void **state)
{
    (void)state;
    choir__st_file *file;
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    assert_int_equal(choir__st_count(file), SAMPLES);
    assert_string_equal(choir__st_metadata(file, "format"), "pt");
    assert_string_equal(choir__st_metadata(file, "step"), "12");
    assert_string_equal(choir__st_metadata(file, "note"), "caf\xC3\xA9");
    assert_null(choir__st_metadata(file, "none"));
    assert_null(choir__st_find(file, "none"));
    assert_null(choir__st_get(file, SAMPLES));
    for (int i = 0; i < SAMPLES; i++) {
        const choir__st_tensor *t = choir__st_find(file, samples[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, samples[i].dtype);
        assert_int_equal(t->shape.ndim, samples[i].shape.ndim);
        assert_memory_equal(t->shape.dim, samples[i].shape.dim, sizeof t->shape.dim);
        assert_int_equal(t->bytes, samples[i].bytes);
        assert_memory_equal(t->data, samples[i].data, t->bytes);
    }
    choir__st_close(file);
}

static void alignment(void **state)
{
    (void)state;
    choir__st_file *file;
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    for (int i = 0; i < SAMPLES; i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        assert_int_equal((uintptr_t)t->data % choir_dtype_size(t->dtype), 0);
    }
    choir__st_close(file);
}

/* The same tensors in any order give the same bytes: these. */
static void known_bytes(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[8,32]},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[32,56]}}";
    size_t padded = (strlen(header) + 7) / 8 * 8, bytes;
    const choir__st_tensor orders[2][3] = {
        {samples[1], samples[2], samples[4]}, {samples[4], samples[2], samples[1]}};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(choir__st_write(path, orders[k], 3, NULL), CHOIR_OK);
        unsigned char *file = get_bytes(&bytes);
        assert_int_equal(bytes, 8 + padded + 56);
        assert_int_equal(file[0] | file[1] << 8, padded);
        assert_memory_equal(file + 8, header, strlen(header));
        for (size_t i = strlen(header); i < padded; i++)
            assert_int_equal(file[8 + i], ' ');
        assert_memory_equal(file + 8 + padded, f64s, 8);
        assert_memory_equal(file + 8 + padded + 8, f32s, 24);
        assert_memory_equal(file + 8 + padded + 32, f32s, 24);
        free(file);
    }
}

static void nothing_at_all(void **state)
{
    (void)state;
    choir__st_file *file;
    assert_int_equal(choir__st_write(path, NULL, 0, NULL), CHOIR_OK);
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    assert_int_equal(choir__st_count(file), 0);
    assert_null(choir__st_find(file, "x"));
    choir__st_close(file);
    choir__st_close(NULL);
    put_header(2, "{}", 0); /* no metadata either, no padding */
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    assert_null(choir__st_metadata(file, "format"));
    choir__st_close(file);
}

static void assert_write_fails(const choir__st_tensor *t, int count, const char *part)
{
    assert_int_equal(choir__st_write(path, t, count, NULL), CHOIR_ERR_ARGUMENT);
    if (!strstr(choir_error_message(), part))
        fail_msg("'%s' has not '%s'", choir_error_message(), part);
}

static void unwritable_tensors(void **state)
{
    (void)state;
    choir__st_tensor t[2] = {samples[1], samples[1]};
    assert_write_fails(t, 2, "two tensors are named 'b.weight'");
    t[0].name = "";
    assert_write_fails(t, 1, "cannot name a tensor");
    t[0].name = "\xFF";
    assert_write_fails(t, 1, "cannot name a tensor");
    t[0].name = "__metadata__";
    assert_write_fails(t, 1, "two tensors are named");
    t[1].bytes = 20;
    assert_write_fails(t + 1, 1, "has not 20 bytes");
}

static int entries(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

/* A full disk, played by a limit on the size of files: at every size, the old file stays. */
static void full_disk(void **state)
{
    (void)state;
    struct rlimit old, low;
    size_t bytes, again;
    assert_int_equal(choir__st_write(path, samples, SAMPLES, NULL), CHOIR_OK);
    unsigned char *before = get_bytes(&bytes);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t limit = 0; limit < bytes; limit += 7) {
        low = (struct rlimit){limit, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        choir_status status = choir__st_write(path, samples, SAMPLES, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, CHOIR_ERR_IO);
        assert_non_null(strstr(choir_error_message(), "File too large"));
        assert_non_null(strstr(choir_error_message(), path));
        unsigned char *after = get_bytes(&again);
        assert_int_equal(again, bytes);
        assert_memory_equal(before, after, bytes);
        assert_int_equal(entries(), 1);
        free(after);
    }
    free(before);
}

static void unwritable_places(void **state)
{
    (void)state;
    char temp[320];
    assert_int_equal(choir__st_write("/tmp/no/such/folder/x", samples, 1, NULL), CHOIR_ERR_IO);
    assert_string_equal(
        choir_error_message(), "cannot write /tmp/no/such/folder/x: No such file or directory");
    assert_int_equal(choir__st_write(folder, samples, 1, NULL), CHOIR_ERR_IO);
    /* What a killed process of our number left is no obstacle, nor followed if it is a link. */
    snprintf(temp, sizeof temp, "%s.tmp.%ld", path, (long)getpid());
    assert_int_equal(symlink("/tmp/choir-must-not-appear", temp), 0);
    assert_int_equal(choir__st_write(path, samples, 1, NULL), CHOIR_OK);
    assert_int_equal(access("/tmp/choir-must-not-appear", F_OK), -1);
    assert_int_equal(access(temp, F_OK), -1);
}

/* --- reading lies ------------------------------------------------------------------------- */

#define T(dtype, shape, begin, end)                                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct {
    const char *header;
    size_t data;
    const char *part; /* of the message */
} lies[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[1]", 0, "does not begin with '{'"},
    {"{", 0, "not valid JSON"},
    {"{}}", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{\"a\":\"\xFF\"}", 0, "not valid JSON"},
    {"{\"a\\u0000b\":" T("U8", "[1]", 0, 1) "}", 1, "not valid JSON"},
    {"{\"a\":" T("U8", "[1]", 0, 1) ",\"a\":" T("U8", "[1]", 0, 1) "}", 1, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "duplicate"},
    {"{\"\":" T("U8", "[1]", 0, 1) "}", 1, "empty name"},
    {"{\"a\":3}", 0, "'a' is not described"},
    {"{\"a\":[]}", 0, "'a' is not described"},
    {"{\"__metadata__\":3}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"k\":3}}", 0, "'k' of the __metadata__"},
    {"{\"a\":{}}", 0, "'a' has no dtype"},
    {"{\"a\":{\"dtype\":4}}", 0, "'a' has no dtype"},
    {"{\"a\":" T("F33", "[1]", 0, 4) "}", 4, "the dtype 'F33'"},
    {"{\"a\":" T("f32", "[1]", 0, 4) "}", 4, "the dtype 'f32'"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a' has no shape"},
    {"{\"a\":" T("U8", "4", 0, 4) "}", 4, "'a' has no shape"},
    {"{\"a\":" T("U8", "[-1]", 0, 1) "}", 1, "no size at dimension 0"},
    {"{\"a\":" T("U8", "[1,1.0]", 0, 1) "}", 1, "no size at dimension 1"},
    {"{\"a\":" T("U8", "[true]", 0, 1) "}", 1, "no size at dimension 0"},
    {"{\"a\":" T("U8", "[1,1,1,1,1,1,1]", 0, 1) "}", 1, "7 dimensions"},
    {"{\"a\":" T("F32", "[4611686018427387904]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" T("U8", "[0,4294967296,4294967296]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" T("U8", "[99999999999999999999]", 0, 1) "}", 1, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'a' has no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":1}}}", 1,
        "no data_offsets"},
    {"{\"a\":" T("U8", "[1]", 0, 1.0) "}", 1, "no data_offsets"},
    {"{\"a\":" T("U8", "[1]", -1, 0) "}", 1, "[-1, 0]"},
    {"{\"a\":" T("U8", "[1]", 1, 0) "}", 1, "[1, 0]"},
    {"{\"a\":" T("U8", "[9]", 0, 9) "}", 8, "truncated"},
    {"{\"a\":" T("U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 8, "truncated"},
    {"{\"a\":" T("F32", "[2]", 0, 7) "}", 7, "8 bytes, but its data_offsets span 7"},
    {"{\"a\":" T("F32", "[]", 0, 8) "}", 8, "4 bytes, but its data_offsets span 8"},
    {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 2, 6) "}", 6,
        "'b' overlaps tensor 'a'"},
    {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[4]", 0, 4) "}", 4, "overlaps"},
    {"{\"a\":" T("U8", "[4]", 0, 4) ",\"b\":" T("U8", "[0]", 2, 2) "}", 4, "'b' overlaps"},
    {"{\"a\":" T("U8", "[1]", 0, 1) ",\"b\":" T("U8", "[1]", 2, 3) "}", 3,
        "belong to no tensor"},
    {"{\"a\":" T("U8", "[1]", 1, 2) "}", 2, "belong to no tensor"},
    {"{\"a\":" T("U8", "[1]", 0, 1) "}", 2, "1 bytes behind the last tensor"},
    {"{}", 1, "1 bytes behind the last tensor"},
};

static void every_lie(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_header(strlen(lies[i].header), lies[i].header, lies[i].data);
        assert_refused(lies[i].part);
    }
}

/* A header that nests as deep as it is long must not overflow the stack. */
static void deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *header = malloc(DEPTH + 8);
    strcpy(header, "{\"a\":");
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    put_header(5 + DEPTH, header, 0);
    assert_refused("not valid JSON");
    free(header);
}

static void lying_lengths(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 100000000, 100000001, 1u << 31, 1ull << 32,
        1ull << 63, UINT64_MAX - 8, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_header(lengths[i], "{}", 0);
        assert_refused("header");
    }
    put_header(1, "{}", 0);
    assert_refused("not valid JSON");
}

static void every_truncation(void **state)
{
    (void)state;
    size_t bytes;
    choir__st_file *file;
    assert_int_equal(choir__st_write(path, samples, SAMPLES, NULL), CHOIR_OK);
    unsigned char *whole = get_bytes(&bytes);
    for (size_t n = 0; n < bytes; n++) {
        put_bytes(whole, n);
        assert_refused("");
    }
    put_bytes(whole, bytes);
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    choir__st_close(file);
    put_bytes(whole, bytes + 1); /* get_bytes has zeros behind */
    assert_refused("behind the last tensor");
    free(whole);
}

/* A flipped bit is an error or another valid file; never a read outside of it. */
static void every_flip(void **state)
{
    (void)state;
    size_t bytes;
    unsigned sum = 0;
    assert_int_equal(choir__st_write(path, samples, SAMPLES, NULL), CHOIR_OK);
    unsigned char *whole = get_bytes(&bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        choir__st_file *file = NULL;
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        put_bytes(whole, bytes);
        if (choir__st_open(path, &file) == CHOIR_OK)
            sum += touch_all(file);
        else
            assert_non_null(strstr(choir_error_message(), path));
        choir__st_close(file);
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_not_equal(sum, 0);
    free(whole);
}

static void no_regular_file(void **state)
{
    (void)state;
    choir__st_file *file;
    unlink(path);
    assert_int_equal(choir__st_open(path, &file), CHOIR_ERR_IO);
    assert_non_null(strstr(choir_error_message(), "No such file"));
    assert_int_equal(choir__st_open(folder, &file), CHOIR_ERR_IO);
    assert_non_null(strstr(choir_error_message(), "not a regular file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(choir__st_open(path, &file), CHOIR_ERR_IO);
    unlink(path);
}

/* Others' files: header not padded, keys we do not know, data at odd addresses, over 4 GiB. */
static void other_writers(void **state)
{
    (void)state;
    choir__st_file *file;
    const char *odd =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"extra\":1}}\n ";
    assert_int_not_equal(strlen(odd) % 4, 0);
    put_header(strlen(odd), odd, 8);
    assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
    assert_int_not_equal((uintptr_t)choir__st_find(file, "w")->data % 4, 0);
    touch_all(file);
    choir__st_close(file);

    const char *big = "{\"a\":" T("U8", "[5000000000]", 0, 5000000000) ",\"b\":" T(
        "F32", "[1]", 5000000000, 5000000004) "}";
    put_header(strlen(big), big, 0);
    if (truncate(path, 8 + (off_t)strlen(big) + 5000000004) == 0) {
        assert_int_equal(choir__st_open(path, &file), CHOIR_OK);
        const choir__st_tensor *a = choir__st_find(file, "a"), *b = choir__st_find(file, "b");
        assert_int_equal(a->bytes, 5000000000);
        assert_ptr_equal(b->data, (const char *)a->data + a->bytes);
        assert_int_equal(*(const char *)b->data, 0);
        choir__st_close(file);
    }
    unlink(path);
}

/* --write PATH and --read PATH are for tests/interop/safetensors.py. */
int main(int argc, char **argv)
{
    const struct CMUnitTest write_one[] = {cmocka_unit_test(write_samples)};
    const struct CMUnitTest read_one[] = {cmocka_unit_test(read_samples)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_samples),
        cmocka_unit_test(read_samples),
        cmocka_unit_test(alignment),
        cmocka_unit_test(known_bytes),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(unwritable_tensors),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(every_lie),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(lying_lengths),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(every_flip),
        cmocka_unit_test(no_regular_file),
        cmocka_unit_test(other_writers),
    };
    if (argc == 3) {
        snprintf(path, sizeof path, "%s", argv[2]);
        return !strcmp(argv[1], "--write") ? cmocka_run_group_tests(write_one, NULL, NULL)
                                           : cmocka_run_group_tests(read_one, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
