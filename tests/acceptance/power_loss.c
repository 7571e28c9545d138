/* Notes every call of a process that changes files below one folder, in order: for power_loss.py.
 *
 * Put before a program's libc by LD_PRELOAD. One lock is held around a call and its note, so that the
 * notes are in the order in which the calls took effect, whatever thread made them.
 *
 * A note is a line "KIND FILE OFFSET A B DATA" and A + B + DATA bytes after it: two paths and what was
 * written. FILE is the number of the file (its inode), which stays when a name goes elsewhere.
 *
 *   c made a file  d made a folder  l made a second name  r gave another name (A to B)  u removed a name
 *   w wrote        t cut            f synced              s said something on its output
 *   ! did what is not understood here: the test that sees it must fail
 *
 * The process is killed after the first note that POWER_LOSS_KILL names: a kind and a part of the first path.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int notes = -1;
static const char *root = "";
static const char *last;
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWER_LOSS_NOTES"), *below = getenv("POWER_LOSS_ROOT");
    if (!path || !below) return;
    root = below;
    last = getenv("POWER_LOSS_KILL");
    notes = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (notes < 0) abort();
}

static void note(char kind, ino_t file, long long offset, const char *a, const char *b, const void *data,
                 size_t bytes) {
    char head[128];
    size_t a_bytes = a ? strlen(a) : 0, b_bytes = b ? strlen(b) : 0;
    int head_bytes = snprintf(head, sizeof head, "%c %llu %lld %zu %zu %zu\n", kind, (unsigned long long)file,
                              offset, a_bytes, b_bytes, bytes);
    struct iovec parts[] = {
        {head, head_bytes}, {(void *)a, a_bytes}, {(void *)b, b_bytes}, {(void *)data, bytes},
    };
    if (syscall(SYS_writev, notes, parts, 4) != (long)(head_bytes + a_bytes + b_bytes + bytes)) abort();
    if (last && kind == last[0] && a && strstr(a, last + 1)) kill(getpid(), SIGKILL);
}

static int is_below(const char *path) {
    size_t n = strlen(root);
    return notes >= 0 && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

/* The path of an open file, and whether it is below the folder. */
static int path_of(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = notes < 0 ? -1 : readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
    return n > 0 && is_below(out);
}

static int full_path(int folder, const char *path, char *out) {
    char base[PATH_MAX] = "";
    if (notes < 0) return 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
        else path_of(folder, base);
    }
    int bytes = snprintf(out, PATH_MAX, "%s%s%s", base, path[0] == '/' ? "" : "/", path);
    return bytes < PATH_MAX && is_below(out);
}

static ino_t number_of(const char *path) {
    struct stat is;
    return lstat(path, &is) ? 0 : is.st_ino;
}

static ino_t number_of_open(int fd, int *is_file) {
    struct stat is;
    if (fstat(fd, &is)) return 0;
    if (is_file) *is_file = S_ISREG(is.st_mode);
    return is.st_ino;
}

