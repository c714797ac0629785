/* Prints the share of a training's time that failures of a described cluster will leave, with
 * restarts and with in-process recovery, and the price. */
#include "cli/fleet.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "forecast/fleet.h"
#include "line/say.h"

static const char *time_text(double seconds, char text[48])
{
    if (!isfinite(seconds))
        snprintf(text, 48, "never");
    else if (seconds < 120)
        snprintf(text, 48, "%.1f s", seconds);
    else if (seconds < 7200)
        snprintf(text, 48, "%.1f min", seconds / 60);
    else if (seconds < 172800)
        snprintf(text, 48, "%.1f h", seconds / 3600);
    else
        snprintf(text, 48, "%.1f days", seconds / 86400);
    return text;
}

static void print_share(const char *what, double share, const choir__cluster *c, int64_t ranks)
{
    printf("  %-28s %6.2f %%", what, 100 * share);
    if (c->price_per_device_hour > 0 && share > 0)
        printf("   %.0f an hour, %.0f an hour of training",
            c->price_per_device_hour * (double)ranks,
            c->price_per_device_hour * (double)ranks / share);
    printf("\n");
}

static void print_table(
    const choir__cluster *c, const choir__fleet_job *job, const choir__fleet *f)
{
    char mttf[48], best[48], young[48];
    printf("%s: %lld ranks on %lld devices\n", c->name, (long long)job->ranks,
        (long long)choir__cluster_devices(c));
    printf("  %-28s %s (%.2f failures a day)\n", "mean time to failure",
        time_text(f->mttf_s, mttf), f->failures_per_day);
    printf("  %-28s %s (Young: %s)\n", "best time between saves",
        time_text(f->interval_s, best), time_text(f->young_s, young));
    print_share("training, with restarts", f->goodput_restart, c, job->ranks);
    if (f->goodput_recovery > 0)
        print_share("training, with recovery", f->goodput_recovery, c, job->ranks);
    printf("  %-28s %6.2f %%   %lld spare nodes, %lld for 99.9 %%\n", "enough nodes",
        100 * f->available, (long long)c->failures.spares, (long long)f->spares_wanted);
}

static void print_json(
    const choir__cluster *c, const choir__fleet_job *job, const choir__fleet *f)
{
    choir__text_buffer out = {0};
    choir__text_open(&out, NULL, '{');
    choir__text_string(&out, "cluster", c->name);
    choir__text_value(&out, "ranks", "%lld", (long long)job->ranks);
    choir__text_value(&out, "devices", "%lld", (long long)choir__cluster_devices(c));
    choir__text_buffer_number(&out, "failures_per_day", f->failures_per_day);
    choir__text_buffer_number(&out, "mttf_s", f->mttf_s);
    choir__text_buffer_number(&out, "interval_s", f->interval_s);
    choir__text_buffer_number(&out, "young_s", f->young_s);
    choir__text_buffer_number(&out, "daly_s", f->daly_s);
    choir__text_buffer_number(&out, "goodput_restart", f->goodput_restart);
    if (f->goodput_recovery > 0)
        choir__text_buffer_number(&out, "goodput_recovery", f->goodput_recovery);
    choir__text_buffer_number(&out, "available", f->available);
    choir__text_value(&out, "spares_wanted", "%lld", (long long)f->spares_wanted);
    if (c->price_per_device_hour > 0)
        choir__text_buffer_number(
            &out, "price_per_hour", c->price_per_device_hour * (double)job->ranks);
    choir__text_finish(&out, stdout);
}

int choir__cli_fleet(const choir__fleet_request *r)
{
    choir__cluster c;
    choir__fleet fleet;
    if (choir__cluster_read(r->cluster, &c))
        return choir__line_fail();
    const choir__fleet_job job = {.ranks = r->ranks ? r->ranks : choir__cluster_devices(&c),
        .step_s = r->step_s,
        .save_s = r->save_s > 0 ? r->save_s : c.failures.save_s,
        .interval_s = r->save_every_s};
    if (choir__fleet_forecast(&c, &job, &fleet))
        return choir__line_fail();
    if (r->json)
        print_json(&c, &job, &fleet);
    else
        print_table(&c, &job, &fleet);
    return CHOIR__EXIT_OK;
}
