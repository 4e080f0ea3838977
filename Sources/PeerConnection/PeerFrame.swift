import DoubleRatchet

/// The plaintext of a record.
///
///     message  1 | number (8 B), from 1 without a gap | at most PeerLimits.messageLimit bytes
///     taken    2 | number (8 B): the app has taken this message and all before it
///     status   3 | flags (1 B) | metadata, at most PeerLimits.metadataLimit bytes
///     end      4
package enum PeerFrame: Hashable, Sendable {
    case message(UInt64, [UInt8])
    case taken(UInt64)
    case status(flags: UInt8, metadata: [UInt8])
    case end

    /// Reads a frame that fills all of the bytes.
    package init(_ bytes: [UInt8]) throws(PeerEnd) {
        func number() throws(PeerEnd) -> UInt64 {
            guard bytes.count >= 9 else { throw .malformed }
            let number = bytes[1..<9].reduce(0) { $0 << 8 | UInt64($1) }
            guard number > 0 else { throw .malformed }
            return number
        }
        switch bytes.first {
        case 1:
            let number = try number()
            guard bytes.count - 9 <= PeerLimits.messageLimit else { throw .malformed }
            self = .message(number, Array(bytes[9...]))
        case 2:
            let number = try number()
            guard bytes.count == 9 else { throw .malformed }
            self = .taken(number)
        case 3:
            guard bytes.count >= 2, bytes.count - 2 <= PeerLimits.metadataLimit else { throw .malformed }
            self = .status(flags: bytes[1], metadata: Array(bytes[2...]))
        case 4:
            guard bytes.count == 1 else { throw .malformed }
            self = .end
        default: throw .malformed
        }
    }

    package var bytes: [UInt8] {
        var output: [UInt8]
        switch self {
        case .message(let number, let payload):
            output = [1]
            output.reserveCapacity(9 + payload.count)
            output.append(networkOrder: number)
            output += payload
        case .taken(let number):
            output = [2]
            output.append(networkOrder: number)
        case .status(let flags, let metadata): output = [3, flags] + metadata
        case .end: output = [4]
        }
        return output
    }
}
