// listeners: the clients of a live stream. One thread, one epoll; commands are lines on standard input, each is answered by one
// line of JSON.
//   listeners PORT PATH FILE
//   connect N PACE_US WAIT_MS  N more connections, PACE_US apart (0: all at once); answered when each has its first byte of the
//                              stream, or after WAIT_MS
//   window                     what was received since the last window
//   drop                       resets all connections
// The first connection writes all received bytes into FILE, to be compared with the source's. The others discard their bytes in the
// kernel (MSG_TRUNC of tcp(7)).
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
enum { DRAIN_MS = 50, MOST = 20000, EVENTS = 1024, BYTES = 1 << 18, PER_ADDRESS = 8000, COMMAND = MOST };
enum phase { NONE, CONNECTING, HEAD, STREAM, CLOSED };

struct client {
    int fd, matched;  // matched: bytes of the empty line that ends the head
    enum phase phase;
    long head_ns, first_ns, last_ns, in_window;
};

static struct client clients[MOST];
static int count, poller, port, file, had_first, failed;
static long reads, longest_gap_ns, window_began_ns;
static char request[512], status[64];

static long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void fail(struct client *client, const char *what, int error) {
    if (!failed++) fprintf(stderr, "connection %ld: %s: %s\n", (long)(client - clients) + 1, what, error ? strerror(error) : status);
    if (client->fd >= 0) close(client->fd);
    client->fd = -1;
    client->phase = CLOSED;
}

static void begin(void) {
    struct client *client = &clients[count];
    int one = 1;
    *client = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .phase = CONNECTING};
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET, .sin_port = htons(port)};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + count / PER_ADDRESS);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    count++;
    setsockopt(client->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    if (client->fd < 0 || bind(client->fd, (void *)&from, sizeof from)) return fail(client, "bind", errno);
    if (connect(client->fd, (void *)&to, sizeof to) && errno != EINPROGRESS) return fail(client, "connect", errno);
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = client - clients};
    epoll_ctl(poller, EPOLL_CTL_ADD, client->fd, &event);
}

static void connected(struct client *client) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error) return fail(client, "connect", error);
    ssize_t length_of_request = strlen(request);
    if (send(client->fd, request, length_of_request, MSG_NOSIGNAL) != length_of_request) return fail(client, "send", errno);
    client->phase = HEAD;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = client - clients};
    epoll_ctl(poller, EPOLL_CTL_MOD, client->fd, &event);
}

static void received(struct client *client, long now) {
    static char bytes[BYTES];
    int keeps = client == clients || client->phase == HEAD;
    ssize_t got = recv(client->fd, bytes, BYTES, keeps ? 0 : MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return fail(client, "receive", got ? errno : ECONNRESET);
    if (client == clients && write(file, bytes, got) != got) return fail(client, "write", errno);
    ssize_t at = 0;
    if (client->phase == HEAD) {
        if (!client->head_ns) {
            client->head_ns = now;
            memcpy(status, bytes, got < 60 ? got : 60);
            status[strcspn(status, "\r\n")] = 0;
            if (got < 12 || memcmp(bytes + 8, " 200", 4)) return fail(client, "response", 0);
        }
        while (at < got && client->matched < 4) {
            client->matched = bytes[at] == "\r\n\r\n"[client->matched] ? client->matched + 1 : bytes[at] == '\r';
            at++;
        }
        if (client->matched < 4 || at == got) return;
        client->phase = STREAM;
    }
    if (!client->first_ns) {
        client->first_ns = now;
        had_first++;
    }
    long since = client->last_ns > window_began_ns ? client->last_ns : window_began_ns;
    if (client->last_ns && now - since > longest_gap_ns) longest_gap_ns = now - since;
    client->last_ns = now;
    client->in_window += got - at;
    reads++;
}

// Returns whether a command waits. `busy`: whether there was something else.
static int busy;
static int turn(int timeout_ms) {
    busy = 0;
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(poller, events, EVENTS, timeout_ms), command = 0;
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u32 == COMMAND) {
            command = 1;
            continue;
        }
        busy = 1;
        struct client *client = &clients[events[i].data.u32];
        if (client->phase == CONNECTING) connected(client);
        else if (client->phase == HEAD || client->phase == STREAM) received(client, now_ns());
    }
    return command;
}

