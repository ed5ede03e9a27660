/* What the specimens use of a system's sockets, under one name: Unix, and Windows (Winsock 2). */
#ifndef LAB_SYSTEM_H
#define LAB_SYSTEM_H

#ifdef _WIN32

#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0A00 /* Windows 10. */
#endif
#define WIN32_LEAN_AND_MEAN
#include <winsock2.h>
#include <windows.h>

/* A socket, and a file, as Rust passes them. */
typedef SOCKET lab_socket;
typedef HANDLE lab_file;

#define LAB_NO_SOCKET INVALID_SOCKET
#define poll WSAPoll
#define MSG_NOSIGNAL 0 /* There are no signals. */

/* Receives and sends bytes. Returns their number, or -1. */
static inline long long lab_recv(lab_socket sock, char *to, size_t bytes)
{
    return recv(sock, to, (int)bytes, 0);
}

static inline long long lab_send(lab_socket sock, const char *from, size_t bytes)
{
    return send(sock, from, (int)bytes, 0);
}

static inline void lab_close(lab_socket sock)
{
    closesocket(sock);
}

/* Whether the last call would have had to wait, or was interrupted by a signal. */
static inline int lab_would_block(void)
{
    return WSAGetLastError() == WSAEWOULDBLOCK;
}

static inline int lab_interrupted(void)
{
    return 0;
}

#else

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* The program ignores SIGPIPE. */
#endif

typedef int lab_socket;
typedef int lab_file;

#define LAB_NO_SOCKET (-1)

static inline long long lab_recv(lab_socket sock, char *to, size_t bytes)
{
    return recv(sock, to, bytes, 0);
}

static inline long long lab_send(lab_socket sock, const char *from, size_t bytes)
{
    return send(sock, from, bytes, MSG_NOSIGNAL);
}

static inline void lab_close(lab_socket sock)
{
    close(sock);
}

static inline int lab_would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static inline int lab_interrupted(void)
{
    return errno == EINTR;
}

#endif

#endif
