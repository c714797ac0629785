/* Calls to etcd's JSON gateway, POST /v3/..., over HTTP or HTTPS. Keys and values are base64
 * there, and 64-bit numbers are text.
 *
 * Threads: one at a time per object. */
#ifndef CHOIR_LAUNCH_ETCD_HTTP_H
#define CHOIR_LAUNCH_ETCD_HTTP_H

#include <curl/curl.h>
#include <jansson.h>

#include "launch/agent/agent.h"

typedef struct choir__etcd_http {
    const choir__agent_opts *opts;
    CURL *curl;
    struct curl_slist *headers; /* headers with the token of the login */
    char url[CHOIR__HOST_TEXT + 32];
    char *text; /* (used) bytes of the answer so far */
    size_t used, room;
    bool until_event; /* a watch: the answer ends with the first event */
} choir__etcd_http;

choir_status choir__etcd_http_open(const choir__agent_opts *opts, choir__etcd_http *http);
void choir__etcd_http_close(choir__etcd_http *http);

/* Calls `path`, such as "kv/put", with a body that the call frees. *reply is the caller's.
 * Errors: timed out (etcd cannot be reached, or has no leader: a later call may succeed);
 * argument (the login, the certificate, the permission), format. */
choir_status choir__etcd_call(
    choir__etcd_http *http, const char *path, json_t *body, double timeout_s, json_t **reply);

/* Waits for an event on the keys from `from` up to `to`, since a revision; at most timeout_s.
 */
choir_status choir__etcd_watch(choir__etcd_http *http, const char *from, const char *to,
    int64_t revision, double timeout_s);

json_t *choir__etcd_bytes(const char *text); /* in base64 */
/* Returns the text of a member in base64, on the heap, or NULL. */
char *choir__etcd_text(const json_t *object, const char *member);
/* Returns a member that is a number, maybe as text; 0 without it. */
int64_t choir__etcd_number(const json_t *object, const char *member);

#endif
