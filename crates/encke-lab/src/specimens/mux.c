/* An echo server for many connections, on poll(2), epoll(7) or signals (fcntl(2), O_ASYNC); on Windows on WSAPoll. With epoll the record of an event
 * is found in two ways: by a linear search, as in a report, or by an index in the event. A signal contains the socket's
 * number. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "system.h"

#ifdef __linux__
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#endif

enum how { POLL_INDEX, LEVEL_SCAN, EDGE_SCAN, LEVEL_INDEX, EDGE_INDEX, SIGNALS };

/* Size of a message and of its response. */
enum { MESSAGE_BYTES = 1024 };
/* Maximum events per call. */
enum { EVENTS_MAX = 1024 };
/* Timeout: a longer wait is a fault of the lab. */
enum { PATIENCE_MS = 30000 };

/* The state of a connection: as in the report's server, a socket and its counts. */
struct record {
    lab_socket sock;
    uint32_t messages;
    uint64_t bytes;
};

struct mux {
    enum how how;
    uint32_t count;
    struct record *records;
    struct pollfd *polled;
    uint64_t looked; /* Records examined to find those of the events. */
#ifdef __linux__
    int epoll;
    /* For signals: the record's index by socket, the set of signals, and the signals blocked before. */
    uint32_t *places;
    sigset_t signals, before;
    int blocked;
#endif
};

/* Receives once, or until nothing is left, and sends each message back. Returns the number of messages, or -1. */
static int64_t echo(struct record *record, int drain)
{
    char message[MESSAGE_BYTES];
    int64_t answered = 0;
    do {
        long long got = lab_recv(record->sock, message, sizeof message);
        if (got < 0 && lab_would_block()) break;
        /* Messages arrive whole: each was one write, and the buffer has room for one. */
        if (got != MESSAGE_BYTES || lab_send(record->sock, message, sizeof message) != got) return -1;
        record->messages++;
        record->bytes += (uint64_t)got;
        answered++;
    } while (drain);
    return answered;
}

/* One wait, and its events. Returns the number of messages sent back, or -1. */
static int64_t turn_poll(struct mux *mux)
{
    int64_t answered = 0;
    int ready = poll(mux->polled, mux->count, PATIENCE_MS);
    if (ready <= 0) return ready < 0 && lab_interrupted() ? 0 : -1;
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

#ifdef __linux__

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

/* Opens what poll does not need. Returns 0, or -1 on a system error. */
static int own_open(struct mux *mux)
{
    mux->epoll = -1;
    if (mux->how == POLL_INDEX) return 0;
    if (mux->how == SIGNALS) return signals_open(mux);
    mux->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (mux->epoll < 0) return -1;
    for (uint32_t i = 0; i < mux->count; i++) {
        struct epoll_event wanted = {.events = EPOLLIN};
        if (mux->how == EDGE_SCAN || mux->how == EDGE_INDEX) wanted.events |= EPOLLET;
        if (mux->how == LEVEL_SCAN || mux->how == EDGE_SCAN)
            wanted.data.fd = mux->records[i].sock;
        else
            wanted.data.u32 = i;
        if (epoll_ctl(mux->epoll, EPOLL_CTL_ADD, mux->records[i].sock, &wanted) < 0) return -1;
    }
    return 0;
}

static void own_close(struct mux *mux)
{
    signals_close(mux);
    free(mux->places);
    if (mux->epoll >= 0) close(mux->epoll);
}

static int64_t turn(struct mux *mux)
{
    switch (mux->how) {
    case POLL_INDEX: return turn_poll(mux);
    case SIGNALS: return turn_signals(mux);
    default: return turn_epoll(mux);
    }
}

#else

/* Other systems have only poll. */
static int own_open(struct mux *mux)
{
    return mux->how == POLL_INDEX ? 0 : -1;
}

static void own_close(struct mux *mux)
{
    (void)mux;
}

static int64_t turn(struct mux *mux)
{
    return turn_poll(mux);
}

#endif

void lab_mux_close(struct mux *mux)
{
    own_close(mux);
    free(mux->records);
    free(mux->polled);
    free(mux);
}

/* Takes non-blocking sockets, which lab_mux_close leaves open. Returns NULL without memory, or on a system error. */
struct mux *lab_mux_open(int how, const lab_socket *socks, uint32_t count)
{
    struct mux *mux = calloc(1, sizeof *mux);
    if (mux == NULL) return NULL;
    mux->how = (enum how)how;
    mux->count = count;
    mux->records = calloc(count, sizeof *mux->records);
    mux->polled = calloc(count, sizeof *mux->polled);
    int failed = mux->records == NULL || mux->polled == NULL;
    for (uint32_t i = 0; i < count && !failed; i++) {
        mux->records[i].sock = socks[i];
        mux->polled[i] = (struct pollfd){.fd = socks[i], .events = POLLIN};
    }
    if (failed) mux->count = 0;
    if (own_open(mux) < 0) failed = 1;
    if (!failed) return mux;
    lab_mux_close(mux);
    return NULL;
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

#ifdef _WIN32

/* Makes the end of a socket a reset, which leaves no port in TIME-WAIT. */
void lab_reset_at_close(lab_socket sock)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(sock, SOL_SOCKET, SO_LINGER, (const char *)&linger, sizeof linger);
}

#endif
