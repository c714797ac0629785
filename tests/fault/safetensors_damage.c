/* Safetensors files with false headers, missing ends or flipped bits: the reader reports an
 * error and never reads outside the file. On a full disk the writer reports an error, and the
 * old file stays. */
#include "safetensors_fixture.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* A full disk, played by a limit on the size of files: at every size, the old file stays. */
static void full_disk(void **state)
{
    struct rlimit old, low;
    size_t bytes, again;
    ok(st_write(path, samples, SAMPLES, NULL));
    unsigned char *before = slurp(path, &bytes);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    for (size_t limit = 0; limit < bytes; limit += 7) {
        low = (struct rlimit){limit, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
        choir_status status = st_write(path, samples, SAMPLES, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_fails(status, CHOIR_ERR_IO, "File too large");
        assert_says(path);
        unsigned char *after = slurp(path, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(before, after, bytes);
        assert_int_equal(entries(folder), 1);
        free(after);
    }
    free(before);
}

/* --- reading lies --- */

/* Checks for the error "malformed", with the path and `part` in the message. */
static void assert_refused(const char *part)
{
    choir__st_file *file = NULL;
    assert_int_equal(choir__st_open(path, &file), CHOIR_ERR_FORMAT);
    assert_null(file);
    assert_says(path);
    assert_says(part);
}

static const struct {
    const char *header;
    size_t data;
    const char *part; /* of the message */
} lies[] = {
    {"", 0, "whose header begins with '{'"},
    {" {}", 0, "whose header begins with '{'"},
    {"[1]", 0, "whose header begins with '{'"},
    {"{", 0, "not valid JSON"},
    {"{}}", 0, "not valid JSON"},
    {"{} x", 0, "not valid JSON"},
    {"{,}", 0, "expected a name, at byte 1"},
    {"{3:3}", 0, "expected a name, at byte 1"},
    {"{\"a\" 3}", 0, "expected ':', at byte 5"},
    {"{\"a\":" ENTRY("U8", "[0]", 0, 0) ",}", 0, "expected a name"},
    {"{\"a\":" ENTRY("U8", "[0]", 0, 0) "\"b\":3}", 0, "expected ',' or '}'"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
    {"{\"a\":\"\xFF\"}", 0, "not valid JSON"},
    {"{\"a\\u0000b\":" ENTRY("U8", "[1]", 0, 1) "}", 1, "has the character NUL"},
    {"{\"a\":" ENTRY("U8", "[1]", 0, 1) ",\"a\":" ENTRY("U8", "[1]", 0, 1) "}", 1, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "duplicate"},
    {"{\"\":" ENTRY("U8", "[1]", 0, 1) "}", 1, "empty name"},
    {"{\"a\":3}", 0, "'a' is not described"},
    {"{\"a\":[]}", 0, "'a' is not described"},
    {"{\"__metadata__\":3}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"k\":3}}", 0, "'k' of the __metadata__"},
    {"{\"a\":{}}", 0, "'a' has no dtype"},
    {"{\"a\":{\"dtype\":4}}", 0, "'a' has no dtype"},
    {"{\"a\":" ENTRY("F33", "[1]", 0, 4) "}", 4, "the dtype 'F33'"},
    {"{\"a\":" ENTRY("f32", "[1]", 0, 4) "}", 4, "the dtype 'f32'"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a' has no shape"},
    {"{\"a\":" ENTRY("U8", "4", 0, 4) "}", 4, "'a' has no shape"},
    {"{\"a\":" ENTRY("U8", "[-1]", 0, 1) "}", 1, "no size at dimension 0"},
    {"{\"a\":" ENTRY("U8", "[1,1.0]", 0, 1) "}", 1, "no size at dimension 1"},
    {"{\"a\":" ENTRY("U8", "[true]", 0, 1) "}", 1, "no size at dimension 0"},
    {"{\"a\":" ENTRY("U8", "[1,1,1,1,1,1,1]", 0, 1) "}", 1, "7 dimensions"},
    {"{\"a\":" ENTRY("F32", "[4611686018427387904]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" ENTRY("U8", "[4294967296,4294967296]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" ENTRY("U8", "[0,4294967296,4294967296]", 0, 0) "}", 0, "more elements"},
    {"{\"a\":" ENTRY("U8", "[99999999999999999999]", 0, 1) "}", 1, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'a' has no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":1}}}", 1,
        "no data_offsets"},
    {"{\"a\":" ENTRY("U8", "[1]", 0, 1.0) "}", 1, "no data_offsets"},
    {"{\"a\":" ENTRY("U8", "[1]", -1, 0) "}", 1, "[-1, 0]"},
    {"{\"a\":" ENTRY("U8", "[1]", 1, 0) "}", 1, "[1, 0]"},
    {"{\"a\":" ENTRY("U8", "[9]", 0, 9) "}", 8, "truncated"},
    {"{\"a\":" ENTRY("U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 8,
        "truncated"},
    {"{\"a\":" ENTRY("F32", "[2]", 0, 7) "}", 7, "8 bytes, but its data_offsets span 7"},
    {"{\"a\":" ENTRY("F32", "[]", 0, 8) "}", 8, "4 bytes, but its data_offsets span 8"},
    {"{\"a\":" ENTRY("U8", "[4]", 0, 4) ",\"b\":" ENTRY("U8", "[4]", 2, 6) "}", 6,
        "'b' overlaps tensor 'a'"},
    {"{\"a\":" ENTRY("U8", "[4]", 0, 4) ",\"b\":" ENTRY("U8", "[4]", 0, 4) "}", 4, "overlaps"},
    {"{\"a\":" ENTRY("U8", "[4]", 0, 4) ",\"b\":" ENTRY("U8", "[0]", 2, 2) "}", 4,
        "'b' overlaps"},
    {"{\"a\":" ENTRY("U8", "[1]", 0, 1) ",\"b\":" ENTRY("U8", "[1]", 2, 3) "}", 3,
        "belong to no tensor"},
    {"{\"a\":" ENTRY("U8", "[1]", 1, 2) "}", 2, "belong to no tensor"},
    {"{\"a\":" ENTRY("U8", "[1]", 0, 1) "}", 2, "1 bytes behind the last tensor"},
    {"{}", 1, "1 bytes behind the last tensor"},
};

static void every_lie(void **state)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_header(strlen(lies[i].header), lies[i].header, lies[i].data);
        assert_refused(lies[i].part);
    }
}

/* A header that nests as deep as it is long must not overflow the stack. */
static void deep_nesting(void **state)
{
    enum { DEPTH = 1000000 };
    char *header = malloc(DEPTH + 8);
    strcpy(header, "{\"a\":");
    memset(header + 5, '[', DEPTH);
    header[5 + DEPTH] = '\0';
    put_header(5 + DEPTH, header, 0);
    assert_refused("1000001 deep: expected a description of tensors");
    free(header);
}

/* Many small tensors take a few times the memory of their text. */
static void many_tensors(void **state)
{
    enum { COUNT = 50000, ENTRY_ROOM = 80 };
    char *header = malloc((size_t)COUNT * ENTRY_ROOM);
    size_t used = 0;
    choir__st_file *file;
    for (int i = 0; i < COUNT; i++)
        used += (size_t)sprintf(
            header + used, "%s\"%x\":" ENTRY("U8", "[0]", 0, 0), i ? "," : "{", (unsigned)i);
    header[used++] = '}';
    put_header(used, header, 0);
    struct mallinfo2 before = mallinfo2();
    ok(choir__st_open(path, &file));
    struct mallinfo2 after = mallinfo2();
    size_t bytes = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    assert_in_range(bytes, 0, 6 * used);
    assert_int_equal(choir__st_count(file), COUNT);
    assert_non_null(st_find(file, "c34f"));
    choir__st_close(file);
    free(header);
}

static void lying_lengths(void **state)
{
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
    size_t bytes;
    choir__st_file *file;
    ok(st_write(path, samples, SAMPLES, NULL));
    unsigned char *whole = slurp(path, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        spit(path, whole, n);
        assert_refused("");
    }
    spit(path, whole, bytes);
    ok(choir__st_open(path, &file));
    choir__st_close(file);
    spit(path, whole, bytes + 1); /* slurp appends zeros */
    assert_refused("behind the last tensor");
    free(whole);
}

/* A flipped bit is an error or another valid file; never a read outside of it. */
static void every_flip(void **state)
{
    size_t bytes;
    unsigned sum = 0;
    ok(st_write(path, samples, SAMPLES, NULL));
    unsigned char *whole = slurp(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        choir__st_file *file = NULL;
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        spit(path, whole, bytes);
        if (choir__st_open(path, &file) == CHOIR_OK)
            sum += touch_all(file);
        else
            assert_says(path);
        choir__st_close(file);
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_int_not_equal(sum, 0);
    free(whole);
}

static void no_regular_file(void **state)
{
    choir__st_file *file;
    unlink(path);
    assert_fails(choir__st_open(path, &file), CHOIR_ERR_IO, "No such file");
    assert_fails(choir__st_open(folder, &file), CHOIR_ERR_IO, "expected a file, got a folder");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(choir__st_open(path, &file), CHOIR_ERR_IO);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_disk),
        cmocka_unit_test(every_lie),
        cmocka_unit_test(deep_nesting),
        cmocka_unit_test(many_tensors),
        cmocka_unit_test(lying_lengths),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(every_flip),
        cmocka_unit_test(no_regular_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
