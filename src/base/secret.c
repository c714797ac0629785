/* A URL begins at "://", or ":/" where a slash was forgotten, and ends at a blank, <, > or ",
 * as texts have many of them; passwords may have the other quotes. One pass copies the text
 * over itself, without the passwords: its time is in proportion to the text, which may be a
 * file of a stranger. */
#include "base/secret.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define STOPS "\"<>"

enum { LONGEST_USER = 512 }; /* bytes of user, password and @ */

/* Returns the end of the URL that continues at `at`. */
static const char *end_of(const char *at)
{
    while (*at && !isspace((unsigned char)*at) && !strchr(STOPS, *at))
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
static bool find_user(const char *from, const char *end, const char **colon, const char **at)
{
    const char *path = from + strcspn(from, "/?#");
    path = path < end ? path : end;
    end = end - from > LONGEST_USER ? from + LONGEST_USER : end;
    *colon = memchr(from, ':', (size_t)(path - from));
    *at = memrchr(from, '@', (size_t)(path - from));
    if (!*at && *colon && *from != '[' && !is_number(*colon + 1, path) && path < end)
        *at = memrchr(from, '@', (size_t)(end - from));
    if (*colon && *at && *colon > *at)
        *colon = NULL;
    return *at != NULL;
}

/* Returns the length of "?password=" or another one of these names, or 0. */
static size_t password_option(const char *at)
{
    static const char *const names[] = {"password=", "sslpassword=", "passwd=", "pwd=",
        "token=", "access_token=", "api_key=", "apikey=", "secret="};
    for (size_t i = 0; i < CHOIR_COUNT(names) && (*at == '?' || *at == '&'); i++)
        if (!strncmp(at + 1, names[i], strlen(names[i])))
            return 1 + strlen(names[i]);
    return 0;
}

/* Returns the end of an option's value. A quote at its end belongs to the text around it, and
 * so do characters after the quote, except letters and digits. */
static const char *end_of_value(const char *at)
{
    const char *end = at, *quote = NULL;
    for (; *end && *end != '&' && !isspace((unsigned char)*end) && !strchr(STOPS, *end); end++)
        if (strchr("'`", *end))
            quote = quote ? quote : end;
        else if (isalnum((unsigned char)*end))
            quote = NULL;
    return quote && *end != '&' ? quote : end;
}

/* Returns the length of what begins a URL behind its scheme, or 0. */
static size_t beginning(const char *at)
{
    return strncmp(at, ":/", 2) ? 0 : at[2] == '/' ? 3 : 2;
}

static void copy(char **to, const char **from, size_t bytes)
{
    memmove(*to, *from, bytes);
    *to += bytes;
    *from += bytes;
}

char *choir__hide_passwords(char *text)
{
    char *to = text;
    const char *from = text, *end = text, *colon, *at; /* end of the URL that `from` is in */
    while (*from) {
        size_t option = from < end ? password_option(from) : 0, begins = beginning(from);
        if (begins) {
            end = from < end ? end : end_of(from);
            copy(&to, &from, begins);
            if (find_user(from, end, &colon, &at) && colon) {
                copy(&to, &from, (size_t)(colon - from));
                from = at;
            }
        } else if (option) {
            copy(&to, &from, option);
            from = end_of_value(from);
        } else {
            copy(&to, &from, 1);
        }
    }
    *to = '\0';
    return text;
}

bool choir__lacks_password(const char *url)
{
    const char *from = strstr(url, "://"), *colon = NULL, *at;
    return from && find_user(from + 3, end_of(from + 3), &colon, &at) && !colon;
}
