/* Reads a ring byte by byte, which shows the cost of finding the index of the next byte.
 *
 * The sum keeps the compiler from removing the reads. The barrier keeps it from reading many bytes at once, which a
 * byte-wise parser does not do either. */
#include "parser.h"

#define BARRIER(value) __asm__ volatile("" : "+r"(value))

uint32_t lab_ring_modulo(const unsigned char *ring, uint32_t at, uint32_t end)
{
    uint32_t sum = 0;
    for (; at < end; at++) {
        sum += ring[at % RING_ODD];
        BARRIER(at);
    }
    return sum;
}

uint32_t lab_ring_mask(const unsigned char *ring, uint32_t at, uint32_t end)
{
    uint32_t sum = 0;
    for (; at < end; at++) {
        sum += ring[at & (RING_EVEN - 1)];
        BARRIER(at);
    }
    return sum;
}

uint32_t lab_ring_wrap(const unsigned char *ring, uint32_t at, uint32_t end)
{
    uint32_t sum = 0;
    uint32_t place = at % RING_ODD;
    for (; at < end; at++) {
        sum += ring[place];
        if (++place == RING_ODD) place = 0;
        BARRIER(place);
    }
    return sum;
}

uint32_t lab_ring_divide(const unsigned char *ring, uint32_t at, uint32_t end)
{
    uint32_t sum = 0;
    const uint32_t size = lab_ring_bytes;
    for (; at < end; at++) {
        sum += ring[at % size];
        BARRIER(at);
    }
    return sum;
}
