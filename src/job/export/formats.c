/* The formats of choir export. */
#include "job/export/export.h"

const choir__export_format *const choir__export_formats[] = {
    &choir__export_peft, &choir__export_hf, &choir__export_gguf, NULL};