static int by_value(const void *one, const void *other) {
    long a = *(const long *)one, b = *(const long *)other;
    return a < b ? -1 : a > b;
}

static void connect_more(int more, long pace_us, long wait_ms) {
    static long firsts[MOST];
    int from = count, wanted = count + more < MOST ? count + more : MOST;
    long began = now_ns(), until = began + wait_ms * 1000000, next = began;
    while (count < wanted) {
        if (pace_us == 0) {
            begin();
            continue;
        }
        long left = next - now_ns();
        if (left <= 0) {
            begin();
            next += pace_us * 1000;
        }
        turn(left > 1000000 ? left / 1000000 : 0);
    }
    long settled = pace_us ? now_ns() + wait_ms * 1000000 : until;
    while (had_first < wanted - failed && now_ns() < settled) turn(20);
    long ended = now_ns();
    int heard = 0;
    for (int i = from; i < count; i++) {
        if (clients[i].first_ns) firsts[heard++] = clients[i].first_ns - began;
    }
    qsort(firsts, heard, sizeof *firsts, by_value);
    printf("{\"heard\":%d,\"p50_ns\":%ld,\"first_ns\":%ld,\"took_ns\":%ld}\n", heard, heard ? firsts[heard / 2] : 0,
           heard ? firsts[heard - 1] : 0, ended - began);
}

static void window(void) {
    struct rusage used;
    // What has arrived belongs to this window.
    for (long until = now_ns() + DRAIN_MS * 1000000L; turn(0), busy && now_ns() < until;) {}
    getrusage(RUSAGE_SELF, &used);
    long now = now_ns(), bytes = 0, least = -1, most = 0;
    int open = 0;
    for (int i = 0; i < count; i++) {
        struct client *client = &clients[i];
        if (client->phase == STREAM) {
            open++;
            long since = client->last_ns > window_began_ns ? client->last_ns : window_began_ns;
            if (now - since > longest_gap_ns) longest_gap_ns = now - since;
            if (least < 0 || client->in_window < least) least = client->in_window;
            if (client->in_window > most) most = client->in_window;
        }
        bytes += client->in_window;
        client->in_window = 0;
    }
    long cpu_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    printf("{\"open\":%d,\"bytes\":%ld,\"reads\":%ld,\"least\":%ld,\"most\":%ld,\"gap_ns\":%ld,\"window_ns\":%ld,\"own_cpu_us\":%ld}\n", open,
           bytes, reads, least, most, longest_gap_ns, now - window_began_ns, cpu_us);
    reads = longest_gap_ns = 0;
    window_began_ns = now;
}

static void drop(void) {
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < count; i++) {
        if (clients[i].fd < 0) continue;
        setsockopt(clients[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(clients[i].fd);
    }
    count = had_first = failed = 0;
    if (ftruncate(file, 0) || lseek(file, 0, SEEK_SET)) perror("file");
    puts("{}");
}

int main(int argc, char **argv) {
    char line[4096];
    if (argc != 4) return 2;
    port = atoi(argv[1]);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", argv[2], port);
    file = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) {
        perror(argv[3]);
        return 1;
    }
    setlinebuf(stdout);
    poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = COMMAND};
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    window_began_ns = now_ns();
    for (;;) {
        if (!turn(-1)) continue;
        // One command at a time: its line arrives whole.
        ssize_t got = read(STDIN_FILENO, line, sizeof line - 1);
        if (got <= 0) return 0;
        line[got] = 0;
        int more;
        long pace_us, wait_ms;
        if (sscanf(line, "connect %d %ld %ld", &more, &pace_us, &wait_ms) == 3) connect_more(more, pace_us, wait_ms);
        else if (!strncmp(line, "window", 6)) window();
        else if (!strncmp(line, "drop", 4)) drop();
        else return 2;
    }
}
