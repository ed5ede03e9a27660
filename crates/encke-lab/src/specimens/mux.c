/* An echo server for many connections, on poll(2), epoll(7) or signals (fcntl(2), O_ASYNC). With epoll the record of an event
 * is found in two ways: by a linear search, as in a report, or by an index in the event. A signal contains the socket's
 * number. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

enum how { POLL_INDEX, LEVEL_SCAN, EDGE_SCAN, LEVEL_INDEX, EDGE_INDEX, SIGNALS };

struct mux;

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Size of a message and of its response. */
enum { MESSAGE_BYTES = 1024 };
/* Maximum events per call. */
enum { EVENTS_MAX = 1024 };
/* Timeout: a longer wait is a fault of the lab. */
enum { PATIENCE_MS = 30000 };

/* The state of a connection: as in the report's server, a socket and its counts. */
struct record {
    int sock;
    uint32_t messages;
    uint64_t bytes;
};

struct mux {
    enum how how;
    int epoll;
    uint32_t count;
    struct record *records;
    struct pollfd *polled;
    uint64_t looked; /* Records examined to find those of the events. */
    /* For signals: the record's index by socket, the set of signals, and the signals blocked before. */
    uint32_t *places;
    sigset_t signals, before;
    int blocked;
};

/* A real-time signal, which is queued for each event. SIGIO reports that the queue was full. */
static int queued_signal(void)
{
    return SIGRTMIN + 3;
}

/* Requests a signal to this thread for each event of the sockets. */
static int signals_open(struct mux *mux)
{
    int most = 0;
    for (uint32_t i = 0; i < mux->count; i++)
        if (mux->records[i].sock > most) most = mux->records[i].sock;
    mux->places = calloc((size_t)most + 1, sizeof *mux->places);
    if (mux->places == NULL) return -1;
    sigemptyset(&mux->signals);
    sigaddset(&mux->signals, queued_signal());
    sigaddset(&mux->signals, SIGIO);
    if (pthread_sigmask(SIG_BLOCK, &mux->signals, &mux->before) != 0) return -1;
    mux->blocked = 1;
    struct f_owner_ex thread = {.type = F_OWNER_TID, .pid = (pid_t)syscall(SYS_gettid)};
    for (uint32_t i = 0; i < mux->count; i++) {
        int sock = mux->records[i].sock, flags = fcntl(sock, F_GETFL);
        mux->places[sock] = i;
        if (flags < 0 || fcntl(sock, F_SETOWN_EX, &thread) < 0 || fcntl(sock, F_SETSIG, queued_signal()) < 0) return -1;
        if (fcntl(sock, F_SETFL, flags | O_ASYNC) < 0) return -1;
    }
    return 0;
}

/* Disables the signals, and discards pending ones. */
static void signals_close(struct mux *mux)
{
    if (!mux->blocked) return;
    for (uint32_t i = 0; i < mux->count; i++) {
        int flags = fcntl(mux->records[i].sock, F_GETFL);
        if (flags >= 0) fcntl(mux->records[i].sock, F_SETFL, flags & ~O_ASYNC);
    }
    const struct timespec at_once = {0};
    while (sigtimedwait(&mux->signals, NULL, &at_once) > 0) { }
    pthread_sigmask(SIG_SETMASK, &mux->before, NULL);
}

void lab_mux_close(struct mux *mux)
{
    signals_close(mux);
    free(mux->places);
    if (mux->epoll >= 0) close(mux->epoll);
    free(mux->records);
    free(mux->polled);
    free(mux);
}

/* Takes non-blocking sockets, which lab_mux_close leaves open. Returns NULL without memory, or on a system error. */
struct mux *lab_mux_open(int how, const int *socks, uint32_t count)
{
    struct mux *mux = calloc(1, sizeof *mux);
    if (mux == NULL) return NULL;
    mux->how = (enum how)how;
    mux->count = count;
    int polls = how == POLL_INDEX || how == SIGNALS;
    mux->epoll = polls ? -1 : epoll_create1(EPOLL_CLOEXEC);
    mux->records = calloc(count, sizeof *mux->records);
    mux->polled = calloc(count, sizeof *mux->polled);
    if (mux->records == NULL || mux->polled == NULL || (!polls && mux->epoll < 0)) goto failed;
    for (uint32_t i = 0; i < count; i++) {
        mux->records[i].sock = socks[i];
        mux->polled[i] = (struct pollfd){.fd = socks[i], .events = POLLIN};
        if (polls) continue;
        struct epoll_event wanted = {.events = EPOLLIN};
        if (how == EDGE_SCAN || how == EDGE_INDEX) wanted.events |= EPOLLET;
        if (how == LEVEL_SCAN || how == EDGE_SCAN)
            wanted.data.fd = socks[i];
        else
            wanted.data.u32 = i;
        if (epoll_ctl(mux->epoll, EPOLL_CTL_ADD, socks[i], &wanted) < 0) goto failed;
    }
    if (how == SIGNALS && signals_open(mux) < 0) goto failed;
    return mux;
failed:
    lab_mux_close(mux);
    return NULL;
}

