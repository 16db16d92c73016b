/* Connections: opened, read, written; frames as they come. */
#include "load.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

void die(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t chance(void) { /* xorshift: the same in every run */
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void *room(size_t size) {
    void *got = malloc(size ? size : 1);
    if (!got) die("no memory for %zu bytes: ask for a smaller --count", size);
    return got;
}

/* Connections. */

static void send_all(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
        if (n < 0) die("send to %s:%d: %s", asked.host, asked.port, strerror(errno));
        bytes += n;
        size -= (size_t)n;
    }
}

/* All that comes until a whole line, with `sign` before it. */
static const char *read_until(int fd, const char *sign) {
    static char got[65536];
    size_t size = 0;
    while (size < sizeof got - 1) {
        ssize_t n = recv(fd, got + size, sizeof got - 1 - size, 0);
        if (n <= 0) die("%s:%d closed the connection, or said nothing more, before %.4s: %.*s", asked.host, asked.port, sign, (int)size, got);
        size += (size_t)n;
        got[size] = 0;
        if (strstr(got, "-ERR")) die("%s:%d answered %s", asked.host, asked.port, strstr(got, "-ERR"));
        if (strstr(got, sign) && got[size - 1] == '\n') return got;
    }
    die("%s:%d does not speak NATS", asked.host, asked.port);
}

/* A connection that is greeted, with `subscriptions` (SUB lines) taken up; its calls wait. */
void connect_conn(struct conn *c, const char *subscriptions) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port)};
    int yes = 1;
    if (inet_pton(AF_INET, asked.host, &to.sin_addr) != 1) die("--host %s: give an IPv4 address", asked.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket: %s (ulimit -n?)", strerror(errno));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect to %s:%d: %s", asked.host, asked.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct timeval wait = {.tv_sec = STALL_MS / 1000};
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    read_until(c->fd, "INFO ");
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\",\"name\":\"load\","
                                "\"protocol\":1,\"headers\":true,\"no_responders\":true,\"echo\":true}\r\n";
    send_all(c->fd, hello, sizeof hello - 1);
    send_all(c->fd, subscriptions, strlen(subscriptions));
    send_all(c->fd, "PING\r\n", 6);
    read_until(c->fd, "PONG");
}

/* The answer to an empty request on a connection whose calls wait and that hears _INBOX.R. */
const char *ask(struct conn *c, const char *subject) {
    char line[2 * SUBJECT_MAX + 100];
    int size = snprintf(line, sizeof line, "PUB %s _INBOX.R 0\r\n\r\n", subject);
    send_all(c->fd, line, (size_t)size);
    return read_until(c->fd, "}\r\n");
}

/* The same, and its calls do not wait: the poller tells. */
void open_conn(struct conn *c, const char *subscriptions) {
    connect_conn(c, subscriptions);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &wanted)) die("epoll: %s", strerror(errno));
}

void wait_to_write(struct conn *c, int is_blocked) {
    struct epoll_event wanted = {.events = is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &wanted);
    c->is_blocked = is_blocked;
}

/* Write some of `bytes`; how many went. */
size_t write_some(struct conn *c, const char *bytes, size_t size) {
    ssize_t n = send(c->fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) die("send: %s", strerror(errno));
    size_t went = n < 0 ? 0 : (size_t)n;
    if (went < size && !c->is_blocked) wait_to_write(c, 1);
    if (went == size && c->is_blocked) wait_to_write(c, 0);
    return went;
}

ssize_t read_some(struct conn *c, char *to, size_t size) {
    ssize_t n = recv(c->fd, to, size, 0);
    if (n == 0) die("the server closed a connection");
    if (n < 0 && errno != EAGAIN) die("recv: %s", strerror(errno));
    return n < 0 ? 0 : n;
}

void pong(struct conn *c) {
    if (c->written % (frame_size ? frame_size : 1)) return; /* in the middle of a frame: the traffic says enough */
    send(c->fd, "PONG\r\n", 6, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Wait for events; a server that says nothing for long ends the run: `done` of `wanted` is how far it came. */
int wait_for_events(struct epoll_event *events, long done, long wanted) {
    int count = epoll_wait(poller, events, EVENTS, STALL_MS);
    if (count < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
    if (count == 0) die("nothing from the server for %d s: %ld of %ld", STALL_MS / 1000, done, wanted);
    return count;
}

void note_error(const char *bytes, size_t size) {
    if (!errors++) snprintf(first_error, sizeof first_error, "%.*s", (int)(size < 200 ? size : 200), bytes);
}

static long digits(const char *at) { /* strtol knows blanks, signs and locales: it took a twentieth of what the generator does */
    long value = 0;
    while (*at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
    return value;
}

/* The bytes of the whole frame at `at`, which `frame` then describes; 0 where it is not whole yet. */
size_t next_frame(const char *at, const char *stop, struct frame *frame) {
    const char *end = memchr(at, '\n', (size_t)(stop - at));
    if (!end) return 0;
    if (*at == '-') die("the server said %.*s", (int)(end - at), at);
    *frame = (struct frame){.kind = *at};
    if (*at == 'P' && at[1] == 'O') frame->kind = 'O'; /* PONG: nothing to do */
    if (*at != 'M' && *at != 'H') return (size_t)(end + 1 - at);
    const char *words[6]; /* verb, subject, sid, reply, headers' size, size: where each begins */
    int count = 0;
    for (const char *next = at; next && count < 6; next = memchr(next, ' ', (size_t)(end - next)), next = next ? next + 1 : next)
        words[count++] = next;
    int sizes = *at == 'H' ? 2 : 1, has_reply = count == 4 + sizes;
    if (count < 3 + sizes) die("not a message: %.*s", (int)(end - at), at);
    frame->sid = digits(words[2]);
    if (has_reply) {
        frame->reply = words[3];
        frame->reply_size = (size_t)(words[4] - 1 - words[3]);
    }
    frame->size = (size_t)digits(words[count - 1]);
    if (sizes == 2) frame->header_size = (size_t)digits(words[count - 2]);
    frame->body = end + 1;
    if ((size_t)(stop - frame->body) < frame->size + 2) return 0;
    return (size_t)(frame->body + frame->size + 2 - at);
}
