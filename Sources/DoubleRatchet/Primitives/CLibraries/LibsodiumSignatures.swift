#if CLibraries
    import CSodium

    /// Ed25519 verification by libsodium, which takes three quarters of the others' time.
    extension Primitives {
        /// libsodium selects its code for this processor once.
        private static let isReady = sodium_init() >= 0

        /// Whether 64 bytes are a signature of `message`.
        static func isGenuine(
            _ signature: UnsafeRawBufferPointer, of message: UnsafeRawBufferPointer, by key: Bytes32
        ) -> Bool {
            guard isReady else { return false }
            return key.withUnsafeBytes {
                crypto_sign_verify_detached(signature.octets, message.octets, UInt64(message.count), $0.octets) == 0
            }
        }
    }
#endif
