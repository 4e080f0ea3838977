package import DoubleRatchet

/// What two devices send each other over a transport that delivers whole packets.
///
///     hello    1 | version 1 (1 B) | connection id (16 B) | ephemeral X25519 key (32 B)       initiator to responder
///     answer   2 | version 1 (1 B) | ephemeral X25519 key (32 B) | sealed signature (80 B)    responder to initiator
///     finish   3 | sealed signature (80 B)                                                    initiator to responder
///     record   4 | sealed frame (17 B to PeerLimits.packetLimit - 1)                          both
package enum PeerPacket: Hashable, Sendable {
    case hello(connection: PeerConnectionID, Bytes32)
    case answer(Bytes32, [UInt8])
    case finish([UInt8])
    case record([UInt8])

    package static let version: UInt8 = 1
    /// The tag of AES-256-GCM-SIV in bytes (RFC 8452).
    static let tagSize = 16
    static let sealedSignature = 64 + tagSize

    /// Reads a packet that fills all of the bytes.
    package init(_ bytes: [UInt8]) throws(PeerEnd) {
        guard bytes.count <= PeerLimits.packetLimit, let kind = bytes.first else { throw .malformed }
        func part(_ start: Int, _ count: Int) -> [UInt8] { Array(bytes[start..<start + count]) }
        func demand(_ count: Int) throws(PeerEnd) {
            guard bytes.count >= 2 else { throw .malformed }
            guard bytes[1] == Self.version else { throw .otherVersion }
            guard bytes.count == count else { throw .malformed }
        }
        switch kind {
        case 1:
            try demand(2 + PeerConnectionID.size + Bytes32.count)
            self = .hello(
                connection: PeerConnectionID(checked: part(2, PeerConnectionID.size)),
                Bytes32(part(2 + PeerConnectionID.size, Bytes32.count)))
        case 2:
            try demand(2 + Bytes32.count + Self.sealedSignature)
            self = .answer(Bytes32(part(2, Bytes32.count)), part(2 + Bytes32.count, Self.sealedSignature))
        case 3:
            guard bytes.count == 1 + Self.sealedSignature else { throw .malformed }
            self = .finish(part(1, Self.sealedSignature))
        case 4:
            guard bytes.count > 1 + Self.tagSize else { throw .malformed }
            self = .record(part(1, bytes.count - 1))
        default: throw .malformed
        }
    }

    package var bytes: [UInt8] {
        var output: [UInt8]
        switch self {
        case .hello(let connection, let key):
            output = [1, Self.version] + connection.bytes
            key.append(to: &output)
        case .answer(let key, let signature):
            output = [2, Self.version]
            key.append(to: &output)
            output += signature
        case .finish(let signature): output = [3] + signature
        case .record(let sealed): output = [4] + sealed
        }
        return output
    }
}

/// The id of one connection, drawn by its initiator and signalled inside a sealed message.
package struct PeerConnectionID: Hashable, Sendable {
    package static let size = 16
    package let bytes: [UInt8]

    fileprivate init(checked bytes: [UInt8]) { self.bytes = bytes }

    /// nil for another length than 16 bytes.
    package init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.size else { return nil }
        self.bytes = bytes
    }

    package init(random: inout some RandomSource) {
        var drawn = [UInt8](repeating: 0, count: Self.size)
        drawn.withUnsafeMutableBytes { random.fill($0) }
        bytes = drawn
    }
}

/// Why a connection has ended. No case carries bytes of the other side.
package enum PeerEnd: Error, Hashable, Sendable {
    /// This side has closed it.
    case closed
    /// The other side has closed it, and has said so under the connection's key.
    case closedByPeer
    /// The transport has ended, and the other side has not said so.
    case lost
    /// A packet was not made by the other device for this connection and this place.
    case notAuthentic
    /// A packet or frame has no known form, or may not come now.
    case malformed
    /// The other side begins with another version.
    case otherVersion
    /// The handshake was not finished in time.
    case handshakeTimeout
    /// Nothing was sent for the idle time.
    case idle
    /// The other side's app has not taken a message in time.
    case notTaken
    /// The other side sends more than the window, or does not read.
    case overloaded
    /// All nonces are used.
    case exhausted
}
