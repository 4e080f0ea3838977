// What the programme under Valgrind says to it. Only `Tests/sanitize` includes this.
#include <stddef.h>
#include <stdio.h>
#include <valgrind/callgrind.h>
#include <valgrind/memcheck.h>

static inline int valgrind_is_there(void) { return RUNNING_ON_VALGRIND != 0; }
static inline void valgrind_poison(const void *bytes, size_t count) { (void)VALGRIND_MAKE_MEM_UNDEFINED(bytes, count); }
static inline void valgrind_clear(const void *bytes, size_t count) { (void)VALGRIND_MAKE_MEM_DEFINED(bytes, count); }
static inline unsigned valgrind_errors(void) { return VALGRIND_COUNT_ERRORS; }
static inline void valgrind_begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
static inline void valgrind_end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
static inline void valgrind_print_lines(void) { setlinebuf(stdout); }
static inline int valgrind_is_marked(const void *bytes, size_t count) {
    unsigned char marks[4096];
    size_t index;
    if (count > sizeof marks || VALGRIND_GET_VBITS(bytes, marks, count) != 1) return 0;
    for (index = 0; index < count; index++)
        if (marks[index]) return 1;
    return 0;
}
