/* The functions of glibc that Choir, or a library inside it, calls and glibc 2.28 lacks, for
 * the command that runs on any Linux since then (link.sh). A symbol that stubs.sh leaves out
 * and this file does not define makes the link fail, with its name.
 *
 * The start of the program belongs here, too. A program linked by a glibc since 2.34 leaves its
 * constructors to the C library; an older one expects the program to bring a function that
 * calls them, and would run none. Both call the function they are given. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// --- the start ---

typedef int program_main(int, char **, char **);
typedef void constructor(int, char **, char **);

extern constructor *__preinit_array_start[], *__preinit_array_end[];
extern constructor *__init_array_start[], *__init_array_end[];
extern void _init(void);
int __real___libc_start_main(program_main *main, int argc, char **argv,
    void (*constructors)(int, char **, char **), void (*destructors)(void),
    void (*linker_end)(void), void *stack);
int __wrap___libc_start_main(program_main *main, int argc, char **argv,
    void (*constructors)(int, char **, char **), void (*destructors)(void),
    void (*linker_end)(void), void *stack);

static void construct(int argc, char **argv, char **environment)
{
    _init();
    for (constructor **f = __init_array_start; f < __init_array_end; f++)
        (*f)(argc, argv, environment);
}

/* The dynamic linker runs preinit functions in either version, and destructors at exit. */
int __wrap___libc_start_main(program_main *main, int argc, char **argv,
    void (*constructors)(int, char **, char **), void (*destructors)(void),
    void (*linker_end)(void), void *stack)
{
    (void)constructors; // NULL since 2.34
    return __real___libc_start_main(
        main, argc, argv, construct, destructors, linker_end, stack);
}

// --- libraries that are inside ---

void *__real_dlopen(const char *file, int mode);
void *__wrap_dlopen(const char *file, int mode);

/* CHOIR_INSIDE: the shared objects whose functions are linked with the program, separated by
 * spaces. Choir, which opens them by name, finds the functions in the program. */
void *__wrap_dlopen(const char *file, int mode)
{
    static const char inside[] = " " CHOIR_INSIDE " ";
    const char *found = file && *file ? strstr(inside, file) : NULL;
    if (found && found[-1] == ' ' && found[strlen(file)] == ' ')
        file = NULL;
    return __real_dlopen(file, mode);
}

// --- younger functions ---

int fstatat(int folder, const char *restrict path, struct stat *restrict out, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}

int stat(const char *restrict path, struct stat *restrict out)
{
    return fstatat(AT_FDCWD, path, out, 0);
}

int lstat(const char *restrict path, struct stat *restrict out)
{
    return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *out)
{
    return (int)syscall(SYS_fstat, fd, out);
}

/* On the 64-bit machines that Choir runs on, files of any size have one struct stat. */
int fstat64(int fd, struct stat64 *out)
{
    return fstat(fd, (struct stat *)out);
}

int stat64(const char *restrict path, struct stat64 *restrict out)
{
    return stat(path, (struct stat *)out);
}

int lstat64(const char *restrict path, struct stat64 *restrict out)
{
    return lstat(path, (struct stat *)out);
}

pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

/* Like pthread_timedjoin_np, which waits on the realtime clock, but on any clock. */
int pthread_clockjoin_np(
    pthread_t thread, void **result, clockid_t clock, const struct timespec *until)
{
    struct timespec now, real;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0)
        return EINVAL;
    real.tv_sec += until->tv_sec - now.tv_sec;
    real.tv_nsec += until->tv_nsec - now.tv_nsec;
    while (real.tv_nsec < 0)
        real.tv_nsec += 1000000000, real.tv_sec--;
    while (real.tv_nsec >= 1000000000)
        real.tv_nsec -= 1000000000, real.tv_sec++;
    return pthread_timedjoin_np(thread, result, &real);
}

/* "KILL" of SIGKILL. */
const char *sigabbrev_np(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGHUP, "HUP"}, {SIGINT, "INT"}, {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},
        {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"}, {SIGBUS, "BUS"}, {SIGFPE, "FPE"},
        {SIGKILL, "KILL"}, {SIGUSR1, "USR1"}, {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
        {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"}, {SIGTERM, "TERM"}, {SIGSTKFLT, "STKFLT"},
        {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"}, {SIGSTOP, "STOP"}, {SIGTSTP, "TSTP"},
        {SIGTTIN, "TTIN"}, {SIGTTOU, "TTOU"}, {SIGURG, "URG"}, {SIGXCPU, "XCPU"},
        {SIGXFSZ, "XFSZ"}, {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"},
        {SIGIO, "POLL"}, {SIGPWR, "PWR"}, {SIGSYS, "SYS"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == number)
            return names[i].name;
    }
    return NULL;
}
