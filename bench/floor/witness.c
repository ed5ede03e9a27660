// witness: subscribers and a publisher of a push server, in a program that is independent of Encke.
//
//   witness PORT SUBSCRIBE-PATH PUBLISH-PATH TOKEN SUBSCRIBERS MESSAGES RATE SOURCE [LEADER]        (TOKEN "-": none)
//
// All subscribers connect as event streams from the address SOURCE, 256 at a time. Then MESSAGES of 64 bytes are published on
// one persistent connection, RATE per second. The program takes the time just before send(2) of each message and just after
// recv(2) of each receipt, by the same clock. It prints one JSON object: all times in nanoseconds, all percentiles exact,
// without bins.
//
// LEADER is the path of a stream on which `encke load push` publishes at the same RATE. Once all are connected, the program
// prints a line "ready" and waits for the first message of that stream, which contains its send time. From there on the
// messages of both programs alternate, half an interval apart, so that disturbances of the machine affect both. The subscribers
// stay until standard input ends, so that the other program does not measure their disconnects.
// Status 1: a message was lost, repeated, rejected or malformed; standard error has the reason.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 256, EVENTS = 256, DIGITS = 8, MESSAGE_BYTES = 64, GRACE_S = 10 };
// A message of `encke load push`: "#", then in hexadecimal its run, lane, number, and send time in nanoseconds of
// CLOCK_MONOTONIC.
enum { LEADER_SENT_AT = 1 + 8 + 4 + 8, LEADER_SENT_DIGITS = 16 };

// The parser state of a subscriber between two receives: progress in the empty line after the head, and in "#" and a number.
struct subscriber {
    int fd;
    uint8_t head, digits;
    uint32_t number, next;
};

static struct subscriber *subscribers;
static uint64_t *sent, *first, *last, *latencies;
static uint32_t *received;
static size_t held, receipts;
static uint32_t messages, published;
static int epoll;
static struct sockaddr_in server = { .sin_family = AF_INET }, source = { .sin_family = AF_INET };

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "witness: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void *zeroed(size_t count, size_t bytes) {
    // Populated now, so that no page fault occurs during a measurement.
    void *memory = mmap(NULL, (count ? count : 1) * bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    return memory;
}

static int dialed(int flags) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (fd < 0) fail("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    // connect(2) chooses the port, when the peer is known (ip(7)).
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&source, sizeof source)) fail("bind");
    if (connect(fd, (struct sockaddr *)&server, sizeof server) && errno != EINPROGRESS) fail("connect");
    errno = 0;
    return fd;
}

static void await(int fd, uint32_t what, uint64_t whose) {
    struct epoll_event event = { .events = what, .data.u64 = whose };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) && epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)) fail("epoll_ctl");
    errno = 0;
}

static void arm(int timer, uint64_t at) {
    struct itimerspec time = { .it_value = { (time_t)(at / 1000000000), (long)(at % 1000000000) } };
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, NULL)) fail("timerfd_settime");
}

// Counts a receipt of a message.
static void take(struct subscriber *one, uint64_t at) {
    if (one->number != one->next) fail(one->number < one->next ? "a message was repeated" : "a message was lost");
    uint32_t number = one->next++;
    if (number >= published) fail("received a message that was not published");
    if (received[number]++ == 0) first[number] = at;
    last[number] = at;
    latencies[receipts++] = at - sent[number];
}

// Parses bytes of a stream: the end of its head, and each "#" with eight digits.
static void hear(struct subscriber *one, const char *bytes, ssize_t count, uint64_t at) {
    for (ssize_t place = 0; place < count; place++) {
        char byte = bytes[place];
        if (one->head < 4) {
            one->head = byte == "\r\n\r\n"[one->head] ? one->head + 1 : byte == '\r';
            if (one->head == 4) held++;
        } else if (byte == '#') {
            one->digits = 1;
            one->number = 0;
        } else if (one->digits && byte >= '0' && byte <= '9') {
            one->number = one->number * 10 + (uint32_t)(byte - '0');
            if (one->digits++ == DIGITS) {
                one->digits = 0;
                take(one, at);
            }
        } else {
            one->digits = 0;
        }
    }
}

