/* The inside of the report: what its lines share. report.c has the job's beginning, its events
 * and its end, step.c the lines of steps. */
#ifndef CHOIR_CLI_REPORT_INSIDE_H
#define CHOIR_CLI_REPORT_INSIDE_H

#include "job/report/report.h"

/* Writes a line. The caller does where this rank may be lost: it notes first that the line is
 * shown, so that the next rank 0 does not show it again. */
void choir__report_flush(const choir__cli_report *r);

/* Returns the items of a step: tokens, or samples. */
double choir__report_items(const choir__cli_report *r);
const char *choir__report_items_name(const choir__cli_report *r);

/* Returns the median; of no value 0. */
double choir__report_median(const double *values, int64_t n);

/* Prints a member of a JSON object behind others; NaN and infinity are null. */
void choir__report_number(const char *key, double value);

#endif
