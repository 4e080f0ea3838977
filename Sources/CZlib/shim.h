// zlib, as the system has it.
#include <zlib.h>

// `deflateInit2` is a macro, which Swift does not import.
static inline int pawl_deflate_begin(z_stream *stream, int level) {
    return deflateInit2(stream, level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
}
