/* The events of epoll(7) for bytes that are read two at a time: level-triggered, edge-triggered, and edge-triggered with
 * a reader that drains. */
#include <stddef.h>

enum { PER_READ = 2 };

/* How to wait, and how to read. */
enum how { LEVEL, EDGE, EDGE_DRAINED };

#ifdef __linux__

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* One turn, which takes pending events without waiting. Appends to the trace the bytes read, a word per read, or `-` if
 * nothing was reported, then `|`. Returns -1 on a system error. */
static int turn(int epoll, int reader, enum how how, char *trace, size_t *at)
{
    struct epoll_event event;
    int ready = epoll_wait(epoll, &event, 1, 0);
    if (ready < 0) return -1;
    if (ready == 0) trace[(*at)++] = '-';
    while (ready > 0) {
        ssize_t bytes = recv(reader, trace + *at, PER_READ, MSG_DONTWAIT);
        if (bytes < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return -1;
        if (bytes <= 0) break;
        *at += (size_t)bytes;
        trace[(*at)++] = ' ';
        if (how != EDGE_DRAINED) break;
    }
    trace[(*at)++] = '|';
    return 0;
}

/* `aabbcc` arrives, then four turns; `dd` arrives, then four more. The trace needs 64 bytes. Returns its length, or -1. */
int lab_trigger(int how, char *trace)
{
    int ends[2];
    int result = -1;
    size_t at = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return -1;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN | (how == LEVEL ? 0u : EPOLLET)};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &wanted) < 0) goto end;
    if (send(ends[0], "aabbcc", 6, 0) != 6) goto end;
    for (int i = 0; i < 4; i++)
        if (turn(epoll, ends[1], (enum how)how, trace, &at) < 0) goto end;
    if (send(ends[0], "dd", 2, 0) != 2) goto end;
    for (int i = 0; i < 4; i++)
        if (turn(epoll, ends[1], (enum how)how, trace, &at) < 0) goto end;
    result = (int)at;
end:
    close(ends[0]);
    close(ends[1]);
    if (epoll >= 0) close(epoll);
    return result;
}

#else

/* This system has no epoll. */
int lab_trigger(int how, char *trace)
{
    (void)how;
    (void)trace;
    return -1;
}

#endif
