/* A small HTTP server on libmicrohttpd, which is opened at run time. This file makes the
 * listening socket, so that a port in use is reported as such, and limits connections, so
 * that strangers can neither fill the process's descriptors nor hold them. Without a key, a
 * server on the loopback address answers only requests that name this machine by number or
 * as localhost, which keeps pages of other sites out. */
#include "record/http/http.h"

#include <string.h>

#include "base/options.h"

choir_status choir__http_check_place(const char *place, bool any_port)
{
    const char *colon = strrchr(place, ':'), *port = colon ? colon + 1 : "";
    const int least = any_port ? 0 : 1, most = 65535;
    int64_t number;
    bool digits = *port >= '0' && *port <= '9'; /* no sign, no blank before it */
    return digits && choir__parse_int(port, least, most, &number)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "expected :PORT or HOST:PORT, with a port from %d to %d", least, most);
}

#ifdef CHOIR_HAVE_MICROHTTPD
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/plugin/library.h"

#define CALLS(X)                                                                               \
    X(MHD_, start_daemon)                                                                      \
    X(MHD_, stop_daemon)                                                                       \
    X(MHD_, create_response_from_buffer)                                                       \
    X(MHD_, create_response_from_callback)                                                     \
    X(MHD_, add_response_header)                                                               \
    X(MHD_, queue_response)                                                                    \
    X(MHD_, destroy_response)                                                                  \
    X(MHD_, set_connection_option)                                                             \
    X(MHD_, get_connection_info)                                                               \
    X(MHD_, lookup_connection_value)
static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} mhd;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

struct choir__http {
    choir__http_opts opts;
    struct MHD_Daemon *daemon;
    choir__door *door;
    int socket;       /* -1: the daemon has it */
    bool loopback;    /* the address is one of this machine alone */
    char address[80]; /* [IPv6]:PORT or IPv4:PORT */
};

struct choir__http_request {
    const choir__http *server;
    struct MHD_Connection *connection;
    enum MHD_Result result;
};

/* --- who is connected --- */

static choir__guest *guest_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static enum MHD_Result let_in(void *arg, const struct sockaddr *address, socklen_t bytes)
{
    const choir__http *h = arg;
    (void)address, (void)bytes;
    return choir__door_make_room(h->door) ? MHD_YES : MHD_NO;
}

/* libmicrohttpd calls this before it closes the socket. */
static void note_connection(void *arg, struct MHD_Connection *connection, void **context,
    enum MHD_ConnectionNotificationCode what)
{
    const choir__http *h = arg;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        choir__door_leave(h->door, *context);
        return;
    }
    const union MHD_ConnectionInfo *info =
        mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info ? choir__door_enter(h->door, info->connect_fd) : NULL;
}

/* --- answering --- */

/* Returns whether the request calls this machine by a number or as localhost. A page of another
 * site may have its own name lead here, and then a browser lets it read the answers. */
static bool is_called_by_number(struct MHD_Connection *connection)
{
    const char *given =
        mhd.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    unsigned char number[sizeof(struct in6_addr)];
    char host[64];
    if (!given) /* no browser */
        return true;
    bool bracketed = *given == '[';
    size_t length = strcspn(given + bracketed, bracketed ? "]" : ":");
    if (length >= sizeof host)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)length, given + bracketed);
    return bracketed ? inet_pton(AF_INET6, host, number) == 1
                     : !strcasecmp(host, "localhost") || inet_pton(AF_INET, host, number) == 1;
}

static void queue(choir__http_request *request, unsigned status, struct MHD_Response *r,
    const char *const (*headers)[2], int header_count)
{
    if (!r)
        return;
    /* A guest with the key is known; a page without a key is open to everybody. */
    bool known = status == MHD_HTTP_OK && !request->server->opts.keyless;
    choir__door_answered(request->server->door, guest_of(request->connection), known);
    for (int i = 0; i < header_count; i++)
        mhd.add_response_header(r, headers[i][0], headers[i][1]);
    request->result = mhd.queue_response(request->connection, status, r);
    mhd.destroy_response(r);
}

