#include "my_transport.h"

bool my_transport_is_linked(void) {
    return tesseract_client_my_transport_new != NULL && tesseract_service_my_transport_new != NULL;
}
