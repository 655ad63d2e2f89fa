// Stands between the server and the C library, told by a page of shared memory what to do: kill the process before or
// after the n-th call of a kind on a path, or let such calls fail or hang. The binary under test is the shipped one. Its
// wall clock is as many seconds ahead as LARDER_CLOCK_AHEAD_S says.
//
// A fault is a chain of stages: each waits for so many calls of its kind on paths that contain its text, and then makes
// way for the next; the last one strikes. `faults.py` writes the page.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, SYNC, READ, UNLINK, OPEN, RENAME };
enum { KILL_BEFORE = 1, KILL_AFTER, FAIL, HANG };
enum { STAGES_MAX = 4, PATH_BYTES = 120, HIT_BYTES = 256 };

struct stage {
    int32_t op, left;
    char path[PATH_BYTES];
};

struct page {
    int32_t armed, stage, stages, action, error, times, struck;
    struct stage chain[STAGES_MAX];
    char hit[HIT_BYTES];
};

static struct page *page;
static long ahead_s;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void attach(void) {
    const char *ahead = getenv("LARDER_CLOCK_AHEAD_S");
    ahead_s = ahead ? atol(ahead) : 0;
    const char *name = getenv("LARDER_FAULT_PAGE");
    int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR) : -1;
    if (file < 0) return;
    void *shared = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED) page = shared;
}

// What is to be done about this call: 0 is nothing.
static int judge(int op, const char *path) {
    int action = 0;
    pthread_mutex_lock(&lock);
    struct stage *now = &page->chain[page->stage];
    if (page->armed && now->op == op && strstr(path, now->path)) {
        if (now->left > 1) {
            now->left -= 1;
        } else if (page->stage + 1 < page->stages) {
            page->stage += 1;
        } else if (page->times != 0) {
            action = page->action;
            if (page->times > 0) page->times -= 1;
            page->struck += 1;
            snprintf(page->hit, HIT_BYTES, "%s", path);
        }
    }
    pthread_mutex_unlock(&lock);
    if (action == KILL_BEFORE) kill(getpid(), SIGKILL);
    if (action == HANG) {
        // For so many tenths of a second, or until it is disarmed.
        for (int32_t left = page->error; left > 0 && page->armed; left -= 1) usleep(100 * 1000);
        return 0;
    }
    return action;
}

static int judge_file(int op, int file) {
    char link[64], path[512];
    if (!page || !page->armed) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes <= 0) return 0;
    path[bytes] = 0;
    return judge(op, path);
}

static int judge_path(int op, const char *path) {
    return page && page->armed ? judge(op, path) : 0;
}

static void *real(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

#define GUARD(verdict, failed)                                                                                         \
    if ((verdict) == FAIL) {                                                                                           \
        errno = page->error;                                                                                           \
        return failed;                                                                                                 \
    }
#define AFTER(verdict)                                                                                                 \
    if ((verdict) == KILL_AFTER) kill(getpid(), SIGKILL)

#define ON_FILE(type, name, op, arguments, values)                                                                     \
    type name arguments {                                                                                              \
        static type(*next) arguments;                                                                                  \
        if (!next) next = real(#name);                                                                                 \
        int saved, verdict = judge_file(op, file);                                                                     \
        GUARD(verdict, -1)                                                                                             \
        type answer = next values;                                                                                     \
        saved = errno;                                                                                                 \
        AFTER(verdict);                                                                                                \
        errno = saved;                                                                                                 \
        return answer;                                                                                                 \
    }

ON_FILE(ssize_t, pwrite64, WRITE, (int file, const void *from, size_t bytes, off64_t at), (file, from, bytes, at))
ON_FILE(ssize_t, write, WRITE, (int file, const void *from, size_t bytes), (file, from, bytes))
ON_FILE(ssize_t, pread64, READ, (int file, void *into, size_t bytes, off64_t at), (file, into, bytes, at))
ON_FILE(int, fsync, SYNC, (int file), (file))
ON_FILE(int, fdatasync, SYNC, (int file), (file))

#define ON_OPEN(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        static int (*next)(const char *, int, ...);                                                                    \
        if (!next) next = real(#name);                                                                                 \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        int verdict = judge_path(flags & O_CREAT ? CREATE : OPEN, path);                                               \
        GUARD(verdict, -1)                                                                                             \
        int answer = next(path, flags, mode), saved = errno;                                                           \
        AFTER(verdict);                                                                                                \
        errno = saved;                                                                                                 \
        return answer;                                                                                                 \
    }

ON_OPEN(open64)
ON_OPEN(open)

int unlink(const char *path) {
    static int (*next)(const char *);
    if (!next) next = real("unlink");
    int verdict = judge_path(UNLINK, path);
    GUARD(verdict, -1)
    int answer = next(path);
    AFTER(verdict);
    return answer;
}

// Counted by the name that it gets.
int rename(const char *from, const char *to) {
    static int (*next)(const char *, const char *);
    if (!next) next = real("rename");
    int verdict = judge_path(RENAME, to);
    GUARD(verdict, -1)
    int answer = next(from, to);
    AFTER(verdict);
    return answer;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = real("clock_gettime");
    int answer = next(clock, now);
    if (answer == 0 && clock == CLOCK_REALTIME) now->tv_sec += ahead_s;
    return answer;
}
