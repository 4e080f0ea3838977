import Crypto

extension UInt64 {
    /// The first eight bytes as a big-endian number.
    init(firstOf bytes: some Sequence<UInt8>) {
        self = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// The beginning of the SHA-256 of a text.
    init(digestOf text: String) { self.init(firstOf: SHA256.hash(data: Array(text.utf8))) }
}
