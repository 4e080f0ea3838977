#if !CLibraries
    import Crypto

    /// Ed25519 verification by swift-crypto, after the checks that it omits.
    ///
    /// BoringSSL checks that S is below the group's order, and compares the encoding of R. It accepts keys and R of low
    /// order, and keys whose y is not below p.
    extension Primitives {
        /// The canonical y of the points whose order divides eight: 0, 1, p - 1, and two of order eight.
        private static let lowOrder: Set<Bytes32> = {
            let zeros = [UInt8](repeating: 0, count: 31)
            return [
                Bytes32([0] + zeros), Bytes32([1] + zeros),
                Bytes32([0xEC] + [UInt8](repeating: 0xFF, count: 30) + [0x7F]),
                Bytes32([
                    0x26, 0xE8, 0x95, 0x8F, 0xC2, 0xB2, 0x27, 0xB0, 0x45, 0xC3, 0xF4, 0x89, 0xF2, 0xEF, 0x98, 0xF0,
                    0xD5, 0xDF, 0xAC, 0x05, 0xD3, 0xC6, 0x33, 0x39, 0xB1, 0x38, 0x02, 0x88, 0x6D, 0x53, 0xFC, 0x05,
                ]),
                Bytes32([
                    0xC7, 0x17, 0x6A, 0x70, 0x3D, 0x4D, 0xD8, 0x4F, 0xBA, 0x3C, 0x0B, 0x76, 0x0D, 0x10, 0x67, 0x0F,
                    0x2A, 0x20, 0x53, 0xFA, 0x2C, 0x39, 0xCC, 0xC6, 0x4E, 0xC7, 0xFD, 0x77, 0x92, 0xAC, 0x03, 0x7A,
                ]),
            ]
        }()

        /// Whether y is canonical and the point is not of low order. Bit 255 is the sign of x.
        private static func isAcceptable(_ point: Bytes32) -> Bool {
            var withoutSign = point.array
            withoutSign[31] &= 0x7F
            let y = FieldElement(littleEndian: point).littleEndian
            return y == Bytes32(withoutSign) && !lowOrder.contains(y)
        }

        /// Whether 64 bytes are a signature of `message`.
        static func isGenuine(
            _ signature: UnsafeRawBufferPointer, of message: UnsafeRawBufferPointer, by key: Bytes32
        ) -> Bool {
            guard isAcceptable(key), isAcceptable(Bytes32(UnsafeRawBufferPointer(rebasing: signature[..<32]))),
                let key = try? key.withUnsafeBytes({ try Curve25519.Signing.PublicKey(rawRepresentation: $0) })
            else { return false }
            return key.isValidSignature(signature, for: message)
        }
    }
#endif
