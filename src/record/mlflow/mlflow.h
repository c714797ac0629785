/* A run of MLflow: as files, or sent to a server. */
#ifndef CHOIR_RECORD_MLFLOW_H
#define CHOIR_RECORD_MLFLOW_H

#include "base/base.h"
#include "record/recorder.h"

#include <ctype.h>
#include <jansson.h>
#include <string.h>

/* The experiment to which all runs of Choir belong. */
#define CHOIR__MLFLOW_EXPERIMENT "choir"

/* Copies the name of a metric or a parameter; characters that MLflow refuses become '_'. */
static inline void choir__mlflow_name(const char *name, char clean[256])
{
    size_t i = 0;
    for (; name[i] && i < 250; i++)
        clean[i] = isalnum((unsigned char)name[i]) || strchr("_-. /", name[i]) ? name[i] : '_';
    clean[i] = '\0';
}

/* mlflow:DIR and mlflow:http://HOST:PORT: choir__recorder_ops.open. */
choir_status choir__mlflow_files(
    const char *place, const choir__record_start *start, choir__recorder **made);
choir_status choir__mlflow_server(
    const char *place, const choir__record_start *start, choir__recorder **made);

/* Calls of MLflow's REST interface, over one connection. */

typedef struct choir__mlflow_client choir__mlflow_client;

/* Opens a client of the server at an URL; nothing is sent yet. The environment may name a user,
 * as for MLflow's own client (MLFLOW_TRACKING_TOKEN, _USERNAME, _PASSWORD). Error: unsupported
 * (no libcurl). */
choir_status choir__mlflow_client_open(const char *url, choir__mlflow_client **client);
/* the URL without a slash at its end */
const char *choir__mlflow_client_url(const choir__mlflow_client *client);
void choir__mlflow_client_close(choir__mlflow_client *client);

/* Posts a body, which it frees, and stores the reply unless it is NULL. insists: where the
 * server is overloaded or restarts, again and again with longer pauses, as MLflow's own client
 * does; metrics that arrive twice count once. Error: I/O. */
choir_status choir__mlflow_call(
    choir__mlflow_client *client, const char *path, bool insists, json_t *body, json_t **reply);

#endif
