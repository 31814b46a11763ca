/* Lets the n-th change of a process to files fail; loaded with LD_PRELOAD by io_faults.py.
 *
 * What counts is every call of the C library that changes a file below one directory, whoever makes it: Python, SQLite
 * or a compiled module. Nothing counts until io_faults_arm was called, so child processes are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { COUNT, FAIL, FULL, SHORT, CRASH, TORN, STUMBLE };

static char root[PATH_MAX];
static size_t root_length;
static atomic_int is_armed;
static atomic_long calls;
static long chosen;
static enum mode mode;
static int error;
static char what[PATH_MAX + 64]; /* the call that failed first */

void io_faults_arm(const char *directory, int how, long number, int with) {
    snprintf(root, sizeof root, "%s", directory);
    root_length = strlen(root);
    mode = how;
    chosen = number;
    error = with;
    what[0] = 0;
    atomic_store(&calls, 0);
    atomic_store(&is_armed, 1);
}

long io_faults_disarm(void) {
    atomic_store(&is_armed, 0);
    return atomic_load(&calls);
}

const char *io_faults_what(void) { return what; }

static int is_below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

static int descriptor_path(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

static int resolve(int directory, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return 1;
    }
    char base[PATH_MAX];
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else if (!descriptor_path(directory, base)) {
        return 0;
    }
    return snprintf(path, PATH_MAX, "%s/%s", base, name) < PATH_MAX;
}

/* Returns what becomes of a call: COUNT lets it through. Only a write can be short or torn; other calls fail or crash. */
static enum mode judge(const char *call, const char *path, int is_write) {
    if (!atomic_load(&is_armed) || !is_below(path)) return COUNT;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (mode == COUNT || number < chosen || (number > chosen && mode != FULL && !(mode == STUMBLE && number <= chosen + 2)))
        return COUNT;
    if (number == chosen) snprintf(what, sizeof what, "%s %s", call, path + root_length);
    if (mode == CRASH || (mode == TORN && !is_write)) kill(getpid(), SIGKILL);
    if (mode == TORN) return TORN;
    return is_write && (mode == SHORT || (mode == STUMBLE && number == chosen)) ? SHORT : FAIL;
}

static int fails(const char *call, int directory, const char *name) {
    char path[PATH_MAX];
    int saved = errno;
    enum mode found = resolve(directory, name, path) ? judge(call, path, 0) : COUNT;
    errno = found == COUNT ? saved : error;
    return found != COUNT;
}

static int descriptor_fails(const char *call, int descriptor) {
    char path[PATH_MAX];
    int saved = errno;
    enum mode found = atomic_load(&is_armed) && descriptor_path(descriptor, path) ? judge(call, path, 0) : COUNT;
    errno = found == COUNT ? saved : error;
    return found != COUNT;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define WRITES(call, descriptor, size, part, whole) \
    char path[PATH_MAX]; \
    int saved = errno; \
    enum mode found = \
        atomic_load(&is_armed) && descriptor_path(descriptor, path) ? judge(#call, path, (size) > 1) : COUNT; \
    errno = saved; \
    if (found == FAIL) { \
        errno = error; \
        return -1; \
    } \
    if (found == SHORT || found == TORN) { \
        ssize_t done = part; \
        if (found == TORN) kill(getpid(), SIGKILL); \
        return done; \
    } \
    return whole

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    WRITES(write, descriptor, size, real(descriptor, data, size / 2), real(descriptor, data, size));
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t place) {
    REAL(pwrite);
    WRITES(pwrite, descriptor, size, real(descriptor, data, size / 2, place), real(descriptor, data, size, place));
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t place) {
    REAL(pwrite64);
    WRITES(pwrite64, descriptor, size, real(descriptor, data, size / 2, place), real(descriptor, data, size, place));
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REAL(writev);
    if (descriptor_fails("writev", descriptor)) return -1;
    return real(descriptor, parts, count);
}

ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *place, size_t size, unsigned flags) {
    REAL(copy_file_range);
    if (descriptor_fails("copy_file_range", to)) return -1;
    return real(from, start, to, place, size, flags);
}

ssize_t sendfile(int to, int from, off_t *place, size_t size) {
    static ssize_t (*real)(int, int, off_t *, size_t);
    if (!real) real = (ssize_t(*)(int, int, off_t *, size_t))dlsym(RTLD_NEXT, "sendfile");
    if (descriptor_fails("sendfile", to)) return -1;
    return real(to, from, place, size);
}

#define ON_DESCRIPTOR(name) \
    int name(int descriptor) { \
        REAL(name); \
        return descriptor_fails(#name, descriptor) ? -1 : real(descriptor); \
    }
ON_DESCRIPTOR(fsync)
ON_DESCRIPTOR(fdatasync)

int ftruncate(int descriptor, off_t size) {
    REAL(ftruncate);
    return descriptor_fails("ftruncate", descriptor) ? -1 : real(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size) {
    REAL(ftruncate64);
    return descriptor_fails("ftruncate", descriptor) ? -1 : real(descriptor, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return fails("rename", AT_FDCWD, to) ? -1 : real(from, to);
}

int renameat(int from_directory, const char *from, int directory, const char *to) {
    REAL(renameat);
    return fails("rename", directory, to) ? -1 : real(from_directory, from, directory, to);
}

int link(const char *from, const char *to) {
    REAL(link);
    return fails("link", AT_FDCWD, to) ? -1 : real(from, to);
}

int linkat(int from_directory, const char *from, int directory, const char *to, int flags) {
    REAL(linkat);
    return fails("link", directory, to) ? -1 : real(from_directory, from, directory, to, flags);
}

int symlink(const char *target, const char *to) {
    REAL(symlink);
    return fails("symlink", AT_FDCWD, to) ? -1 : real(target, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return fails("unlink", AT_FDCWD, path) ? -1 : real(path);
}

int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat);
    return fails("unlink", directory, path) ? -1 : real(directory, path, flags);
}

int rmdir(const char *path) {
    REAL(rmdir);
    return fails("rmdir", AT_FDCWD, path) ? -1 : real(path);
}

int mkdir(const char *path, mode_t permissions) {
    REAL(mkdir);
    return fails("mkdir", AT_FDCWD, path) ? -1 : real(path, permissions);
}

int mkdirat(int directory, const char *path, mode_t permissions) {
    REAL(mkdirat);
    return fails("mkdir", directory, path) ? -1 : real(directory, path, permissions);
}

/* Opening counts where it may make or empty a file: that is what a full disk, or a read-only one, refuses. */
#define OPENS(name, directory, path, flags, ...) \
    mode_t permissions = 0; \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest; \
        va_start(rest, flags); \
        permissions = va_arg(rest, mode_t); \
        va_end(rest); \
    } \
    if (((flags) & (O_CREAT | O_TRUNC)) && fails("open", directory, path)) return -1; \
    return real(__VA_ARGS__, flags, permissions)

int open(const char *path, int flags, ...) {
    REAL(open);
    OPENS(open, AT_FDCWD, path, flags, path);
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    OPENS(open64, AT_FDCWD, path, flags, path);
}

int openat(int directory, const char *path, int flags, ...) {
    REAL(openat);
    OPENS(openat, directory, path, flags, directory, path);
}

int openat64(int directory, const char *path, int flags, ...) {
    REAL(openat64);
    OPENS(openat64, directory, path, flags, directory, path);
}
