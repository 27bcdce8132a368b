/*
 * Loads one unary gRPC method over cleartext HTTP/2 and prints one line of JSON.
 *
 * h2load sends one fixed body, but every mutating request needs a request id of its own. This
 * program sends ready frames and writes a counter into each before it is sent, nothing else.
 *
 *   load HOST PORT PATH FRAMES FRAME_SIZE ID_OFFSET ID_WIDTH FIRST_ID CONNECTIONS STREAMS SECONDS
 *        RATE
 *
 * FRAMES is a file of one or more frames of equal size, sent in turn. RATE requests a second are
 * due at even times, and their latency counts from then; with RATE 0 each reply brings the next
 * request.
 * Exit code 0 only if every reply had grpc-status 0.
 */
#define _GNU_SOURCE
#include <poll.h>

#include "http2.h"

#define MAX_CONNECTIONS 64
#define MAX_STREAMS 256
#define DRAIN_SECONDS 10

struct stream {
  struct connection *owner;
  uint8_t *frame;
  size_t sent;
  uint64_t start_ns;
  int is_open;
  int ok;
};

struct connection {
  struct transport transport;
  int in_flight;
  struct stream streams[MAX_STREAMS];
};

static const char *path;
static char authority[64];
static uint8_t *frames;
static size_t frames_size, frame_size, id_offset, id_width, next_frame;
static uint64_t next_id, deadline_ns;
/* With a rate only. */
static uint64_t interval_ns, due_ns;
static uint64_t *latencies;
static size_t latency_count, latency_capacity;
static uint64_t failed_count;
static char first_failure[256];

static void read_frames(const char *file) {
  frames = read_file(file, &frames_size);
  if (frames_size == 0 || frames_size % frame_size != 0) die("size of the frames");
  if (id_offset + id_width > frame_size) die("place of the id");
}

static void fill_frame(uint8_t *frame) {
  memcpy(frame, frames + next_frame, frame_size);
  next_frame = (next_frame + frame_size) % frames_size;
  uint64_t id = next_id++;
  for (size_t digit = id_width; digit > 0; digit--) {
    frame[id_offset + digit - 1] = (uint8_t)('0' + id % 10);
    id /= 10;
  }
}

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *buffer,
                         size_t length, uint32_t *flags, nghttp2_data_source *source,
                         void *user) {
  (void)session, (void)stream_id, (void)user;
  struct stream *stream = source->ptr;
  size_t left = frame_size - stream->sent;
  size_t size = left < length ? left : length;
  memcpy(buffer, stream->frame + stream->sent, size);
  stream->sent += size;
  if (stream->sent == frame_size) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)size;
}

static void submit(struct connection *connection, struct stream *stream) {
  nghttp2_nv headers[] = {
      HEADER(":method", "POST", 4),
      HEADER(":scheme", "http", 4),
      HEADER(":path", path, strlen(path)),
      HEADER(":authority", authority, strlen(authority)),
      HEADER("te", "trailers", 8),
      HEADER("content-type", "application/grpc+proto", 22),
      HEADER("user-agent", "toolmark-bench", 14),
  };
  nghttp2_data_provider body = {.source = {.ptr = stream}, .read_callback = read_body};
  fill_frame(stream->frame);
  stream->owner = connection;
  stream->sent = 0;
  stream->ok = 0;
  stream->is_open = 1;
  stream->start_ns = interval_ns == 0 ? now_ns() : due_ns;
  check(nghttp2_submit_request(connection->transport.session, NULL, headers,
                               sizeof headers / sizeof headers[0], &body, stream),
        "submit");
  connection->in_flight++;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user) {
  (void)flags, (void)user;
  struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (stream == NULL) return 0;
  if (name_size == 11 && memcmp(name, "grpc-status", 11) == 0) {
    stream->ok = value_size == 1 && value[0] == '0';
  }
  int is_failure = (name_size == 11 && memcmp(name, "grpc-status", 11) == 0 && !stream->ok) ||
                   (name_size == 12 && memcmp(name, "grpc-message", 12) == 0);
  size_t used = strlen(first_failure);
  if (is_failure && failed_count == 0 && used + 1 < sizeof first_failure) {
    snprintf(first_failure + used, sizeof first_failure - used, "%.*s=%.*s ", (int)name_size, name,
             (int)value_size, value);
  }
  return 0;
}

static void keep_latency(uint64_t latency) {
  if (latency_count == latency_capacity) {
    latency_capacity = latency_capacity == 0 ? 1 << 16 : latency_capacity * 2;
    latencies = realloc(latencies, latency_capacity * sizeof *latencies);
    if (latencies == NULL) die("memory");
  }
  latencies[latency_count++] = latency;
}

static int on_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *user) {
  (void)error;
  struct connection *connection = user;
  struct stream *stream = nghttp2_session_get_stream_user_data(session, stream_id);
  if (stream == NULL) return 0;
  uint64_t now = now_ns();
  if (stream->ok) {
    keep_latency(now - stream->start_ns);
  } else {
    failed_count++;
  }
  connection->in_flight--;
  stream->is_open = 0;
  if (interval_ns == 0 && now < deadline_ns && failed_count == 0) submit(connection, stream);
  return 0;
}

