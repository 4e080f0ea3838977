/// A record at rest. The bytes are secrets: the caller seals them and wipes the array with ``SecretBytes/wipe(_:)``.
///
/// A record without earlier sessions has the form of its session's state, so a state stored before records existed is
/// read as a record. With earlier sessions it is
///
/// ```
/// 0     1           3          4
/// | 129 | heard u16 | count u8 | each: length u32, state of the session; the current one first, then newest first
/// ```
/// All numbers are big-endian; *count* is the number of earlier sessions. No version of a session's own state begins
/// with 129.
extension SessionRecord {
    private static let stateVersion: UInt8 = 129

    /// Appends the state: that of one session, or of up to three with 16 bytes more.
    public borrowing func serialize(into output: inout [UInt8]) {
        guard earlier.count > 0 else { return current.serialize(into: &output) }
        var size = 4 + 4 + current.maximumSize
        for index in 0..<earlier.count { size += 4 + earlier[index].maximumSize }
        output.reserveCapacity(output.count + size)
        output.append(Self.stateVersion)
        output.append(networkOrder: receivedCount)
        output.append(UInt8(earlier.count))
        Self.append(current, to: &output)
        for index in 0..<earlier.count { Self.append(earlier[index], to: &output) }
    }

    private static func append(_ session: borrowing Session, to output: inout [UInt8]) {
        let start = output.count
        output.append(networkOrder: UInt32(0))
        session.serialize(into: &output)
        let length = UInt32(output.count - start - 4)
        for place in 0..<4 { output[start + place] = UInt8(truncatingIfNeeded: length >> (24 - 8 * UInt32(place))) }
    }

    /// Reads the output of ``serialize(into:)``, or the state of one session.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        let isRecord = bytes.withUnsafeBytes { $0.first == Self.stateVersion }
        guard isRecord else {
            self.init(try Session(serialized: bytes))
            return
        }
        self = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            _ = try reader.byte()
            let receivedCount = try reader.uint16()
            let count = Int(try reader.byte())
            guard count > 0, count <= Self.earlierLimit, receivedCount < Self.earlierLife else { throw .malformed }
            let current = try Self.session(from: &reader)
            // Inserted oldest first, so that the newest is at the front.
            var states: [UnsafeRawBufferPointer] = []
            for _ in 0..<count { states.append(try reader.take(Int(try reader.uint32()))) }
            guard reader.rest.isEmpty else { throw .malformed }
            var earlier = SessionList(capacity: Self.earlierLimit)
            for state in states.reversed() {
                let session = try Session(serialized: state.bindMemory(to: UInt8.self).span)
                guard session.peerIdentity == current.peerIdentity, session.ownIdentity == current.ownIdentity else {
                    throw .malformed
                }
                earlier.insert(session)
            }
            return SessionRecord(current, earlier: earlier, receivedCount: receivedCount)
        }
    }

    private static func session(from reader: inout ByteReader) throws(RatchetError) -> Session {
        let state = try reader.take(Int(try reader.uint32()))
        return try Session(serialized: state.bindMemory(to: UInt8.self).span)
    }
}
