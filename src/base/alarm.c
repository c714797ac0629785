/* Alarms are timers of the kernel that a thread reads. */
#include "base/alarm.h"

#include <errno.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

bool choir__alarm_open(choir__alarm *alarm)
{
    alarm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return alarm->fd >= 0;
}

void choir__alarm_close(choir__alarm *alarm)
{
    if (alarm->fd >= 0)
        close(alarm->fd);
    alarm->fd = -1;
}

static void set(const choir__alarm *alarm, long nanoseconds)
{
    struct itimerspec t = {.it_value = {nanoseconds / 1000000000, nanoseconds % 1000000000}};
    timerfd_settime(alarm->fd, 0, &t, NULL);
}

void choir__alarm_set(const choir__alarm *alarm, long microseconds)
{
    set(alarm, microseconds ? microseconds * 1000 : 1); /* 0 would put it off */
}

void choir__alarm_put_off(const choir__alarm *alarm)
{
    set(alarm, 0);
}

void choir__alarm_sleep(const choir__alarm *alarm)
{
    uint64_t times;
    while (read(alarm->fd, &times, sizeof times) < 0)
        if (errno != EINTR) {
            usleep(1000); /* the program has closed the descriptor */
            return;
        }
}