/* A call, and its note if it succeeded; `errno` stays the call's. */
#define NOTED(CALL, ...) do { \
        pthread_mutex_lock(&order); \
        long done = (CALL); \
        int failed = errno; \
        if (done >= 0) { __VA_ARGS__; } \
        pthread_mutex_unlock(&order); \
        errno = failed; \
        return done; \
    } while (0)

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char at[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC | O_TMPFILE)) || !full_path(folder, path, at))
        return syscall(SYS_openat, folder, path, flags, mode);
    int is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
    ino_t before = 0;
    NOTED((before = number_of(at), syscall(SYS_openat, folder, path, flags, mode)),
          if (is_nameless) note('!', 0, 0, "O_TMPFILE", at, 0, 0);
          else if (!before) note('c', number_of_open(done, 0), 0, at, 0, 0, 0);
          else if (flags & O_TRUNC) note('t', before, 0, at, 0, 0, 0));
}

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* `offset` < 0: where the file was. */
static void note_written(int fd, long long offset, const char *path, const struct iovec *parts, int count,
                         size_t bytes) {
    int is_file = 0;
    ino_t file = number_of_open(fd, &is_file);
    if (!is_file) return;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - (long long)bytes;
    for (int i = 0; i < count && bytes; i++) {
        size_t now = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
        note('w', file, offset, path, 0, parts[i].iov_base, now);
        offset += now;
        bytes -= now;
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char at[PATH_MAX];
    if (notes >= 0 && (fd == 1 || fd == 2))
        NOTED(syscall(SYS_writev, fd, parts, count), note('s', fd, 0, 0, 0, 0, 0));
    if (!path_of(fd, at)) return syscall(SYS_writev, fd, parts, count);
    NOTED(syscall(SYS_writev, fd, parts, count), note_written(fd, -1, at, parts, count, done));
}
ssize_t write(int fd, const void *data, size_t bytes) {
    struct iovec part = {(void *)data, bytes};
    return writev(fd, &part, 1);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    char at[PATH_MAX];
    if (!path_of(fd, at)) return syscall(SYS_pwritev, fd, parts, count, offset, 0);
    NOTED(syscall(SYS_pwritev, fd, parts, count, offset, 0), note_written(fd, offset, at, parts, count, done));
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) {
    struct iovec part = {(void *)data, bytes};
    return pwritev64(fd, &part, 1, offset);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) { return pwrite64(fd, data, bytes, offset); }

int ftruncate64(int fd, off_t bytes) {
    char at[PATH_MAX];
    if (!path_of(fd, at)) return syscall(SYS_ftruncate, fd, bytes);
    NOTED(syscall(SYS_ftruncate, fd, bytes), note('t', number_of_open(fd, 0), bytes, at, 0, 0, 0));
}
int ftruncate(int fd, off_t bytes) { return ftruncate64(fd, bytes); }

static int renamed(int from, const char *old, int to, const char *new, unsigned flags) {
    char a[PATH_MAX], b[PATH_MAX];
    int is_ours = full_path(from, old, a) | full_path(to, new, b);
    if (!is_ours) return syscall(SYS_renameat2, from, old, to, new, flags);
    if (!is_below(a) || !is_below(b)) note('!', 0, 0, a, b, 0, 0);
    NOTED(syscall(SYS_renameat2, from, old, to, new, flags), note('r', number_of(b), 0, a, b, 0, 0));
}
int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return renamed(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return renamed(from, old, to, new, flags);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    char at[PATH_MAX];
    if (!full_path(to, new, at)) return syscall(SYS_linkat, from, old, to, new, flags);
    NOTED(syscall(SYS_linkat, from, old, to, new, flags), note('l', number_of(at), 0, at, 0, 0, 0));
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int folder, const char *path, int flags) {
    char at[PATH_MAX];
    if (!full_path(folder, path, at)) return syscall(SYS_unlinkat, folder, path, flags);
    NOTED(syscall(SYS_unlinkat, folder, path, flags), note('u', 0, 0, at, 0, 0, 0));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode) {
    char at[PATH_MAX];
    if (!full_path(folder, path, at)) return syscall(SYS_mkdirat, folder, path, mode);
    NOTED(syscall(SYS_mkdirat, folder, path, mode), note('d', number_of(at), 0, at, 0, 0, 0));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

static int synced(int fd, int call) {
    char at[PATH_MAX];
    if (!path_of(fd, at)) return syscall(call, fd);
    NOTED(syscall(call, fd), note('f', number_of_open(fd, 0), 0, at, 0, 0, 0));
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* What copies within the system is refused, so that callers read and write instead. */
ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes, unsigned flags) {
    char at[PATH_MAX];
    if (!path_of(out, at)) return syscall(SYS_copy_file_range, in, in_at, out, out_at, bytes, flags);
    errno = ENOSYS;
    return -1;
}
ssize_t sendfile64(int out, int in, off_t *from, size_t bytes) {
    char at[PATH_MAX];
    if (!path_of(out, at)) return syscall(SYS_sendfile, out, in, from, bytes);
    errno = ENOSYS;
    return -1;
}
ssize_t sendfile(int out, int in, off_t *from, size_t bytes) { return sendfile64(out, in, from, bytes); }

/* Not used by what is tested, and not understood by the model. */
static void not_understood(int fd, const char *what) {
    char at[PATH_MAX];
    if (path_of(fd, at)) note('!', 0, 0, what, at, 0, 0);
}
void *mmap64(void *where, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && fd >= 0) not_understood(fd, "mmap");
    return (void *)syscall(SYS_mmap, where, bytes, protection, flags, fd, offset);
}
void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap64(where, bytes, protection, flags, fd, offset);
}
int fallocate64(int fd, int mode, off_t offset, off_t bytes) {
    not_understood(fd, "fallocate");
    return syscall(SYS_fallocate, fd, mode, offset, bytes);
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) { return fallocate64(fd, mode, offset, bytes); }
int symlinkat(const char *target, int folder, const char *path) {
    char at[PATH_MAX];
    if (full_path(folder, path, at)) note('!', 0, 0, "symlink", at, 0, 0);
    return syscall(SYS_symlinkat, target, folder, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }
