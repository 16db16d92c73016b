/* load: a load generator for any NATS server, and nothing else. One thread, epoll, the bare protocol.
 *
 *   load publish  JetStream publishes: --conns connections with --window unanswered each; every ack is looked at
 *   load direct   direct gets by chance sequence, or of a subject's last message (--last)
 *   load batch    direct gets of --batch messages each, until the server says EOB
 *   load core     one publisher, --subs subscribers that each get everything
 *   load idle     --conns connections with --subs subscriptions each, held until standard input ends
 *
 * It keeps its own cost out. What is sent is laid out in memory before the clock starts, and all frames of a run have one
 * size: so a window is a byte offset to write up to, and what a subscriber got is counted by bytes, each frame's beginning
 * checked. With --frames so many are laid out and sent again and again: large ones stay in the processor's cache, as those
 * of a producer would that has just made them. The answer is one line of JSON on standard output; a run that goes wrong
 * says why on standard error and exits 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_SIZE = 1 << 20, WRITE_MAX = 256 << 10, EVENTS = 256, STALL_MS = 20000, KEY_DIGITS = 6, SUBJECT_MAX = 200 };
enum mode { PUBLISH, DIRECT, BATCH, CORE, IDLE };
static const char *const MODES[] = {"publish", "direct", "batch", "core", "idle"};

static struct {
    enum mode mode;
    const char *host, *subject, *stream;
    int port, conns, window, size, subs, batch, is_last, has_ids, refill;
    long count, warm, keys, last_seq, frames;
} asked = {.host = "127.0.0.1", .subject = "bench.x", .stream = "S", .port = 4222, .conns = 1, .window = 1, .size = 128,
           .subs = 1, .batch = 1000, .refill = 1, .count = 1000, .last_seq = 1};

struct conn {
    int fd, is_blocked;         /* is_blocked: the socket took no more; EPOLLOUT is waited for */
    char *in;                   /* bytes received that are no whole frame yet */
    size_t in_size;
    const char *frames;         /* this connection's, one after the other */
    size_t written;             /* bytes of `frames` */
    long frame_count, answered; /* requests that go out in this phase; of those of all phases, how many were answered */
    uint64_t sent_ns;           /* window 1: when the request under way went out */
    size_t skip;                /* core: bytes that are left of the frame under way */
    long got;                   /* core: whole messages */
};

static struct conn *conns;
static int poller;
static size_t frame_size;
static long messages, errors, answered_all;
static char first_error[256];
static uint32_t *latencies; /* in ns, one per request */
static long latency_count;

static void die(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static uint64_t chance(void) { /* xorshift: the same in every run */
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *room(size_t size) {
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

static void read_until(int fd, const char *sign) {
    static char got[65536];
    size_t size = 0;
    while (size < sizeof got - 1) {
        ssize_t n = recv(fd, got + size, sizeof got - 1 - size, 0);
        if (n <= 0) die("%s:%d closed the connection before %.4s: %.*s", asked.host, asked.port, sign, (int)size, got);
        size += (size_t)n;
        got[size] = 0;
        if (strstr(got, "-ERR")) die("%s:%d answered %s", asked.host, asked.port, strstr(got, "-ERR"));
        if (strstr(got, sign) && got[size - 1] == '\n') return;
    }
    die("%s:%d does not speak NATS", asked.host, asked.port);
}

/* A connection that is greeted, with `subscriptions` (SUB lines) taken up. */
static void open_conn(struct conn *c, const char *subscriptions) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port)};
    int yes = 1;
    if (inet_pton(AF_INET, asked.host, &to.sin_addr) != 1) die("--host %s: give an IPv4 address", asked.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket: %s (ulimit -n?)", strerror(errno));
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect to %s:%d: %s", asked.host, asked.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    read_until(c->fd, "INFO ");
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\",\"name\":\"load\","
                                "\"protocol\":1,\"headers\":true,\"no_responders\":true,\"echo\":true}\r\n";
    send_all(c->fd, hello, sizeof hello - 1);
    send_all(c->fd, subscriptions, strlen(subscriptions));
    send_all(c->fd, "PING\r\n", 6);
    read_until(c->fd, "PONG");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &wanted)) die("epoll: %s", strerror(errno));
}

static void wait_to_write(struct conn *c, int is_blocked) {
    struct epoll_event wanted = {.events = is_blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &wanted);
    c->is_blocked = is_blocked;
}

