/* The safetensors format: files that Choir writes follow the format, and files that other
 * programs write are read. fault/safetensors_damage.c has files with false headers. */
#include "safetensors_fixture.h"

static const char *const metadata[] = {"step", "12", "note", "caf\xC3\xA9", NULL};

static void write_samples(void **state)
{
    ok(st_write(path, samples, SAMPLES, metadata));
}

static void read_samples(void **state)
{
    choir__st_file *file;
    ok(choir__st_open(path, &file));
    assert_int_equal(choir__st_count(file), SAMPLES);
    assert_string_equal(choir__st_metadata(file, "format"), "pt");
    assert_string_equal(choir__st_metadata(file, "step"), "12");
    assert_string_equal(choir__st_metadata(file, "note"), "caf\xC3\xA9");
    assert_null(choir__st_metadata(file, "none"));
    assert_null(st_find(file, "none"));
    assert_null(choir__st_get(file, SAMPLES));
    for (int i = 0; i < SAMPLES; i++) {
        const choir__st_tensor *t = st_find(file, samples[i].name);
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
    choir__st_file *file;
    ok(choir__st_open(path, &file));
    for (int i = 0; i < SAMPLES; i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        assert_int_equal((uintptr_t)t->data % choir_dtype_size(t->dtype), 0);
    }
    choir__st_close(file);
}

/* Writing these tensors in any order gives these bytes. */
static void known_bytes(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[8,32]},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[32,56]}}";
    size_t padded = (strlen(header) + 7) / 8 * 8, bytes;
    const choir__st_tensor orders[2][3] = {
        {samples[1], samples[2], samples[4]}, {samples[4], samples[2], samples[1]}};
    for (int k = 0; k < 2; k++) {
        ok(st_write(path, orders[k], 3, NULL));
        unsigned char *file = slurp(path, &bytes);
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
    choir__st_file *file;
    ok(st_write(path, NULL, 0, NULL));
    ok(choir__st_open(path, &file));
    assert_int_equal(choir__st_count(file), 0);
    assert_null(st_find(file, "x"));
    choir__st_close(file);
    choir__st_close(NULL);
    put_header(2, "{}", 0); /* no metadata either, no padding */
    ok(choir__st_open(path, &file));
    assert_null(choir__st_metadata(file, "format"));
    choir__st_close(file);
}

static void assert_write_fails(const choir__st_tensor *t, int count, const char *part)
{
    assert_fails(st_write(path, t, count, NULL), CHOIR_ERR_ARGUMENT, part);
}

static void unwritable_tensors(void **state)
{
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

static void unwritable_places(void **state)
{
    assert_int_equal(st_write("/tmp/no/such/folder/x", samples, 1, NULL), CHOIR_ERR_IO);
    assert_string_equal(
        choir_error_message(), "cannot write /tmp/no/such/folder/x: No such file or directory");
    assert_int_equal(st_write(folder, samples, 1, NULL), CHOIR_ERR_IO);
}

/* Others' files: header not padded, keys we do not know, data at odd addresses, over 4 GiB. */
static void other_writers(void **state)
{
    choir__st_file *file;
    const char *odd =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"extra\":1}}\n ";
    assert_int_not_equal(strlen(odd) % 4, 0);
    put_header(strlen(odd), odd, 8);
    ok(choir__st_open(path, &file));
    assert_int_not_equal((uintptr_t)st_find(file, "w")->data % 4, 0);
    touch_all(file);
    choir__st_close(file);

    const char *big = "{\"a\":" ENTRY("U8", "[5000000000]", 0, 5000000000) ",\"b\":" ENTRY(
        "F32", "[1]", 5000000000, 5000000004) "}";
    put_header(strlen(big), big, 0);
    if (truncate(path, 8 + (off_t)strlen(big) + 5000000004) == 0) {
        ok(choir__st_open(path, &file));
        const choir__st_tensor *a = st_find(file, "a"), *b = st_find(file, "b");
        assert_int_equal(a->bytes, 5000000000);
        assert_ptr_equal(b->data, (const char *)a->data + a->bytes);
        assert_int_equal(*(const char *)b->data, 0);
        choir__st_close(file);
    }
    unlink(path);
}

/* --write PATH and --read PATH are for tests/interop/safetensors_files.py. */
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
        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(other_writers),
    };
    if (argc == 3) {
        snprintf(path, sizeof path, "%s", argv[2]);
        return !strcmp(argv[1], "--write") ? cmocka_run_group_tests(write_one, NULL, NULL)
                                           : cmocka_run_group_tests(read_one, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
