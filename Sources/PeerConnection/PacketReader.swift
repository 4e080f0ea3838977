import DoubleRatchet

// Packets in a stream of bytes, for transports that have no messages of their own, such as TCP.
//
//     length (4 B, 1 to the limit) | packet

/// Cuts a stream of bytes into packets.
package struct PacketReader: Sendable {
    /// The length of a packet before its bytes, in bytes.
    package static let headSize = 4

    private var buffer: [UInt8] = []
    private var start = 0
    /// Bytes of one packet. It may be changed between two packets.
    package var limit: Int
    private var hasFailed = false

    /// - Parameter limit: bytes of one packet.
    package init(limit: Int) { self.limit = limit }

    package mutating func append(_ bytes: some Sequence<UInt8>) {
        guard !hasFailed else { return }
        if start > 0 {
            buffer.removeFirst(start)
            start = 0
        }
        buffer.append(contentsOf: bytes)
    }

    /// The next packet; nil if its bytes are not all there.
    ///
    /// - Throws: ``PeerEnd/malformed`` for a length of 0 or above the limit, before the packet's bytes are awaited; then
    ///   for good.
    package mutating func next() throws(PeerEnd) -> [UInt8]? {
        guard !hasFailed else { throw .malformed }
        guard buffer.count - start >= Self.headSize else { return nil }
        let length = buffer[start..<start + Self.headSize].reduce(0) { $0 << 8 | Int($1) }
        guard (1...limit).contains(length) else {
            (buffer, start, hasFailed) = ([], 0, true)
            throw .malformed
        }
        let end = start + Self.headSize + length
        guard buffer.count >= end else { return nil }
        defer { start = end }
        return Array(buffer[start + Self.headSize..<end])
    }

    /// Bytes that belong to no whole packet yet.
    package var waiting: Int { buffer.count - start }

    /// The length of a packet as it is sent before its bytes.
    package static func head(of packet: [UInt8]) -> [UInt8] {
        var head: [UInt8] = []
        head.append(networkOrder: UInt32(packet.count))
        return head
    }
}
