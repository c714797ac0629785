/* A URL begins at "://" and ends at a blank or a quote, as texts have many of them. */
#include "base/secret.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Returns the end of the URL that goes on at `at`. */
static char *end_of(char *at)
{
    while (*at && !isspace((unsigned char)*at) && !strchr("\"'`<>", *at))
        at++;
    return at;
}

static bool is_number(const char *at, const char *end)
{
    while (at < end && isdigit((unsigned char)*at))
        at++;
    return at == end;
}

/* Finds the user's part of a URL behind "://": up to *at, the last @ of the authority, with a
 * colon before its password. An @ behind a slash belongs to a password with a slash, unless the
 * text before the slash is a host with its port. Returns false if no user is named. */
static bool find_user(char *from, char *end, char **colon, char **at)
{
    char *path = from + strcspn(from, "/?#");
    path = path < end ? path : end;
    *colon = memchr(from, ':', (size_t)(path - from));
    *at = memrchr(from, '@', (size_t)(path - from));
    if (!*at && *colon && *from != '[' && !is_number(*colon + 1, path))
        *at = memrchr(from, '@', (size_t)(end - from));
    if (*colon && *at && *colon > *at)
        *colon = NULL;
    return *at != NULL;
}

static void cut(char *from, const char *to)
{
    memmove(from, to, strlen(to) + 1);
}

/* Takes the values of ?password=... and &sslpassword=... out of the URL at `from`. */
static void cut_options(char *from)
{
    static const char *const names[] = {"password=", "sslpassword=", "passwd="};
    for (char *at = from; at < end_of(from); at++)
        for (size_t i = 0; i < CHOIR_COUNT(names) && (*at == '?' || *at == '&'); i++) {
            char *value = at + 1 + strlen(names[i]);
            if (!strncmp(at + 1, names[i], strlen(names[i])))
                cut(value, value + strcspn(value, "& \t\n\"'`<>"));
        }
}

char *choir__hide_passwords(char *text)
{
    char *colon, *at;
    for (char *url = text; (url = strstr(url, "://"));) {
        url += strlen("://");
        if (find_user(url, end_of(url), &colon, &at) && colon)
            cut(colon, at);
        cut_options(url);
    }
    return text;
}

bool choir__lacks_password(const char *url)
{
    char *copy = choir__strdup(url), *from = strstr(copy, "://"), *colon = NULL, *at;
    bool lacks = from && find_user(from + 3, end_of(from + 3), &colon, &at) && !colon;
    free(copy);
    return lacks;
}
