/* Requests and replies parsed from bytes: everything that a peer may send is checked here,
 * once. */
#include "launch/store/protocol.h"

#include <string.h>

typedef struct shape {
    uint16_t min, max; /* number of fields */
    bool keys;         /* all fields are keys, not only the first */
} shape;

static const shape shapes[] = {
    [CHOIR__STORE_SET] = {2, 2, false},
    [CHOIR__STORE_GET] = {1, 1, true},
    [CHOIR__STORE_WAIT] = {1, CHOIR__STORE_WAIT_MAX, true},
    [CHOIR__STORE_ADD] = {1, 1, true},
    [CHOIR__STORE_COMPARE_SET] = {2, 3, false},
    [CHOIR__STORE_DELETE] = {1, 1, true},
    [CHOIR__STORE_WILL] = {2, 2, false},
    [CHOIR__STORE_BYE] = {0, 0, false},
};

choir__store_field choir__store_next_field(const uint8_t **at)
{
    choir__store_field f = {.data = *at + 4, .bytes = choir__get32(*at)};
    *at = f.data + f.bytes;
    return f;
}

static bool is_key(choir__store_field f)
{
    return f.bytes >= 1 && f.bytes <= CHOIR__STORE_KEY_MAX && !memchr(f.data, '\0', f.bytes);
}

bool choir__store_request_read(
    const uint8_t *payload, size_t bytes, choir__store_request *request)
{
    if (bytes < CHOIR__STORE_HEAD || !payload[0] || payload[0] >= CHOIR_COUNT(shapes))
        return false;
    *request = (choir__store_request){.op = payload[0],
        .count = choir__get16(payload + 2),
        .seq = choir__get32(payload + 4),
        .number = (int64_t)choir__get64(payload + 8),
        .fields = payload + CHOIR__STORE_HEAD,
        .end = payload + bytes};
    const shape *s = &shapes[request->op];
    if (request->count < s->min || request->count > s->max)
        return false;
    const uint8_t *at = request->fields;
    for (int i = 0; i < request->count; i++) {
        size_t left = (size_t)(request->end - at);
        if (left < 4 || choir__get32(at) > left - 4)
            return false;
        choir__store_field f = choir__store_next_field(&at);
        if ((i == 0 || s->keys) ? !is_key(f) : f.bytes > CHOIR_STORE_VALUE_MAX)
            return false;
    }
    return at == request->end;
}

bool choir__store_reply_read(const uint8_t *payload, size_t bytes, choir__store_reply *reply)
{
    if (bytes < CHOIR__STORE_HEAD || bytes - CHOIR__STORE_HEAD > CHOIR_STORE_VALUE_MAX ||
        payload[0] > CHOIR__STORE_BAD || payload[1] > 1)
        return false;
    *reply = (choir__store_reply){.status = payload[0],
        .flag = payload[1],
        .seq = choir__get32(payload + 4),
        .number = (int64_t)choir__get64(payload + 8),
        .value = payload + CHOIR__STORE_HEAD,
        .bytes = bytes - CHOIR__STORE_HEAD};
    return true;
}
