// Emulates disks beneath directories, for benchmarks: preloaded into a program, it lets every read, write and sync below
// these directories take the time of a disk with one arm. The bytes go to the real file system; what a sync costs there
// is left out, so that only the emulated disks are measured. Whatever program runs, the physics are the same.
//
// The physics follow `model/src/physics/drive.rs`: a transfer that goes on where the last one of its disk ended takes its
// bytes at the disk's rate, any other one a seek first, requests are served one after another, and a sync that changes
// the file system itself (a name, a file that grew) is a seek, after which the heads are elsewhere. Beyond it:
// - a seek is followed by half a rotation; a write that goes on after a pause waits until its place comes round again
//   (a disk without a cache that survives a loss of power; reads go on from the track buffer);
// - a page cache of bounded size: writes go into it, syncs and too many unsynced bytes empty it, reads fill it in
//   chunks of 128 KiB;
// - a file that grows is one that is written behind all that was ever written to it; room that is only reserved counts
//   as never written, so that a log pays for metadata unless it is written over.
//
// Environment (defaults are Table II of "Workload Shifting"; a page of a data sheet does for another disk):
//   LARDER_DISKS            DIR[*N][:DIR[*N]...]: a disk for each directory, or a stripe over N of them
//   LARDER_DISK_SEEK_MS     8.5     the average seek
//   LARDER_DISK_RPM         7200
//   LARDER_DISK_MB_S        150     in 10^6 bytes
//   LARDER_DISK_STRIPE_KB   512     consecutive bytes of a file on one disk of a stripe, in KiB
//   LARDER_DISK_CACHE_MB    64      page cache, in MiB; at least one chunk
//   LARDER_DISK_DIRTY_MB    32      unsynced bytes, in MiB, above which writers write their own file back
//   LARDER_DISK_JOURNAL     1       0: a sync that changes the file system costs nothing more
//   LARDER_DISK_TIME_SCALE  1       so many times faster than life
//   LARDER_DISK_STATS       file that is written when the program ends: JSON, one entry for each disk
// A program may also ask for the counts at any time: `emulated_disks_stats`, found with dlsym.
//
// Not seen: direct system calls, io_uring, and pages of a mapping after it was made. A mapping of a file is read as a
// whole when it is made, so that a program under test should be set to read instead.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { VOLUMES_MAX = 16, WIDTH_MAX = 16, FDS_MAX = 1 << 16, CHUNK = 128 << 10, NONE = -1 };
enum { READ, WRITE };
#define SECOND 1000000000LL

struct disk {
    pthread_mutex_t lock;
    int64_t free_at, last_end, busy;
    uint64_t position_file, position;
    uint64_t requests, seeks, read_bytes, written_bytes, syncs;
};

struct volume {
    char path[PATH_MAX];
    size_t path_bytes;
    int width;
    bool names_dirty;
    struct disk disks[WIDTH_MAX];
};

struct range {
    uint64_t from, to;
};

// A file of a volume, by device and inode, as long as it has that name or is open.
struct file {
    struct file *next;
    struct volume *volume;
    dev_t device;
    ino_t inode;
    uint64_t id, written_end;
    bool is_directory, grew;
    int opened;
    struct range *dirty;
    size_t dirty_count, dirty_room;
};

// A chunk of the page cache.
struct cached {
    uint64_t file, chunk;
    int newer, older, next;
};

static struct {
    struct volume volumes[VOLUMES_MAX];
    int volume_count;
    int64_t seek, rotation, journal;
    double bytes_per_ns, time_scale;
    uint64_t stripe_bytes, dirty_max;
} emulated;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files[4096];
static uint64_t file_ids, dirty_bytes;
static struct {
    struct file *file;
    bool syncs, direct;
} fds[FDS_MAX];

static struct cached *cache;
static int *cache_heads, cache_room, cache_count, cache_newest = NONE, cache_oldest = NONE;
static uint64_t cache_hash_mask;

static void *next_symbol(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "emulated_disks: the C library has no %s\n", name);
        abort();
    }
    return found;
}

