// The PROXY protocol, versions 1 and 2 (HAProxy's specification): the client's address, sent before its first byte.
// Pure: bytes in, values out.

package import NIOCore

/// The two ends of a connection, from a PROXY header.
package struct ProxiedAddresses: Equatable, Sendable {
    package var source: SocketAddress
    package var destination: SocketAddress

    package init(source: SocketAddress, destination: SocketAddress) {
        (self.source, self.destination) = (source, destination)
    }
}

/// Why bytes are not a valid PROXY header.
package enum ProxyProtocolError: Error, Equatable, Sendable {
    case malformed
    case unsupportedVersion
    /// Longer than ``ProxyProtocol/v1Length`` or ``ProxyProtocol/v2Length``.
    case tooLong
}

/// Reads and writes PROXY headers.
package enum ProxyProtocol {
    /// The version of a header to write.
    package enum Version: String, Sendable, CaseIterable {
        case v1, v2
    }

    /// Section 2.1: maximum length of a v1 header in bytes, CR LF included.
    package static let v1Length = 107
    /// Ours: maximum length of the addresses and type-length-values of a v2 header, in bytes. No proxy sends more.
    package static let v2Length = 2048
    private static let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]

    /// The result of reading a header.
    package enum Outcome: Equatable, Sendable {
        /// More bytes are needed.
        case incomplete
        /// A complete header; nil if it has no addresses (LOCAL, UNKNOWN, AF_UNIX).
        ///
        /// `isSecure`: the proxy has terminated TLS of the client.
        case header(ProxiedAddresses?, isSecure: Bool)
    }

    /// Removes a header from the front of a buffer. An incomplete header leaves the buffer unchanged.
    ///
    /// - Throws: ``ProxyProtocolError``.
    package static func read(_ buffer: inout ByteBuffer) throws(ProxyProtocolError) -> Outcome {
        guard let first = buffer.getInteger(at: buffer.readerIndex, as: UInt8.self) else { return .incomplete }
        if first == signature[0] { return try readV2(&buffer) }
        if first == UInt8(ascii: "P") { return try readV1(&buffer) }
        throw .malformed
    }

    private static func readV1(_ buffer: inout ByteBuffer) throws(ProxyProtocolError) -> Outcome {
        let view = buffer.readableBytesView.prefix(v1Length)
        guard let end = view.firstIndex(of: 0x0A) else {
            guard view.count < v1Length else { throw .tooLong }
            guard "PROXY ".utf8.starts(with: view.prefix(6)) else { throw .malformed }
            return .incomplete
        }
        guard end > view.startIndex, view[end - 1] == 0x0D else { throw .malformed }
        let words = String(decoding: view[view.startIndex..<(end - 1)], as: UTF8.self)
            .split(separator: " ", omittingEmptySubsequences: false)
        guard words.first == "PROXY", words.count >= 2 else { throw .malformed }
        let length = end + 1 - view.startIndex
        if words[1] == "UNKNOWN" {
            buffer.moveReaderIndex(forwardBy: length)
            return .header(nil, isSecure: false)
        }
        guard words.count == 6, words[1] == "TCP4" || words[1] == "TCP6",
            let sourcePort = port(words[4]), let destinationPort = port(words[5]),
            let source = try? SocketAddress(ipAddress: String(words[2]), port: sourcePort),
            let destination = try? SocketAddress(ipAddress: String(words[3]), port: destinationPort),
            (words[1] == "TCP6") == (source.protocol == .inet6), source.protocol == destination.protocol
        else { throw .malformed }
        buffer.moveReaderIndex(forwardBy: length)
        return .header(ProxiedAddresses(source: source, destination: destination), isSecure: false)
    }

    private static func port(_ word: Substring) -> Int? {
        guard let number = Int(word), (0...65535).contains(number), String(number) == word else { return nil }
        return number
    }

    private static func readV2(_ buffer: inout ByteBuffer) throws(ProxyProtocolError) -> Outcome {
        let view = buffer.readableBytesView
        guard signature.starts(with: view.prefix(12)) else { throw .malformed }
        guard view.count >= 16 else { return .incomplete }
        let start = view.startIndex
        guard view[start + 12] >> 4 == 2 else { throw .unsupportedVersion }
        let command = view[start + 12] & 0x0F
        guard command <= 1 else { throw .malformed }
        let length = Int(view[start + 14]) << 8 | Int(view[start + 15])
        guard length <= v2Length else { throw .tooLong }
        guard view.count >= 16 + length else { return .incomplete }
        let family = view[start + 13]
        let body = Array(view[(start + 16)..<(start + 16 + length)])
        var addresses: ProxiedAddresses?
        var isSecure = false
        if command == 1 {
            switch family {
            case 0x11:
                addresses = try ends(body, size: 4)
                isSecure = try hasClientTLS(body.dropFirst(12))
            case 0x21:
                addresses = try ends(body, size: 16)
                isSecure = try hasClientTLS(body.dropFirst(36))
            case 0x00, 0x31, 0x12, 0x22, 0x32: addresses = nil
            default: throw .malformed
            }
        }
        buffer.moveReaderIndex(forwardBy: 16 + length)
        return .header(addresses, isSecure: isSecure)
    }

    /// Section 2.2: the type of a TLV about the client's TLS, and the bits in its first byte.
    private static let tlsType: UInt8 = 0x20
    private static let clientTLS: UInt8 = 0x01
    private static let clientCertificate: UInt8 = 0x02 | 0x04

    /// Whether the type-length-values behind the addresses say that the client is connected by TLS.
    private static func hasClientTLS(_ values: ArraySlice<UInt8>) throws(ProxyProtocolError) -> Bool {
        var (rest, isSecure) = (values, false)
        while !rest.isEmpty {
            guard rest.count >= 3 else { throw .malformed }
            let start = rest.startIndex
            let length = Int(rest[start + 1]) << 8 | Int(rest[start + 2])
            guard rest.count >= 3 + length else { throw .malformed }
            if rest[start] == tlsType, length >= 5, rest[start + 3] & clientTLS != 0 { isSecure = true }
            rest = rest.dropFirst(3 + length)
        }
        return isSecure
    }

    private static func ends(_ body: [UInt8], size: Int) throws(ProxyProtocolError) -> ProxiedAddresses {
        guard body.count >= 2 * size + 4 else { throw .malformed }
        func address(_ offset: Int, _ portOffset: Int) -> SocketAddress? {
            let port = Int(body[portOffset]) << 8 | Int(body[portOffset + 1])
            let packed = ByteBuffer(bytes: body[offset..<(offset + size)])
            return try? SocketAddress(packedIPAddress: packed, port: port)
        }
        guard let source = address(0, 2 * size), let destination = address(size, 2 * size + 2) else { throw .malformed }
        return ProxiedAddresses(source: source, destination: destination)
    }

    /// The header for a connection. It has no addresses if they are nil or not of one IP family.
    ///
    /// - Parameter security: the client's TLS, which only version 2 can express, and only beside addresses.
    package static func header(
        _ version: Version, _ addresses: ProxiedAddresses?, security: ClientSecurity? = nil
    ) -> ByteBuffer {
        switch version {
        case .v1: v1Header(addresses)
        case .v2: v2Header(addresses, security)
        }
    }

    private static func v1Header(_ addresses: ProxiedAddresses?) -> ByteBuffer {
        guard let (source, destination) = usable(addresses), let from = source.ipAddress, let to = destination.ipAddress
        else { return ByteBuffer(string: "PROXY UNKNOWN\r\n") }
        let family = source.protocol == .inet6 ? "TCP6" : "TCP4"
        return ByteBuffer(string: "PROXY \(family) \(from) \(to) \(source.port ?? 0) \(destination.port ?? 0)\r\n")
    }

    private static func v2Header(_ addresses: ProxiedAddresses?, _ security: ClientSecurity?) -> ByteBuffer {
        var buffer = ByteBuffer(bytes: signature)
        guard let (source, destination) = usable(addresses) else {
            buffer.writeBytes([0x20, 0x00, 0x00, 0x00])
            return buffer
        }
        let from = packed(source)
        let to = packed(destination)
        buffer.writeBytes([0x21, from.count == 4 ? 0x11 : 0x21])
        let values = security.map(tlsValue) ?? []
        buffer.writeInteger(UInt16(2 * from.count + 4 + values.count))
        buffer.writeBytes(from + to)
        buffer.writeInteger(UInt16(truncatingIfNeeded: source.port ?? 0))
        buffer.writeInteger(UInt16(truncatingIfNeeded: destination.port ?? 0))
        buffer.writeBytes(values)
        return buffer
    }

    /// The TLV about a client by TLS. Who has signed its certificate was not verified: `verify` is not zero.
    private static func tlsValue(_ security: ClientSecurity) -> [UInt8] {
        [tlsType, 0, 5, clientTLS | (security.fingerprint == nil ? 0 : clientCertificate), 0, 0, 0, 1]
    }

    private static func usable(_ addresses: ProxiedAddresses?) -> (SocketAddress, SocketAddress)? {
        guard let addresses, addresses.source.protocol == addresses.destination.protocol,
            addresses.source.protocol == .inet || addresses.source.protocol == .inet6
        else { return nil }
        return (addresses.source, addresses.destination)
    }

    /// The address in network byte order: 4 bytes after family and port, or 16 bytes after the IPv6 flow label.
    private static func packed(_ address: SocketAddress) -> [UInt8] {
        address.withSockAddr { pointer, size in
            let raw = UnsafeRawBufferPointer(start: pointer, count: size)
            return address.protocol == .inet6 ? Array(raw[8..<24]) : Array(raw[4..<8])
        }
    }
}
