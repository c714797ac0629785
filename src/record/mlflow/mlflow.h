/* A run of MLflow: as files, or sent to a server. */
#ifndef CHOIR_RECORD_MLFLOW_H
#define CHOIR_RECORD_MLFLOW_H

#include "record/recorder.h"

/* The experiment to which all runs of Choir belong. */
#define CHOIR__MLFLOW_EXPERIMENT "choir"

/* Copies a name; characters that MLflow refuses become '_'. */
void choir__mlflow_name(const char *name, char clean[256]);

/* mlflow:DIR and mlflow:http://HOST:PORT: choir__recorder_ops.open. */
choir_status choir__mlflow_files(
    const char *place, const choir__record_start *start, choir__recorder **made);
choir_status choir__mlflow_server(
    const char *place, const choir__record_start *start, choir__recorder **made);

#endif
