/* mlflow:PLACE: a folder, or a server if the place is a URL. */
#include "record/mlflow/mlflow.h"

#include <string.h>

static choir_status open_mlflow(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    bool url = !strncmp(place, "http://", 7) || !strncmp(place, "https://", 8);
    return url ? choir__mlflow_server(place, start, made)
               : choir__mlflow_files(place, start, made);
}

const choir__recorder_ops choir__recorder_mlflow = {
    .name = "mlflow",
    .place = "DIR|URL",
    .help = "a run of MLflow, in its folder of files or on its server",
    .open = open_mlflow, /* the recorder that it makes has a table of its own */
};
