// Preloaded into a program by tests/torture: makes one call to the system fail, ends the program
// there, or lets the clock step. Without ASSAY_FAULTS_HOW nothing happens.
//
//   ASSAY_FAULTS_CALL    write (also pwrite, writev, sendfile), fsync (also fdatasync), rename,
//                        open (for writing), truncate, mkdir, link, remove, lock or clock;
//                        read (also pread, readv, fread), open-read (for reading) or list (what a
//                        folder holds: opendir, readdir)
//   ASSAY_FAULTS_PATH    pattern of fnmatch(); * matches / too
//   ASSAY_FAULTS_NUMBER  the call of these that is struck, from 1
//   ASSAY_FAULTS_HOW     ENOSPC, EIO, EACCES, EMFILE or ENOLCK: this call fails
//                        EINTR: a read is interrupted by a signal, which is no error
//                        short: half of the bytes are written or read, which is no error
//                        full: so, and every later write and new file of these paths fails with
//                        ENOSPC
//                        kill, kill-after: SIGKILL before or after the call
//                        a number: the clock steps by so many seconds
//   ASSAY_FAULTS_MARK    a file that is made when it strikes: another process that finds it there
//                        is spared, but for `full`
//   ASSAY_FAULTS_RECORD  a file: a line "CALL PATH" of every call, and no fault
//
// The C library calls its own functions by names that are not looked up, so its streams are struck
// at fopen and fread. What they write, printf among them, is out of reach. Streams of C++ and
// SQLite are other libraries: their calls come by here.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace {

struct Plan {
  const char* call = getenv("ASSAY_FAULTS_CALL");
  const char* path = getenv("ASSAY_FAULTS_PATH");
  const char* how = getenv("ASSAY_FAULTS_HOW");
  const char* mark = getenv("ASSAY_FAULTS_MARK");
  const char* record = getenv("ASSAY_FAULTS_RECORD");
  long number = getenv("ASSAY_FAULTS_NUMBER") ? atol(getenv("ASSAY_FAULTS_NUMBER")) : 1;
};

const Plan& plan() {
  static const Plan read;
  return read;
}

template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

std::atomic<long> calls{0};
std::atomic<bool> is_full{false};

