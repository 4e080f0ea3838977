// What every peer of the ratchet table needs: processor time, the count of heap allocations, and the form of a figure.
#pragma once
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { text_size = 256, setups = 40, turns = 200, messages = 1000 };

// There when allocations.c is preloaded.
__attribute__((weak)) unsigned long ratchet_allocations(void);

static inline double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline unsigned long allocations(void) {
    return ratchet_allocations ? ratchet_allocations() : 0;
}

static double begin_time;
static unsigned long begin_allocations;

static inline void begin(void) {
    begin_allocations = allocations();
    begin_time = microseconds();
}

// Prints what one of `count` took since begin().
static inline void end(const char *name, int count) {
    double time = microseconds() - begin_time;
    unsigned long made = allocations() - begin_allocations;
    printf("%s %f\n%s-allocations %f\n", name, time / count, name, (double)made / count);
}

static inline void check(int succeeded, const char *what) {
    if (succeeded) return;
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}
