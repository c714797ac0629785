/* The calls of a client: they check arguments, send requests, and turn replies into
 * messages. */
#include "launch/store/client.h"

#include <stdlib.h>
#include <string.h>

static choir__store_field text_field(const char *text)
{
    return (choir__store_field){(const uint8_t *)text, (uint32_t)strlen(text)};
}

/* Converts a reply's status; the caller writes the message of TIMEOUT. */
static choir_status judge(
    const choir_store *store, const char *key, const choir__store_reply *reply)
{
    static const char *const caps[] = {"keys", "bytes", "last wills of one client"};
    switch ((choir__store_answer)reply->status) {
    case CHOIR__STORE_DONE:
    case CHOIR__STORE_ABSENT: return CHOIR_OK;
    case CHOIR__STORE_TIMEOUT: return CHOIR_ERR_TIMEOUT;
    case CHOIR__STORE_FULL:
        return choir__error(CHOIR_ERR_MEMORY,
            "cannot store '%s': the store at %s is full: it holds as many %s as it may", key,
            store->where, caps[reply->number >= 0 && reply->number < 3 ? reply->number : 1]);
    case CHOIR__STORE_NOT_NUMBER:
        return choir__error(CHOIR_ERR_ARGUMENT,
            "cannot add to '%s' in the store at %s: expected a whole number there, got "
            "'%.*s'",
            key, store->where, (int)(reply->bytes < 40 ? reply->bytes : 40),
            (const char *)reply->value);
    case CHOIR__STORE_OVERFLOW:
        return choir__error(CHOIR_ERR_ARGUMENT,
            "adding to '%s' in the store at %s goes beyond 64 bits", key, store->where);
    case CHOIR__STORE_BAD: break;
    }
    return choir__error(
        CHOIR_ERR_INTERNAL, "the store at %s could not read a request", store->where);
}

static choir_status check_key(const char *key)
{
    size_t length = key ? strlen(key) : 0;
    if (length < 1 || length > CHOIR__STORE_KEY_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store's key: expected 1 to %d characters, got %zu ('%.20s...')",
            CHOIR__STORE_KEY_MAX, length, key ? key : "");
    return CHOIR_OK;
}

