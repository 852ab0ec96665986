/* A wall clock that can be set for one process: LD_PRELOAD this, and CLOCK_OFFSET_FILE names eight bytes of seconds that
   are added to it. Monotonic time and sleeping stay as they are, as when somebody sets the clock of a machine.
   libfaketime was tried: with its monotonic clock left alone, time.sleep of Python 3.11 fails with EINVAL. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_s;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *place = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
  if (place != MAP_FAILED) offset_s = place;
  close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
  int status = (int)syscall(SYS_clock_gettime, id, out);
  if (status == 0 && offset_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += *offset_s;
  return status;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
