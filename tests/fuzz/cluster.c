/* Files of clusters. A cluster that is read has levels, prices of messages and a goodput, all
 * of them numbers. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>

#include "forecast/fleet.h"
#include "forecast/network.h"

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void price(const choir__cluster *c)
{
    const int64_t devices = choir__cluster_devices(c), world = devices < 64 ? devices : 64;
    choir__call_cost cost;
    choir__call_shape call = {.kind = CHOIR__ALL_REDUCE,
        .dtype = CHOIR_F32,
        .count = 1000000,
        .group = {world, 1},
        .world = world};
    expect(choir__cluster_level(c, 0, devices - 1) < CHOIR__LEVELS);
    if (world > 1 && choir__network_price(c, &call, &cost) == CHOIR_OK)
        expect(isfinite(cost.seconds) && cost.seconds >= 0);
}

static void foretell(const choir__cluster *c)
{
    choir__fleet f;
    const choir__fleet_job job = {
        .ranks = choir__cluster_devices(c), .step_s = 2, .save_s = c->failures.save_s};
    if (choir__fleet_forecast(c, &job, &f) != CHOIR_OK)
        return;
    expect(f.mttf_s > 0 && f.interval_s > 0);
    expect(f.goodput_restart >= 0 && f.goodput_restart <= 1.000001);
    expect(f.goodput_recovery >= 0 && f.goodput_recovery <= 1.000001);
    expect(f.available >= 0 && f.available <= 1 && f.spares_wanted >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__cluster c;
    if (choir__cluster_read(fuzz_write("cluster.json", data, size), &c) != CHOIR_OK)
        return 0;
    price(&c);
    foretell(&c);
    return 0;
}
