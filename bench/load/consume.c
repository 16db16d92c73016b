/* Consumers: pull requests kept under way and acks (fetch), the same while a publisher fills the stream (work), and one
 * push consumer that is made and read to its end (push).
 *
 * A consumer has --requests pull requests of --batch messages under way, all to one inbox, as clients' iterators do. With
 * --acks 1 each message is acknowledged, and the run ends when the server's own count says so: the ack floor is at the
 * last delivery (and, with a publisher, the stream is empty).
 */
#include "load.h"
#include <unistd.h>

enum { READ_SIZE = 256 << 10, POLL_US = 500, PUSH_SID = 1 };

struct consumer {
    struct conn *conn;
    long requested, got, target; /* messages of all phases */
};

static struct consumer *consumers;
static struct conn *fetchers; /* asked.conns of them */
static struct conn control;
static long got_all;
static int is_working;

/* Bytes for the server. */

static char *more_room(struct conn *c, size_t size) {
    if (c->out_size + size > c->out_room) {
        c->out_room = (c->out_size + size) * 2;
        c->out = realloc(c->out, c->out_room);
        if (!c->out) die("no memory for %zu bytes", c->out_room);
    }
    return c->out + c->out_size;
}

static void flush(struct conn *c) {
    if (c->out_at < c->out_size) c->out_at += write_some(c, c->out + c->out_at, c->out_size - c->out_at);
    if (c->out_at == c->out_size) c->out_at = c->out_size = 0;
}

static void queue_publish(struct conn *c, const char *subject, size_t subject_size, const char *body, size_t size) {
    char *at = more_room(c, subject_size + size + 40), *start = at;
    at = mempcpy(at, "PUB ", 4);
    at = mempcpy(at, subject, subject_size);
    at += sprintf(at, " %zu\r\n", size);
    at = mempcpy(at, body, size);
    at = mempcpy(at, "\r\n", 2);
    c->out_size += (size_t)(at - start);
}

static void queue_pong(struct conn *c) {
    memcpy(more_room(c, 6), "PONG\r\n", 6);
    c->out_size += 6;
}

/* Requests as many as may be under way. */
static void ask_for_more(long number) {
    struct consumer *one = &consumers[number];
    while (one->requested < one->target && one->requested - one->got <= (long)(asked.requests - 1) * asked.batch) {
        long left = one->target - one->requested, batch = left < asked.batch ? left : asked.batch;
        char body[80];
        int size = snprintf(body, sizeof body, "{\"batch\":%ld,\"expires\":60000000000}", batch);
        char *at = more_room(one->conn, 2 * SUBJECT_MAX + 200);
        one->conn->out_size += (size_t)sprintf(at, "PUB $JS.API.CONSUMER.MSG.NEXT.%s.%s%03ld _INBOX.F%03ld %d\r\n%s\r\n", asked.stream,
                                               asked.consumer, number, number, size, body);
        one->requested += batch;
    }
}

/* What comes. */

struct delivery {
    long deliveries, consumer_seq, pending;
};

static long number_before(const char **stop) { /* and the dot before it */
    long value = 0, place = 1;
    for (; (*stop)[-1] >= '0' && (*stop)[-1] <= '9'; place *= 10) value += (*--*stop - '0') * place;
    --*stop;
    return value;
}

/* What an ack subject says: $JS.ACK. … .deliveries.stream_seq.consumer_seq.time.pending */
static struct delivery read_ack_subject(const struct frame *frame) {
    if (frame->reply_size < 20 || memcmp(frame->reply, "$JS.ACK.", 8)) die("no ack subject: %.*s", (int)frame->reply_size, frame->reply);
    const char *stop = frame->reply + frame->reply_size;
    struct delivery found = {.pending = number_before(&stop)};
    number_before(&stop);
    found.consumer_seq = number_before(&stop);
    number_before(&stop);
    found.deliveries = number_before(&stop);
    return found;
}

static void take_delivery(struct conn *c, const struct frame *frame) {
    if (frame->sid < 1 || frame->sid > asked.consumers) die("a message for subscription %ld", frame->sid);
    if (!frame->reply) { /* a status: nothing that a run expects */
        note_error(frame->body, frame->header_size);
        die("the server answered a pull request with %s", first_error);
    }
    struct consumer *one = &consumers[frame->sid - 1];
    one->got++;
    got_all++;
    struct delivery delivery = read_ack_subject(frame);
    if (delivery.deliveries != 1 || delivery.consumer_seq != one->got) note_error(frame->reply, frame->reply_size);
    if (asked.acks) queue_publish(c, frame->reply, frame->reply_size, "+ACK", 4);
    ask_for_more(frame->sid - 1);
}

/* Read once, and hand every whole frame to `take`. */
static void take_frames(struct conn *c, void (*take)(struct conn *, const struct frame *)) {
    size_t most = IN_SIZE - c->in_size < READ_SIZE ? IN_SIZE - c->in_size : READ_SIZE;
    if (!most) die("a frame of more than %d bytes", IN_SIZE);
    c->in_size += (size_t)read_some(c, c->in + c->in_size, most);
    const char *at = c->in, *stop = c->in + c->in_size;
    struct frame frame;
    for (size_t size; at < stop && (size = next_frame(at, stop, &frame)); at += size) {
        if (frame.kind == 'P') queue_pong(c);
        else if (frame.body) take(c, &frame);
    }
    c->in_size = (size_t)(stop - at);
    memmove(c->in, at, c->in_size);
}

/* Until the server's own count says that all is acknowledged. */

