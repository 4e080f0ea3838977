// libsodium, as the system has it.
#include <sodium.h>
