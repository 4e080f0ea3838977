// jemalloc, as the system has it. Linking it replaces malloc and free of the whole process.
#include <jemalloc/jemalloc.h>
