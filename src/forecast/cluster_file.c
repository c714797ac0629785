/* Reading clusters from JSON. Tables list the keys of each object with their ranges, from which
 * checks and messages follow. A key that no table has is an error, because a misspelled one
 * would leave a default in a forecast that no message shows. */
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/named.h"
#include "forecast/cluster.h"

typedef enum member_type { SIZE, NUMBER, NAME, INNER } member_type;

/* A key of an object; `offset` is the place of its value in the struct. */
typedef struct member {
    const char *key;
    member_type type;
    size_t offset;
    double low;  /* SIZE, NUMBER: the least value */
    double high; /* the greatest */
} member;

typedef struct object {
    const char *where; /* "links.node", or "" */
    const json_t *json;
    void *to;
    const member *members;
    choir__name_table keys;
} object;

#define MEMBERS(array) .members = (array), .keys = CHOIR__NAME_TABLE(array)
enum { MOST = 100000000 }; /* devices: beyond any cluster, and far from overflow */

/* Returns an error whose sentence begins with the place. */
static choir_status expected(
    const object *o, const char *key, const char *what, const json_t *got)
{
    char *text = json_dumps(got, JSON_ENCODE_ANY | JSON_COMPACT);
    if (text)
        choir__shorten(choir__clean(text), 200);
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT, "%s%s%s%sexpected %s, got %s",
        o->where, *o->where && *key ? "." : "", key, *o->where || *key ? ": " : "", what,
        text ? text : "?");
    free(text);
    return status;
}

static choir_status set_number(const object *o, const member *m, const json_t *value)
{
    char what[96];
    const double x = json_number_value(value);
    const bool fits = json_is_number(value) && isfinite(x) && x >= m->low && x <= m->high;
    if (m->type == SIZE && (!json_is_integer(value) || !fits)) {
        snprintf(what, sizeof what, "a whole number from %.0f to %.0f", m->low, m->high);
        return expected(o, m->key, what, value);
    }
    if (!fits) {
        snprintf(what, sizeof what, "a number from %g to %g", m->low, m->high);
        return expected(o, m->key, what, value);
    }
    if (m->type == SIZE)
        *(int64_t *)((char *)o->to + m->offset) = json_integer_value(value);
    else
        *(double *)((char *)o->to + m->offset) = x;
    return CHOIR_OK;
}

static choir_status set_name(const object *o, const member *m, const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) >= CHOIR__CLUSTER_NAME)
        return expected(o, m->key, "a text of 1 to 63 bytes", value);
    choir__clean(strcpy((char *)o->to + m->offset, text));
    return CHOIR_OK;
}

/* Reads the members that are not objects, and refuses unknown ones. */
static choir_status read_members(const object *o)
{
    const char *key;
    json_t *value;
    if (!json_is_object(o->json))
        return expected(o, "", "an object", o->json);
    json_object_foreach((json_t *)o->json, key, value)
    {
        char what[CHOIR__CLUSTER_NAME];
        int at = choir__find_named(&o->keys, key);
        snprintf(what, sizeof what, "key%s%s", *o->where ? " of " : "", o->where);
        if (at < 0)
            return choir__unknown_name(&o->keys, what, key);
        const member *m = &o->members[at];
        choir_status status = m->type == INNER  ? CHOIR_OK
                              : m->type == NAME ? set_name(o, m, value)
                                                : set_number(o, m, value);
        if (status)
            return status;
    }
    return CHOIR_OK;
}

/* --- the objects --- */

#define AT(type, field) offsetof(choir__##type, field)

static const member device_members[] = {
    {"kind", NAME, AT(device_model, kind), 0, 0},
    {"f32_flops", NUMBER, AT(device_model, f32_flops), 1, 1e20},
    {"tf32_flops", NUMBER, AT(device_model, tf32_flops), 0, 1e20},
    {"bf16_flops", NUMBER, AT(device_model, bf16_flops), 1, 1e20},
    {"memory_bytes_s", NUMBER, AT(device_model, memory_bytes_s), 1, 1e18},
    {"memory_bytes", SIZE, AT(device_model, memory_bytes), 1, 1e15},
    {"product_share", NUMBER, AT(device_model, product_share), 1e-3, 1},
    {"attention_share", NUMBER, AT(device_model, attention_share), 1e-3, 1},
    {"memory_share", NUMBER, AT(device_model, memory_share), 1e-3, 1},
    {"launch_s", NUMBER, AT(device_model, launch_s), 0, 1},
};

static const member link_members[] = {
    {"kind", NAME, AT(link, kind), 0, 0},
    {"alpha_s", NUMBER, AT(link, alpha_s), 0, 10},
    {"beta_bytes_s", NUMBER, AT(link, beta_bytes_s), 1, 1e18},
    {"ports", SIZE, AT(link, ports), 1, MOST},
    {"share", NUMBER, AT(link, share), 1e-3, 1},
};

static const member failure_members[] = {
    {"per_device_day", NUMBER, AT(failure_rates, per_device_day), 0, 1e4},
    {"per_node_day", NUMBER, AT(failure_rates, per_node_day), 0, 1e4},
    {"restart_s", NUMBER, AT(failure_rates, restart_s), 0, 1e7},
    {"recovery_s", NUMBER, AT(failure_rates, recovery_s), 0, 1e7},
    {"save_s", NUMBER, AT(failure_rates, save_s), 0, 1e7},
    {"repair_s", NUMBER, AT(failure_rates, repair_s), 0, 1e9},
    {"spares", SIZE, AT(failure_rates, spares), 0, MOST},
};

