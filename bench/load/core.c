/* Core: conns[0] publishes, the others listen. And connections that only exist. */
#include "load.h"

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

void run_core(long total) {
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

void prepare_core(void) {
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

void hold_idle(void) {
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
