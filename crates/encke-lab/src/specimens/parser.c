/* Byte-wise parsers of a request's head: slow counterparts of Encke's parser.
 *
 * All use the states of parser_states.h. They differ in two respects only:
 *
 *   mapping of a position to an index in the ring   selection of the next state
 *   modulo   at % 8124                              switch     a loop around a switch
 *   mask     at & 8191                              goto       a table of labels, by the state's number
 *   wrap     compared with the end, reset to 0      threaded   a jump to the label itself
 *   divide   at % a size that is known at run time
 */
#include "parser.h"

volatile uint32_t lab_ring_bytes = RING_ODD;

enum state {
    method, spaces_before_target, target,
    version_h, version_ht, version_htt, version_http, version_slash,
    version_major, version_dot, version_minor, version_end,
    line_end, line_start, name, spaces_before_value, value, last_line_end,
};

#define PARSER(how) \
    int lab_parse_##how(const unsigned char *ring, uint32_t at, uint32_t end, struct lab_head *head)

/* ---- A loop around a switch. ---- */

#define STATE(name) case name:
#define GO(next) do { state = next; goto next_byte; } while (0)
#define STAY(same) goto next_byte

#define SWITCH_BODY_BEGIN \
    const uint32_t start = at; \
    uint32_t token = at; \
    enum state state = method; \
    head->fields = 0; \
    for (; at < end; at++) { \
        const unsigned char byte = PLACE; \
        switch (state) {

#define SWITCH_BODY_END \
        } \
    next_byte:; \
    } \
    return 0;

#define PLACE ring[at % RING_ODD]
PARSER(switch_modulo)
{
    SWITCH_BODY_BEGIN
#include "parser_states.h"
    SWITCH_BODY_END
}
#undef PLACE

#define PLACE ring[at & (RING_EVEN - 1)]
PARSER(switch_mask)
{
    SWITCH_BODY_BEGIN
#include "parser_states.h"
    SWITCH_BODY_END
}
#undef PLACE

#define PLACE ring[at % size]
PARSER(switch_divide)
{
    const uint32_t size = lab_ring_bytes;
    SWITCH_BODY_BEGIN
#include "parser_states.h"
    SWITCH_BODY_END
}
#undef PLACE

/* Keeps the index as well as the position, and resets it to 0: a branch instead of a division or a mask. */
#define PLACE ring[place]; if (++place == RING_ODD) place = 0
PARSER(switch_wrap)
{
    uint32_t place = at % RING_ODD;
    SWITCH_BODY_BEGIN
#include "parser_states.h"
    SWITCH_BODY_END
}
#undef PLACE

#undef STATE
#undef GO
#undef STAY

/* ---- A table of labels: each state ends with a jump of its own, whose target is looked up. ---- */

#define STATE(name) label_##name:
#define DISPATCH do { \
        if (++at == end) return 0; \
        byte = PLACE; \
        goto *labels[state]; \
    } while (0)
#define GO(next) do { state = next; DISPATCH; } while (0)
#define STAY(same) DISPATCH

#define GOTO_BODY_BEGIN \
    static const void *const labels[] = { \
        &&label_method, &&label_spaces_before_target, &&label_target, \
        &&label_version_h, &&label_version_ht, &&label_version_htt, &&label_version_http, &&label_version_slash, \
        &&label_version_major, &&label_version_dot, &&label_version_minor, &&label_version_end, \
        &&label_line_end, &&label_line_start, &&label_name, &&label_spaces_before_value, &&label_value, \
        &&label_last_line_end, \
    }; \
    const uint32_t start = at; \
    uint32_t token = at; \
    enum state state = method; \
    unsigned char byte; \
    head->fields = 0; \
    if (at == end) return 0; \
    byte = PLACE; \
    goto *labels[state];

#define PLACE ring[at % RING_ODD]
PARSER(goto_modulo)
{
    GOTO_BODY_BEGIN
#include "parser_states.h"
}
#undef PLACE

#define PLACE ring[at & (RING_EVEN - 1)]
PARSER(goto_mask)
{
    GOTO_BODY_BEGIN
#include "parser_states.h"
}

#undef GO
#undef STAY

/* ---- Threaded: the program counter is the state. ---- */

#define GO(next) do { \
        if (++at == end) return 0; \
        byte = PLACE; \
        goto label_##next; \
    } while (0)
#define STAY(same) GO(same)

PARSER(threaded_mask)
{
    const uint32_t start = at;
    uint32_t token = at;
    unsigned char byte;
    head->fields = 0;
    if (at == end) return 0;
    byte = PLACE;
#include "parser_states.h"
}
