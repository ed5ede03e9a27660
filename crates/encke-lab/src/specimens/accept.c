/* Accept loops like that of a relay's settings server: one listening thread, and one thread per request. They differ only
 * in how the listening thread waits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"

#ifndef _WIN32
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#endif

enum how { SLEEP_ALWAYS, SLEEP_IDLE, POLL };

/* The sleep of the report's loop. */
enum { QUANTUM_MS = 10 };

/* Limit of a request; a longer one gets no response. */
enum { REQUEST_BYTES = 1024 };

struct request {
    lab_socket sock;
    const char *answer;
    size_t bytes;
};

/* Number of running threads, which a loop waits for at its end. Only one loop may run at a time. */
static unsigned alive;

#ifdef _WIN32

static SRWLOCK lock = SRWLOCK_INIT;
static CONDITION_VARIABLE ended = CONDITION_VARIABLE_INIT;

static void enter(void) { AcquireSRWLockExclusive(&lock); }
static void leave(void) { ReleaseSRWLockExclusive(&lock); }
static void announce_end(void) { WakeConditionVariable(&ended); }
static void await_end(void) { SleepConditionVariableSRW(&ended, &lock, INFINITE, 0); }

#else

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void enter(void) { pthread_mutex_lock(&lock); }
static void leave(void) { pthread_mutex_unlock(&lock); }
static void announce_end(void) { pthread_cond_signal(&ended); }
static void await_end(void) { pthread_cond_wait(&ended, &lock); }

#endif

static int has_end(const char *head, size_t bytes)
{
    for (size_t at = 0; at + 4 <= bytes; at++)
        if (memcmp(head + at, "\r\n\r\n", 4) == 0) return 1;
    return 0;
}

static void answer(const struct request *request)
{
    char head[REQUEST_BYTES];
    size_t at = 0;
    while (!has_end(head, at)) {
        long long got = lab_recv(request->sock, head + at, sizeof head - at);
        if (got < 0 && lab_interrupted()) continue;
        if (got <= 0) return;
        at += (size_t)got;
    }
    for (at = 0; at < request->bytes;) {
        long long sent = lab_send(request->sock, request->answer + at, request->bytes - at);
        if (sent < 0 && lab_interrupted()) continue;
        if (sent <= 0) return;
        at += (size_t)sent;
    }
}

static void serve(struct request *request)
{
    answer(request);
    lab_close(request->sock);
    free(request);
    enter();
    if (--alive == 0) announce_end();
    leave();
}

#ifdef _WIN32

static DWORD WINAPI thread_of(void *request)
{
    serve(request);
    return 0;
}

static int start(struct request *request)
{
    HANDLE thread = CreateThread(NULL, 0, thread_of, request, 0, NULL);
    if (thread == NULL) return -1;
    CloseHandle(thread);
    return 0;
}

static void quantum(void)
{
    Sleep(QUANTUM_MS);
}

static int set_nonblocking(lab_socket sock, int on)
{
    unsigned long mode = (unsigned long)on;
    return ioctlsocket(sock, FIONBIO, &mode) == 0 ? 0 : -1;
}

#else

static void *thread_of(void *request)
{
    serve(request);
    return NULL;
}

static int start(struct request *request)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_of, request) != 0) return -1;
    pthread_detach(thread);
    return 0;
}

static void quantum(void)
{
    struct timespec time = {.tv_nsec = QUANTUM_MS * 1000000L};
    nanosleep(&time, NULL);
}

static int set_nonblocking(lab_socket sock, int on)
{
    int flags = fcntl(sock, F_GETFL);
    if (flags < 0) return -1;
    return fcntl(sock, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0 ? -1 : 0;
}

#endif

/* Whether an accepted socket has the mode of its listener. The threads use blocking ones. */
#ifdef __linux__
enum { INHERITS_MODE = 0 };
#else
enum { INHERITS_MODE = 1 };
#endif

/* Starts a thread for the connection, like the report's server. Returns 0, or -1 if no thread can be started. */
static int hand_over(lab_socket sock, const char *answer, size_t bytes)
{
    struct request *request = malloc(sizeof *request);
    if (request == NULL) return -1;
    *request = (struct request){.sock = sock, .answer = answer, .bytes = bytes};
    enter();
    alive++;
    leave();
    if (start(request) == 0) return 0;
    enter();
    alive--;
    leave();
    free(request);
    return -1;
}

/* Responds to connections until `stop` is set, and until all responses are sent. Returns the number of connections, or -1. */
int64_t lab_accept(int how, lab_socket listener, const atomic_bool *stop, const char *answer, size_t bytes)
{
    int64_t accepted = 0;
    if (set_nonblocking(listener, 1) < 0) return -1;
    while (!atomic_load(stop)) {
        struct pollfd wanted = {.fd = listener, .events = POLLIN};
        if (how == POLL && poll(&wanted, 1, QUANTUM_MS) <= 0) continue;
        lab_socket sock = accept(listener, NULL, NULL);
        if (sock != LAB_NO_SOCKET && INHERITS_MODE) set_nonblocking(sock, 0);
        if (sock != LAB_NO_SOCKET && hand_over(sock, answer, bytes) == 0)
            accepted++;
        else if (sock != LAB_NO_SOCKET)
            lab_close(sock);
        if (how == SLEEP_ALWAYS || (how == SLEEP_IDLE && sock == LAB_NO_SOCKET)) quantum();
    }
    enter();
    while (alive > 0) await_end();
    leave();
    return accepted;
}

/* Resources that this process has used so far: CPU time, and context switches of its threads. Returns whether the system
 * counts switches; Windows does not, and its CPU time comes from elsewhere. */
int lab_process_use(uint64_t *cpu_ns, uint64_t *switches)
{
#ifdef _WIN32
    *cpu_ns = *switches = 0;
    return 0;
#else
    struct timespec time = {0};
    struct rusage usage = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    getrusage(RUSAGE_SELF, &usage);
    *cpu_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    *switches = (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw);
    return 1;
#endif
}