#define REAL(result, name, ...)                                             \
    static result (*real_##name)(__VA_ARGS__);                              \
    if (!real_##name) real_##name = (result(*)(__VA_ARGS__))next_symbol(#name)

static double number(const char *name, double otherwise) {
    const char *text = getenv(name);
    char *end = NULL;
    double value = text ? strtod(text, &end) : otherwise;
    if (text && (end == text || *end || value < 0)) {
        fprintf(stderr, "emulated_disks: %s=%s is no number of 0 or more\n", name, text);
        exit(2);
    }
    return value;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static void sleep_until(int64_t at) {
    struct timespec until = {at / SECOND, at % SECOND};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

// The cache ------------------------------------------------------------------------------------------------------

static uint64_t hash(uint64_t file, uint64_t chunk) {
    return ((file * 0x9e3779b97f4a7c15ULL) ^ (chunk * 0xc2b2ae3d27d4eb4fULL)) >> 20 & cache_hash_mask;
}

static int cache_find(uint64_t file, uint64_t chunk) {
    int at = cache_heads[hash(file, chunk)];
    while (at != NONE && (cache[at].file != file || cache[at].chunk != chunk)) at = cache[at].next;
    return at;
}

static void cache_detach(int at) {
    struct cached *it = &cache[at];
    *(it->newer == NONE ? &cache_newest : &cache[it->newer].older) = it->older;
    *(it->older == NONE ? &cache_oldest : &cache[it->older].newer) = it->newer;
}

static void cache_attach(int at) {
    cache[at].newer = NONE;
    cache[at].older = cache_newest;
    if (cache_newest != NONE) cache[cache_newest].newer = at;
    cache_newest = at;
    if (cache_oldest == NONE) cache_oldest = at;
}

static int cache_evict(void) {
    int at = cache_oldest;
    cache_detach(at);
    int *link = &cache_heads[hash(cache[at].file, cache[at].chunk)];
    while (*link != at) link = &cache[*link].next;
    *link = cache[at].next;
    return at;
}

// Whether the chunk was there; now it is, as the newest.
static bool cache_touch(uint64_t file, uint64_t chunk) {
    int at = cache_find(file, chunk);
    bool found = at != NONE;
    if (found) {
        cache_detach(at);
    } else {
        at = cache_count < cache_room ? cache_count++ : cache_evict();
        cache[at].file = file;
        cache[at].chunk = chunk;
        int *head = &cache_heads[hash(file, chunk)];
        cache[at].next = *head;
        *head = at;
    }
    cache_attach(at);
    return found;
}

// Disks ----------------------------------------------------------------------------------------------------------

// One request of one disk: the moment at which it ends. `position` is in bytes of this disk's part of the file.
static int64_t request(struct disk *disk, int kind, uint64_t file, uint64_t position, uint64_t bytes) {
    pthread_mutex_lock(&disk->lock);
    int64_t now = now_ns(), begin = disk->free_at > now ? disk->free_at : now, takes = 0;
    int64_t idle = (int64_t)((double)(begin - disk->last_end) * emulated.time_scale);
    if (disk->position_file != file || disk->position != position) {
        takes += emulated.seek + emulated.rotation / 2;
        disk->seeks++;
    } else if (kind == WRITE && idle > 0) {
        takes += emulated.rotation - idle % emulated.rotation;
    }
    takes += (int64_t)((double)bytes / emulated.bytes_per_ns);
    disk->requests++;
    *(kind == READ ? &disk->read_bytes : &disk->written_bytes) += bytes;
    disk->position_file = file;
    disk->position = position + bytes;
    disk->busy += takes;
    disk->free_at = disk->last_end = begin + (int64_t)((double)takes / emulated.time_scale);
    int64_t end = disk->free_at;
    pthread_mutex_unlock(&disk->lock);
    return end;
}

// The file system itself changes on a disk: a seek, and the heads are elsewhere.
static int64_t touch(struct disk *disk) {
    pthread_mutex_lock(&disk->lock);
    int64_t now = now_ns(), begin = disk->free_at > now ? disk->free_at : now;
    disk->seeks++;
    disk->busy += emulated.journal;
    disk->position_file = 0;
    disk->free_at = disk->last_end = begin + (int64_t)((double)emulated.journal / emulated.time_scale);
    int64_t end = disk->free_at;
    pthread_mutex_unlock(&disk->lock);
    return end;
}

// Moves a range of a file: over all disks of its volume on which it lies, each with its part in one request.
static int64_t transfer(struct volume *volume, int kind, uint64_t file, struct range range) {
    int64_t end = 0;
    uint64_t stripe = emulated.stripe_bytes, width = (uint64_t)volume->width, row = stripe * width;
    for (uint64_t index = 0; index < width; index++) {
        // Bytes of the file before an offset that lie on this disk.
        uint64_t before[2], ends[2] = {range.from, range.to};
        for (int side = 0; side < 2; side++) {
            uint64_t rest = ends[side] % row, skipped = index * stripe;
            uint64_t part = rest > skipped ? rest - skipped : 0;
            before[side] = ends[side] / row * stripe + (part < stripe ? part : stripe);
        }
        if (before[1] == before[0]) continue;
        int64_t ended = request(&volume->disks[index], kind, file, before[0], before[1] - before[0]);
        end = ended > end ? ended : end;
    }
    return end;
}

// Files ----------------------------------------------------------------------------------------------------------

static struct volume *volume_of(const char *path) {
    char absolute[PATH_MAX], folder[PATH_MAX];
    if (emulated.volume_count == 0 || !path) return NULL;
    // The file itself may not exist; its directory does.
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof folder) return NULL;
    memcpy(folder, path, length);
    folder[length] = 0;
    if (!realpath(path, absolute) && !realpath(slash ? (length ? folder : "/") : ".", absolute)) return NULL;
    for (int at = 0; at < emulated.volume_count; at++) {
        struct volume *volume = &emulated.volumes[at];
        bool begins = strncmp(absolute, volume->path, volume->path_bytes) == 0;
        if (begins && (absolute[volume->path_bytes] == '/' || absolute[volume->path_bytes] == 0)) return volume;
    }
    return NULL;
}

static struct file **slot_of(dev_t device, ino_t inode) {
    struct file **slot = &files[(inode ^ device) % (sizeof files / sizeof *files)];
    while (*slot && ((*slot)->device != device || (*slot)->inode != inode)) slot = &(*slot)->next;
    return slot;
}

static void forget(struct file **slot) {
    struct file *file = *slot;
    for (size_t at = 0; at < file->dirty_count; at++) dirty_bytes -= file->dirty[at].to - file->dirty[at].from;
    *slot = file->next;
    free(file->dirty);
    free(file);
}

// A descriptor of a file below one of the directories; `created` if the call made it.
static void opened(int fd, const char *path, int flags) {
    struct stat about;
    struct volume *volume = fd >= 0 && fd < FDS_MAX ? volume_of(path) : NULL;
    if (!volume || fstat(fd, &about) != 0 || !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) return;
    pthread_mutex_lock(&table_lock);
    struct file **slot = slot_of(about.st_dev, about.st_ino);
    if (!*slot) {
        *slot = calloc(1, sizeof **slot);
        if (!*slot) abort();
        **slot = (struct file){.volume = volume, .device = about.st_dev, .inode = about.st_ino, .id = ++file_ids,
                               .written_end = (uint64_t)about.st_size, .is_directory = S_ISDIR(about.st_mode)};
    }
    struct file *file = *slot;
    if (flags & O_TRUNC && file->written_end > 0) file->written_end = 0, file->grew = true;
    if (flags & O_CREAT && about.st_size == 0 && file->opened == 0) file->grew = volume->names_dirty = true;
    file->opened++;
    fds[fd].file = file;
    fds[fd].syncs = flags & (O_SYNC | O_DSYNC);
    fds[fd].direct = flags & O_DIRECT;
    pthread_mutex_unlock(&table_lock);
}

static void duplicated(int from, int to) {
    if (from < 0 || from >= FDS_MAX || to < 0 || to >= FDS_MAX || from == to) return;
    pthread_mutex_lock(&table_lock);
    fds[to] = fds[from];
    if (fds[to].file) fds[to].file->opened++;
    pthread_mutex_unlock(&table_lock);
}

static void closed(int fd) {
    if (fd < 0 || fd >= FDS_MAX || !fds[fd].file) return;
    pthread_mutex_lock(&table_lock);
    struct file *file = fds[fd].file;
    fds[fd].file = NULL;
    struct stat about;
    // The last name may have gone while it was open.
    if (file && --file->opened == 0 && fstat(fd, &about) == 0 && about.st_nlink == 0) {
        forget(slot_of(file->device, file->inode));
    }
    pthread_mutex_unlock(&table_lock);
}

// The file of a descriptor, if it is below one of the directories.
static struct file *file_of(int fd) {
    return fd >= 0 && fd < FDS_MAX ? fds[fd].file : NULL;
}

static int by_start(const void *a, const void *b) {
    uint64_t first = ((const struct range *)a)->from, second = ((const struct range *)b)->from;
    return (first > second) - (first < second);
}

// Writes what is not synced of a file to its disks, in the order of its bytes; the moment at which that is done.
static int64_t write_back(struct file *file) {
    pthread_mutex_lock(&table_lock);
    struct range *dirty = file->dirty;
    size_t count = file->dirty_count, kept = 0;
    struct volume *volume = file->volume;
    uint64_t id = file->id;
    file->dirty = NULL;
    file->dirty_count = file->dirty_room = 0;
    for (size_t at = 0; at < count; at++) dirty_bytes -= dirty[at].to - dirty[at].from;
    pthread_mutex_unlock(&table_lock);
    if (count > 0) qsort(dirty, count, sizeof *dirty, by_start);
    for (size_t at = 0; at < count; at++) {
        if (kept > 0 && dirty[at].from <= dirty[kept - 1].to) {
            if (dirty[at].to > dirty[kept - 1].to) dirty[kept - 1].to = dirty[at].to;
        } else {
            dirty[kept++] = dirty[at];
        }
    }
    int64_t end = 0;
    for (size_t at = 0; at < kept; at++) {
        int64_t ended = transfer(volume, WRITE, id, dirty[at]);
        end = ended > end ? ended : end;
    }
    free(dirty);
    return end;
}

static void add_dirty(struct file *file, struct range range) {
    struct range *last = file->dirty_count > 0 ? &file->dirty[file->dirty_count - 1] : NULL;
    if (range.to > file->written_end) file->written_end = range.to, file->grew = true;
    if (last && last->to == range.from) {
        last->to = range.to;
    } else {
        if (file->dirty_count == file->dirty_room) {
            file->dirty_room = file->dirty_room ? 2 * file->dirty_room : 8;
            file->dirty = realloc(file->dirty, file->dirty_room * sizeof *file->dirty);
            if (!file->dirty) abort();
        }
        file->dirty[file->dirty_count++] = range;
    }
    dirty_bytes += range.to - range.from;
}

static void synced(struct file *file, bool all) {
    int64_t end = write_back(file);
    pthread_mutex_lock(&table_lock);
    struct volume *volume = file->volume;
    bool changes = file->grew || (volume->names_dirty && (all || file->is_directory));
    if (changes) file->grew = volume->names_dirty = false;
    pthread_mutex_unlock(&table_lock);
    // A sync reaches every disk of a stripe.
    for (int at = 0; at < volume->width; at++) {
        volume->disks[at].syncs++;
        int64_t ended = changes ? touch(&volume->disks[at]) : 0;
        end = ended > end ? ended : end;
    }
    if (end > 0) sleep_until(end);
}

static void written(int fd, uint64_t from, ssize_t bytes) {
    struct file *file = file_of(fd);
    if (!file || bytes <= 0) return;
    uint64_t to = from + (uint64_t)bytes;
    pthread_mutex_lock(&table_lock);
    add_dirty(file, (struct range){from, to});
    bool syncs = fds[fd].syncs, direct = fds[fd].direct, too_many = dirty_bytes > emulated.dirty_max;
    for (uint64_t chunk = from / CHUNK; !direct && chunk <= (to - 1) / CHUNK; chunk++) cache_touch(file->id, chunk);
    pthread_mutex_unlock(&table_lock);
    if (syncs) {
        synced(file, false);
    } else if (direct || too_many) {
        int64_t end = write_back(file);
        if (end > 0) sleep_until(end);
    }
}

static void was_read(int fd, uint64_t from, ssize_t bytes) {
    struct file *file = file_of(fd);
    if (!file || file->is_directory || bytes <= 0) return;
    int64_t end = 0;
    uint64_t to = from + (uint64_t)bytes;
    struct range missed = {0, 0};
    // Runs of chunks that are not in the cache are one request each.
    for (uint64_t chunk = from / CHUNK; chunk <= (to - 1) / CHUNK + 1; chunk++) {
        bool is_last = chunk > (to - 1) / CHUNK, found = is_last;
        if (!is_last && !fds[fd].direct) {
            pthread_mutex_lock(&table_lock);
            found = cache_touch(file->id, chunk);
            pthread_mutex_unlock(&table_lock);
        }
        if (!found) {
            missed = (struct range){missed.to ? missed.from : chunk * CHUNK, (chunk + 1) * CHUNK};
            continue;
        }
        if (missed.to) {
            if (fds[fd].direct) missed = (struct range){from, to};
            int64_t ended = transfer(file->volume, READ, file->id, missed);
            end = ended > end ? ended : end;
        }
        missed = (struct range){0, 0};
    }
    if (end > 0) sleep_until(end);
}

static void named(const char *path) {
    struct volume *volume = volume_of(path);
    if (volume) volume->names_dirty = true;
}

// The name of a file is about to go, or went: what was not synced of it needs no disk any more.
static void removed(const struct stat *about) {
    pthread_mutex_lock(&table_lock);
    struct file **slot = slot_of(about->st_dev, about->st_ino);
    if (*slot && about->st_nlink <= 1 && (*slot)->opened == 0) forget(slot);
    pthread_mutex_unlock(&table_lock);
}

// Begin and end --------------------------------------------------------------------------------------------------

static void add_volume(char *words) {
    if (emulated.volume_count == VOLUMES_MAX) {
        fprintf(stderr, "emulated_disks: there may be %d directories\n", VOLUMES_MAX);
        exit(2);
    }
    struct volume *volume = &emulated.volumes[emulated.volume_count];
    char *star = strrchr(words, '*');
    volume->width = star ? atoi(star + 1) : 1;
    if (star) *star = 0;
    if (volume->width < 1 || volume->width > WIDTH_MAX || !realpath(words, volume->path)) {
        fprintf(stderr, "emulated_disks: LARDER_DISKS: %s is no directory, or not on 1 to %d disks\n", words, WIDTH_MAX);
        exit(2);
    }
    volume->path_bytes = strlen(volume->path);
    for (int at = 0; at < volume->width; at++) pthread_mutex_init(&volume->disks[at].lock, NULL);
    emulated.volume_count++;
}

static void make_cache(uint64_t bytes) {
    cache_room = bytes / CHUNK > 1 ? (int)(bytes / CHUNK) : 1;
    uint64_t buckets = 1;
    while (buckets < 2 * (uint64_t)cache_room) buckets *= 2;
    cache_hash_mask = buckets - 1;
    cache = calloc((size_t)cache_room, sizeof *cache);
    cache_heads = malloc(buckets * sizeof *cache_heads);
    if (!cache || !cache_heads) abort();
    for (uint64_t at = 0; at < buckets; at++) cache_heads[at] = NONE;
}

__attribute__((constructor)) static void begin(void) {
    const char *list = getenv("LARDER_DISKS");
    if (!list || !*list) return;
    double rpm = number("LARDER_DISK_RPM", 7200);
    emulated.seek = (int64_t)(number("LARDER_DISK_SEEK_MS", 8.5) * 1e6);
    emulated.rotation = rpm > 0 ? (int64_t)(60e9 / rpm) : 1;
    emulated.bytes_per_ns = number("LARDER_DISK_MB_S", 150) / 1e3;
    emulated.time_scale = number("LARDER_DISK_TIME_SCALE", 1);
    emulated.stripe_bytes = (uint64_t)number("LARDER_DISK_STRIPE_KB", 512) << 10;
    emulated.dirty_max = (uint64_t)number("LARDER_DISK_DIRTY_MB", 32) << 20;
    emulated.journal = number("LARDER_DISK_JOURNAL", 1) > 0 ? emulated.seek + emulated.rotation / 2 : 0;
    if (emulated.bytes_per_ns <= 0 || emulated.time_scale <= 0 || emulated.stripe_bytes == 0) {
        fprintf(stderr, "emulated_disks: rate, time scale and stripe are above 0\n");
        exit(2);
    }
    make_cache((uint64_t)number("LARDER_DISK_CACHE_MB", 64) << 20);
    char *copy = strdup(list), *rest = copy;
    for (char *words = strtok_r(copy, ":", &rest); words; words = strtok_r(NULL, ":", &rest)) add_volume(words);
    free(copy);
}

// The counts of all disks as JSON in `text`, at most `room` bytes with the 0 at its end; the length it has.
size_t emulated_disks_stats(char *text, size_t room) {
    size_t length = 0;
    pthread_mutex_lock(&table_lock);
    uint64_t unsynced = dirty_bytes;
    pthread_mutex_unlock(&table_lock);
#define PUT(...) length += (size_t)snprintf(text + (length < room ? length : room), length < room ? room - length : 0, __VA_ARGS__)
    PUT("{\"unsynced_bytes\": %lu, \"disks\": [", unsynced);
    bool first = true;
    for (int at = 0; at < emulated.volume_count; at++) {
        struct volume *volume = &emulated.volumes[at];
        for (int index = 0; index < volume->width; index++) {
            struct disk *disk = &volume->disks[index];
            pthread_mutex_lock(&disk->lock);
            PUT("%s{\"volume\": %d, \"requests\": %lu, \"seeks\": %lu, \"read_bytes\": %lu, \"written_bytes\": %lu, "
                "\"syncs\": %lu, \"busy_s\": %.6f}",
                first ? "" : ", ", at, disk->requests, disk->seeks, disk->read_bytes, disk->written_bytes, disk->syncs,
                (double)disk->busy / 1e9);
            pthread_mutex_unlock(&disk->lock);
            first = false;
        }
    }
    PUT("]}");
#undef PUT
    return length;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("LARDER_DISK_STATS");
    if (!path || emulated.volume_count == 0) return;
    static char text[1 << 16];
    emulated_disks_stats(text, sizeof text);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

// The calls ------------------------------------------------------------------------------------------------------

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                  \
    int name(const char *path, int flags, ...) {    \
        REAL(int, name, const char *, int, ...);    \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode_t mode = mode_of(flags, rest);         \
        va_end(rest);                               \
        int fd = real_##name(path, flags, mode);    \
        opened(fd, path, flags);                    \
        return fd;                                  \
    }
OPEN(open)
OPEN(open64)

// The path of a name below a directory that is open.
static const char *joined(int folder, const char *name, char *room) {
    char link[64];
    if (name[0] == '/' || folder == AT_FDCWD) return name;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, room, PATH_MAX / 2);
    if (length < 0) return name;
    snprintf(room + length, PATH_MAX - (size_t)length, "/%s", name);
    return room;
}

#define OPENAT(name)                                        \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...);       \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = mode_of(flags, rest);                 \
        va_end(rest);                                       \
        int fd = real_##name(folder, path, flags, mode);    \
        char room[PATH_MAX];                                \
        opened(fd, joined(folder, path, room), flags);      \
        return fd;                                          \
    }
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t mode) {
    return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int close(int fd) {
    REAL(int, close, int);
    closed(fd);
    return real_close(fd);
}

int dup(int fd) {
    REAL(int, dup, int);
    int copy = real_dup(fd);
    duplicated(fd, copy);
    return copy;
}

int dup2(int fd, int copy) {
    REAL(int, dup2, int, int);
    if (fd != copy) closed(copy);
    int result = real_dup2(fd, copy);
    duplicated(fd, result);
    return result;
}

#define FCNTL(name)                                                                 \
    int name(int fd, int command, ...) {                                            \
        REAL(int, name, int, int, ...);                                             \
        va_list rest;                                                               \
        va_start(rest, command);                                                    \
        void *argument = va_arg(rest, void *);                                      \
        va_end(rest);                                                               \
        int result = real_##name(fd, command, argument);                            \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) duplicated(fd, result); \
        return result;                                                              \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

// Where the file's own position is, after a call that moved it by `bytes`.
static uint64_t position_before(int fd, ssize_t bytes) {
    off_t after = file_of(fd) && bytes > 0 ? lseek(fd, 0, SEEK_CUR) : bytes;
    return after >= bytes ? (uint64_t)(after - bytes) : 0;
}

ssize_t write(int fd, const void *from, size_t count) {
    REAL(ssize_t, write, int, const void *, size_t);
    ssize_t bytes = real_write(fd, from, count);
    written(fd, position_before(fd, bytes), bytes);
    return bytes;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    ssize_t bytes = real_writev(fd, parts, count);
    written(fd, position_before(fd, bytes), bytes);
    return bytes;
}

ssize_t read(int fd, void *into, size_t count) {
    REAL(ssize_t, read, int, void *, size_t);
    ssize_t bytes = real_read(fd, into, count);
    was_read(fd, position_before(fd, bytes), bytes);
    return bytes;
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, readv, int, const struct iovec *, int);
    ssize_t bytes = real_readv(fd, parts, count);
    was_read(fd, position_before(fd, bytes), bytes);
    return bytes;
}

#define AT_OFFSET(name, after, buffer, number_type, offset_type)                            \
    ssize_t name(int fd, buffer data, number_type count, offset_type offset) {              \
        REAL(ssize_t, name, int, buffer, number_type, offset_type);                         \
        ssize_t bytes = real_##name(fd, data, count, offset);                               \
        after(fd, (uint64_t)offset, bytes);                                                 \
        return bytes;                                                                       \
    }
AT_OFFSET(pwrite, written, const void *, size_t, off_t)
AT_OFFSET(pwrite64, written, const void *, size_t, off64_t)
AT_OFFSET(pread, was_read, void *, size_t, off_t)
AT_OFFSET(pread64, was_read, void *, size_t, off64_t)
AT_OFFSET(pwritev, written, const struct iovec *, int, off_t)
AT_OFFSET(pwritev64, written, const struct iovec *, int, off64_t)
AT_OFFSET(preadv, was_read, const struct iovec *, int, off_t)
AT_OFFSET(preadv64, was_read, const struct iovec *, int, off64_t)

#define SYNC(name, all)                             \
    int name(int fd) {                              \
        REAL(int, name, int);                       \
        struct file *file = file_of(fd);            \
        if (!file) return real_##name(fd);          \
        synced(file, all);                          \
        return 0;                                   \
    }
SYNC(fsync, true)
SYNC(fdatasync, false)

#define SYNC_RANGE(name, offset_type)                                                   \
    int name(int fd, offset_type offset, offset_type count, unsigned flags) {           \
        REAL(int, name, int, offset_type, offset_type, unsigned);                       \
        struct file *file = file_of(fd);                                                \
        if (!file) return real_##name(fd, offset, count, flags);                        \
        int64_t end = write_back(file);                                                 \
        bool waits = flags & (SYNC_FILE_RANGE_WAIT_AFTER | SYNC_FILE_RANGE_WAIT_BEFORE); \
        if (end > 0 && waits) sleep_until(end);                                         \
        return 0;                                                                       \
    }
SYNC_RANGE(sync_file_range, off64_t)

#define TRUNCATE(name, offset_type)                                         \
    int name(int fd, offset_type length) {                                  \
        REAL(int, name, int, offset_type);                                  \
        int result = real_##name(fd, length);                               \
        struct file *file = result == 0 ? file_of(fd) : NULL;               \
        if (!file) return result;                                           \
        pthread_mutex_lock(&table_lock);                                    \
        file->grew = true;                                                  \
        if (file->written_end > (uint64_t)length) file->written_end = (uint64_t)length; \
        pthread_mutex_unlock(&table_lock);                                  \
        return result;                                                      \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    int result = real_rename(from, to);
    if (result == 0) named(to);
    return result;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    int result = real_renameat(from_folder, from, to_folder, to);
    char room[PATH_MAX];
    if (result == 0) named(joined(to_folder, to, room));
    return result;
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    struct stat about;
    struct volume *volume = volume_of(path);
    bool is_ours = volume && lstat(path, &about) == 0;
    int result = real_unlink(path);
    if (result == 0 && is_ours) removed(&about), volume->names_dirty = true;
    return result;
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    struct stat about;
    char room[PATH_MAX];
    struct volume *volume = volume_of(joined(folder, path, room));
    bool is_ours = volume && fstatat(folder, path, &about, AT_SYMLINK_NOFOLLOW) == 0;
    int result = real_unlinkat(folder, path, flags);
    if (result == 0 && is_ours) removed(&about), volume->names_dirty = true;
    return result;
}

#define MMAP(name, offset_type)                                                                     \
    void *name(void *at, size_t length, int protection, int flags, int fd, offset_type offset) {    \
        REAL(void *, name, void *, size_t, int, int, int, offset_type);                             \
        void *mapped = real_##name(at, length, protection, flags, fd, offset);                      \
        struct stat about;                                                                          \
        if (mapped != MAP_FAILED && !(flags & MAP_ANONYMOUS) && file_of(fd) && fstat(fd, &about) == 0) { \
            off_t rest = about.st_size - (off_t)offset;                                             \
            was_read(fd, (uint64_t)offset, rest < (off_t)length ? rest : (off_t)length);            \
        }                                                                                           \
        return mapped;                                                                              \
    }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)