/* Receives once, or until nothing is left, and sends each message back. Returns the number of messages, or -1. */
static int64_t echo(struct record *record, int drain)
{
    char message[MESSAGE_BYTES];
    int64_t answered = 0;
    do {
        ssize_t got = recv(record->sock, message, sizeof message, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        /* Messages arrive whole: each was one write, and the buffer has room for one. */
        if (got != MESSAGE_BYTES || send(record->sock, message, sizeof message, MSG_NOSIGNAL) != got) return -1;
        record->messages++;
        record->bytes += (uint64_t)got;
        answered++;
    } while (drain);
    return answered;
}

static struct record *found(struct mux *mux, const struct epoll_event *event)
{
    uint32_t at = event->data.u32;
    if (mux->how == LEVEL_SCAN || mux->how == EDGE_SCAN) {
        /* The report's search. */
        for (at = 0; mux->records[at].sock != event->data.fd; at++) { }
        mux->looked += at;
    }
    mux->looked++;
    return &mux->records[at];
}

/* One wait, and its events. Returns the number of messages sent back, or -1. */
static int64_t turn_poll(struct mux *mux)
{
    int64_t answered = 0;
    int ready = poll(mux->polled, mux->count, PATIENCE_MS);
    if (ready <= 0) return ready < 0 && errno == EINTR ? 0 : -1;
    for (uint32_t i = 0; i < mux->count && ready > 0; i++) {
        if (mux->polled[i].revents == 0) continue;
        ready--;
        mux->looked++;
        int64_t some = echo(&mux->records[i], 0);
        if (some < 0) return -1;
        answered += some;
    }
    return answered;
}

static int64_t turn_epoll(struct mux *mux)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t answered = 0;
    int ready = epoll_wait(mux->epoll, events, EVENTS_MAX, PATIENCE_MS);
    if (ready <= 0) return ready < 0 && errno == EINTR ? 0 : -1;
    for (int i = 0; i < ready; i++) {
        int64_t some = echo(found(mux, &events[i]), mux->how == EDGE_SCAN || mux->how == EDGE_INDEX);
        if (some < 0) return -1;
        answered += some;
    }
    return answered;
}

/* Handles one signal. If the queue of signals was full, events are lost, so all records are examined. */
static int64_t turn_signals(struct mux *mux)
{
    siginfo_t told;
    const struct timespec patience = {.tv_sec = PATIENCE_MS / 1000};
    int got = sigtimedwait(&mux->signals, &told, &patience);
    if (got < 0) return errno == EINTR ? 0 : -1;
    if (got != SIGIO) {
        mux->looked++;
        return echo(&mux->records[mux->places[told.si_fd]], 1);
    }
    int64_t answered = 0;
    for (uint32_t i = 0; i < mux->count; i++) {
        mux->looked++;
        int64_t some = echo(&mux->records[i], 1);
        if (some < 0) return -1;
        answered += some;
    }
    return answered;
}

static int64_t turn(struct mux *mux)
{
    switch (mux->how) {
    case POLL_INDEX: return turn_poll(mux);
    case SIGNALS: return turn_signals(mux);
    default: return turn_epoll(mux);
    }
}

/* Sends `messages` messages back. Returns the number of records examined to find those of the events, or -1. */
int64_t lab_mux_serve(struct mux *mux, uint64_t messages)
{
    mux->looked = 0;
    for (uint64_t answered = 0; answered < messages;) {
        int64_t some = turn(mux);
        if (some < 0) return -1;
        answered += (uint64_t)some;
    }
    return (int64_t)mux->looked;
}

#else

/* This system has no epoll. */
void lab_mux_close(struct mux *mux)
{
    (void)mux;
}

struct mux *lab_mux_open(int how, const int *socks, uint32_t count)
{
    (void)how; (void)socks; (void)count;
    return NULL;
}

int64_t lab_mux_serve(struct mux *mux, uint64_t messages)
{
    (void)mux; (void)messages;
    return -1;
}

#endif
