/* load: a load generator for any NATS server, and nothing else. One thread, epoll, the bare protocol.
 *
 *   load publish  JetStream publishes: --conns connections with --window unanswered each; every ack is looked at
 *   load direct   direct gets by chance sequence, or of a subject's last message (--last)
 *   load batch    direct gets of --batch messages each, until the server says EOB
 *   load core     one publisher, --subs subscribers that each get everything
 *   load idle     --conns connections with --subs subscriptions each, held until standard input ends
 *   load fetch    --count messages through --consumers pull consumers (C000, C001, …) on --conns connections
 *   load work     the same while one publisher keeps --backlog messages ahead of them
 *   load push     the push consumer --config is made and read until nothing is pending
 *   load echo     one connection asks, another answers, one request at a time
 *
 * It keeps its own cost out. What is sent is laid out in memory before the clock starts, and all frames of a run have one
 * size: so a window is a byte offset to write up to, and what a subscriber got is counted by bytes, each frame's beginning
 * checked. With --frames so many are laid out and sent again and again: large ones stay in the processor's cache, as those
 * of a producer would that has just made them. The answer is one line of JSON on standard output; a run that goes wrong
 * says why on standard error and exits 1.
 */
#include "load.h"
#include <sys/resource.h>

const char *const MODES[] = {"publish", "direct", "batch", "core", "idle", "fetch", "work", "push", "echo"};
struct asked asked = {.host = "127.0.0.1", .subject = "bench.x", .stream = "S", .consumer = "C", .config = "{}", .port = 4222, .conns = 1,
                      .window = 1, .size = 128, .subs = 1, .batch = 1000, .refill = 1, .consumers = 1, .requests = 2, .backlog = 10000,
                      .count = 1000, .last_seq = 1};
struct conn *conns;
int poller;
size_t frame_size;
long messages, errors, answered_all;
char first_error[256];
uint32_t *latencies;
long latency_count;

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
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
    while (mode < MODE_COUNT && (argc < 2 || strcmp(argv[1], MODES[mode]))) mode++;
    if (mode == MODE_COUNT) die("say what: load publish|direct|batch|core|idle|fetch|work|push|echo [--name value]…");
    asked.mode = (enum mode)mode;
    const struct { const char *name; int *small; long *large; const char **text; } names[] = {
        {"--host", 0, 0, &asked.host},     {"--port", &asked.port, 0, 0},     {"--subject", 0, 0, &asked.subject},
        {"--stream", 0, 0, &asked.stream}, {"--conns", &asked.conns, 0, 0},   {"--window", &asked.window, 0, 0},
        {"--size", &asked.size, 0, 0},     {"--subs", &asked.subs, 0, 0},     {"--batch", &asked.batch, 0, 0},
        {"--last", &asked.is_last, 0, 0},  {"--ids", &asked.has_ids, 0, 0},   {"--refill", &asked.refill, 0, 0},
        {"--count", 0, &asked.count, 0},   {"--warm", 0, &asked.warm, 0},     {"--keys", 0, &asked.keys, 0},
        {"--last-seq", 0, &asked.last_seq, 0},
        {"--frames", 0, &asked.frames, 0}, {"--in-turn", &asked.in_turn, 0, 0},
        {"--consumer", 0, 0, &asked.consumer}, {"--config", 0, 0, &asked.config}, {"--consumers", &asked.consumers, 0, 0},
        {"--requests", &asked.requests, 0, 0}, {"--acks", &asked.acks, 0, 0}, {"--backlog", &asked.backlog, 0, 0},
        {"--queue", &asked.is_queue, 0, 0},
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
    if (asked.consumers < 1 || asked.consumers > 999 || asked.requests < 1 || asked.batch < 1) die("--consumers, --requests, --batch: 1 or more");
    if (asked.warm && asked.mode == PUSH) die("--warm: not with push");
    if (strlen(asked.consumer) > SUBJECT_MAX) die("--consumer is too long");
    if (asked.keys > 999999) die("--keys: at most 999,999");
    if (asked.frames && asked.frames < asked.window) die("--frames: at least as many as --window");
}

static void prepare(void) {
    int total = asked.mode == CORE ? asked.subs + 1 : asked.mode == ECHO ? 2 : asked.conns + (asked.mode == WORK);
    conns = calloc((size_t)total, sizeof *conns);
    if (!conns) die("no memory for %d connections", total);
    if (asked.mode == CORE) prepare_core();
    else if (asked.mode == FETCH || asked.mode == WORK) prepare_fetch();
    else if (asked.mode == PUSH) prepare_push();
    else if (asked.mode == ECHO) prepare_echo();
    else if (asked.mode != IDLE) prepare_requests(asked.mode, asked.conns);
}

static void run(long count) {
    if (asked.mode == CORE) run_core(count);
    else if (asked.mode == FETCH || asked.mode == WORK) run_fetch(count);
    else if (asked.mode == PUSH) run_push();
    else if (asked.mode == ECHO) run_echo(count);
    else run_requests(count);
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) die("epoll: %s", strerror(errno));
    prepare();
    if (asked.mode == IDLE) {
        hold_idle();
        return 0;
    }
    if (asked.warm) run(asked.warm);
    messages = latency_count = 0;
    double cpu = cpu_seconds();
    uint64_t start = now_ns();
    run(asked.count);
    double seconds = (double)(now_ns() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    printf("{\"mode\":\"%s\",\"messages\":%ld,\"errors\":%ld,\"seconds\":%.6f,\"rate\":%.1f,\"cpu_seconds\":%.6f", MODES[asked.mode],
           messages, errors, seconds, (double)messages / seconds, cpu);
    if (latency_count) {
        qsort(latencies, (size_t)latency_count, sizeof *latencies, by_size);
        printf(",\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f", latency_us(.5), latency_us(.9),
               latency_us(.99), latency_us(.999), latency_us(1));
    }
    puts("}");
    if (errors) die("%ld answers were not what was asked for; the first: %s", errors, first_error);
    return 0;
}
