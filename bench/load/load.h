/* What the generator's files share: what was asked for, a connection, and what was counted. */
#ifndef LOAD_H
#define LOAD_H
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/types.h>

enum { IN_SIZE = 1 << 20, WRITE_MAX = 256 << 10, EVENTS = 256, STALL_MS = 20000, KEY_DIGITS = 6, SUBJECT_MAX = 200 };
enum mode { PUBLISH, DIRECT, BATCH, CORE, IDLE, FETCH, WORK, PUSH, ECHO, MODE_COUNT };

struct asked {
    enum mode mode;
    const char *host, *subject, *stream, *consumer, *config;
    int port, conns, window, size, subs, batch, is_last, has_ids, refill, in_turn;
    int consumers, requests, acks, backlog, is_queue;
    long count, warm, keys, last_seq, frames;
};

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
    char *out;                  /* consumers: acks and requests that the socket did not take yet */
    size_t out_size, out_at, out_room;
};

/* A frame that came: a message, or with `kind` P, I, + what needs no more than an answer. Its parts lie in `in`. */
struct frame {
    char kind;
    long sid;
    const char *reply, *body; /* reply: NULL where there is none; the body begins with the headers */
    size_t reply_size, header_size, size;
};

extern struct asked asked;
extern const char *const MODES[];
extern struct conn *conns;
extern int poller;
extern size_t frame_size; /* of a request: all of a run have one size */
extern long messages, errors, answered_all;
extern char first_error[256];
extern uint32_t *latencies; /* in ns, one per request */
extern long latency_count;

/* wire.c */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t now_ns(void);
uint64_t chance(void);
void *room(size_t size);
void connect_conn(struct conn *c, const char *subscriptions);
const char *ask(struct conn *c, const char *subject);
void open_conn(struct conn *c, const char *subscriptions);
void wait_to_write(struct conn *c, int is_blocked);
size_t write_some(struct conn *c, const char *bytes, size_t size);
ssize_t read_some(struct conn *c, char *to, size_t size);
void pong(struct conn *c);
int wait_for_events(struct epoll_event *events, long done, long wanted);
void note_error(const char *bytes, size_t size);
size_t next_frame(const char *at, const char *stop, struct frame *frame);

/* requests.c */
extern long requests_stop; /* no connection goes beyond so many requests for now */
void prepare_requests(enum mode kind, int count);
void send_requests(struct conn *c);
void take_replies(struct conn *c);
void run_requests(long more);

/* core.c */
void prepare_core(void);
void run_core(long total);
void hold_idle(void);

/* echo.c */
void prepare_echo(void);
void run_echo(long count);

/* consume.c */
void prepare_fetch(void);
void run_fetch(long more);
void prepare_push(void);
void run_push(void);
#endif
