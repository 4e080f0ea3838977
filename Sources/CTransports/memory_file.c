#define _GNU_SOURCE

#include "pawl_memory_file.h"

#ifdef __linux__
#include <sys/mman.h>

int pawl_memory_file(void) { return memfd_create("pawl-transport", MFD_CLOEXEC); }
#else
int pawl_memory_file(void) { return -1; }
#endif
