/*
 * Opens many server streams over cleartext HTTP/2, counts their messages, and prints one line of
 * JSON whenever all of them have received so many.
 *
 *   watch HOST PORT PATH CONTENT_TYPE REQUEST CONNECTIONS STREAMS FIRST EACH
 *
 * REQUEST is a file with the framed request of every stream: gRPC and Connect frame alike. The
 * first line comes after FIRST messages, the others after EACH more. Ends with its standard input.
 * Exit code 0 only if no stream ended before that.
 */
#include <poll.h>

#include "http2.h"

#define MAX_CONNECTIONS 64
#define MAX_STREAMS 256
#define PREFIX_BYTES 5
/* What a frame of Connect has that ends the stream. */
#define END_FLAG 2

struct stream {
  size_t sent;
  uint64_t messages;
  uint8_t prefix[PREFIX_BYTES];
  size_t prefix_size;
  size_t body_left;
};

struct connection {
  struct transport transport;
  struct stream streams[MAX_STREAMS];
};

static const char *path, *content_type;
static char authority[64];
static uint8_t *request;
static size_t request_size;
static uint64_t wanted, each, start_ns;
/* Streams that have received fewer messages than wanted. */
static size_t behind;
static int has_failed;

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *buffer,
                         size_t length, uint32_t *flags, nghttp2_data_source *source,
                         void *user) {
  (void)session, (void)stream_id, (void)user;
  struct stream *stream = source->ptr;
  size_t left = request_size - stream->sent;
  size_t size = left < length ? left : length;
  memcpy(buffer, request + stream->sent, size);
  stream->sent += size;
  if (stream->sent == request_size) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)size;
}

static void submit(struct connection *connection, struct stream *stream) {
  nghttp2_nv headers[] = {
      HEADER(":method", "POST", 4),
      HEADER(":scheme", "http", 4),
      HEADER(":path", path, strlen(path)),
      HEADER(":authority", authority, strlen(authority)),
      HEADER("te", "trailers", 8),
      HEADER("content-type", content_type, strlen(content_type)),
      HEADER("connect-protocol-version", "1", 1),
      HEADER("user-agent", "toolmark-bench", 14),
  };
  nghttp2_data_provider body = {.source = {.ptr = stream}, .read_callback = read_body};
  check(nghttp2_submit_request(connection->transport.session, NULL, headers,
                               sizeof headers / sizeof headers[0], &body, stream),
        "submit");
}

static void count_behind(struct connection *connections, int count, int streams) {
  behind = 0;
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < streams; j++) behind += connections[i].streams[j].messages < wanted;
  }
}

static void report(struct connection *connections, int count, int streams) {
  uint64_t last_ns = now_ns();
  while (behind == 0 && !has_failed) {
    printf("{\"messages\":%llu,\"startNs\":%llu,\"lastNs\":%llu}\n", (unsigned long long)wanted,
           (unsigned long long)start_ns, (unsigned long long)last_ns);
    wanted += each;
    count_behind(connections, count, streams);
  }
  fflush(stdout);
}

static void fail(const char *name, const uint8_t *text, size_t size) {
  fprintf(stderr, "watch: %s %.*s\n", name, (int)size, (const char *)text);
  has_failed = 1;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user) {
  (void)session, (void)frame, (void)flags, (void)user;
  int is_status = name_size == 7 && memcmp(name, ":status", 7) == 0;
  if (is_status && (value_size != 3 || memcmp(value, "200", 3) != 0)) {
    fail("HTTP status", value, value_size);
  }
  int is_end = (name_size == 11 && memcmp(name, "grpc-status", 11) == 0) ||
               (name_size == 12 && memcmp(name, "grpc-message", 12) == 0);
  if (is_end) fail((const char *)name, value, value_size);
  return 0;
}

static size_t take_prefix(struct stream *stream, const uint8_t *data, size_t size) {
  size_t missing = PREFIX_BYTES - stream->prefix_size;
  size_t taken = size < missing ? size : missing;
  memcpy(stream->prefix + stream->prefix_size, data, taken);
  stream->prefix_size += taken;
  if (stream->prefix_size < PREFIX_BYTES) return taken;
  const uint8_t *prefix = stream->prefix;
  stream->body_left = (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 |
                      (size_t)prefix[4];
  if (prefix[0] & END_FLAG) fail("last frame:", data + taken, size - taken);
  return taken;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t size, void *user) {
  (void)flags, (void)user;
  struct stream *stream = nghttp2_session_get_stream_user_data(session, stream_id);
  if (stream == NULL) return 0;
  for (;;) {
    if (stream->prefix_size < PREFIX_BYTES) {
      size_t taken = take_prefix(stream, data, size);
      data += taken;
      size -= taken;
      if (stream->prefix_size < PREFIX_BYTES) return 0;
    }
    size_t taken = size < stream->body_left ? size : stream->body_left;
    data += taken;
    size -= taken;
    stream->body_left -= taken;
    if (stream->body_left > 0) return 0;
    stream->prefix_size = 0;
    stream->messages++;
    behind -= stream->messages == wanted;
  }
}

static int on_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *user) {
  (void)session, (void)user;
  if (!has_failed) fprintf(stderr, "watch: stream %d ended, error %u\n", stream_id, error);
  has_failed = 1;
  return 0;
}

static void run(struct connection *connections, int count, int streams) {
  struct pollfd polls[MAX_CONNECTIONS + 1];
  while (!has_failed) {
    for (int i = 0; i < count; i++) {
      struct transport *transport = &connections[i].transport;
      send_pending(transport);
      short writing = transport->pending_size > 0 ? POLLOUT : 0;
      polls[i] = (struct pollfd){.fd = transport->fd, .events = (short)(POLLIN | writing)};
    }
    polls[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(polls, (nfds_t)count + 1, -1) < 0 && errno != EINTR) die("poll");
    for (int i = 0; i < count; i++) {
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[i].transport);
    }
    if (behind == 0) report(connections, count, streams);
    if (polls[count].revents != 0) return;
  }
}

static nghttp2_session_callbacks *make_callbacks(void) {
  nghttp2_session_callbacks *callbacks;
  check(nghttp2_session_callbacks_new(&callbacks), "callbacks");
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  return callbacks;
}

int main(int argc, char **argv) {
  if (argc != 10) {
    fprintf(stderr, "watch: 9 arguments, see the head of watch.c\n");
    return 2;
  }
  path = argv[3];
  content_type = argv[4];
  snprintf(authority, sizeof authority, "%s:%s", argv[1], argv[2]);
  request = read_file(argv[5], &request_size);
  int count = atoi(argv[6]), streams = atoi(argv[7]);
  if (count < 1 || count > MAX_CONNECTIONS || streams < 1 || streams > MAX_STREAMS) die("counts");
  wanted = strtoull(argv[8], NULL, 10);
  each = strtoull(argv[9], NULL, 10);
  if (wanted == 0 || each == 0) die("counts of messages");

  struct connection *connections = calloc((size_t)count, sizeof *connections);
  if (connections == NULL) die("memory");
  nghttp2_session_callbacks *callbacks = make_callbacks();
  for (int i = 0; i < count; i++) {
    struct connection *connection = &connections[i];
    connect_to(&connection->transport, argv[1], atoi(argv[2]), callbacks, connection);
  }
  start_ns = now_ns();
  behind = (size_t)count * (size_t)streams;
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < streams; j++) submit(&connections[i], &connections[i].streams[j]);
  }
  run(connections, count, streams);
  return has_failed ? 1 : 0;
}
