/* Calls of MLflow's REST interface over libcurl, which is opened at run time. A server that is
 * overloaded or restarts is asked again, with longer and longer pauses, where the caller
 * insists. Users and tokens come from the same variables as for MLflow's own client. */
#include "record/mlflow/mlflow.h"

#ifdef CHOIR_HAVE_MLFLOW
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/plugin/library.h"
#include "base/secret.h"
#include "base/text.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#define CALLS(X)                                                                               \
    X(curl_, global_init)                                                                      \
    X(curl_, easy_init)                                                                        \
    X(curl_, easy_setopt)                                                                      \
    X(curl_, easy_getinfo)                                                                     \
    X(curl_, easy_perform)                                                                     \
    X(curl_, easy_strerror)                                                                    \
    X(curl_, easy_cleanup)                                                                     \
    X(curl_, slist_append)                                                                     \
    X(curl_, slist_free_all)
static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} curl;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

enum { TIMEOUT_S = 30, TRIES = 7 /* within 16 s */, ANSWER_MAX = 1 << 20 };

struct choir__mlflow_client {
    char *url;
    CURL *curl;
    struct curl_slist *headers;
    choir__text_buffer answer;
};

static size_t receive(char *data, size_t size, size_t count, void *arg)
{
    choir__text_buffer *answer = arg;
    if (answer->used + size * count > ANSWER_MAX)
        return 0;
    choir__text_buffer_add(answer, data, size * count);
    return size * count;
}

/* Returns whether a server that answered so may answer otherwise in a moment: it is overloaded,
 * restarts, or is behind a proxy that does. */
static bool may_pass(CURLcode code, long http)
{
    static const long passing[] = {408, 429, 500, 502, 503, 504};
    if (code != CURLE_OK)
        return true;
    for (size_t i = 0; i < CHOIR_COUNT(passing); i++)
        if (http == passing[i])
            return true;
    return false;
}

/* Posts a text, up to `tries` times with longer and longer pauses where that may help. */
static CURLcode post(
    choir__mlflow_client *s, const char *url, const char *text, int tries, long *http)
{
    for (double pause_s = 0.25;; pause_s *= 2) {
        choir__text_buffer_clear(&s->answer);
        *http = 0;
        curl.easy_setopt(s->curl, CURLOPT_URL, url);
        curl.easy_setopt(s->curl, CURLOPT_POSTFIELDS, text);
        CURLcode code = curl.easy_perform(s->curl);
        curl.easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, http);
        if (--tries <= 0 || !may_pass(code, *http))
            return code;
        struct timespec pause = {(time_t)pause_s, (long)(1e9 * fmod(pause_s, 1))};
        nanosleep(&pause, NULL);
    }
}

choir_status choir__mlflow_call(
    choir__mlflow_client *s, const char *path, bool insists, json_t *body, json_t **reply)
{
    char *url = choir__format("%s/api/2.0/mlflow/%s", s->url, path),
         *text = json_dumps(body, JSON_COMPACT);
    long http;
    CURLcode code = post(s, url, text, insists ? TRIES : 1, &http);
    json_t *got = json_loads(s->answer.bytes ? s->answer.bytes : "", 0, NULL);
    const char *said = json_string_value(json_object_get(got, "message"));
    choir_status status = CHOIR_OK;
    if (code != CURLE_OK)
        status = choir__error(
            CHOIR_ERR_IO, "MLflow at %s does not answer: %s", s->url, curl.easy_strerror(code));
    else if (http != 200)
        status = choir__error(CHOIR_ERR_IO, "MLflow at %s refuses %s (HTTP status %ld): %s",
            s->url, path, http, said ? said : "is it a server of MLflow?");
    if (status == CHOIR_OK && reply)
        *reply = json_incref(got);
    json_decref(got);
    json_decref(body);
    free(text);
    free(url);
    return status;
}

/* --- opening --- */

/* A server that wants to know its user gets what MLflow's own client would send. A password of
 * the environment may belong to a user of the URL; libcurl looks for others in ~/.netrc. */
static void set_user(choir__mlflow_client *s)
{
    bool named = choir__lacks_password(s->url);
    const char *token = getenv("MLFLOW_TRACKING_TOKEN");
    const char *name = getenv("MLFLOW_TRACKING_USERNAME");
    const char *password = getenv("MLFLOW_TRACKING_PASSWORD");
    char *bearer = token ? choir__format("Authorization: Bearer %s", token) : NULL;
    curl.easy_setopt(s->curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    if ((name || named) && password) {
        if (!named)
            curl.easy_setopt(s->curl, CURLOPT_USERNAME, name);
        curl.easy_setopt(s->curl, CURLOPT_PASSWORD, password);
    } else if (bearer) {
        s->headers = curl.slist_append(s->headers, bearer);
    }
    free(bearer);
}

choir_status choir__mlflow_client_open(const char *place, choir__mlflow_client **client)
{
    choir_status status =
        choir__library_open(CHOIR_MLFLOW_LIBRARY, names, CHOIR_COUNT(names), &curl);
    if (status != CHOIR_OK)
        return status;
    curl.global_init(CURL_GLOBAL_DEFAULT);
    choir__mlflow_client *s = *client = choir__calloc(1, sizeof *s);
    s->url = choir__strdup(place);
    while (*s->url && s->url[strlen(s->url) - 1] == '/')
        s->url[strlen(s->url) - 1] = '\0';
    s->curl = curl.easy_init();
    s->headers = curl.slist_append(NULL, "Content-Type: application/json");
    set_user(s);
    curl.easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl.easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, receive);
    curl.easy_setopt(s->curl, CURLOPT_WRITEDATA, &s->answer);
    curl.easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(s->curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
    return CHOIR_OK;
}

const char *choir__mlflow_client_url(const choir__mlflow_client *s)
{
    return s->url;
}

void choir__mlflow_client_close(choir__mlflow_client *s)
{
    curl.easy_cleanup(s->curl);
    curl.slist_free_all(s->headers);
    choir__text_buffer_free(&s->answer);
    free(s->url);
    free(s);
}
#endif