/* Write some of `bytes`; how many went. */
static size_t write_some(struct conn *c, const char *bytes, size_t size) {
    ssize_t n = send(c->fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) die("send: %s", strerror(errno));
    size_t went = n < 0 ? 0 : (size_t)n;
    if (went < size && !c->is_blocked) wait_to_write(c, 1);
    if (went == size && c->is_blocked) wait_to_write(c, 0);
    return went;
}

static ssize_t read_some(struct conn *c, char *to, size_t size) {
    ssize_t n = recv(c->fd, to, size, 0);
    if (n == 0) die("the server closed a connection");
    if (n < 0 && errno != EAGAIN) die("recv: %s", strerror(errno));
    return n < 0 ? 0 : n;
}

static void pong(struct conn *c) {
    if (c->written % (frame_size ? frame_size : 1)) return; /* in the middle of a frame: the traffic says enough */
    send(c->fd, "PONG\r\n", 6, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Requests: publish, direct, batch. */

/* The frame of request `n` of connection `conn`, with chance bytes as the payload of a publish; its size. */
static size_t make_frame(char *out, int conn, long n) {
    char subject[SUBJECT_MAX], reply[40], body[80];
    long key = n < asked.keys ? n : asked.keys ? (long)(chance() % (uint64_t)asked.keys) : 0; /* each once, then by chance */
    snprintf(reply, sizeof reply, "_INBOX.L%04d.%09ld", conn, n);
    if (asked.keys) snprintf(subject, sizeof subject, "%s%0*ld", asked.subject, KEY_DIGITS, key);
    else snprintf(subject, sizeof subject, "%s", asked.subject);
    if (asked.mode == PUBLISH) {
        char *at = out;
        if (asked.has_ids) {
            int headers = snprintf(body, sizeof body, "NATS/1.0\r\nNats-Msg-Id: %04d-%09ld\r\n\r\n", conn, n);
            at += sprintf(at, "HPUB %s %s %d %d\r\n%s", subject, reply, headers, headers + asked.size, body);
        } else {
            at += sprintf(at, "PUB %s %s %d\r\n", subject, reply, asked.size);
        }
        int left = asked.size;
        for (uint64_t bytes; left >= 8; left -= 8, at += 8) bytes = chance(), memcpy(at, &bytes, 8);
        while (left-- > 0) *at++ = (char)chance();
        *at++ = '\r';
        *at++ = '\n';
        return (size_t)(at - out);
    }
    if (asked.mode == DIRECT && asked.is_last)
        return (size_t)sprintf(out, "PUB $JS.API.DIRECT.GET.%s.%s %s 0\r\n\r\n", asked.stream, subject, reply);
    /* Numbers are padded with spaces, which JSON does not mind: all frames have one size. */
    long seq = 1 + (long)(chance() % (uint64_t)asked.last_seq);
    int size;
    if (asked.mode == BATCH) {
        long start = asked.last_seq > asked.batch ? 1 + (seq - 1) % (asked.last_seq - asked.batch + 1) : 1;
        size = snprintf(body, sizeof body, "{\"batch\":%d,\"seq\":%9ld}", asked.batch, start);
    } else {
        size = snprintf(body, sizeof body, "{\"seq\":%9ld}", seq);
    }
    return (size_t)sprintf(out, "PUB $JS.API.DIRECT.GET.%s %s %d\r\n%s\r\n", asked.stream, reply, size, body);
}

static void note_error(const char *bytes, size_t size) {
    if (!errors++) snprintf(first_error, sizeof first_error, "%.*s", (int)(size < 200 ? size : 200), bytes);
}

/* Take in one reply: headers of `header_size` and the payload. 1 when its request is answered. */
static int take_reply(const char *bytes, size_t header_size, size_t size) {
    const char *payload = bytes + header_size;
    size_t payload_size = size - header_size;
    if (asked.mode == PUBLISH) {
        if (header_size || !memmem(payload, payload_size, "\"seq\":", 6) || memmem(payload, payload_size, "\"error\"", 7))
            note_error(bytes, size);
        else messages++;
        return 1;
    }
    if (asked.mode == BATCH && header_size > 12 && !memcmp(bytes + 8, " 204", 4)) return 1; /* EOB */
    if (header_size < 10 || bytes[8] != '\r' || payload_size != (size_t)asked.size) {
        note_error(bytes, size);
        return 1;
    }
    messages++;
    return asked.mode == DIRECT;
}

static long number_before(const char *start, const char *stop) {
    long value = 0, place = 1;
    for (; stop > start && stop[-1] >= '0' && stop[-1] <= '9'; place *= 10) value += (*--stop - '0') * place;
    return value;
}

static void answered(struct conn *c) {
    c->answered++;
    answered_all++;
    if (asked.window == 1) latencies[latency_count++] = (uint32_t)(now_ns() - c->sent_ns);
}

/* Take in all whole frames that have come; what is left moves to the front. */
static void take_replies(struct conn *c) {
    char *at = c->in, *stop = c->in + c->in_size;
    while (at < stop) {
        char *line_end = memchr(at, '\n', (size_t)(stop - at));
        if (!line_end) break;
        size_t header_size = 0, size;
        if (*at == 'M' || *at == 'H') {
            char *last = line_end - 1; /* at the \r */
            size = (size_t)number_before(at, last);
            if (*at == 'H') {
                while (last[-1] != ' ') last--;
                header_size = (size_t)number_before(at, last - 1);
            }
            char *body = line_end + 1;
            if ((size_t)(stop - body) < size + 2) break;
            if (take_reply(body, header_size, size)) answered(c);
            at = body + size + 2;
            continue;
        }
        if (*at == '-') die("the server said %.*s", (int)(line_end - at), at);
        if (*at == 'P' && at[1] == 'I') pong(c);
        at = line_end + 1; /* PING, PONG, INFO, +OK */
    }
    c->in_size = (size_t)(stop - at);
    memmove(c->in, at, c->in_size);
}

/* Write what the window allows. */
static void send_requests(struct conn *c) {
    long stop = c->answered + asked.window < c->frame_count ? c->answered + asked.window : c->frame_count;
    size_t limit = (size_t)stop * frame_size;
    if (c->written >= limit || (limit - c->written < (size_t)asked.refill * frame_size && stop < c->frame_count &&
                                c->written > (size_t)c->answered * frame_size))
        return;
    if (asked.window == 1 && c->written % frame_size == 0) c->sent_ns = now_ns();
    size_t cycle = (size_t)asked.frames * frame_size, size, went;
    do {
        size_t at = c->written % cycle;
        size = limit - c->written < cycle - at ? limit - c->written : cycle - at;
        went = write_some(c, c->frames + at, size);
        c->written += went;
    } while (went == size && c->written < limit);
}

/* Send `more` requests on every connection, and wait for all answers. */
static void run_requests(long more) {
    struct epoll_event events[EVENTS];
    long wanted = answered_all + more * asked.conns;
    for (int n = 0; n < asked.conns; n++) {
        conns[n].frame_count += more;
        send_requests(&conns[n]);
    }
    while (answered_all < wanted) {
        int count = epoll_wait(poller, events, EVENTS, STALL_MS);
        if (count < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
        if (count == 0) die("no answer for %d s: %ld of %ld", STALL_MS / 1000, answered_all, wanted);
        for (int n = 0; n < count; n++) {
            struct conn *c = events[n].data.ptr;
            if (events[n].events & ~(unsigned)EPOLLOUT) {
                if (c->in_size == IN_SIZE) die("a frame of more than %d bytes", IN_SIZE);
                c->in_size += (size_t)read_some(c, c->in + c->in_size, IN_SIZE - c->in_size);
                take_replies(c);
            }
            send_requests(c);
        }
    }
}

static void prepare_requests(void) {
    long each = asked.warm + asked.count;
    if (!asked.frames || asked.frames > each) asked.frames = each;
    char *probe = room((size_t)asked.size + 1024), line[64];
    frame_size = make_frame(probe, 0, 0);
    free(probe);
    latencies = room(sizeof *latencies * (size_t)(asked.window == 1 ? each * asked.conns : 0));
    for (int n = 0; n < asked.conns; n++) {
        char *frames = room((size_t)asked.frames * frame_size + 1); /* sprintf ends with a zero */
        for (long k = 0; k < asked.frames; k++)
            if (make_frame(frames + (size_t)k * frame_size, n, k) != frame_size) die("a number in a frame is too long");
        conns[n].frames = frames;
        conns[n].in = room(IN_SIZE);
        snprintf(line, sizeof line, "SUB _INBOX.L%04d.* 1\r\n", n);
        open_conn(&conns[n], line);
    }
}

/* Core: conns[0] publishes, the others listen. */

static void take_deliveries(struct conn *c, const char *in, size_t size, const char *line, size_t line_size, size_t delivery_size) {
    while (size) {
        if (!c->skip) {
            if (*in == 'M') {
                if (size >= line_size && memcmp(in, line, line_size)) die("not what was published: %.*s", 40, in);
                c->skip = delivery_size;
            } else if (*in == 'P') {
                c->skip = 6;
                c->got--; /* counted below, and no message */
                pong(c);
            } else {
                die("the server said %.*s", (int)(size < 60 ? size : 60), in);
            }
        }
        size_t step = c->skip < size ? c->skip : size;
        in += step;
        size -= step;
        c->skip -= step;
        if (!c->skip) c->got++;
    }
}

static void run_core(long total) {
    struct epoll_event events[EVENTS];
    static char in[IN_SIZE];
    char line[SUBJECT_MAX + 40];
    size_t line_size = (size_t)snprintf(line, sizeof line, "MSG %s 1 %d\r\n", asked.subject, asked.size);
    size_t delivery_size = line_size + (size_t)asked.size + 2;
    struct conn *publisher = &conns[0];
    size_t cycle = (size_t)publisher->frame_count * frame_size, sent = 0;
    for (int n = 1; n <= asked.subs; n++) conns[n].got = 0;
    for (;;) {
        long slowest = total;
        for (int n = 1; n <= asked.subs; n++)
            if (conns[n].got < slowest) slowest = conns[n].got;
        if (slowest == total) break;
        long stop = slowest + asked.window < total ? slowest + asked.window : total;
        size_t limit = (size_t)stop * frame_size;
        if (!publisher->is_blocked && sent < limit) {
            size_t at = sent % cycle, size = cycle - at;
            if (size > limit - sent) size = limit - sent;
            if (size > WRITE_MAX) size = WRITE_MAX;
            sent += write_some(publisher, publisher->frames + at, size);
            publisher->written = sent;
        }
        int count = epoll_wait(poller, events, EVENTS, !publisher->is_blocked && sent < limit ? 0 : STALL_MS);
        if (count < 0 && errno != EINTR) die("epoll: %s", strerror(errno));
        if (count == 0 && (publisher->is_blocked || sent >= limit)) die("nothing delivered for %d s: %ld of %ld", STALL_MS / 1000, slowest, total);
        for (int n = 0; n < count; n++) {
            struct conn *c = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) wait_to_write(c, 0);
            if (!(events[n].events & ~(unsigned)EPOLLOUT)) continue;
            size_t size = (size_t)read_some(c, in, IN_SIZE);
            if (c != publisher) take_deliveries(c, in, size, line, line_size, delivery_size);
            else if (size && *in == 'P') pong(c);
            else if (size && *in == '-') die("the server said %.*s", (int)(size < 60 ? size : 60), in);
        }
    }
    messages = total * asked.subs;
}

static void prepare_core(void) {
    char line[SUBJECT_MAX + 40], *frames, *at;
    int head = snprintf(line, sizeof line, "PUB %s %d\r\n", asked.subject, asked.size);
    frame_size = (size_t)head + (size_t)asked.size + 2;
    conns[0].frame_count = (1 << 20) / (long)frame_size + 1; /* sent again and again: they stay in the processor's cache */
    frames = at = room((size_t)conns[0].frame_count * frame_size);
    for (long n = 0; n < conns[0].frame_count; n++) {
        memcpy(at, line, (size_t)head);
        at += head;
        for (int k = 0; k < asked.size; k++) *at++ = (char)chance();
        *at++ = '\r';
        *at++ = '\n';
    }
    conns[0].frames = frames;
    open_conn(&conns[0], "");
    snprintf(line, sizeof line, "SUB %s 1\r\n", asked.subject);
    for (int n = 1; n <= asked.subs; n++) open_conn(&conns[n], line);
}

/* Idle. */

static void hold_idle(void) {
    static char in[IN_SIZE];
    char *subscriptions = room((size_t)asked.subs * 64 + 1);
    for (int n = 0; n < asked.conns; n++) {
        char *at = subscriptions;
        *at = 0;
        for (int k = 0; k < asked.subs; k++) at += sprintf(at, "SUB idle.%05d.%03d %d\r\n", n, k, k + 1);
        open_conn(&conns[n], subscriptions);
    }
    printf("{\"mode\":\"idle\",\"connections\":%d,\"subscriptions\":%d}\n", asked.conns, asked.conns * asked.subs);
    fflush(stdout);
    struct epoll_event events[EVENTS], input = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, 0, &input)) die("standard input must be a pipe: its end ends the run");
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int n = 0; n < count; n++) {
            struct conn *c = events[n].data.ptr;
            if (c == NULL) return;
            if (read_some(c, in, IN_SIZE) && *in == 'P') pong(c);
        }
    }
}