static int in_flight(const struct connection *connections, int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += connections[i].in_flight;
  return sum;
}

/* Sends what is due while there are free streams. */
static void submit_due(struct connection *connections, int count, int streams) {
  for (int i = 0; i < count * streams; i++) {
    struct connection *connection = &connections[i % count];
    struct stream *stream = &connection->streams[i / count];
    if (due_ns > now_ns() || due_ns >= deadline_ns || failed_count > 0) return;
    if (stream->is_open) continue;
    submit(connection, stream);
    due_ns += interval_ns;
  }
}

static int is_over(const struct connection *connections, int count) {
  int is_pacing = interval_ns > 0 && due_ns < deadline_ns && failed_count == 0;
  return in_flight(connections, count) == 0 && !is_pacing;
}

static struct timespec until_due(void) {
  uint64_t now = now_ns(), wait = 1000000000u;
  if (interval_ns > 0 && due_ns < deadline_ns) wait = due_ns > now ? due_ns - now : 0;
  /* With every stream taken the next reply ends the wait. */
  if (wait == 0) wait = interval_ns;
  return (struct timespec){.tv_sec = (time_t)(wait / 1000000000u),
                           .tv_nsec = (long)(wait % 1000000000u)};
}

static void run(struct connection *connections, int count, int streams) {
  struct pollfd polls[MAX_CONNECTIONS];
  while (!is_over(connections, count)) {
    if (interval_ns > 0) submit_due(connections, count, streams);
    for (int i = 0; i < count; i++) {
      struct transport *transport = &connections[i].transport;
      send_pending(transport);
      short writing = transport->pending_size > 0 ? POLLOUT : 0;
      polls[i] = (struct pollfd){.fd = transport->fd, .events = (short)(POLLIN | writing)};
    }
    struct timespec wait = until_due();
    if (ppoll(polls, (nfds_t)count, &wait, NULL) < 0 && errno != EINTR) die("poll");
    for (int i = 0; i < count; i++) {
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[i].transport);
    }
    if (now_ns() > deadline_ns + DRAIN_SECONDS * 1000000000ull) {
      errno = ETIMEDOUT;
      die("replies");
    }
  }
}

static int by_value(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

static double percentile_us(double part) {
  if (latency_count == 0) return 0;
  return (double)latencies[(size_t)(part * (double)(latency_count - 1))] / 1000.0;
}

static nghttp2_session_callbacks *make_callbacks(void) {
  nghttp2_session_callbacks *callbacks;
  check(nghttp2_session_callbacks_new(&callbacks), "callbacks");
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  return callbacks;
}

int main(int argc, char **argv) {
  static struct connection connections[MAX_CONNECTIONS];
  if (argc != 13) {
    fprintf(stderr, "load: 12 arguments, see the head of load.c\n");
    return 2;
  }
  path = argv[3];
  snprintf(authority, sizeof authority, "%s:%s", argv[1], argv[2]);
  frame_size = strtoul(argv[5], NULL, 10);
  id_offset = strtoul(argv[6], NULL, 10);
  id_width = strtoul(argv[7], NULL, 10);
  next_id = strtoull(argv[8], NULL, 10);
  int count = atoi(argv[9]), streams = atoi(argv[10]);
  if (count < 1 || count > MAX_CONNECTIONS || streams < 1 || streams > MAX_STREAMS) die("counts");
  read_frames(argv[4]);

  nghttp2_session_callbacks *callbacks = make_callbacks();
  for (int i = 0; i < count; i++) {
    connect_to(&connections[i].transport, argv[1], atoi(argv[2]), callbacks, &connections[i]);
  }
  uint64_t start_ns = now_ns();
  deadline_ns = start_ns + (uint64_t)(atof(argv[11]) * 1e9);
  if (atof(argv[12]) > 0) interval_ns = (uint64_t)(1e9 / atof(argv[12]));
  due_ns = start_ns;
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < streams; j++) {
      struct stream *stream = &connections[i].streams[j];
      stream->frame = malloc(frame_size);
      if (stream->frame == NULL) die("memory");
      if (interval_ns == 0) submit(&connections[i], stream);
    }
  }
  run(connections, count, streams);
  double seconds = (double)(now_ns() - start_ns) / 1e9;
  qsort(latencies, latency_count, sizeof *latencies, by_value);
  printf("{\"ok\":%zu,\"failed\":%llu,\"seconds\":%.6f,\"p50Us\":%.1f,\"p99Us\":%.1f,"
         "\"nextId\":%llu}\n",
         latency_count, (unsigned long long)failed_count, seconds, percentile_us(0.5),
         percentile_us(0.99), (unsigned long long)next_id);
  if (failed_count > 0) fprintf(stderr, "load: first failure: %s\n", first_failure);
  return failed_count > 0 ? 1 : 0;
}
