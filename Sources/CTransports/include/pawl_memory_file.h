// A file in memory, for loading a library from bytes that were checked. Swift's view of glibc does not have the function.

#ifndef PAWL_MEMORY_FILE_H
#define PAWL_MEMORY_FILE_H

/// Makes an empty file that has no name and is closed on exec. Returns a descriptor, or -1 where there is no such file.
int pawl_memory_file(void);

#endif
