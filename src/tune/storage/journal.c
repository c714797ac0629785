/* Optuna's journal files. */
#include "tune/storage/backend.h"

static choir_status open_journal(const char *place, bool create, choir__study_backend **backend)
{
    (void)create, (void)backend;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "%s: this build does not read journal files; use sqlite:FILE", place);
}

const choir__study_backend_ops choir__backend_journal = {
    .name = "journal", .open = open_journal};
