/* The events for bytes that are read two at a time: of epoll(7), level-triggered, edge-triggered, and edge-triggered with a
 * reader that drains; and of poll, which is level-triggered, on every system. */
#include <stddef.h>

#include "system.h"

#ifdef __linux__
#include <sys/epoll.h>
#endif

enum { PER_READ = 2 };

/* How to wait, and how to read. */
enum how { LEVEL, EDGE, EDGE_DRAINED, POLL };

/* Whether an event is reported, without waiting. Returns -1 on a system error. */
static int ready_now(int epoll, lab_socket reader, enum how how)
{
    if (how == POLL) {
        struct pollfd wanted = {.fd = reader, .events = POLLIN};
        return poll(&wanted, 1, 0);
    }
#ifdef __linux__
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 0);
#else
    (void)epoll;
    return -1;
#endif
}

/* One turn, which takes pending events without waiting. Appends to the trace the bytes read, a word per read, or `-` if
 * nothing was reported, then `|`. Returns -1 on a system error. */
static int turn(int epoll, lab_socket reader, enum how how, char *trace, size_t *at)
{
    int ready = ready_now(epoll, reader, how);
    if (ready < 0) return -1;
    if (ready == 0) trace[(*at)++] = '-';
    while (ready > 0) {
        long long bytes = lab_recv(reader, trace + *at, PER_READ);
        if (bytes < 0 && !lab_would_block()) return -1;
        if (bytes <= 0) break;
        *at += (size_t)bytes;
        trace[(*at)++] = ' ';
        if (how != EDGE_DRAINED) break;
    }
    trace[(*at)++] = '|';
    return 0;
}

/* Returns a new epoll that watches the reader, or -1. */
static int watch(lab_socket reader, enum how how)
{
#ifdef __linux__
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN | (how == LEVEL ? 0u : EPOLLET)};
    if (epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, reader, &wanted) == 0) return epoll;
    if (epoll >= 0) close(epoll);
#else
    (void)reader;
    (void)how;
#endif
    return -1;
}

/* Takes two connected sockets, of which the reader is non-blocking. `aabbcc` arrives, then four turns; `dd` arrives, then four
 * more. The trace needs 64 bytes. Returns its length, or -1. */
int lab_trigger(int how, lab_socket writer, lab_socket reader, char *trace)
{
    int result = -1;
    size_t at = 0;
    int epoll = how == POLL ? -1 : watch(reader, (enum how)how);
    if (how != POLL && epoll < 0) return -1;
    if (lab_send(writer, "aabbcc", 6) != 6) goto end;
    for (int i = 0; i < 4; i++)
        if (turn(epoll, reader, (enum how)how, trace, &at) < 0) goto end;
    if (lab_send(writer, "dd", 2) != 2) goto end;
    for (int i = 0; i < 4; i++)
        if (turn(epoll, reader, (enum how)how, trace, &at) < 0) goto end;
    result = (int)at;
end:
#ifdef __linux__
    if (epoll >= 0) close(epoll);
#endif
    return result;
}
