import Foundation

/// An IPv4 or IPv6 address without a zone.
///
/// An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`, as a dual-stack socket reports it) becomes the IPv4 address.
/// Otherwise a rule about one form would not match the other.
package struct IPAddress: Sendable, Hashable {
    /// The address family.
    package enum Family: Sendable {
        case v4, v6

        /// The length of an address in bits.
        var width: Int { self == .v4 ? 32 : 128 }
    }

    /// The address family.
    package let family: Family
    /// The address as a number, right-aligned.
    let bits: UInt128

    init(family: Family, bits: UInt128) {
        let isMapped = family == .v6 && bits >> 32 == 0xFFFF
        self.family = isMapped ? .v4 : family
        self.bits = isMapped ? bits & 0xFFFF_FFFF : bits
    }

    /// Parses a literal without brackets; `nil` for any other text.
    package init?(_ text: some StringProtocol) {
        let text = String(text)
        guard !text.utf8.contains(0) else { return nil }
        var v4 = in_addr()
        var v6 = in6_addr()
        if inet_pton(AF_INET, text, &v4) == 1 {
            self.init(family: .v4, bits: withUnsafeBytes(of: &v4, Self.number))
        } else if inet_pton(AF_INET6, text, &v6) == 1 {
            self.init(family: .v6, bits: withUnsafeBytes(of: &v6, Self.number))
        } else {
            return nil
        }
    }

    private static func number(_ bytes: UnsafeRawBufferPointer) -> UInt128 {
        bytes.reduce(0) { $0 << 8 | UInt128($1) }
    }

    /// Whether the address is a loopback address.
    package var isLoopback: Bool {
        self.family == .v4 ? self.bits >> 24 == 127 : self.bits == 1
    }
}

extension IPAddress: CustomStringConvertible {
    package var description: String {
        var bytes = (0..<self.family.width / 8).reversed().map { UInt8(truncatingIfNeeded: self.bits >> ($0 * 8)) }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        inet_ntop(self.family == .v4 ? AF_INET : AF_INET6, &bytes, &text, socklen_t(text.count))
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
