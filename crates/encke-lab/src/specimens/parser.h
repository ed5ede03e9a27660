/* Definitions shared by the byte-wise parsers: the ring that they read, and the head that they find. */
#ifndef LAB_PARSER_H
#define LAB_PARSER_H

#include <stdint.h>

/* Sizes of the ring: one costs a division per byte, the other a mask. */
enum { RING_ODD = 8124, RING_EVEN = 8192 };

enum { FIELDS_MAX = 64 };

/* A piece of text: its start, as a position like the parser's `at`, and its length. */
struct lab_span {
    uint32_t at;
    uint32_t bytes;
};

struct lab_head {
    struct lab_span method;
    struct lab_span target;
    uint32_t minor;
    uint32_t fields;
    struct lab_span names[FIELDS_MAX];
    struct lab_span values[FIELDS_MAX];
};

/* A parser reads the bytes `at` to `end` of the ring. It returns the length of the head, 0 if the head is incomplete,
 * or -1 if it is invalid. */
typedef int lab_parser(const unsigned char *ring, uint32_t at, uint32_t end, struct lab_head *head);

lab_parser lab_parse_switch_modulo, lab_parse_switch_mask, lab_parse_switch_wrap, lab_parse_switch_divide;
lab_parser lab_parse_goto_modulo, lab_parse_goto_mask, lab_parse_threaded_mask;

/* The size of the ring for lab_parse_switch_divide, unknown at compile time. */
extern volatile uint32_t lab_ring_bytes;

#endif
