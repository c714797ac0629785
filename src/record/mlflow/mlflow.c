/* mlflow:PLACE: a folder, or a server if the place is a URL. */
#include "record/mlflow/mlflow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/secret.h"

static bool is_url(const char *place)
{
    return !strncmp(place, "http://", 7) || !strncmp(place, "https://", 8);
}

static bool has_netrc(void)
{
    const char *home = getenv("HOME");
    char *path = choir__format("%s/.netrc", home ? home : "");
    bool has = access(path, R_OK) == 0;
    free(path);
    return has;
}

/* A password is not stored with a job, so a continued job asks for it. */
static choir_status check(const char *place)
{
    if (!is_url(place) || !choir__lacks_password(place) || getenv("MLFLOW_TRACKING_PASSWORD") ||
        getenv("MLFLOW_TRACKING_TOKEN") || has_netrc())
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "missing the password of mlflow:%s: set MLFLOW_TRACKING_PASSWORD, or name it in ~/.netrc",
        place);
}

static choir_status open_mlflow(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    return is_url(place) ? choir__mlflow_server(place, start, made)
                         : choir__mlflow_files(place, start, made);
}

const choir__recorder_ops choir__recorder_mlflow = {
    .name = "mlflow",
    .place = "DIR|URL",
    .help = "a run of MLflow, in its folder of files or on its server",
    .check = check,
    .open = open_mlflow, /* the recorder that it makes has a table of its own */
};
