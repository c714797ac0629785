/* Calls to etcd's JSON gateway over libcurl: bytes as base64, 64-bit numbers as texts. A watch
 * is a call that ends with its first event. A token that is too old is renewed once, and TLS
 * errors name the options about certificates. */
#include "launch/etcd/http.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { ANSWER_MAX = 16 << 20 }; /* bytes */

static const double login_s = 5;

/* etcd's codes are gRPC's. */
enum { DEADLINE_EXCEEDED = 4, RESOURCE_EXHAUSTED = 8, UNAVAILABLE = 14, UNAUTHENTICATED = 16 };

/* --- values --- */

json_t *choir__etcd_bytes(const char *text)
{
    size_t bytes = strlen(text);
    size_t room = sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL);
    char *encoded = choir__alloc(room);
    sodium_bin2base64(
        encoded, room, (const unsigned char *)text, bytes, sodium_base64_VARIANT_ORIGINAL);
    json_t *made = json_string(encoded);
    free(encoded);
    return made;
}

char *choir__etcd_text(const json_t *object, const char *member)
{
    const char *encoded = json_string_value(json_object_get(object, member));
    size_t length = encoded ? strlen(encoded) : 0, bytes = 0;
    if (!encoded)
        return NULL;
    unsigned char *text = choir__alloc(length + 1);
    if (sodium_base642bin(text, length, encoded, length, NULL, &bytes, NULL,
            sodium_base64_VARIANT_ORIGINAL)) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return (char *)text;
}

int64_t choir__etcd_number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);
    if (json_is_string(value))
        return strtoll(json_string_value(value), NULL, 10);
    return json_integer_value(value);
}

/* --- one call --- */

static size_t receive(char *data, size_t size, size_t count, void *arg)
{
    choir__etcd_http *h = arg;
    size_t bytes = size * count;
    if (h->used + bytes > ANSWER_MAX)
        return 0;
    if (h->used + bytes + 1 > h->room) {
        h->room = 2 * (h->used + bytes + 1);
        h->text = choir__realloc(h->text, h->room);
    }
    static const char event[] =
        "\"events\":"; /* the beginning may have come in an earlier block */
    size_t from = h->used - choir__min(h->used, sizeof event);
    memcpy(h->text + h->used, data, bytes);
    h->used += bytes;
    h->text[h->used] = '\0';
    /* ends the call, by an error */
    return h->until_event && strstr(h->text + from, event) ? 0 : bytes;
}

static bool is_about_certificates(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_CIPHER ||
           code == CURLE_SSL_CONNECT_ERROR;
}

static choir_status explain(const choir__etcd_http *h, CURLcode code, const char *detail)
{
    const char *why = *detail ? detail : curl_easy_strerror(code);
    if (is_about_certificates(code))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "etcd at %s: TLS failed: %s (--rdzv-conf cacert=FILE,cert=FILE,key=FILE)", h->url,
            why);
    return choir__error(CHOIR_ERR_TIMEOUT, "etcd at %s does not answer: %s", h->url, why);
}

static choir_status post(
    choir__etcd_http *h, const char *path, const char *body, double timeout_s, long *http)
{
    char url[sizeof h->url + 64], detail[CURL_ERROR_SIZE] = "";
    snprintf(url, sizeof url, "%s/v3/%s", h->url, path);
    h->used = 0;
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, h->headers);
    curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, 1 + (long)(1e3 * timeout_s));
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, detail);
    CURLcode code = curl_easy_perform(h->curl);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, http);
    /* a watch ends by its time, or by `receive` */
    bool watched = h->until_event && h->used &&
                   (code == CURLE_OPERATION_TIMEDOUT || code == CURLE_WRITE_ERROR);
    return code == CURLE_OK || watched ? CHOIR_OK : explain(h, code, detail);
}

static choir_status login(choir__etcd_http *h);

