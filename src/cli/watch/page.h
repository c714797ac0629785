/* The page over HTTP: the document, and the news as server-sent events.
 *
 *     GET /TOKEN/        page.html with page.css, plan.js and page.js in it
 *     GET /TOKEN/live    the server-sent events of overview.h and run.h
 *
 * All users of a machine share its loopback address, and pages of other sites may send requests
 * there; so all answers need a token, which is part of the printed address alone. */
#ifndef CHOIR_CLI_WATCH_PAGE_H
#define CHOIR_CLI_WATCH_PAGE_H

#include "cli/watch/overview.h"

#include <choir/status.h>
#include <stddef.h>

typedef struct choir__watch_page choir__watch_page;

/* Begins to serve. what: the option or command, for messages. place: [HOST]:PORT. key_file:
 * the token follows from its contents, and other addresses than loopback are allowed; NULL: the
 * token is random. Takes the machines in `shows`, also if it fails. */
choir_status choir__watch_page_open(const char *what, const char *place, const char *key_file,
    const choir__watch_shows *shows, choir__watch_page **made);
/* Sends the readers the last news, and ends. NULL is fine. */
void choir__watch_page_close(choir__watch_page *page);

/* Returns the address to open: "http://127.0.0.1:8080/TOKEN/". */
const char *choir__watch_page_url(const choir__watch_page *page);

/* The parts of the page, made by cmake/embed.cmake of page.html, page.css, page.js and plan.js.
 * Each is followed by a zero byte that does not count. */

extern const unsigned char choir__watch_page_html[], choir__watch_page_css[],
    choir__watch_page_js[], choir__watch_plan_js[];
extern const size_t choir__watch_page_html_bytes, choir__watch_page_css_bytes,
    choir__watch_page_js_bytes, choir__watch_plan_js_bytes;

/* The page of a run beside its training, in a process of its own. */

typedef struct choir__page_process choir__page_process;

/* Begins to serve a page of the run that will be recorded in `folder`, and prints its address
 * on standard error. To be called before this process has threads. Errors: as
 * choir__watch_page_open, io. */
choir_status choir__page_process_open(const char *folder, choir__page_process **made);
/* Ends the page, whose readers get the run's end before. NULL is fine. */
void choir__page_process_close(choir__page_process *beside);

#endif
