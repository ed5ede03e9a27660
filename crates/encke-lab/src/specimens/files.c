/* Ways to send a file over a connection. The socket is blocking, because the work is measured and not the waiting. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdint.h>

#include "system.h"

#ifdef __linux__
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#endif

#ifdef _WIN32
#include <mswsock.h>
#endif

enum how { READ_WRITE_4K, READ_WRITE_64K, MMAP_WRITE, SENDFILE, SPLICE, ZEROCOPY, URING, TRANSMIT_FILE };

enum { BUFFER_BYTES = 64 * 1024 };

/* Sends a block of memory completely. */
static int send_all(lab_socket sock, const char *from, size_t bytes)
{
    while (bytes > 0) {
        long long sent = lab_send(sock, from, bytes);
        if (sent < 0 && lab_interrupted()) continue;
        if (sent <= 0) return -1;
        from += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

#ifdef _WIN32

/* Reads from an offset of the file. Returns the number of bytes, or -1. */
static long long read_at(lab_file file, char *to, size_t bytes, uint64_t at)
{
    OVERLAPPED from = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
    DWORD got = 0;
    return ReadFile(file, to, (DWORD)bytes, &got, &from) ? (long long)got : -1;
}

#else

static long long read_at(lab_file file, char *to, size_t bytes, uint64_t at)
{
    return pread(file, to, bytes, (off_t)at);
}

#endif

static int read_write(lab_socket sock, lab_file file, uint64_t bytes, size_t step)
{
    static char buffer[BUFFER_BYTES]; /* Only one thread at a time runs this. */
    uint64_t at = 0;
    while (at < bytes) {
        size_t want = bytes - at < step ? (size_t)(bytes - at) : step;
        long long got = read_at(file, buffer, want, at);
        if (got <= 0 || send_all(sock, buffer, (size_t)got) < 0) return -1;
        at += (uint64_t)got;
    }
    return 0;
}

#ifdef __linux__

/* A message of the error queue: `struct sock_extended_err` of <linux/errqueue.h>, which not every C library
 * provides. */
struct told {
    uint32_t error;
    uint8_t origin, type, code, pad;
    uint32_t first, last;
};

enum { ORIGIN_ZEROCOPY = 5 };

static int mmap_write(int sock, int file, uint64_t bytes)
{
    char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) return -1;
    int result = send_all(sock, map, bytes);
    munmap(map, bytes);
    return result;
}

static int send_file(int sock, int file, uint64_t bytes)
{
    off_t at = 0;
    while ((uint64_t)at < bytes) {
        ssize_t sent = sendfile(sock, file, &at, bytes - (uint64_t)at);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
    }
    return 0;
}

/* From the file into a pipe, and from the pipe into the socket: pages are moved, not copied. */
static int splice_file(int sock, int file, uint64_t bytes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    off_t at = 0;
    int result = -1;
    while ((uint64_t)at < bytes) {
        ssize_t held = splice(file, &at, ends[1], NULL, bytes - (uint64_t)at, SPLICE_F_MOVE | SPLICE_F_MORE);
        if (held <= 0) goto end;
        while (held > 0) {
            unsigned more = (uint64_t)at < bytes ? SPLICE_F_MORE : 0;
            ssize_t sent = splice(ends[0], NULL, sock, NULL, (size_t)held, SPLICE_F_MOVE | more);
            if (sent <= 0) goto end;
            held -= sent;
        }
    }
    result = 0;
end:
    close(ends[0]);
    close(ends[1]);
    return result;
}

/* Reads completions of sends, whose pages may then change. Waits for the first if `patient`. Returns their number, or -1. */
static int64_t take_back(int sock, int patient)
{
    int64_t done = 0;
    for (;;) {
        char control[128];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
        if (recvmsg(sock, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
            if (done > 0 || !patient) return done;
            struct pollfd wanted = {.fd = sock};
            if (poll(&wanted, 1, 10000) <= 0) return -1;
            continue;
        }
        for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
            if (part->cmsg_level != SOL_IP || part->cmsg_type != IP_RECVERR) continue;
            const struct told *told = (const void *)CMSG_DATA(part);
            if (told->error == 0 && told->origin == ORIGIN_ZEROCOPY)
                done += (int64_t)(uint32_t)(told->last - told->first) + 1;
        }
    }
}

/* MSG_ZEROCOPY (Documentation/networking/msg_zerocopy.rst): the kernel sends the pages themselves, and reports when they
 * may change. On loopback it copies them nevertheless. */
static int zerocopy(int sock, int file, uint64_t bytes)
{
    int on = 1, result = -1;
    uint64_t at = 0;
    int64_t open = 0;
    if (setsockopt(sock, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) < 0) return -1;
    char *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (map == MAP_FAILED) return -1;
    while (at < bytes) {
        ssize_t sent = send(sock, map + at, bytes - at, MSG_ZEROCOPY | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != ENOBUFS) goto end;
        if (sent == 0 || (sent < 0 && open == 0)) goto end;
        if (sent > 0) {
            at += (uint64_t)sent;
            open++;
        }
        int64_t done = take_back(sock, sent < 0);
        if (done < 0) goto end;
        open -= done;
    }
    while (open > 0) {
        int64_t done = take_back(sock, 1);
        if (done <= 0) goto end;
        open -= done;
    }
    result = 0;
end:
    munmap(map, bytes);
    return result;
}

/* Structures of io_uring(7), as in <linux/io_uring.h>, which not every C library provides either. */
struct sqe {
    uint8_t opcode, flags;
    uint16_t priority;
    int32_t fd;
    uint64_t offset, address;
    uint32_t length, op_flags;
    uint64_t user_data, pad[3];
};
struct cqe {
    uint64_t user_data;
    int32_t result;
    uint32_t flags;
};
struct ring_params {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, reserved[3];
    struct {
        uint32_t head, tail, mask, entries, flags, dropped, array, reserved;
        uint64_t address;
    } sq;
    struct {
        uint32_t head, tail, mask, entries, overflow, cqes, flags, reserved;
        uint64_t address;
    } cq;
};

enum { OP_READ = 22, OP_SEND = 26, LINKED = 1 << 2, GET_EVENTS = 1, SINGLE_MAP = 1 };
enum { SETUP = 425, ENTER = 426 }; /* The numbers are the same on all of Linux's architectures but one. */
static const off_t SQES_AT = 0x10000000;
/* Pairs of operations per system call: read a piece, send it. */
enum { PAIRS = 4, ENTRIES = 2 * PAIRS };

/* Created at its first use and kept: a server does not create a ring per file either. Only one thread at a time uses it. */
static struct {
    int fd;
    struct sqe *sqes;
    struct cqe *cqes;
    uint32_t *sq_tail, *sq_array, *cq_head, *cq_tail, sq_mask, cq_mask;
    char buffers[PAIRS][BUFFER_BYTES];
} ring = {.fd = -1};

static int ring_open(void)
{
    struct ring_params told = {0};
    int fd = (int)syscall(SETUP, ENTRIES, &told);
    if (fd < 0) return -1;
    size_t sq_bytes = told.sq.array + told.sq_entries * sizeof(uint32_t);
    size_t cq_bytes = told.cq.cqes + told.cq_entries * sizeof(struct cqe);
    size_t bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    size_t sqe_bytes = told.sq_entries * sizeof(struct sqe);
    char *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (shared == MAP_FAILED) goto no_ring;
    void *sqes = mmap(NULL, sqe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, SQES_AT);
    /* Before Linux 5.4 the queues had two mappings. */
    if (sqes == MAP_FAILED || !(told.features & SINGLE_MAP)) {
        if (sqes != MAP_FAILED) munmap(sqes, sqe_bytes);
        munmap(shared, bytes);
        errno = ENOSYS;
        goto no_ring;
    }
    ring.fd = fd;
    ring.sqes = sqes;
    ring.cqes = (void *)(shared + told.cq.cqes);
    ring.sq_tail = (void *)(shared + told.sq.tail);
    ring.sq_array = (void *)(shared + told.sq.array);
    ring.sq_mask = *(uint32_t *)(void *)(shared + told.sq.mask);
    ring.cq_head = (void *)(shared + told.cq.head);
    ring.cq_tail = (void *)(shared + told.cq.tail);
    ring.cq_mask = *(uint32_t *)(void *)(shared + told.cq.mask);
    return 0;
no_ring:
    close(fd);
    return -1;
}

static void ring_push(struct sqe entry)
{
    uint32_t tail = *ring.sq_tail, at = tail & ring.sq_mask;
    ring.sqes[at] = entry;
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* Submits the pushed operations, and waits for all. The user data of each is the number of bytes that it must transfer. */
static int ring_run(unsigned count)
{
    unsigned left = count, open = count;
    int result = 0;
    while (open > 0) {
        long taken = syscall(ENTER, ring.fd, left, open, GET_EVENTS, NULL, 0);
        if (taken < 0 && errno != EINTR) return -1;
        if (taken > 0) left -= (unsigned)taken;
        uint32_t head = *ring.cq_head;
        for (; head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE); head++, open--) {
            const struct cqe *done = &ring.cqes[head & ring.cq_mask];
            if (done->result >= 0 && (uint64_t)done->result == done->user_data) continue;
            errno = done->result < 0 ? -done->result : EIO;
            result = -1;
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    }
    return result;
}

/* Each system call reads and sends up to four pieces of 64 KiB: a chain of operations, each of which waits for the last. */
static int uring_file(int sock, int file, uint64_t bytes)
{
    if (ring.fd < 0 && ring_open() < 0) return -1;
    for (uint64_t at = 0; at < bytes;) {
        unsigned count = 0;
        for (int pair = 0; pair < PAIRS && at < bytes; pair++) {
            uint32_t want = bytes - at < BUFFER_BYTES ? (uint32_t)(bytes - at) : BUFFER_BYTES;
            struct sqe read = {.opcode = OP_READ, .flags = LINKED, .fd = file, .offset = at, .length = want,
                               .address = (uintptr_t)ring.buffers[pair], .user_data = want};
            struct sqe send = {.opcode = OP_SEND, .fd = sock, .length = want, .op_flags = MSG_NOSIGNAL | MSG_WAITALL,
                               .address = (uintptr_t)ring.buffers[pair], .user_data = want};
            at += want;
            if (pair + 1 < PAIRS && at < bytes) send.flags = LINKED;
            ring_push(read);
            ring_push(send);
            count += 2;
        }
        if (ring_run(count) < 0) return -1;
    }
    return 0;
}

#endif

#ifdef _WIN32

/* In pieces: a call takes at most 2^31 - 2 bytes. The call sends from the file's position, so that is set before each. */
static int transmit_file(lab_socket sock, lab_file file, uint64_t bytes)
{
    const uint64_t piece_max = 1u << 30;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t piece = bytes - at < piece_max ? bytes - at : piece_max;
        LARGE_INTEGER place = {.QuadPart = (LONGLONG)at};
        if (!SetFilePointerEx(file, place, NULL, FILE_BEGIN)) return -1;
        if (!TransmitFile(sock, file, (DWORD)piece, 0, NULL, NULL, 0)) return -1;
        at += piece;
    }
    return 0;
}

#endif

/* Sends the first `bytes` of the file, which must have that many. Returns 0, or -1 on an error. */
int lab_send_file(int how, lab_socket sock, lab_file file, uint64_t bytes)
{
    switch ((enum how)how) {
    case READ_WRITE_4K: return read_write(sock, file, bytes, 4096);
    case READ_WRITE_64K: return read_write(sock, file, bytes, BUFFER_BYTES);
#ifdef __linux__
    case MMAP_WRITE: return mmap_write(sock, file, bytes);
    case SENDFILE: return send_file(sock, file, bytes);
    case SPLICE: return splice_file(sock, file, bytes);
    case ZEROCOPY: return zerocopy(sock, file, bytes);
    case URING: return uring_file(sock, file, bytes);
#endif
#ifdef _WIN32
    case TRANSMIT_FILE: return transmit_file(sock, file, bytes);
#endif
    default: return -1;
    }
}

/* Receives and discards `bytes` bytes. Linux does not copy them (MSG_TRUNC, tcp(7)). */
int lab_discard(lab_socket sock, uint64_t bytes)
{
#ifndef __linux__
    char buffer[BUFFER_BYTES];
#endif
    while (bytes > 0) {
#ifdef __linux__
        size_t want = bytes < (1u << 30) ? (size_t)bytes : (1u << 30);
        long long got = recv(sock, NULL, want, MSG_TRUNC);
#else
        size_t want = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        long long got = lab_recv(sock, buffer, want);
#endif
        if (got < 0 && lab_interrupted()) continue;
        if (got <= 0) return -1;
        bytes -= (uint64_t)got;
    }
    return 0;
}
