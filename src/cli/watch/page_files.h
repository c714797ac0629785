/* The parts of the page, made by cmake/embed.cmake of page.html, page.css and page.js. Each is
 * followed by a zero byte that does not count. */
#ifndef CHOIR_CLI_WATCH_PAGE_FILES_H
#define CHOIR_CLI_WATCH_PAGE_FILES_H

#include <stddef.h>

extern const unsigned char choir__watch_page_html[], choir__watch_page_css[],
    choir__watch_page_js[];
extern const size_t choir__watch_page_html_bytes, choir__watch_page_css_bytes,
    choir__watch_page_js_bytes;

#endif
