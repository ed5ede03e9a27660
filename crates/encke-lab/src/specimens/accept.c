/* Accept loops like that of a relay's settings server: one listening thread, and one thread per request. They differ only
 * in how the listening thread waits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum how { SLEEP_ALWAYS, SLEEP_IDLE, POLL };

/* The sleep of the report's loop. */
enum { QUANTUM_MS = 10 };

/* Limit of a request; a longer one gets no response. */
enum { REQUEST_BYTES = 1024 };

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* The program ignores SIGPIPE. */
#endif

struct request {
    int sock;
    const char *answer;
    size_t bytes;
};

/* Number of running threads, which a loop waits for at its end. Only one loop may run at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static unsigned alive;

static void answer(const struct request *request)
{
    char head[REQUEST_BYTES];
    size_t at = 0;
    while (memmem(head, at, "\r\n\r\n", 4) == NULL) {
        ssize_t got = recv(request->sock, head + at, sizeof head - at, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        at += (size_t)got;
    }
    for (at = 0; at < request->bytes;) {
        ssize_t sent = send(request->sock, request->answer + at, request->bytes - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return;
        at += (size_t)sent;
    }
}

static void *serve(void *given)
{
    struct request *request = given;
    answer(request);
    close(request->sock);
    free(request);
    pthread_mutex_lock(&lock);
    if (--alive == 0) pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Starts a thread for the connection, like the report's server. Returns 0, or -1 if no thread can be started. */
static int hand_over(int sock, const char *answer, size_t bytes)
{
    pthread_t thread;
    struct request *request = malloc(sizeof *request);
    if (request == NULL) return -1;
    *request = (struct request){.sock = sock, .answer = answer, .bytes = bytes};
    pthread_mutex_lock(&lock);
    alive++;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&thread, NULL, serve, request) == 0) {
        pthread_detach(thread);
        return 0;
    }
    pthread_mutex_lock(&lock);
    alive--;
    pthread_mutex_unlock(&lock);
    free(request);
    return -1;
}

static void quantum(void)
{
    struct timespec time = {.tv_nsec = QUANTUM_MS * 1000000L};
    nanosleep(&time, NULL);
}

/* Responds to connections until `stop` is set, and until all responses are sent. Returns the number of connections, or -1. */
int64_t lab_accept(int how, int listener, const atomic_bool *stop, const char *answer, size_t bytes)
{
    int64_t accepted = 0;
    int flags = fcntl(listener, F_GETFL);
    if (flags < 0 || fcntl(listener, F_SETFL, flags | O_NONBLOCK) < 0) return -1;
    while (!atomic_load(stop)) {
        struct pollfd wanted = {.fd = listener, .events = POLLIN};
        if (how == POLL && poll(&wanted, 1, QUANTUM_MS) <= 0) continue;
        int sock = accept(listener, NULL, NULL);
        if (sock >= 0 && hand_over(sock, answer, bytes) == 0)
            accepted++;
        else if (sock >= 0)
            close(sock);
        if (how == SLEEP_ALWAYS || (how == SLEEP_IDLE && sock < 0)) quantum();
    }
    pthread_mutex_lock(&lock);
    while (alive > 0) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    return accepted;
}

/* Resources that this process has used so far: CPU time, and context switches of its threads. */
void lab_process_use(uint64_t *cpu_ns, uint64_t *switches)
{
    struct timespec time = {0};
    struct rusage usage = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    getrusage(RUSAGE_SELF, &usage);
    *cpu_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    *switches = (uint64_t)(usage.ru_nvcsw + usage.ru_nivcsw);
}