/* Arguments and the answer. */

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double latency_us(double part) {
    return latencies[(long)(part * (double)(latency_count - 1))] / 1e3;
}

static long number(const char *name, const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < 0 || value > 1000000000) die("%s %s: a number from 0 to 1,000,000,000", name, text);
    return value;
}

static void read_arguments(int argc, char **argv) {
    int mode = 0;
    while (mode <= IDLE && (argc < 2 || strcmp(argv[1], MODES[mode]))) mode++;
    if (mode > IDLE) die("say what: load publish|direct|batch|core|idle [--name value]…");
    asked.mode = (enum mode)mode;
    const struct { const char *name; int *small; long *large; const char **text; } names[] = {
        {"--host", 0, 0, &asked.host},     {"--port", &asked.port, 0, 0},     {"--subject", 0, 0, &asked.subject},
        {"--stream", 0, 0, &asked.stream}, {"--conns", &asked.conns, 0, 0},   {"--window", &asked.window, 0, 0},
        {"--size", &asked.size, 0, 0},     {"--subs", &asked.subs, 0, 0},     {"--batch", &asked.batch, 0, 0},
        {"--last", &asked.is_last, 0, 0},  {"--ids", &asked.has_ids, 0, 0},   {"--refill", &asked.refill, 0, 0},
        {"--count", 0, &asked.count, 0},   {"--warm", 0, &asked.warm, 0},     {"--keys", 0, &asked.keys, 0},
        {"--last-seq", 0, &asked.last_seq, 0},
        {"--frames", 0, &asked.frames, 0},
    };
    const int name_count = sizeof names / sizeof *names;
    for (int n = 2; n < argc; n += 2) {
        int k = 0;
        while (k < name_count && strcmp(argv[n], names[k].name)) k++;
        if (k == name_count || n + 1 == argc) die("%s: no such argument, or no value", argv[n]);
        if (names[k].text) *names[k].text = argv[n + 1];
        else if (names[k].small) *names[k].small = (int)number(argv[n], argv[n + 1]);
        else *names[k].large = number(argv[n], argv[n + 1]);
    }
    if (strlen(asked.subject) > SUBJECT_MAX - 20 || strlen(asked.stream) > SUBJECT_MAX) die("--subject or --stream is too long");
    if (asked.conns < 1 || asked.conns > 9999 || asked.window < 1 || asked.last_seq < 1) die("--conns, --window and --last-seq: 1 or more");
    if (asked.keys > 999999) die("--keys: at most 999,999");
    if (asked.frames && asked.frames < asked.window) die("--frames: at least as many as --window");
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    poller = epoll_create1(EPOLL_CLOEXEC);
    int total = asked.mode == CORE ? asked.subs + 1 : asked.conns;
    conns = calloc((size_t)total, sizeof *conns);
    if (poller < 0 || !conns) die("epoll: %s", strerror(errno));
    if (asked.mode == IDLE) {
        hold_idle();
        return 0;
    }
    if (asked.mode == CORE) {
        prepare_core();
        if (asked.warm) run_core(asked.warm);
    } else {
        prepare_requests();
        if (asked.warm) run_requests(asked.warm);
    }
    messages = latency_count = 0;
    double cpu = cpu_seconds();
    uint64_t start = now_ns();
    if (asked.mode == CORE) run_core(asked.count);
    else run_requests(asked.count);
    double seconds = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    printf("{\"mode\":\"%s\",\"messages\":%ld,\"errors\":%ld,\"seconds\":%.6f,\"rate\":%.1f,\"cpu_seconds\":%.6f", MODES[asked.mode],
           messages, errors, seconds, (double)messages / seconds, cpu);
    if (latency_count) {
        qsort(latencies, (size_t)latency_count, sizeof *latencies, by_size);
        printf(",\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f", latency_us(.5), latency_us(.9), latency_us(.99),
               latency_us(1));
    }
    puts("}");
    if (errors) die("%ld answers were not what was asked for; the first: %s", errors, first_error);
    return 0;
}
