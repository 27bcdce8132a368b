/* Cleartext HTTP/2 connections that do not block, for the programs beside this file. */
#ifndef BENCH_HTTP2_H
#define BENCH_HTTP2_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW (1 << 30)

struct transport {
  int fd;
  nghttp2_session *session;
  const uint8_t *pending;
  size_t pending_size;
};

static void die(const char *what) {
  fprintf(stderr, "bench: %s: %s\n", what, errno != 0 ? strerror(errno) : "failed");
  exit(2);
}

static void check(int result, const char *what) {
  if (result >= 0) return;
  fprintf(stderr, "bench: %s: %s\n", what, nghttp2_strerror(result));
  exit(2);
}

/* The clock that every process of the machine shares. */
static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint8_t *read_file(const char *file, size_t *size) {
  FILE *input = fopen(file, "rb");
  if (input == NULL) die(file);
  fseek(input, 0, SEEK_END);
  *size = (size_t)ftell(input);
  rewind(input);
  uint8_t *bytes = malloc(*size + 1);
  if (bytes == NULL || fread(bytes, 1, *size, input) != *size) die(file);
  fclose(input);
  errno = 0;
  return bytes;
}

#define HEADER(name, value, size) \
  {(uint8_t *)(name), (uint8_t *)(value), strlen(name), (size), NGHTTP2_NV_FLAG_NONE}

static void connect_to(struct transport *transport, const char *host, int port,
                       const nghttp2_session_callbacks *callbacks, void *user) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int on = 1;
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("host");
  transport->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (transport->fd < 0) die("socket");
  if (connect(transport->fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
  setsockopt(transport->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(transport->fd, F_SETFL, fcntl(transport->fd, F_GETFL) | O_NONBLOCK);
  check(nghttp2_session_client_new(&transport->session, callbacks, user), "session");
  nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
                                       {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW}};
  check(nghttp2_submit_settings(transport->session, NGHTTP2_FLAG_NONE, settings, 2), "settings");
  check(nghttp2_session_set_local_window_size(transport->session, NGHTTP2_FLAG_NONE, 0, WINDOW),
        "window");
}

/* Sends what the session has until the socket takes no more. */
static void send_pending(struct transport *transport) {
  for (;;) {
    if (transport->pending_size == 0) {
      ssize_t size = nghttp2_session_mem_send(transport->session, &transport->pending);
      check((int)size, "send");
      if (size == 0) return;
      transport->pending_size = (size_t)size;
    }
    ssize_t written = send(transport->fd, transport->pending, transport->pending_size,
                           MSG_NOSIGNAL);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (written < 0) die("write");
    transport->pending += written;
    transport->pending_size -= (size_t)written;
  }
}

static void receive(struct transport *transport) {
  static uint8_t buffer[1 << 18];
  ssize_t size = recv(transport->fd, buffer, sizeof buffer, 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  errno = size == 0 ? ECONNRESET : errno;
  if (size <= 0) die("read");
  check((int)nghttp2_session_mem_recv(transport->session, buffer, (size_t)size), "receive");
}

#endif
