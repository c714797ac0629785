/* Regular expressions by Oniguruma.
 *
 * A hostile file may have an expression that goes back again and again. So each search is first
 * tried with a small limit of how often Oniguruma goes back, and of the places to go back to,
 * for which it needs memory. No usual word needs more. A search that fails by a limit is tried
 * again with a larger one, which is taken off the steps of the text; their number is
 * proportional to its bytes. A text without enough steps is an error. The limits are counts, so
 * the result does not depend on the machine's speed.
 *
 * Characters that Oniguruma only looks at are not counted. An expression that looks ahead of
 * each character to the text's end takes the square of its length. */
#include "data/tokenizer/regex.h"

#ifdef CHOIR_HAVE_ONIGURUMA
#include <limits.h>
#include <oniguruma.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/plugin/library.h"
#include "data/tokenizer/unicode.h"

#define CALLS(X)                                                                               \
    X(onig_, initialize)                                                                       \
    X(onig_, version)                                                                          \
    X(onig_, set_parse_depth_limit)                                                            \
    X(onig_, new)                                                                              \
    X(onig_, free)                                                                             \
    X(onig_, error_code_to_str)                                                                \
    X(onig_, region_new)                                                                       \
    X(onig_, region_free)                                                                      \
    X(onig_, new_match_param)                                                                  \
    X(onig_, free_match_param)                                                                 \
    X(onig_, set_match_stack_limit_size_of_match_param)                                        \
    X(onig_, set_retry_limit_in_match_of_match_param)                                          \
    X(onig_, set_retry_limit_in_search_of_match_param)                                         \
    X(onig_, search_with_param)                                                                \
    X(Onig, EncodingUTF8)                                                                      \
    X(Onig, SyntaxOniguruma)
static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} onig;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;

enum {
    LONGEST = 4096, /* bytes of an expression */
    DEEPEST = 64,   /* parts within parts: it is read recursively, on a small stack */
    LIMIT = 1024,   /* the first try's */
    MORE = 4,       /* a limit that was reached becomes this many times as large */
    PLACES = 64,    /* for each byte of the text */
    STEPS = 1024    /* likewise */
};

struct choir__regex {
    regex_t *regex;
    OnigRegion *region;
    OnigMatchParam *limits;
    char *name, *pattern; /* for messages */
};

/* --- characters ---
 *
 * An encoding of Oniguruma is a table of functions. Ours is a copy of the library's UTF-8,
 * whose Unicode is as old as the machine's package, but for two functions: a property's
 * characters, and the properties of a character. General categories follow unicode.h, as in
 * Hugging Face's tokenizers; properties such as \p{Alphabetic} and \w remain the library's. */

/* The names of general categories; Cs is left out, as text has no surrogates. */
static const char *const category_names[] = {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc",
    "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc",
    "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

enum { DIGIT = CHOIR_COUNT(category_names), PROPERTIES };

/* A property as Oniguruma numbers it. range[0]: number of ranges, which follow. */
static struct {
    OnigCtype type;
    uint32_t categories;
    OnigCodePoint *range;
} property[PROPERTIES];

static OnigEncoding library;
static OnigEncodingType own;

static int find(OnigCtype type)
{
    int i = 0;
    while (i < PROPERTIES && property[i].type != type)
        i++;
    return i < PROPERTIES ? i : -1;
}

static int is_code_ctype(OnigCodePoint code, OnigCtype type)
{
    int i = find(type);
    return i < 0 ? library->is_code_ctype(code, type)
                 : (int)(property[i].categories >> choir__unicode_category(code) & 1);
}

static int get_ctype_code_range(
    OnigCtype type, OnigCodePoint *ascii, const OnigCodePoint *ranges[])
{
    int i = find(type);
    if (i < 0)
        return library->get_ctype_code_range(type, ascii, ranges);
    *ascii = 0x80;
    *ranges = property[i].range;
    return 0;
}

static void set_property(int i, OnigCtype type, uint32_t categories)
{
    size_t count = choir__unicode_ranges(categories, NULL);
    property[i].type = type;
    property[i].categories = categories;
    property[i].range = choir__alloc((1 + 2 * count) * sizeof *property[i].range);
    property[i].range[0] = (OnigCodePoint)count;
    choir__unicode_ranges(categories, property[i].range + 1);
}

static void set_encoding(OnigEncoding utf8)
{
    library = utf8;
    for (int i = 0; i < DIGIT; i++) {
        OnigUChar name[4] = "";
        size_t n = strlen(category_names[i]);
        memcpy(name, category_names[i], n);
        set_property(i, (OnigCtype)utf8->property_name_to_ctype(utf8, name, name + n),
            choir__unicode_categories(category_names[i]));
    }
    set_property(DIGIT, ONIGENC_CTYPE_DIGIT, choir__unicode_categories("Nd"));
    own = *utf8;
    own.is_code_ctype = is_code_ctype;
    own.get_ctype_code_range = get_ctype_code_range;
}

/* --- the library and its expressions --- */

static void open_library(void)
{
    if (choir__library_open(CHOIR_ONIGURUMA_LIBRARY, names, CHOIR_COUNT(names), &onig) !=
        CHOIR_OK)
        return;
    there = onig.initialize((OnigEncoding[]){onig.EncodingUTF8}, 1) == ONIG_NORMAL;
    onig.set_parse_depth_limit(DEEPEST); /* the process's, for lack of another */
    if (there)
        set_encoding(onig.EncodingUTF8);
}

static bool has_oniguruma(void)
{
    pthread_once(&once, open_library);
    return there;
}

const char *choir__regex_version(void)
{
    return has_oniguruma() ? onig.version() : NULL;
}

static choir_status compile(choir__regex *r)
{
    const OnigUChar *pattern = (const OnigUChar *)r->pattern;
    OnigErrorInfo part;
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN];
    int code = onig.new(&r->regex, pattern, pattern + strlen(r->pattern), ONIG_OPTION_NONE,
        &own, onig.SyntaxOniguruma, &part);
    if (code == ONIG_NORMAL)
        return CHOIR_OK;
    r->regex = NULL;
    onig.error_code_to_str(why, code, &part);
    return choir__error(CHOIR_ERR_FORMAT, "%s: '%.200s' is not a regular expression: %s",
        r->name, r->pattern, (const char *)why);
}

