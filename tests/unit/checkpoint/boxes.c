/* Boxes: a tensor that is saved in some parts is loaded in others, in any layout; parts that do
 * not fit together are refused; SHA-256 in pieces gives the known sums. */
#include "checkpoint_fixture.h"

#include <sodium.h>

#include "checkpoint/save.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/sha256.h"
#include "checkpoint/stored.h"
#include "tensor/tensor.h"

/* --- regions --- */

static void covers(void **state)
{
    choir_shape whole = choir_dims(4, 6);
    choir__box_region halves[] = {{{0, 0}, {4, 3}}, {{0, 3}, {4, 3}}};
    choir__box_region over[] = {{{0, 0}, {3, 6}}, {{2, 0}, {1, 6}}};
    choir__box_region nothing = {{4, 0}, {0, 6}};
    int64_t covered;
    assert_true(choir__box_regions_cover(halves, 2, whole, &covered));
    assert_false(choir__box_regions_cover(halves, 1, whole, &covered));
    assert_int_equal(covered, 12);
    assert_false(
        choir__box_regions_cover(over, 2, whole, &covered)); /* as many, but one row twice */
    assert_int_equal(covered, 24);
    assert_true(choir__box_region_fits(&nothing, whole));
    choir__box_region all = choir__box_region_whole(CHOIR_SCALAR);
    assert_true(choir__box_regions_cover(&all, 1, CHOIR_SCALAR, &covered));
}

/* --- parts in files --- */

/* A tensor "w" (4, 6) of the numbers 0 to 23. Its columns are distributed like a packed
 * weight's under tensor parallelism: rank r of 2 has columns r, 2 + r and 4 + r. Each column is
 * a part in a file of its own. */
static float numbers[6][4];

static void write_column(int c, const char *path, const int64_t *from, const char *shape)
{
    char info[256];
    for (int row = 0; row < 4; row++)
        numbers[c][row] = (float)(row * 6 + c);
    choir__st_tensor t = {"w", CHOIR_F32, {2, {4, 1}}, numbers[c], .bytes = sizeof numbers[c]};
    snprintf(info, sizeof info, "{\"w\": {\"saved_offsets\": [%d, %d]%s}}", (int)from[0],
        (int)from[1], shape);
    const char *metadata[] = {CHOIR__SHARDING_KEY, info, NULL};
    ok(st_write(path, &t, 1, metadata));
}

static void write_columns(char path[6][512], const char **paths)
{
    for (int c = 0; c < 6; c++) {
        snprintf(path[c], sizeof path[c], "%s", at("column-%d.safetensors", c));
        write_column(c, path[c], (int64_t[]){0, c}, "");
        paths[c] = path[c];
    }
}

/* An item whose tensor is distributed: this process has boxes of a whole (4, 6). */
static choir__item item_with(choir_tensor *t, choir__box *boxes, int count)
{
    return (choir__item){.name = "w",
        .tensor = t,
        .dtype = CHOIR_F32,
        .whole = choir_dims(4, 6),
        .boxes = boxes,
        .box_count = count};
}

/* Columns 1, 3, 5 of rows 1 and 2, side by side. */
static void loads_other_boxes(void **state)
{
    char path[6][512];
    const char *paths[6];
    choir__stored stored;
    write_columns(path, paths);
    ok(choir__stored_open(&stored, "here", paths, 6));
    assert_int_equal(stored.count, 1);
    choir_scope *run = choir_scope_open(NULL, 1);
    choir_tensor *t = choir_full(run, CHOIR_F32, choir_dims(2, 3), -1);
    choir__box boxes[3];
    for (int b = 0; b < 3; b++)
        boxes[b] = (choir__box){{1, 2 * b + 1}, {0, b}, {2, 1}};
    choir__item item = item_with(t, boxes, 3);
    choir__items items = {.list = &item, .count = 1};
    ok(choir__stored_match(&stored, &items, 0, 1, "model", true));
    ok(choir__stored_restore(&stored, &items, 0, 1));
    float values[6], want[6] = {7, 9, 11, 13, 15, 17};
    ok(choir_read(t, values, sizeof values));
    assert_memory_equal(values, want, sizeof want);
    float column[2], wanted[2] = {9, 15};
    ok(choir__item_read(&item, 1, column)); /* and back */
    assert_memory_equal(column, wanted, sizeof wanted);
    choir__stored_close(&stored);
    ok(choir_scope_close(run));
}

static void refuses_parts(void **state)
{
    char path[6][512];
    const char *paths[6];
    choir__stored stored;
    write_columns(path, paths);
    assert_fails(choir__stored_open(&stored, "here", paths + 1, 5), CHOIR_ERR_FORMAT,
        "'w' (4, 6) is not whole: 5 files of it have 20 of 24 entries; a shard is missing");
    write_column(2, path[2], (int64_t[]){0, 1}, "");
    assert_fails(choir__stored_open(&stored, "here", paths, 6), CHOIR_ERR_FORMAT,
        "'w' (4, 6) is there more than once");
    write_column(2, path[2], (int64_t[]){1, 2}, ", \"shape\": [4, 6]");
    assert_fails(choir__stored_open(&stored, "here", paths, 6), CHOIR_ERR_FORMAT,
        "'w' has no good saved_offsets");
    write_column(2, path[2], (int64_t[]){0, 2}, ", \"shape\": [4]");
    assert_fails(choir__stored_open(&stored, "here", paths, 6), CHOIR_ERR_FORMAT,
        "'w' has no good shape");
    const double wide[4] = {0};
    choir__st_tensor t = {"w", CHOIR_F64, {2, {4, 1}}, wide, .bytes = sizeof wide};
    const char *metadata[] = {
        CHOIR__SHARDING_KEY, "{\"w\": {\"saved_offsets\": [0, 2]}}", NULL};
    ok(st_write(path[2], &t, 1, metadata));
    assert_fails(choir__stored_open(&stored, "here", paths, 6), CHOIR_ERR_FORMAT,
        "'w' is f64 of 2 dimensions, but in");
    metadata[1] = "[]";
    ok(st_write(path[2], &t, 1, metadata));
    assert_fails(choir__stored_open(&stored, "here", paths, 6), CHOIR_ERR_FORMAT,
        "expected a JSON object");
}

/* --- SHA-256 --- */

/* Hashes in pieces of all sizes equal libsodium's hash of the whole. */
static void same_hashes(void **state)
{
    unsigned char data[700];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 167 + i / 7);
    for (size_t n = 0; n < sizeof data; n++) {
        choir__sha256_state a;
        unsigned char hash[crypto_hash_sha256_BYTES];
        char one[CHOIR__SHA256_HEX], other[CHOIR__SHA256_HEX];
        choir__sha256_init(&a);
        for (size_t at = 0, step; at < n; at += step) {
            step = (at * 31 + n) % 97 + 1;
            step = step < n - at ? step : n - at;
            choir__sha256_update(&a, data + at, step);
        }
        crypto_hash_sha256(hash, data, n);
        choir__sha256_final(&a, one);
        sodium_bin2hex(other, sizeof other, hash, sizeof hash);
        assert_string_equal(one, other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers),
        cmocka_unit_test(loads_other_boxes),
        cmocka_unit_test(refuses_parts),
        cmocka_unit_test(same_hashes),
    };
    return cmocka_run_group_tests(tests, set_up, remove_all);
}