/* Says why etcd refused a call. *again: the token was too old, and there is a new one. */
static choir_status refused(
    choir__etcd_http *h, const char *path, long http, const json_t *reply, bool *again)
{
    const char *said = json_string_value(json_object_get(reply, "error"));
    int64_t code = choir__etcd_number(reply, "code");
    *again = false;
    if (!said)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s gave HTTP status %ld to /v3/%s, with '%.*s': is it an etcd of version 3.4 or "
            "later?",
            h->url, http, path, h->used ? (int)strcspn(h->text, "\r\n") : 0,
            h->used ? h->text : "");
    if (code == UNAVAILABLE || code == DEADLINE_EXCEEDED || code == RESOURCE_EXHAUSTED)
        return choir__error(CHOIR_ERR_TIMEOUT, "etcd at %s: %s", h->url, said);
    bool anonymous = strstr(said, "user name is empty") != NULL;
    bool old = code == UNAUTHENTICATED || strstr(said, "invalid auth token") ||
               strstr(said, "revision of auth store is old");
    if (old && h->opts->etcd.user && strcmp(path, "auth/authenticate") != 0) {
        *again = true;
        return login(h);
    }
    return choir__error(CHOIR_ERR_ARGUMENT, "etcd at %s refuses %s: %s%s", h->url, path, said,
        anonymous ? ": name a user by --rdzv-conf user=NAME:PASSWORD or ETCDCTL_USER" : "");
}

choir_status choir__etcd_call(
    choir__etcd_http *h, const char *path, json_t *body, double timeout_s, json_t **reply)
{
    char *text = json_dumps(body, JSON_COMPACT);
    choir_status status = CHOIR_OK;
    bool again = true;
    json_decref(body);
    *reply = NULL;
    for (int tries = 0; again && tries < 2 && status == CHOIR_OK; tries++) {
        long http = 0;
        again = false;
        status = post(h, path, text, timeout_s, &http);
        if (status != CHOIR_OK)
            break;
        *reply = json_loadb(h->used ? h->text : "", h->used, JSON_DISABLE_EOF_CHECK, NULL);
        if (http == 200 && *reply)
            break;
        status = refused(h, path, http, *reply, &again);
        json_decref(*reply);
        *reply = NULL;
    }
    if (status == CHOIR_OK && !*reply)
        status = choir__error(CHOIR_ERR_ARGUMENT, "etcd at %s refuses %s", h->url, path);
    free(text);
    return status;
}

choir_status choir__etcd_watch(
    choir__etcd_http *h, const char *from, const char *to, int64_t revision, double timeout_s)
{
    json_t *body = json_pack("{s{so so so}}", "create_request", "key", choir__etcd_bytes(from),
        "range_end", choir__etcd_bytes(to), "start_revision",
        json_sprintf("%lld", (long long)revision));
    char *text = json_dumps(body, JSON_COMPACT);
    long http;
    json_decref(body);
    h->until_event = true;
    choir_status status = post(h, "watch", text, timeout_s, &http);
    h->until_event = false;
    free(text);
    return status;
}

/* --- opening --- */

static choir_status login(choir__etcd_http *h)
{
    const choir__etcd_conf *c = &h->opts->etcd;
    json_t *reply;
    curl_slist_free_all(h->headers);
    h->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (!c->user)
        return CHOIR_OK;
    json_t *body = json_pack("{ss ss}", "name", c->user, "password", c->password);
    choir_status status = choir__etcd_call(h, "auth/authenticate", body, login_s, &reply);
    if (status != CHOIR_OK)
        return status;
    const char *token = json_string_value(json_object_get(reply, "token"));
    char *header = NULL;
    if (token && asprintf(&header, "Authorization: %s", token) > 0)
        h->headers = curl_slist_append(h->headers, header);
    free(header);
    json_decref(reply);
    return CHOIR_OK;
}

choir_status choir__etcd_http_open(const choir__agent_opts *opts, choir__etcd_http *h)
{
    const choir__etcd_conf *c = &opts->etcd;
    const char *host = opts->endpoint;
    *h = (choir__etcd_http){.opts = opts};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || sodium_init() < 0 ||
        !(h->curl = curl_easy_init()))
        return choir__error(CHOIR_ERR_IO, "libcurl does not start");
    snprintf(h->url, sizeof h->url, strchr(host, ':') ? "%s://[%s]:%d" : "%s://%s:%d",
        c->tls ? "https" : "http", host, opts->endpoint_port);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, h);
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, c->tls ? "https" : "http");
    curl_easy_setopt(h->curl, CURLOPT_TCP_NODELAY, 1L);
    if (c->cacert)
        curl_easy_setopt(h->curl, CURLOPT_CAINFO, c->cacert);
    if (c->cert)
        curl_easy_setopt(h->curl, CURLOPT_SSLCERT, c->cert);
    if (c->key)
        curl_easy_setopt(h->curl, CURLOPT_SSLKEY, c->key);
    return login(h);
}

void choir__etcd_http_close(choir__etcd_http *h)
{
    curl_slist_free_all(h->headers);
    if (h->curl)
        curl_easy_cleanup(h->curl);
    free(h->text);
}