void choir__http_reply(choir__http_request *request, unsigned status, const char *bytes,
    size_t count, const char *const (*headers)[2], int header_count)
{
    queue(request, status,
        mhd.create_response_from_buffer(count, (void *)bytes, MHD_RESPMEM_MUST_COPY), headers,
        header_count);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *upload, size_t *upload_bytes,
    void **state)
{
    const choir__http *h = arg;
    choir__http_request request = {h, connection, MHD_NO};
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    if (h->opts.keyless && h->loopback && !is_called_by_number(connection)) {
        static const char why[] =
            "this machine is called by its address here, or as localhost\n";
        choir__http_reply(&request, MHD_HTTP_FORBIDDEN, why, sizeof why - 1, NULL, 0);
        return request.result;
    }
    if (!strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD))
        h->opts.answer(h->opts.arg, url, &request);
    return request.result;
}

typedef struct stream {
    choir__http_read *read;
    void (*done)(void *arg);
    void *arg;
} stream;

static ssize_t read_stream(void *arg, uint64_t at, char *bytes, size_t room)
{
    stream *s = arg;
    (void)at;
    size_t count = s->read(s->arg, bytes, room);
    return count ? (ssize_t)count : MHD_CONTENT_READER_END_OF_STREAM;
}

static void free_stream(void *arg)
{
    stream *s = arg;
    s->done(s->arg);
    free(s);
}

void choir__http_stream(choir__http_request *request, choir__http_read *read,
    void (*done)(void *arg), void *arg, const char *const (*headers)[2], int header_count)
{
    enum { BLOCK = 64 * 1024, SILENT_S = 20 };
    stream *s = choir__calloc(1, sizeof *s);
    *s = (stream){read, done, arg};
    struct MHD_Response *r =
        mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, s, free_stream);
    if (!r)
        free_stream(s);
    mhd.set_connection_option(
        request->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)SILENT_S);
    queue(request, MHD_HTTP_OK, r, headers, header_count);
}

/* --- opening --- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Stores the address with the port that a request for any free one has got. */
static void name_address(choir__http *h)
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    char host[64] = "", port[8] = "";
    if (getsockname(h->socket, (struct sockaddr *)&at, &bytes) == 0)
        getnameinfo((struct sockaddr *)&at, bytes, host, sizeof host, port, sizeof port,
            NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(h->address, sizeof h->address, at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
        host, port);
}

static choir_status listen_there(choir__http *h, const struct addrinfo *there)
{
    const char *what = h->opts.what;
    if (h->opts.local_only && !is_loopback(there->ai_addr))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: %s is not this machine's loopback address; other machines are let in with a "
            "key alone",
            what, h->opts.place);
    h->loopback = is_loopback(there->ai_addr);
    h->socket = socket(there->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    if (h->socket >= 0)
        setsockopt(h->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (h->socket >= 0 && bind(h->socket, there->ai_addr, there->ai_addrlen) == 0 &&
        listen(h->socket, SOMAXCONN) == 0) {
        name_address(h);
        return CHOIR_OK;
    }
    int error = errno;
    return error == EADDRINUSE
               ? choir__error(CHOIR_ERR_IO,
                     "%s: port %s is taken by another program; choose another one", what,
                     strrchr(h->opts.place, ':') + 1)
               : choir__error(
                     CHOIR_ERR_IO, "%s: cannot listen there: %s", what, choir__why(error));
}

/* Puts the option before the message about a malformed place. */
static choir_status wrong_place(const choir__http *h)
{
    char *why = choir__strdup(choir_error_message());
    choir__error(CHOIR_ERR_ARGUMENT, "%s: %s", h->opts.what, why);
    free(why);
    return CHOIR_ERR_ARGUMENT;
}

/* Listens at HOST:PORT, or at :PORT on the loopback address. */
static choir_status listen_at(choir__http *h, const char *place)
{
    if (choir__http_check_place(place, h->opts.any_port) != CHOIR_OK)
        return wrong_place(h);
    const char *colon = strrchr(place, ':'), *port = colon + 1;
    char host[256];
    snprintf(host, sizeof host, "%.*s", (int)(colon - place), place);
    size_t length = strlen(host);
    bool bracketed = length > 1 && host[0] == '[' && host[length - 1] == ']';
    host[bracketed ? length - 1 : length] = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int error = getaddrinfo(*host ? host + bracketed : "127.0.0.1", port, &hints, &found);
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "%s: unknown host '%s': %s", h->opts.what, host, gai_strerror(error));
    choir_status status = listen_there(h, found);
    freeaddrinfo(found);
    return status;
}

