/* Tables of the functions of this folder, which script/math_tables.py writes. */
#ifndef CHOIR_MATH_TABLES_H
#define CHOIR_MATH_TABLES_H

#include <stdint.h>
#include "base/math/double_double.h"

typedef struct log_entry {
    double c;
    dd minus_log;
} log_entry;

typedef struct erfc_entry {
    double centre, rest; /* beyond a[0] */
    double a[12];        /* coefficients of the powers of x - centre */
} erfc_entry;

extern const dd choir__exp_table[128];
extern const log_entry choir__log_table[91];
extern const dd choir__sin_table[65];
extern const dd choir__atan_table[17];
extern const uint64_t choir__turn_bits[20];
extern const erfc_entry choir__erfc_table[39];

#endif