static choir_status check_value(const char *key, const void *value, size_t bytes)
{
    if (check_key(key) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (bytes > CHOIR_STORE_VALUE_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a value for '%s': expected at most %d bytes, got %zu", key, CHOIR_STORE_VALUE_MAX,
            bytes);
    if (!value && bytes)
        return choir__error(CHOIR_ERR_ARGUMENT, "no value for '%s'", key);
    return CHOIR_OK;
}

/* Makes a call that does not wait, on one key and up to two values. */
static choir_status simple(choir_store *store, choir__store_op op, int64_t number,
    const choir__store_field *fields, int count, choir__store_reply *reply, char **value)
{
    choir_status status = choir__store_enter(store);
    if (status != CHOIR_OK)
        return status;
    status = choir__store_talk(
        store, op, number, fields, count, store->timeout_s + CHOIR__STORE_SLACK_S, reply);
    if (status == CHOIR_OK)
        status = judge(store, (const char *)fields[0].data, reply);
    if (status == CHOIR_OK && value && reply->status != CHOIR__STORE_ABSENT) {
        *value = choir__alloc(reply->bytes + 1);
        memcpy(*value, reply->value, reply->bytes);
        (*value)[reply->bytes] = '\0';
    }
    choir__store_leave(store);
    return status;
}

/* Sends a key and its value. */
static choir_status put(const char *function, choir_store *store, choir__store_op op,
    const char *key, const void *value, size_t bytes)
{
    if (!store)
        return choir__missing(function, "store");
    if (!value && bytes)
        return choir__missing(function, "value");
    choir__store_reply reply;
    if (check_value(key, value, bytes) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    choir__store_field fields[] = {text_field(key), {value, (uint32_t)bytes}};
    return simple(store, op, 0, fields, 2, &reply, NULL);
}

choir_status choir_store_set(
    choir_store *store, const char *key, const void *value, size_t bytes)
{
    return put(__func__, store, CHOIR__STORE_SET, key, value, bytes);
}

choir_status choir_store_will(
    choir_store *store, const char *key, const void *value, size_t bytes)
{
    return put(__func__, store, CHOIR__STORE_WILL, key, value, bytes);
}

/* Sends a key and a number. */
static choir_status change(const char *function, choir_store *store, choir__store_op op,
    const char *key, int64_t number, choir__store_reply *reply)
{
    if (!store)
        return choir__missing(function, "store");
    if (check_key(key) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    choir__store_field field = text_field(key);
    return simple(store, op, number, &field, 1, reply, NULL);
}

choir_status choir_store_add(choir_store *store, const char *key, int64_t amount, int64_t *sum)
{
    choir__store_reply reply;
    choir_status status = change(__func__, store, CHOIR__STORE_ADD, key, amount, &reply);
    if (status == CHOIR_OK && sum)
        *sum = reply.number;
    return status;
}

choir_status choir_store_delete(choir_store *store, const char *key, bool *existed)
{
    choir__store_reply reply;
    choir_status status = change(__func__, store, CHOIR__STORE_DELETE, key, 0, &reply);
    if (status == CHOIR_OK && existed)
        *existed = reply.flag;
    return status;
}

choir_status choir_store_compare_set(choir_store *store, const char *key, const char *expected,
    const char *desired, char **value)
{
    if (!store)
        return choir__missing(__func__, "store");
    choir__store_reply reply;
    if (!desired)
        return choir__error(CHOIR_ERR_ARGUMENT, "no value for '%s'", key ? key : "");
    if (check_value(key, desired, strlen(desired)) != CHOIR_OK ||
        (expected && check_value(key, expected, strlen(expected)) != CHOIR_OK))
        return CHOIR_ERR_ARGUMENT;
    choir__store_field fields[] = {
        text_field(key), text_field(desired), text_field(expected ? expected : "")};
    char *now = NULL;
    choir_status status =
        simple(store, CHOIR__STORE_COMPARE_SET, 0, fields, expected ? 3 : 2, &reply, &now);
    if (status == CHOIR_OK && value)
        *value = now;
    else
        free(now);
    return status;
}

/* --- calls that wait --- */

/* Writes the message of a timeout. */
static choir_status not_there(
    const choir_store *store, const char *key, int count, double timeout_s)
{
    if (count > 1)
        return choir__error(CHOIR_ERR_TIMEOUT,
            "'%s' or another of %d keys was not set within %g s in the store at %s", key, count,
            timeout_s, store->where);
    return choir__error(CHOIR_ERR_TIMEOUT, "'%s' was not set within %g s in the store at %s",
        key, timeout_s, store->where);
}

static int64_t in_ms(double seconds)
{
    if (!(seconds > 0))
        return 0;
    return seconds > 1e9 ? INT64_C(1000000000000) : (int64_t)(seconds * 1000) + 1;
}

choir_status choir_store_get(
    choir_store *store, const char *key, double timeout_s, char **value, size_t *bytes)
{
    if (!store)
        return choir__missing(__func__, "store");
    if (!value)
        return choir__missing(__func__, "value");
    choir__store_reply reply;
    if (check_key(key) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    choir_status status = choir__store_enter(store);
    if (status != CHOIR_OK)
        return status;
    double wait_s = timeout_s < 0 ? store->timeout_s : timeout_s;
    choir__store_field field = text_field(key);
    status = choir__store_talk(store, CHOIR__STORE_GET, in_ms(wait_s), &field, 1,
        wait_s + CHOIR__STORE_SLACK_S, &reply);
    if (status == CHOIR_OK && reply.status == CHOIR__STORE_TIMEOUT)
        status = not_there(store, key, 1, wait_s);
    else if (status == CHOIR_OK)
        status = judge(store, key, &reply);
    if (status == CHOIR_OK) {
        char *copy = choir__alloc(reply.bytes + 1);
        memcpy(copy, reply.value, reply.bytes);
        copy[reply.bytes] = '\0';
        *value = copy;
        if (bytes)
            *bytes = reply.bytes;
    }
    choir__store_leave(store);
    return status;
}

choir_status choir_store_wait(
    choir_store *store, const char *const *keys, int count, double timeout_s)
{
    if (!store)
        return choir__missing(__func__, "store");
    if (!keys)
        return choir__missing(__func__, "keys");
    choir__store_reply reply;
    for (int i = 0; i < count; i++)
        if (check_key(keys[i]) != CHOIR_OK)
            return CHOIR_ERR_ARGUMENT;
    if (count < 1)
        return CHOIR_OK;
    choir_status status = choir__store_enter(store);
    if (status != CHOIR_OK)
        return status;
    double wait_s = timeout_s < 0 ? store->timeout_s : timeout_s;
    double deadline = choir__now() + wait_s;
    choir__store_field *fields = choir__calloc(CHOIR__STORE_WAIT_MAX, sizeof *fields);
    for (int from = 0, n; from < count && status == CHOIR_OK; from += n) {
        n = (int)choir__min(count - from, CHOIR__STORE_WAIT_MAX);
        for (int i = 0; i < n; i++)
            fields[i] = text_field(keys[from + i]);
        double left = deadline - choir__now();
        left = left > 0 ? left : 0;
        status = choir__store_talk(store, CHOIR__STORE_WAIT, in_ms(left), fields, n,
            left + CHOIR__STORE_SLACK_S, &reply);
        if (status == CHOIR_OK && reply.status == CHOIR__STORE_TIMEOUT)
            status = not_there(store, keys[from], n, wait_s);
        else if (status == CHOIR_OK)
            status = judge(store, keys[from], &reply);
    }
    free(fields);
    choir__store_leave(store);
    return status;
}
