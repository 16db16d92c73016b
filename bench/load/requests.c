/* Requests that are answered: publish, direct, batch. */
#include "load.h"

long requests_stop = 1000000000000;
static enum mode kind;

/* The frame of request `n` of connection `conn`, with chance bytes as the payload of a publish; its size. */
static size_t make_frame(char *out, int conn, long n) {
    char subject[SUBJECT_MAX], reply[40], body[80];
    long key = n; /* each once, then in turn or by chance */
    if (n >= asked.keys && asked.keys) key = asked.in_turn ? n % asked.keys : (long)(chance() % (uint64_t)asked.keys);
    snprintf(reply, sizeof reply, "_INBOX.L%04d.%09ld", conn, n);
    if (asked.keys) snprintf(subject, sizeof subject, "%s%0*ld", asked.subject, KEY_DIGITS, key);
    else snprintf(subject, sizeof subject, "%s", asked.subject);
    if (kind == PUBLISH) {
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
    if (kind == DIRECT && asked.is_last)
        return (size_t)sprintf(out, "PUB $JS.API.DIRECT.GET.%s.%s %s 0\r\n\r\n", asked.stream, subject, reply);
    /* Numbers are padded with spaces, which JSON does not mind: all frames have one size. */
    long seq = 1 + (long)(chance() % (uint64_t)asked.last_seq);
    int size;
    if (kind == BATCH) {
        long start = asked.last_seq > asked.batch ? 1 + (seq - 1) % (asked.last_seq - asked.batch + 1) : 1;
        size = snprintf(body, sizeof body, "{\"batch\":%d,\"seq\":%9ld}", asked.batch, start);
    } else {
        size = snprintf(body, sizeof body, "{\"seq\":%9ld}", seq);
    }
    return (size_t)sprintf(out, "PUB $JS.API.DIRECT.GET.%s %s %d\r\n%s\r\n", asked.stream, reply, size, body);
}

/* Whether an ack is one as the first was: the same up to its sequence, then nothing but that. Most are, and a search in each
 * would cost as much as all else that is done with it. */
static int is_ack(const char *payload, size_t size) {
    static char begin[SUBJECT_MAX + 40];
    static size_t begin_size;
    if (begin_size && size > begin_size + 1 && payload[size - 1] == '}' && !memcmp(payload, begin, begin_size)) {
        size_t n = begin_size;
        while (n < size - 1 && payload[n] >= '0' && payload[n] <= '9') n++;
        if (n == size - 1) return 1;
    }
    const char *seq = memmem(payload, size, "\"seq\":", 6);
    if (!seq || memmem(payload, size, "\"error\"", 7)) return 0;
    size_t up_to = (size_t)(seq + 6 - payload);
    if (!begin_size && up_to <= sizeof begin) memcpy(begin, payload, begin_size = up_to);
    return 1;
}

/* Take in one reply: headers of `header_size` and the payload. 1 when its request is answered. */
static int take_reply(const char *bytes, size_t header_size, size_t size) {
    const char *payload = bytes + header_size;
    size_t payload_size = size - header_size;
    if (kind == PUBLISH) {
        if (header_size || !is_ack(payload, payload_size)) note_error(bytes, size);
        else messages++;
        return 1;
    }
    if (kind == BATCH && header_size > 12 && !memcmp(bytes + 8, " 204", 4)) return 1; /* EOB */
    if (header_size < 10 || bytes[8] != '\r' || payload_size != (size_t)asked.size) {
        note_error(bytes, size);
        return 1;
    }
    messages++;
    return kind == DIRECT;
}

static void answered(struct conn *c) {
    c->answered++;
    answered_all++;
    if (asked.window == 1) latencies[latency_count++] = (uint32_t)(now_ns() - c->sent_ns);
}

/* Take in all whole frames that have come; what is left moves to the front. */
void take_replies(struct conn *c) {
    if (c->in_size == IN_SIZE) die("a frame of more than %d bytes", IN_SIZE);
    c->in_size += (size_t)read_some(c, c->in + c->in_size, IN_SIZE - c->in_size);
    const char *at = c->in, *stop = c->in + c->in_size;
    struct frame frame;
    for (size_t size; at < stop && (size = next_frame(at, stop, &frame)); at += size) {
        if (frame.kind == 'P') pong(c);
        else if (frame.body && take_reply(frame.body, frame.header_size, frame.size)) answered(c);
    }
    c->in_size = (size_t)(stop - at);
    memmove(c->in, at, c->in_size);
}

/* Write what the window allows. */
void send_requests(struct conn *c) {
    long stop = c->answered + asked.window < c->frame_count ? c->answered + asked.window : c->frame_count;
    if (stop > requests_stop) stop = requests_stop;
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
void run_requests(long more) {
    struct epoll_event events[EVENTS];
    long wanted = answered_all + more * asked.conns;
    for (int n = 0; n < asked.conns; n++) {
        conns[n].frame_count += more;
        send_requests(&conns[n]);
    }
    while (answered_all < wanted) {
        int count = wait_for_events(events, answered_all, wanted);
        for (int n = 0; n < count; n++) {
            struct conn *c = events[n].data.ptr;
            if (events[n].events & ~(unsigned)EPOLLOUT) take_replies(c);
            send_requests(c);
        }
    }
}

/* Frames, and the first `count` of the connections. */
void prepare_requests(enum mode asked_kind, int count) {
    kind = asked_kind;
    long each = asked.warm + asked.count;
    if (!asked.frames || asked.frames > each) asked.frames = each;
    char *probe = room((size_t)asked.size + 1024), line[64];
    frame_size = make_frame(probe, 0, 0);
    free(probe);
    latencies = room(sizeof *latencies * (size_t)(asked.window == 1 ? each * count : 0));
    for (int n = 0; n < count; n++) {
        char *frames = room((size_t)asked.frames * frame_size + 1); /* sprintf ends with a zero */
        for (long k = 0; k < asked.frames; k++)
            if (make_frame(frames + (size_t)k * frame_size, n, k) != frame_size) die("a number in a frame is too long");
        conns[n].frames = frames;
        conns[n].in = room(IN_SIZE);
        snprintf(line, sizeof line, "SUB _INBOX.L%04d.* 1\r\n", n);
        open_conn(&conns[n], line);
    }
}
