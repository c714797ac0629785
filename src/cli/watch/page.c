/* The page over HTTP: makes the document, checks the token of each request, and streams the
 * news as server-sent events. The document's policy allows its own scripts and style, by
 * their hashes, and requests to its own server; the browser fetches and runs nothing else. */
#include "cli/watch/page.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "cli/watch/overview.h"
#include "launch/store/key.h"
#include "record/http/http.h"
#include "base/text.h"

enum { TOKEN = 24 }; /* bytes, two digits each */

struct choir__watch_page {
    choir__watch_overview *overview;
    choir__http *server;
    choir__text_buffer document;
    char *policy, *url;
    char token[2 * TOKEN + 1];
};

/* --- the document --- */

/* Puts a part into the document in the place of its mark, which ends at *rest then. */
static void put_part(choir__text_buffer *document, const char **rest, const char *mark,
    const unsigned char *part, size_t bytes)
{
    const char *at = strstr(*rest, mark);
    choir__text_buffer_add(document, *rest, (size_t)(at - *rest));
    choir__text_buffer_add(document, (const char *)part, bytes);
    *rest = at + strlen(mark);
}

/* Returns "'sha256-...'", as a policy names a script or style; the caller frees it. */
static char *hash_of(const unsigned char *part, size_t bytes)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[sodium_base64_ENCODED_LEN(sizeof hash, sodium_base64_VARIANT_ORIGINAL)];
    crypto_hash_sha256(hash, part, bytes);
    sodium_bin2base64(text, sizeof text, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL);
    return choir__format("'sha256-%s'", text);
}

static void make_document(choir__watch_page *p)
{
    const char *rest = (const char *)choir__watch_page_html;
    put_part(&p->document, &rest, "{{page.css}}", choir__watch_page_css,
        choir__watch_page_css_bytes);
    put_part(
        &p->document, &rest, "{{plan.js}}", choir__watch_plan_js, choir__watch_plan_js_bytes);
    put_part(
        &p->document, &rest, "{{page.js}}", choir__watch_page_js, choir__watch_page_js_bytes);
    choir__text_buffer_put(&p->document, rest);
    char *style = hash_of(choir__watch_page_css, choir__watch_page_css_bytes),
         *plan = hash_of(choir__watch_plan_js, choir__watch_plan_js_bytes),
         *script = hash_of(choir__watch_page_js, choir__watch_page_js_bytes);
    p->policy = choir__format("default-src 'none'; script-src %s %s; style-src %s; connect-src "
                              "'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                              "frame-ancestors 'none'",
        plan, script, style);
    free(style);
    free(plan);
    free(script);
}

/* --- answering --- */

/* Returns what follows "/TOKEN" in a path, or NULL; the time it takes says nothing about the
 * token. */
static const char *behind_token(const choir__watch_page *p, const char *path)
{
    size_t length = strlen(p->token);
    bool fits = path[0] == '/' && strlen(path) > length &&
                sodium_memcmp(path + 1, p->token, length) == 0;
    return fits ? path + 1 + length : NULL;
}

static void refuse(choir__http_request *request, unsigned status, const char *why)
{
    static const char *const headers[][2] = {{"Content-Type", "text/plain; charset=utf-8"},
        {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}};
    choir__http_reply(request, status, why, strlen(why), headers, (int)CHOIR_COUNT(headers));
}

static void stream(const choir__watch_page *p, choir__http_request *request)
{
    static const char *const headers[][2] = {{"Content-Type", "text/event-stream"},
        {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"},
        {"Cross-Origin-Resource-Policy", "same-origin"}};
    choir__watch_reader *reader = choir__watch_reader_new(p->overview);
    if (reader)
        choir__http_stream(request, choir__watch_reader_read, choir__watch_reader_free, reader,
            headers, (int)CHOIR_COUNT(headers));
    else
        refuse(request, 503, "This page is open in as many places as it can be.\n");
}

static void answer(void *arg, const char *path, choir__http_request *request)
{
    choir__watch_page *p = arg;
    const char *rest = behind_token(p, path);
    const char *const headers[][2] = {{"Content-Type", "text/html; charset=utf-8"},
        {"Content-Security-Policy", p->policy}, {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"}, {"Cache-Control", "no-store"},
        {"Cross-Origin-Resource-Policy", "same-origin"}};
    if (!rest)
        refuse(request, 403,
            "This page opens with its whole address, which choir has printed: the token in it "
            "is the key.\n");
    else if (!strcmp(rest, "/"))
        choir__http_reply(request, 200, p->document.bytes, p->document.used, headers,
            (int)CHOIR_COUNT(headers));
    else if (!strcmp(rest, "/live"))
        stream(p, request);
    else
        refuse(request, 404, "There is no such page.\n");
}

/* --- opening --- */

/* A key gives the same token each time, so that an address can be kept. */
static choir_status make_token(choir__watch_page *p, const char *key_file)
{
    static const char purpose[] = "choir watch";
    unsigned char bytes[TOKEN];
    choir__store_key key;
    choir_status status = CHOIR_OK;
    randombytes_buf(bytes, sizeof bytes);
    if (key_file && (status = choir__store_key_read_file(key_file, &key)) == CHOIR_OK) {
        crypto_generichash(bytes, sizeof bytes, (const unsigned char *)purpose,
            sizeof purpose - 1, key.bytes, sizeof key.bytes);
        sodium_memzero(&key, sizeof key);
    }
    sodium_bin2hex(p->token, sizeof p->token, bytes, sizeof bytes);
    return status;
}

choir_status choir__watch_page_open(const char *what, const char *place, const char *key_file,
    const choir__watch_shows *shows, choir__watch_page **made)
{
    *made = NULL;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium can't be used");
    choir__watch_page *p = choir__calloc(1, sizeof *p);
    p->overview = choir__watch_overview_new(shows);
    make_document(p);
    choir_status status = make_token(p, key_file);
    const choir__http_opts opts = {.what = what,
        .place = place,
        .any_port = true,
        .streams = true,
        .local_only = !key_file,
        .answer = answer,
        .arg = p};
    if (status == CHOIR_OK)
        status = choir__http_open(&opts, &p->server);
    if (status == CHOIR_OK) {
        p->url = choir__format("http://%s/%s/", choir__http_address(p->server), p->token);
        *made = p;
    } else {
        choir__watch_page_close(p);
    }
    return status;
}

void choir__watch_page_close(choir__watch_page *p)
{
    if (!p)
        return;
    choir__watch_overview_end(p->overview);
    choir__http_close(p->server);
    choir__watch_overview_free(p->overview);
    choir__text_buffer_free(&p->document);
    free(p->policy);
    free(p->url);
    free(p);
}

const char *choir__watch_page_url(const choir__watch_page *p)
{
    return p->url;
}
