/* Files of forecasts: clusters, and tables of choir plan --calibrate. */
#include "cases.h"

#define SAMPLE                                                                                 \
    "{\"name\":\"unary\",\"dtype\":\"f32\",\"bytes\":%zu,\"seconds\":1e-5,\"dims\":[1,2,3,4]}"
#define TABLE "{\"key\":\"a\",\"kernels\":["

static const cost_case cases[] = {
    {"cluster: keys", read_cluster, "{\"device\":\"H100\",", "\"k%zu\":1,", "\"nodes\":2}",
        2000},
    {"cluster: a long name", read_cluster, "{\"device\":\"H100\",\"name\":\"", "aaaaaaaa",
        "\"}", 3000},
    {"cluster: a long number", read_cluster, "{\"device\":\"H100\",\"nodes\":", "1", "}", 5000},
    {"cluster: nested lists", read_cluster, "{\"device\":", "[", "", 5000},
    {"costs: samples", read_costs, TABLE, SAMPLE ",", SAMPLE "]}", 500, .memory = 512},
    {"costs: samples, falling", read_costs, TABLE, SAMPLE ",", SAMPLE "]}", 500,
        .falling = true, .memory = 512},
    {"costs: equal samples", read_costs, TABLE,
        "{\"name\":\"unary\",\"dtype\":\"f32\",\"seconds\":1},", SAMPLE "]}", 500,
        .memory = 512},
    {"costs: names of kernels", read_costs, TABLE, "{\"name\":\"k%zu\"},", SAMPLE "]}", 1000},
    {"costs: nested lists", read_costs, "{\"key\":\"a\",\"kernels\":", "[", "", 5000},
};

const cost_table cost_forecasts = COST_TABLE(cases);
