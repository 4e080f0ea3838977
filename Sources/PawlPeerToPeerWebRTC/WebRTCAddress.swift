import Foundation

/// A numeric network address of a candidate.
struct WebRTCAddress: Equatable {
    /// The canonical text.
    let text: String
    /// Four bytes or sixteen.
    private let bytes: [UInt8]

    /// Reads IPv4 or IPv6 in numbers; nil for names and zones.
    init?(_ text: String) {
        // The longest address has 45 characters.
        guard (2...45).contains(text.utf8.count), !text.utf8.contains(0) else { return nil }
        for (family, size) in [(AF_INET, 4), (AF_INET6, 16)] {
            var bytes = [UInt8](repeating: 0, count: size)
            guard inet_pton(family, text, &bytes) == 1 else { continue }
            var canonical = [CChar](repeating: 0, count: 64)
            guard inet_ntop(family, bytes, &canonical, socklen_t(canonical.count)) != nil else { return nil }
            self.bytes = bytes
            self.text = String(decoding: canonical.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            return
        }
        return nil
    }

    /// Whether it is of this device only.
    var isLoopback: Bool {
        bytes.count == 4 ? bytes[0] == 127 : bytes.dropLast().allSatisfy { $0 == 0 } && bytes[15] == 1
    }

    /// Whether it may be of another device: no loopback, link-local or multicast address, and none in disguise.
    var isForOthers: Bool {
        // This network, loopback, link-local, and multicast with all above (RFC 6890).
        if bytes.count == 4 {
            return bytes[0] != 0 && bytes[0] != 127 && !(bytes[0] == 169 && bytes[1] == 254) && bytes[0] < 224
        }
        // 0::/8, which has the mapped addresses, NAT64, fe80::/10, and multicast.
        let isTranslated = bytes[0] == 0 && bytes[1] == 0x64
        return bytes[0] != 0 && !isTranslated && !(bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80) && bytes[0] != 0xFF
    }
}
