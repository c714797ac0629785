/* Names of metrics and parameters; MLflow accepts only some characters. */
#include "record/mlflow/mlflow.h"

#include <ctype.h>
#include <string.h>

void choir__mlflow_name(const char *name, char clean[256])
{
    size_t i = 0;
    for (; name[i] && i < 250; i++)
        clean[i] = isalnum((unsigned char)name[i]) || strchr("_-. /", name[i]) ? name[i] : '_';
    clean[i] = '\0';
}