static void wait_until_settled(void) {
    char subject[2 * SUBJECT_MAX + 40], sign[80];
    for (long n = 0; asked.acks && n < asked.consumers; n++) {
        snprintf(subject, sizeof subject, "$JS.API.CONSUMER.INFO.%s.%s%03ld", asked.stream, asked.consumer, n);
        snprintf(sign, sizeof sign, "\"ack_floor\":{\"consumer_seq\":%ld,", consumers[n].target);
        for (uint64_t stop = now_ns() + STALL_MS * 1000000ull; !strstr(ask(&control, subject), sign); usleep(POLL_US))
            if (now_ns() > stop) die("%s: not %s after %d s: %s", subject, sign, STALL_MS / 1000, ask(&control, subject));
    }
    if (!is_working || !asked.is_queue) return;
    snprintf(subject, sizeof subject, "$JS.API.STREAM.INFO.%s", asked.stream);
    for (uint64_t stop = now_ns() + STALL_MS * 1000000ull; !strstr(ask(&control, subject), "\"state\":{\"messages\":0,"); usleep(POLL_US))
        if (now_ns() > stop) die("%s is not empty after %d s: %s", asked.stream, STALL_MS / 1000, ask(&control, subject));
}

static int has_unsent(void) {
    for (int n = 0; n < asked.conns; n++)
        if (fetchers[n].out_size) return 1;
    return 0;
}

/* `more` messages through the consumers, as many through each; with a publisher that keeps --backlog ahead of them. */
void run_fetch(long more) {
    struct epoll_event events[EVENTS];
    struct conn *publisher = is_working ? &conns[0] : NULL;
    long wanted = got_all + more, publishes_wanted = publisher ? publisher->frame_count + more : 0;
    if (more % asked.consumers) die("--count and --warm: multiples of --consumers");
    for (long n = 0; n < asked.consumers; n++) {
        consumers[n].target += more / asked.consumers;
        ask_for_more(n);
    }
    for (int n = 0; n < asked.conns; n++) flush(&fetchers[n]);
    if (publisher) {
        publisher->frame_count = publishes_wanted;
        requests_stop = got_all + asked.backlog;
        send_requests(publisher);
    }
    while (got_all < wanted || has_unsent() || (publisher && publisher->answered < publishes_wanted)) {
        int count = wait_for_events(events, got_all, wanted);
        for (int n = 0; n < count; n++) {
            struct conn *c = events[n].data.ptr;
            int has_bytes = (events[n].events & ~(unsigned)EPOLLOUT) != 0;
            if (c == publisher) {
                if (has_bytes) take_replies(c);
            } else {
                if (has_bytes) take_frames(c, take_delivery);
                flush(c);
            }
        }
        if (publisher) {
            requests_stop = got_all + asked.backlog;
            send_requests(publisher);
        }
    }
    wait_until_settled();
    messages = more;
}

void prepare_fetch(void) {
    is_working = asked.mode == WORK;
    if (is_working) prepare_requests(PUBLISH, 1);
    fetchers = conns + is_working;
    consumers = calloc((size_t)asked.consumers, sizeof *consumers);
    char *lines = room((size_t)asked.consumers * 40 + 1);
    for (int n = 0; n < asked.conns; n++) {
        char *at = lines;
        *at = 0;
        for (long k = n; k < asked.consumers; k += asked.conns) {
            at += sprintf(at, "SUB _INBOX.F%03ld %ld\r\n", k, k + 1);
            consumers[k].conn = &fetchers[n];
        }
        fetchers[n].in = room(IN_SIZE);
        open_conn(&fetchers[n], lines);
    }
    free(lines);
    connect_conn(&control, "SUB _INBOX.R 1\r\n");
}

/* Push. */

static int is_at_end;

static void take_push(struct conn *c, const struct frame *frame) {
    if (frame->sid != PUSH_SID) { /* the answer to the create */
        if (memmem(frame->body, frame->size, "\"error\"", 7)) die("the consumer was not made: %.*s", (int)frame->size, frame->body);
        return;
    }
    static const char stalled[] = "Nats-Consumer-Stalled: ";
    if (frame->header_size > 12 && !memcmp(frame->body, "NATS/1.0 100", 12)) { /* flow control, or a heartbeat that names it */
        const char *found = memmem(frame->body, frame->header_size, stalled, sizeof stalled - 1);
        if (frame->reply) queue_publish(c, frame->reply, frame->reply_size, "", 0);
        else if (found) {
            found += sizeof stalled - 1;
            queue_publish(c, found, strcspn(found, "\r"), "", 0);
        }
        return;
    }
    if (!frame->reply) die("the server said %.*s", (int)frame->header_size, frame->body);
    struct delivery delivery = read_ack_subject(frame);
    if (delivery.consumer_seq != ++messages) note_error(frame->reply, frame->reply_size);
    is_at_end = delivery.pending == 0;
}

/* Make the consumer --config and take its messages until none is pending. */
void run_push(void) {
    struct epoll_event events[EVENTS];
    struct conn *c = &conns[0];
    c->in = room(IN_SIZE);
    char subject[2 * SUBJECT_MAX + 40];
    int size = snprintf(subject, sizeof subject, "$JS.API.CONSUMER.CREATE.%s.%s _INBOX.R", asked.stream, asked.consumer);
    queue_publish(c, subject, (size_t)size, asked.config, strlen(asked.config));
    flush(c);
    while (!is_at_end) {
        int count = wait_for_events(events, messages, asked.count);
        for (int n = 0; n < count; n++) {
            if (events[n].events & ~(unsigned)EPOLLOUT) take_frames(c, take_push);
            flush(c);
        }
    }
}

void prepare_push(void) {
    open_conn(&conns[0], "SUB _INBOX.P 1\r\nSUB _INBOX.R 2\r\n");
}