/* Returns how many connections the server has at most: a quarter of the process's descriptors,
 * so that a training can always open the files of a checkpoint. */
static int places(void)
{
    enum { MOST = 256, LEAST = 8, SHARE = 4 };
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &files);
    rlim_t share = files.rlim_cur / SHARE;
    return share > MOST ? MOST : (int)choir__max((int64_t)share, LEAST);
}

/* Strangers may connect, too: their connections leave room for others, and a request that
 * pauses, or lasts, is dropped soon. */
static choir_status start_daemon(choir__http *h)
{
    /* The stack holds the JSON of studies, which nests up to the parser's 2048 levels; only the
     * used part of it takes memory. */
    enum { MOST_PER_HOST = 64, SILENT_S = 5, WHOLE_S = 15, STACK = 4 * 1024 * 1024 };
    const int most = places();
    h->door = choir__door_open(most, WHOLE_S);
    if (!h->door)
        return choir__error(CHOIR_ERR_IO, "%s: no thread can be started", h->opts.what);
    h->daemon = mhd.start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
                                     (h->opts.streams ? MHD_USE_THREAD_PER_CONNECTION : 0),
        0, let_in, h, answer, h, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)h->socket,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, h, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)most, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)(h->loopback ? 0 : MOST_PER_HOST), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)SILENT_S, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK, MHD_OPTION_END);
    if (!h->daemon)
        return choir__error(CHOIR_ERR_IO, "%s: libmicrohttpd does not start", h->opts.what);
    h->socket = -1;
    return CHOIR_OK;
}

choir_status choir__http_open(const choir__http_opts *opts, choir__http **made)
{
    *made = NULL;
    choir_status status =
        choir__library_open(CHOIR_MICROHTTPD_LIBRARY, names, CHOIR_COUNT(names), &mhd);
    if (status != CHOIR_OK)
        return status;
    choir__http *h = choir__calloc(1, sizeof *h);
    h->opts = *opts;
    h->socket = -1;
    status = listen_at(h, opts->place);
    if (status == CHOIR_OK)
        status = start_daemon(h);
    h->opts.what = h->opts.place = NULL; /* the caller's, until here */
    if (status == CHOIR_OK)
        *made = h;
    else
        choir__http_close(h);
    return status;
}

void choir__http_close(choir__http *h)
{
    if (!h)
        return;
    if (h->daemon)
        mhd.stop_daemon(h->daemon);
    choir__door_close(h->door);
    if (h->socket >= 0)
        close(h->socket);
    free(h);
}

const char *choir__http_address(const choir__http *h)
{
    return h->address;
}
#else
choir_status choir__http_open(const choir__http_opts *opts, choir__http **made)
{
    *made = NULL;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: this build has no libmicrohttpd; install libmicrohttpd-dev and build again",
        opts->what);
}

void choir__http_close(choir__http *h)
{
    (void)h;
}

const char *choir__http_address(const choir__http *h)
{
    (void)h;
    return "";
}

void choir__http_reply(choir__http_request *request, unsigned status, const char *bytes,
    size_t count, const char *const (*headers)[2], int header_count)
{
    (void)request, (void)status, (void)bytes, (void)count, (void)headers, (void)header_count;
}

void choir__http_stream(choir__http_request *request, choir__http_read *read,
    void (*done)(void *arg), void *arg, const char *const (*headers)[2], int header_count)
{
    (void)request, (void)read, (void)headers, (void)header_count;
    done(arg);
}
#endif
