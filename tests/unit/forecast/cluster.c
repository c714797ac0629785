/* Files of clusters: their meaning, and the sentence for each wrong one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "forecast/cluster.h"

/* Reads a text as the file of a cluster. */
static choir_status read_text(const char *text, choir__cluster *c)
{
    char path[] = "/tmp/cluster.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    choir_status status = choir__cluster_read(path, c);
    unlink(path);
    return status;
}

static void test_file(void **state)
{
    choir__cluster c;
    ok(read_text("{\"name\": \"hall\", \"device\": {\"kind\": \"H100\", \"bf16_flops\": 8e14},"
                 " \"nodes\": 64, \"devices_per_node\": 8, \"nodes_per_rack\": 4,"
                 " \"links\": {\"core\": \"NVLink4\", \"node\": {\"kind\": \"NDR400\","
                 " \"ports\": 8}, \"rack\": {\"alpha_s\": 5e-6, \"beta_bytes_s\": 5e10,"
                 " \"ports\": 16}}, \"failures\": {\"per_device_day\": 0.001, \"spares\": 2},"
                 " \"price_per_device_hour\": 2.5}",
        &c));
    assert_string_equal(c.name, "hall");
    assert_int_equal(choir__cluster_devices(&c), 512);
    assert_int_equal(c.racks_per_spine, 16);
    assert_true(c.device.bf16_flops == 8e14 && c.device.memory_bytes_s == 3350e9);
    assert_int_equal(c.device.source, CHOIR__FROM_FILE);
    assert_true(c.links[CHOIR__LEVEL_CORE].beta_bytes_s == 450e9);
    assert_int_equal(c.links[CHOIR__LEVEL_CORE].source, CHOIR__FROM_DATA_SHEET);
    assert_int_equal(c.links[CHOIR__LEVEL_NODE].ports, 8);
    assert_int_equal(c.links[CHOIR__LEVEL_RACK].source, CHOIR__FROM_FILE);
    assert_int_equal(c.failures.spares, 2);
    assert_true(c.price_per_device_hour == 2.5);
    const struct {
        int64_t a, b;
        choir__level level;
    } pairs[] = {{0, 7, CHOIR__LEVEL_CORE}, {7, 8, CHOIR__LEVEL_NODE},
        {31, 32, CHOIR__LEVEL_RACK}, {0, 511, CHOIR__LEVEL_RACK}};
    for (size_t i = 0; i < CHOIR_COUNT(pairs); i++)
        assert_int_equal(choir__cluster_level(&c, pairs[i].a, pairs[i].b), pairs[i].level);
    ok(choir__cluster_holds(&c, 512));
    ok(read_text("{\"device\": \"A100\", \"nodes\": 2, \"devices_per_node\": 8}", &c));
    assert_string_equal(c.links[CHOIR__LEVEL_NODE].kind, "HDR200"); /* the maker's own */
}

static void test_presets(void **state)
{
    char kinds[512], *left = kinds;
    choir__cluster c;
    choir__device_kinds(kinds, sizeof kinds);
    for (const char *kind; (kind = strsep(&left, ", ")) != NULL;)
        if (*kind) {
            ok(choir__cluster_preset(kind, 16, 8, &c));
            ok(choir__cluster_check(&c));
        }
}

/* Wrong files, and words of the sentences for them. */
static void test_wrong(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"{", "expected the JSON of a cluster: line 1"},
        {"[]", "expected an object, got []"},
        {"{\"nodes\": 2}", "missing device: expected a kind of device"},
        {"{\"device\": \"H10\"}", "unknown kind of device 'H10' (did you mean 'H100'?)"},
        {"{\"device\": 3}",
            "device: expected a kind of device, or an object with its kind, got 3"},
        {"{\"device\": {\"kind\": \"H100\", \"memory_bytes\": -1}}",
            "device.memory_bytes: expected a whole number from 1 to"},
        {"{\"device\": \"H100\", \"nodes\": -4}",
            "nodes: expected a whole number from 1 to 100000000, got -4"},
        {"{\"device\": \"H100\", \"nodes\": 2.5}", "nodes: expected a whole number"},
        {"{\"device\": \"H100\", \"nods\": 4}", "unknown key 'nods' (did you mean 'nodes'?)"},
        {"{\"device\": \"H100\", \"nodes\": 4, \"links\": {\"core\": \"NVLink4\"}}",
            "missing links.node, which joins the 4 nodes of a rack: expected a kind of link, or "
            "alpha_s and beta_bytes_s"},
        {"{\"device\": \"H100\", \"links\": {\"nodes\": \"NDR400\"}}",
            "unknown level of links 'nodes' (did you mean 'node'?)"},
        {"{\"device\": \"H100\", \"links\": {\"node\": \"NDR\"}}",
            "unknown kind of link 'NDR'"},
        {"{\"device\": \"H100\", \"links\": {\"node\": {\"alpha_s\": -1}}}",
            "links.node.alpha_s: expected a number from 0 to 10, got -1"},
        {"{\"device\": \"H100\", \"links\": {\"node\": {\"ports\": 2}}}",
            "links.node: expected a kind of link, or alpha_s and beta_bytes_s"},
        {"{\"device\": \"H100\", \"nodes\": 4, \"links\": {\"node\": {\"alpha_s\": 1}}}",
            "links.node.beta_bytes_s: expected a number above 0, got 0"},
        {"{\"device\": \"H100\", \"devices_per_node\": 8, \"sockets_per_node\": 3}",
            "devices_per_node: expected a multiple of sockets_per_node (3), got 8"},
        {"{\"device\": \"H100\", \"failures\": {\"per_device_day\": -0.1}}",
            "failures.per_device_day: expected a number from 0 to"},
        {"{\"device\": \"H100\", \"nodes\": 1, \"nodes\": 2}", "duplicate object key"},
    };
    choir__cluster c;
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++) {
        assert_int_not_equal(read_text(rows[i].text, &c), CHOIR_OK);
        if (!strstr(choir_error_message(), rows[i].words))
            fail_msg("%s: expected '%s', got '%s'", rows[i].text, rows[i].words,
                choir_error_message());
        assert_null(strchr(choir_error_message(), '\n'));
        assert_null(strstr(choir_error_message(), ": : ")); /* a file as a whole has no key */
    }
    assert_int_not_equal(choir__cluster_read("/nowhere.json", &c), CHOIR_OK);
    ok(choir__cluster_preset("H100", 2, 8, &c));
    assert_int_not_equal(choir__cluster_holds(&c, 17), CHOIR_OK);
    assert_non_null(strstr(choir_error_message(), "has 16 devices (2 nodes of 8), expected at "
                                                  "least one for each of the 17 ranks"));
    assert_int_not_equal(choir__cluster_preset("H100", 0, 8, &c), CHOIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
