/* Echo: conns[0] asks, conns[1] answers with what it got, one request at a time. */
#include "load.h"

static void answer(struct conn *c, const struct frame *frame) {
    static char out[WRITE_MAX];
    if (!frame->reply || frame->size > WRITE_MAX - 300) die("a request without a reply, or too large a one");
    size_t size = (size_t)sprintf(out, "PUB %.*s %zu\r\n", (int)frame->reply_size, frame->reply, frame->size);
    memcpy(out + size, frame->body, frame->size);
    memcpy(out + size + frame->size, "\r\n", 2);
    if (write_some(c, out, size + frame->size + 2) != size + frame->size + 2) die("the socket took a part of an answer");
}

/* Take in what has come for `c`: the answers among it. */
static long take_frames(struct conn *c) {
    long answers = 0;
    c->in_size += (size_t)read_some(c, c->in + c->in_size, IN_SIZE - c->in_size);
    const char *at = c->in, *stop = c->in + c->in_size;
    struct frame frame;
    for (size_t size; at < stop && (size = next_frame(at, stop, &frame)); at += size) {
        if (frame.kind == 'P') pong(c);
        else if (frame.body && c == &conns[1]) answer(c, &frame);
        else if (frame.body && (frame.header_size || frame.size != (size_t)asked.size)) note_error(frame.body, frame.size);
        else if (frame.body) answers++;
    }
    c->in_size = (size_t)(stop - at);
    memmove(c->in, at, c->in_size);
    return answers;
}

void run_echo(long count) {
    struct epoll_event events[EVENTS];
    static char out[WRITE_MAX];
    for (long n = 0; n < count; n++) {
        int head = sprintf(out, "PUB %s _INBOX.R.%ld %d\r\n", asked.subject, n, asked.size);
        memset(out + head, 'x', (size_t)asked.size);
        memcpy(out + head + asked.size, "\r\n", 2);
        uint64_t start = now_ns();
        if (write_some(&conns[0], out, (size_t)head + (size_t)asked.size + 2) != (size_t)head + (size_t)asked.size + 2)
            die("the socket took a part of a request");
        for (long answers = 0; !answers && !errors;) {
            int got = wait_for_events(events, n, count);
            for (int k = 0; k < got; k++) answers += take_frames(events[k].data.ptr);
        }
        latencies[latency_count++] = (uint32_t)(now_ns() - start);
        messages++;
    }
}

void prepare_echo(void) {
    char line[SUBJECT_MAX + 20];
    if (asked.size > WRITE_MAX - 300) die("--size: at most %d", WRITE_MAX - 300);
    latencies = room(sizeof *latencies * (size_t)(asked.count + asked.warm));
    for (int n = 0; n < 2; n++) conns[n].in = room(IN_SIZE);
    open_conn(&conns[0], "SUB _INBOX.R.* 1\r\n");
    snprintf(line, sizeof line, "SUB %s 1\r\n", asked.subject);
    open_conn(&conns[1], line);
}