static void receive(struct subscriber *one) {
    static char bytes[65536];
    ssize_t count = recv(one->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    uint64_t at = now();
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        errno = 0;
        return;
    }
    if (count <= 0) fail("the server closed a stream");
    if (one->head == 0 && strncmp(bytes, "HTTP/1.1 200", (size_t)(count < 12 ? count : 12))) fail("subscription not accepted");
    hear(one, bytes, count, at);
}

// Subscribes to the leader's stream, and returns the send time of its first message.
static uint64_t leader_sent(const char *path) {
    static char text[65536];
    struct timeval patience = { .tv_sec = GRACE_S };
    int stream = dialed(0);
    if (setsockopt(stream, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience)) fail("SO_RCVTIMEO");
    int bytes = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n", path);
    if (send(stream, text, (size_t)bytes, MSG_NOSIGNAL) != bytes) fail("requesting the leader's stream");
    size_t held = 0;
    for (int ready = 0;;) {
        ssize_t got = recv(stream, text + held, sizeof text - 1 - held, 0);
        if (got <= 0) fail("timeout: the leader published no message");
        text[held += (size_t)got] = 0;
        char *head_end = strstr(text, "\r\n\r\n");
        if (head_end && !ready) {
            ready = 1;
            printf("ready\n");
            fflush(stdout);
        }
        char *mark = head_end ? strchr(head_end, '#') : NULL;
        if (mark && mark + LEADER_SENT_AT + LEADER_SENT_DIGITS <= text + held) {
            char digits[LEADER_SENT_DIGITS + 1] = { 0 };
            memcpy(digits, mark + LEADER_SENT_AT, LEADER_SENT_DIGITS);
            close(stream);
            uint64_t sent = strtoull(digits, NULL, 16), here = now();
            if (sent > here || here - sent > GRACE_S * 1000000000ull) fail("the leader's message has no valid send time");
            return sent;
        }
    }
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

// Percentiles by nearest rank, as histograms define them: the least value that is at least as large as this share of all.
static void print(const char *name, uint64_t *values, size_t count, const char *end) {
    qsort(values, count, sizeof *values, ascending);
    printf("\"%s\":{\"p50_ns\":%lu,\"p99_ns\":%lu,\"max_ns\":%lu}%s", name, (unsigned long)values[(count + 1) / 2 - 1],
           (unsigned long)values[(count * 99 + 99) / 100 - 1], (unsigned long)values[count - 1], end);
}

int main(int count, char **words) {
    if (count != 9 && count != 10) {
        fprintf(stderr, "witness PORT SUBSCRIBE-PATH PUBLISH-PATH TOKEN SUBSCRIBERS MESSAGES RATE SOURCE [LEADER]\n");
        return 2;
    }
    const char *subscribe = words[2], *publish = words[3], *token = words[4];
    size_t all = strtoul(words[5], NULL, 10), dialing = 0;
    messages = (uint32_t)strtoul(words[6], NULL, 10);
    double rate = strtod(words[7], NULL);
    if (!all || !messages || rate <= 0) fail("SUBSCRIBERS, MESSAGES and RATE must be greater than 0");
    server.sin_port = htons((uint16_t)atoi(words[1]));
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (inet_pton(AF_INET, words[8], &source.sin_addr) != 1) fail("SOURCE must be an IPv4 address");
    subscribers = zeroed(all, sizeof *subscribers);
    latencies = zeroed(all * messages, sizeof *latencies);
    sent = zeroed(messages, sizeof *sent);
    first = zeroed(messages, sizeof *first);
    last = zeroed(messages, sizeof *last);
    received = zeroed(messages, sizeof *received);
    prctl(PR_SET_TIMERSLACK, 1);
    if ((epoll = epoll_create1(0)) < 0) fail("epoll_create1");

    char ask[1024], head[1024], post[2048], answer[4096];
    snprintf(ask, sizeof ask, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n", subscribe);
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s%sContent-Length: %d\r\n\r\n", publish,
             *token == '-' ? "" : "Authorization: Bearer ", *token == '-' ? "" : token, *token == '-' ? "" : "\r\n",
             MESSAGE_BYTES);

    // ---- connect: from the first connect(2) until the last head is complete ----
    struct epoll_event events[EVENTS];
    uint64_t began = now();
    while (held < all) {
        for (; dialing < all && dialing - held < WINDOW; dialing++) {
            subscribers[dialing].fd = dialed(SOCK_NONBLOCK);
            await(subscribers[dialing].fd, EPOLLOUT, dialing);
        }
        int ready = epoll_wait(epoll, events, EVENTS, GRACE_S * 1000);
        if (ready == 0) fail("timeout: not all subscriptions were accepted");
        for (int place = 0; place < ready; place++) {
            struct subscriber *one = &subscribers[events[place].data.u64];
            if (events[place].events & EPOLLOUT) {
                if (send(one->fd, ask, strlen(ask), MSG_NOSIGNAL) != (ssize_t)strlen(ask)) fail("connecting");
                await(one->fd, EPOLLIN | EPOLLET, events[place].data.u64);
            } else {
                receive(one);
            }
        }
    }
    uint64_t connected = now() - began;

    // ---- messages, on a schedule, until all subscribers have them ----
    // An interval and a half after the leader's first message there is time left to get ready.
    uint64_t begin = count == 10 ? leader_sent(words[9]) + (uint64_t)(1.5e9 / rate) : now() + 100000000, answers = 0;
    int publisher = dialed(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    await(publisher, EPOLLIN, all);
    await(timer, EPOLLIN, all + 1);
    arm(timer, begin);
    while (receipts < all * messages || answers < messages) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int place = 0; place < ready; place++) {
            uint64_t who = events[place].data.u64;
            if (who < all) {
                receive(&subscribers[who]);
            } else if (who == all) {
                ssize_t got = recv(publisher, answer, sizeof answer - 1, 0);
                answer[got > 0 ? got : 0] = 0;
                uint64_t before = answers;
                for (char *at = answer; (at = strstr(at, "HTTP/1.1 ")); at += 10, answers++)
                    if (at[9] != '2') fail("a publish was rejected");
                if (answers == before) fail("a publish received no response");
            } else if (published == messages) {
                fail("timeout: not all messages were received");
            } else {
                int bytes = snprintf(post, sizeof post, "%s#%08u", head, published);
                memset(post + bytes, '.', MESSAGE_BYTES - 1 - DIGITS);
                bytes += MESSAGE_BYTES - 1 - DIGITS;
                sent[published++] = now();
                if (send(publisher, post, (size_t)bytes, MSG_NOSIGNAL) != bytes) fail("publishing");
                uint64_t grace = published == messages ? GRACE_S * 1000000000ull : 0;
                arm(timer, begin + (uint64_t)(published * 1e9 / rate) + grace);
            }
        }
    }

    uint64_t *spread = zeroed(messages, sizeof *spread);
    for (uint32_t number = 0; number < messages; number++) {
        spread[number] = last[number] - first[number];
        first[number] -= sent[number];
        last[number] -= sent[number];
    }
    printf("{\"connect_ns\":%lu,\"received\":%lu,", (unsigned long)connected, (unsigned long)receipts);
    print("first", first, messages, ",");
    print("first_to_last", spread, messages, ",");
    print("last", last, messages, ",");
    print("receipt", latencies, receipts, "}\n");
    fflush(stdout);
    while (count == 10 && read(STDIN_FILENO, answer, sizeof answer) > 0) {}
    return 0;
}
