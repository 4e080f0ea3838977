// The constructors of the Rust transports under `Tests/Rust`, as an application's header target has them.
//
// They are weak, so that the tests link without the Rust library. An application declares its own without that.

#ifndef MY_TRANSPORT_H
#define MY_TRANSPORT_H

#include "pawl_transports.h"

bool tesseract_client_my_transport_new(pawl_bytes path, pawl_client_transport *value, pawl_error *error)
    __attribute__((weak));
bool tesseract_service_my_transport_new(pawl_bytes path, pawl_service_transport *value, pawl_error *error)
    __attribute__((weak));

/// Whether the Rust library is linked into this program.
bool my_transport_is_linked(void);

#endif