choir_status choir__regex_new(const char *name, const char *pattern, choir__regex **regex)
{
    if (strlen(pattern) > LONGEST)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a regular expression of at most %d bytes, got %zu", name, LONGEST,
            strlen(pattern));
    if (!has_oniguruma())
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: its regular expression '%.200s' needs Oniguruma, and there is no %s here: "
            "install it (Debian's package libonig5)",
            name, pattern, CHOIR_ONIGURUMA_LIBRARY);
    choir__regex *r = choir__calloc(1, sizeof *r);
    r->name = choir__strdup(name);
    r->pattern = choir__strdup(pattern);
    r->region = onig.region_new();
    r->limits = onig.new_match_param();
    choir_status status = CHOIR_OK;
    if (!r->region || !r->limits)
        status =
            choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for a regular expression", name);
    if (status == CHOIR_OK)
        status = compile(r);
    if (status == CHOIR_OK)
        *regex = r;
    else
        choir__regex_free(r);
    return status;
}

void choir__regex_free(choir__regex *r)
{
    if (!r)
        return;
    if (r->regex)
        onig.free(r->regex);
    if (r->region)
        onig.region_free(r->region, 1);
    if (r->limits)
        onig.free_match_param(r->limits);
    free(r->name);
    free(r->pattern);
    free(r);
}

/* --- searching --- */

/* Returns the place of the match, or Oniguruma's code of an error. */
static int search(choir__regex *r, const choir__regex_text *text, const char *at, int64_t limit)
{
    const OnigUChar *begin = (const OnigUChar *)text->begin,
                    *end = (const OnigUChar *)text->end;
    int64_t most = LIMIT + PLACES * (int64_t)(end - begin);
    onig.set_retry_limit_in_match_of_match_param(r->limits, (unsigned long)limit);
    onig.set_retry_limit_in_search_of_match_param(r->limits, (unsigned long)limit);
    onig.set_match_stack_limit_size_of_match_param(
        r->limits, (unsigned)choir__min(choir__min(limit, most), UINT_MAX));
    return onig.search_with_param(r->regex, begin, end, (const OnigUChar *)at, end, r->region,
        ONIG_OPTION_NONE, r->limits);
}

static choir_status stopped(const choir__regex *r, const choir__regex_text *text, int code)
{
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig.error_code_to_str(why, code, NULL);
    return choir__error(CHOIR_ERR_RANGE,
        "%s: the regular expression '%.200s' takes too many steps on %zu bytes of text: %s",
        r->name, r->pattern, (size_t)(text->end - text->begin), (const char *)why);
}

static bool is_limit(int code)
{
    return code == ONIGERR_MATCH_STACK_LIMIT_OVER ||
           code == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER ||
           code == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
}

choir_status choir__regex_search(choir__regex *r, choir__regex_text *text, const char *at,
    const char **from, const char **to)
{
    int64_t limit = LIMIT;
    int found = search(r, text, at, limit);
    while (is_limit(found) && text->steps >= MORE * limit) {
        limit *= MORE;
        text->steps -= limit;
        found = search(r, text, at, limit);
    }
    if (found < 0 && found != ONIG_MISMATCH)
        return stopped(r, text, found);
    *from = found < 0 ? NULL : text->begin + r->region->beg[0];
    *to = found < 0 ? NULL : text->begin + r->region->end[0];
    return CHOIR_OK;
}

choir__regex_text choir__regex_text_of(const char *begin, const char *end)
{
    enum { LEAST = 1 << 16 };
    return (choir__regex_text){begin, end, LEAST + STEPS * (int64_t)(end - begin)};
}

#else
choir_status choir__regex_new(const char *name, const char *pattern, choir__regex **regex)
{
    (void)regex;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: its regular expression '%.200s' needs Oniguruma, without which this Choir is "
        "built: install it (Debian's package libonig-dev) and build with -DCHOIR_ONIGURUMA=ON",
        name, pattern);
}

void choir__regex_free(choir__regex *r)
{
    (void)r;
}

choir__regex_text choir__regex_text_of(const char *begin, const char *end)
{
    return (choir__regex_text){begin, end, 0};
}

choir_status choir__regex_search(choir__regex *r, choir__regex_text *text, const char *at,
    const char **from, const char **to)
{
    (void)r, (void)text, (void)at, (void)to;
    *from = NULL;
    return CHOIR_OK;
}

const char *choir__regex_version(void)
{
    return NULL;
}
#endif