// Without the functions below, which would call themselves.
bool make_mark() {
  if (plan().mark == nullptr) return true;
  const long file = syscall(SYS_openat, AT_FDCWD, plan().mark, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (file < 0) return false;
  syscall(SYS_close, file);
  return true;
}

void record(const char* call, const char* path) {
  char line[PATH_MAX + 32];
  const int bytes = snprintf(line, sizeof line, "%s %s\n", call, path);
  const long file =
      syscall(SYS_openat, AT_FDCWD, plan().record, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return;
  syscall(SYS_write, file, line, bytes);
  syscall(SYS_close, file);
}

bool matches(const char* path) {
  return plan().path == nullptr || fnmatch(plan().path, path, 0) == 0;
}

bool is_how(const char* how) {
  return strcmp(plan().how, how) == 0;
}

// True for the call that is struck.
bool strikes(const char* call, const char* path) {
  if (plan().record != nullptr) record(call, path);
  if (plan().how == nullptr || plan().call == nullptr) return false;
  if (strcmp(plan().call, call) != 0 || !matches(path)) return false;
  if (++calls != plan().number) return false;
  return make_mark() || is_how("full");
}

int error_of(const char* how) {
  if (strcmp(how, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(how, "EACCES") == 0) return EACCES;
  if (strcmp(how, "EMFILE") == 0) return EMFILE;
  if (strcmp(how, "ENOLCK") == 0) return ENOLCK;
  if (strcmp(how, "EINTR") == 0) return EINTR;
  return EIO;
}

// The call by do_it(); fails or ends the program if it is struck.
template <typename Do>
auto checked(const char* call, const char* path, Do do_it) -> decltype(do_it()) {
  if (!strikes(call, path)) return do_it();
  if (is_how("kill-after")) do_it();
  if (is_how("kill") || is_how("kill-after")) kill(getpid(), SIGKILL);
  errno = error_of(plan().how);
  return -1;
}

// The path of an open file; "" if it is not known.
void path_of(int file, char* path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = '\0';
}

// put(bytes) writes so many.
template <typename Put>
ssize_t checked_write(int file, size_t bytes, Put put) {
  char path[PATH_MAX];
  path_of(file, path);
  if (is_full && matches(path)) {
    errno = ENOSPC;
    return -1;
  }
  const bool is_short = plan().how != nullptr && is_how("short");
  if (is_short && bytes <= 1) return put(bytes);  // half of one byte is none, which is an error
  const bool part = bytes > 1 && (is_short || (plan().how != nullptr && is_how("full")));
  if (!part) {
    return checked("write", path, [&] { return put(bytes); });
  }
  if (!strikes("write", path)) return put(bytes);
  if (is_how("full")) is_full = true;
  return put(bytes / 2);
}

int checked_sync(const char* name, int file) {
  char path[PATH_MAX];
  path_of(file, path);
  return checked("fsync", path, [&] { return real<int(int)>(name)(file); });
}

const char* whole_path(const char* path, char* space) {
  if (path[0] == '/' || getcwd(space, PATH_MAX / 2) == nullptr) return path;
  const size_t length = strlen(space);
  snprintf(space + length, PATH_MAX - length, "/%s", path);
  return space;
}

// get(bytes) reads so many.
template <typename Get>
ssize_t checked_read(int file, size_t bytes, Get get) {
  char path[PATH_MAX];
  path_of(file, path);
  if (plan().how == nullptr || !is_how("short")) {
    return checked("read", path, [&] { return get(bytes); });
  }
  const bool part = bytes > 1 && strikes("read", path);
  return get(part ? bytes / 2 : bytes);
}

size_t bytes_of(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

std::vector<iovec> first_bytes(const iovec* parts, int count, size_t bytes) {
  std::vector<iovec> first;
  for (int i = 0; i < count && bytes > 0; ++i) {
    first.push_back({parts[i].iov_base, std::min(bytes, parts[i].iov_len)});
    bytes -= first.back().iov_len;
  }
  return first;
}

// Whether a call that returns a pointer fails now, with errno.
bool fails(const char* call, const char* path) {
  return checked(call, path, [] { return 0; }) != 0;
}

bool fails_to_list(int folder) {
  char path[PATH_MAX];
  path_of(folder, path);
  return fails("list", path);
}

template <typename Open>
int checked_open(const char* path, int flags, Open do_it) {
  char space[PATH_MAX];
  const char* const whole = whole_path(path, space);
  if ((flags & (O_WRONLY | O_RDWR)) == 0) return checked("open-read", whole, do_it);
  struct stat info;
  if (is_full && (flags & O_CREAT) != 0 && matches(whole) && stat(path, &info) != 0) {
    errno = ENOSPC;
    return -1;
  }
  return checked("open", whole, do_it);
}

FILE* checked_fopen(const char* name, const char* path, const char* mode) {
  char space[PATH_MAX];
  const bool reads = mode[0] == 'r' && strchr(mode, '+') == nullptr;
  if (fails(reads ? "open-read" : "open", whole_path(path, space))) return nullptr;
  return real<FILE*(const char*, const char*)>(name)(path, mode);
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

// Seconds that the clock has stepped by.
time_t stepped() {
  static std::atomic<bool> done{false};
  if (plan().how == nullptr || plan().call == nullptr || strcmp(plan().call, "clock") != 0)
    return 0;
  if (!done && ++calls >= plan().number) done = true;
  return done ? atol(plan().how) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return checked_open(path, flags,
                      [&] { return real<int(const char*, int, ...)>("open")(path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return checked_open(
      path, flags, [&] { return real<int(const char*, int, ...)>("open64")(path, flags, mode); });
}

ssize_t write(int file, const void* data, size_t bytes) {
  return checked_write(file, bytes, [&](size_t n) {
    return real<ssize_t(int, const void*, size_t)>("write")(file, data, n);
  });
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  return checked_write(file, bytes, [&](size_t n) {
    return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(file, data, n, at);
  });
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  return checked_write(file, bytes, [&](size_t n) {
    return real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64")(file, data, n, at);
  });
}

ssize_t writev(int file, const iovec* parts, int count) {
  return checked_write(file, bytes_of(parts, count), [&](size_t n) {
    const std::vector<iovec> first = first_bytes(parts, count, n);
    return real<ssize_t(int, const iovec*, int)>("writev")(file, first.data(), int(first.size()));
  });
}

ssize_t read(int file, void* data, size_t bytes) {
  return checked_read(file, bytes, [&](size_t n) {
    return real<ssize_t(int, void*, size_t)>("read")(file, data, n);
  });
}

ssize_t pread(int file, void* data, size_t bytes, off_t at) {
  return checked_read(file, bytes, [&](size_t n) {
    return real<ssize_t(int, void*, size_t, off_t)>("pread")(file, data, n, at);
  });
}

ssize_t pread64(int file, void* data, size_t bytes, off64_t at) {
  return checked_read(file, bytes, [&](size_t n) {
    return real<ssize_t(int, void*, size_t, off64_t)>("pread64")(file, data, n, at);
  });
}

ssize_t readv(int file, const iovec* parts, int count) {
  return checked_read(file, bytes_of(parts, count), [&](size_t n) {
    const std::vector<iovec> first = first_bytes(parts, count, n);
    return real<ssize_t(int, const iovec*, int)>("readv")(file, first.data(), int(first.size()));
  });
}

FILE* fopen(const char* path, const char* mode) {
  return checked_fopen("fopen", path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  return checked_fopen("fopen64", path, mode);
}

// The C library hides short reads from its callers, and a signal from those that wait for no
// terminal: only an error of the disk is left.
size_t fread(void* data, size_t size, size_t count, FILE* stream) {
  constexpr int kErrorSeen = 0x20;  // what ferror() of glibc asks for
  char path[PATH_MAX];
  path_of(fileno(stream), path);
  const bool hidden = plan().how != nullptr && (is_how("short") || is_how("EINTR"));
  if (!hidden && fails("read", path)) {
    stream->_flags |= kErrorSeen;
    return 0;
  }
  return real<size_t(void*, size_t, size_t, FILE*)>("fread")(data, size, count, stream);
}

DIR* opendir(const char* path) {
  char space[PATH_MAX];
  if (fails("list", whole_path(path, space))) return nullptr;
  return real<DIR*(const char*)>("opendir")(path);
}

DIR* fdopendir(int folder) {
  return fails_to_list(folder) ? nullptr : real<DIR*(int)>("fdopendir")(folder);
}

dirent* readdir(DIR* folder) {
  return fails_to_list(dirfd(folder)) ? nullptr : real<dirent*(DIR*)>("readdir")(folder);
}

dirent64* readdir64(DIR* folder) {
  return fails_to_list(dirfd(folder)) ? nullptr : real<dirent64*(DIR*)>("readdir64")(folder);
}

ssize_t sendfile(int to, int from, off_t* at, size_t bytes) {
  return checked_read(from, bytes, [&](size_t n) {
    return checked_write(to, n, [&](size_t part) {
      return real<ssize_t(int, int, off_t*, size_t)>("sendfile")(to, from, at, part);
    });
  });
}

int fsync(int file) {
  return checked_sync("fsync", file);
}

int fdatasync(int file) {
  return checked_sync("fdatasync", file);
}

int rename(const char* from, const char* to) {
  char space[PATH_MAX];
  return checked("rename", whole_path(to, space),
                 [&] { return real<int(const char*, const char*)>("rename")(from, to); });
}

int link(const char* from, const char* to) {
  char space[PATH_MAX];
  return checked("link", whole_path(to, space),
                 [&] { return real<int(const char*, const char*)>("link")(from, to); });
}

int unlink(const char* path) {
  char space[PATH_MAX];
  return checked("remove", whole_path(path, space),
                 [&] { return real<int(const char*)>("unlink")(path); });
}

int unlinkat(int folder, const char* name, int flags) {
  char path[PATH_MAX];
  if (folder == AT_FDCWD) {
    return checked("remove", name, [&] {
      return real<int(int, const char*, int)>("unlinkat")(folder, name, flags);
    });
  }
  path_of(folder, path);
  const size_t length = strlen(path);
  snprintf(path + length, sizeof path - length, "/%s", name);
  return checked("remove", path,
                 [&] { return real<int(int, const char*, int)>("unlinkat")(folder, name, flags); });
}

int mkdir(const char* path, mode_t mode) {
  char space[PATH_MAX];
  return checked("mkdir", whole_path(path, space),
                 [&] { return real<int(const char*, mode_t)>("mkdir")(path, mode); });
}

int ftruncate(int file, off_t bytes) {
  char path[PATH_MAX];
  path_of(file, path);
  return checked("truncate", path, [&] { return real<int(int, off_t)>("ftruncate")(file, bytes); });
}

int flock(int file, int operation) {
  char path[PATH_MAX];
  path_of(file, path);
  return checked("lock", path, [&] { return real<int(int, int)>("flock")(file, operation); });
}

int ftruncate64(int file, off64_t bytes) {
  return ftruncate(file, bytes);
}

int clock_gettime(clockid_t clock, timespec* to) {
  const long status = syscall(SYS_clock_gettime, clock, to);
  if (status == 0 && clock == CLOCK_REALTIME) to->tv_sec += stepped();
  return int(status);
}

time_t time(time_t* to) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* to, void*) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *to = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

}  // extern "C"
