// Checks the layouts that version 1 of the interface promises. The target has no other code.

#include "pawl_transports.h"

_Static_assert(offsetof(pawl_table, abi) == 0, "every table begins with the version");
_Static_assert(offsetof(pawl_table, size) == 4, "the size follows the version");
_Static_assert(offsetof(pawl_client_transport_table, table) == 0, "a table begins with its head");
_Static_assert(offsetof(pawl_client_connection_table, table) == 0, "a table begins with its head");
_Static_assert(offsetof(pawl_service_transport_table, table) == 0, "a table begins with its head");
_Static_assert(offsetof(pawl_service_bound_table, table) == 0, "a table begins with its head");
_Static_assert(offsetof(pawl_processor_table, table) == 0, "a table begins with its head");
_Static_assert(sizeof(pawl_client_transport) == 2 * sizeof(void *), "an object is two pointers, in every version");
_Static_assert(sizeof(pawl_buffer) == 4 * sizeof(void *), "a buffer is four words, in every version");
