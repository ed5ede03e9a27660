// rawstream: the floor of live streams. One thread; GET => hold the connection; SOURCE => its bytes are gathered, and each piece
// is one send() per held connection. No containers, no history: a new listener receives the newest piece, then all later ones.
//   rawstream PORT GATHER_MS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FDS = 20480, PIECE = 64 * 1024, EVENTS = 512 };
enum kind { FREE, NEW, LISTENER, SOURCE };

static int held[FDS], place[FDS], count;
static enum kind kinds[FDS];
static char piece[PIECE], last[PIECE];
static int filled, last_length;
static long passed_ms, gather_ms;

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void drop(int fd) {
    if (kinds[fd] == LISTENER) {
        int at = place[fd];
        held[at] = held[--count];
        place[held[at]] = at;
    }
    kinds[fd] = FREE;
    close(fd);
}

// A listener whose socket buffer is full is closed: the bench then has no figure.
static void give(int fd, const char *bytes, int length) {
    if (send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) != length) drop(fd);
}

static void pass_on(long now) {
    for (int i = count; i-- > 0;) give(held[i], piece, filled);
    memcpy(last, piece, filled);
    last_length = filled;
    filled = 0;
    passed_ms = now;
}

static void take(const char *bytes, int length) {
    while (length > 0) {
        int part = length < PIECE - filled ? length : PIECE - filled;
        memcpy(piece + filled, bytes, part);
        filled += part, bytes += part, length -= part;
        if (filled == PIECE) pass_on(now_ms());
    }
    long now = now_ms();
    if (filled && now - passed_ms >= gather_ms) pass_on(now);
}

static void request(int fd, char *bytes, int length) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n";
    bytes[length] = 0;
    char *end = strstr(bytes, "\r\n\r\n");
    if (!end) return drop(fd);  // the bench sends a head at once
    send(fd, head, sizeof head - 1, MSG_NOSIGNAL);
    if (bytes[0] == 'S') {
        kinds[fd] = SOURCE;
        take(end + 4, length - (int)(end + 4 - bytes));
        return;
    }
    kinds[fd] = LISTENER;
    place[fd] = count;
    held[count++] = fd;
    if (last_length) give(fd, last, last_length);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    gather_ms = atol(argv[2]);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 65535)) {
        perror("rawstream");
        return 1;
    }
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    static char bytes[PIECE + 1];
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                for (int client; (client = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0;) {
                    if (client >= FDS) {
                        close(client);
                        continue;
                    }
                    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    kinds[client] = NEW;
                    event.data.fd = client;
                    epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
                }
                continue;
            }
            if (kinds[fd] == FREE) continue;  // closed within this turn
            int got = recv(fd, bytes, PIECE, 0);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) drop(fd);
            else if (kinds[fd] == NEW) request(fd, bytes, got);
            else if (kinds[fd] == SOURCE) take(bytes, got);
        }
    }
}