static const member cluster_members[] = {
    {"name", NAME, AT(cluster, name), 0, 0},
    {"device", INNER, 0, 0, 0},
    {"nodes", SIZE, AT(cluster, nodes), 1, MOST},
    {"devices_per_node", SIZE, AT(cluster, devices_per_node), 1, 1 << 16},
    {"sockets_per_node", SIZE, AT(cluster, sockets_per_node), 1, 1 << 16},
    {"nodes_per_rack", SIZE, AT(cluster, nodes_per_rack), 1, MOST},
    {"racks_per_spine", SIZE, AT(cluster, racks_per_spine), 1, MOST},
    {"links", INNER, 0, 0, 0},
    {"failures", INNER, 0, 0, 0},
    {"price_per_device_hour", NUMBER, AT(cluster, price_per_device_hour), 0, 1e6},
    {"kernel_jitter", NUMBER, AT(cluster, kernel_jitter), 0, 1},
    {"device_spread", NUMBER, AT(cluster, device_spread), 0, 1},
};

static const char *const link_keys[] = {"core", "socket", "node", "rack", "spine"};

/* Returns the name of a preset: the value itself, or its member `kind`. */
static const char *kind_of(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "kind") : value);
}

static choir_status read_device(const json_t *value, choir__device_model *device)
{
    const object o = {"device", value, device, MEMBERS(device_members)};
    const char *kind = kind_of(value);
    if (!kind)
        return expected(&o, "", "a kind of device, or an object with its kind", value);
    choir_status status = choir__device_preset(kind, device);
    if (!status && json_object_size(value) > 1)
        device->source = CHOIR__FROM_FILE;
    return !status && json_is_object(value) ? read_members(&o) : status;
}

static choir_status read_link(const json_t *value, choir__level level, choir__link *link)
{
    char where[32];
    const object o = {where, value, link, MEMBERS(link_members)};
    const char *kind = kind_of(value);
    snprintf(where, sizeof where, "links.%s", choir__level_name(level));
    *link = (choir__link){.ports = 1, .share = 1, .source = CHOIR__FROM_FILE};
    if (kind && choir__link_preset(kind, link))
        return CHOIR_ERR_ARGUMENT;
    if (json_is_string(value))
        return CHOIR_OK;
    if (json_object_get(value, "alpha_s") || json_object_get(value, "beta_bytes_s"))
        link->source = CHOIR__FROM_FILE;
    else if (!kind)
        return expected(&o, "", "a kind of link, or alpha_s and beta_bytes_s", value);
    return read_members(&o);
}

static choir_status read_links(const json_t *value, choir__link links[CHOIR__LEVELS])
{
    static const choir__name_table keys = CHOIR__NAME_TABLE(link_keys);
    const object o = {.where = "links", .json = value};
    const char *key;
    json_t *link;
    if (!json_is_object(value))
        return expected(&o, "", "an object with a link for each level", value);
    memset(links, 0, CHOIR__LEVELS * sizeof *links);
    json_object_foreach((json_t *)value, key, link)
    {
        int at = choir__find_named(&keys, key);
        choir_status status = at < 0 ? choir__unknown_name(&keys, "level of links", key)
                                     : read_link(link, (choir__level)at, &links[at]);
        if (status)
            return status;
    }
    return CHOIR_OK;
}

static choir_status read_cluster(const json_t *root, choir__cluster *c)
{
    const object o = {"", root, c, MEMBERS(cluster_members)};
    const json_t *device = json_object_get(root, "device"),
                 *links = json_object_get(root, "links"),
                 *failures = json_object_get(root, "failures");
    choir_status status = read_members(&o);
    if (!status && !device)
        return choir__error(CHOIR_ERR_ARGUMENT, "missing device: expected a kind of device");
    if (!status)
        status = read_device(device, &c->device);
    if (!c->nodes_per_rack || c->nodes_per_rack > c->nodes) /* one rack, perhaps not full */
        c->nodes_per_rack = c->nodes;
    const int64_t racks = (c->nodes + c->nodes_per_rack - 1) / c->nodes_per_rack;
    if (!c->racks_per_spine || c->racks_per_spine > racks)
        c->racks_per_spine = racks;
    if (!status && links)
        status = read_links(links, c->links);
    else if (!status)
        choir__links_preset(kind_of(device), c->links);
    const object f = {"failures", failures, &c->failures, MEMBERS(failure_members)};
    if (!status && failures)
        status = read_members(&f);
    return status ? status : choir__cluster_check(c);
}

choir_status choir__cluster_read(const char *path, choir__cluster *cluster)
{
    json_error_t why;
    *cluster = (choir__cluster){.nodes = 1,
        .devices_per_node = 1,
        .sockets_per_node = 1,
        .kernel_jitter = CHOIR__PRESET_JITTER,
        .device_spread = CHOIR__PRESET_SPREAD};
    snprintf(cluster->name, sizeof cluster->name, "%.60s", path);
    choir__clean(cluster->name);
    json_t *root = choir__file_json(path, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return why.line < 0 ? choir__error(CHOIR_ERR_IO, "%s: %s", path, why.text)
                            : choir__error(CHOIR_ERR_ARGUMENT,
                                  "%s: expected the JSON of a cluster: line "
                                  "%d: %s",
                                  path, why.line, why.text);
    choir_status status = read_cluster(root, cluster);
    json_decref(root);
    if (status) {
        char *message = choir__strdup(choir__message());
        choir__error(status, "%s: %s", path, message);
        free(message);
    }
    return status;
}
