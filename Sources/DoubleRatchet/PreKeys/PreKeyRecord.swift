/// One row of a ``PreKeyStore`` at rest: a private prekey with the time it was made at, or the mark of a session that used
/// none of its own.
///
/// It names the row and writes its bytes; where those are kept, and under which key they are sealed, is the caller's.
public struct PreKeyRecord: Sendable {
    /// What a row holds.
    public enum Kind: UInt8, Hashable, Sendable, CaseIterable {
        /// A signed prekey.
        case signed = 1
        /// A KEM prekey; whether it is for one use or the last resort, it says itself.
        case kem = 2
        /// A one-time prekey.
        case oneTime = 3
        /// The session that a first message without any one-time key has begun: a copy of it is known by this.
        case begun = 4
    }

    /// What tells a row from the others of its store.
    public struct Name: Hashable, Sendable {
        /// What the row holds.
        public let kind: Kind
        /// The number of the prekey, or of the mark: numbers rise with time, over all kinds.
        public let id: UInt32

        /// The name of a row.
        public init(_ kind: Kind, _ id: UInt32) { (self.kind, self.id) = (kind, id) }
    }

    enum Content: Sendable {
        case signed(PreKeyStore.Signed)
        case kem(PreKeyStore.KEM)
        case oneTime(PreKeyStore.OneTime)
        case begun(session: Bytes32)
    }

    /// The name of the row.
    public let name: Name
    /// When it was made, in milliseconds of the caller's clock.
    public let madeAt: Int64
    let content: Content

    /// Reads what ``serialize(into:)`` wrote.
    ///
    /// - Throws: ``RatchetError/malformed``, also where the bytes are not those of this name;
    ///   ``RatchetError/unsupportedVersion``.
    public init(name: Name, serialized bytes: Span<UInt8>) throws(RatchetError) {
        self.name = name
        (madeAt, content) = try ByteReader.readAll(bytes) { (reader) throws(RatchetError) in
            let madeAt = Int64(bitPattern: try reader.uint64())
            return (madeAt, try Self.content(name, try reader.take(reader.rest.count), madeAt))
        }
    }

    init(name: Name, madeAt: Int64, content: Content) {
        (self.name, self.madeAt, self.content) = (name, madeAt, content)
    }

    private static func content(
        _ name: Name, _ bytes: UnsafeRawBufferPointer, _ madeAt: Int64
    ) throws(RatchetError) -> Content {
        let content: Content
        let id: UInt32
        switch name.kind {
        case .signed:
            let signed = PreKeyStore.Signed(
                try SignedPreKey(serialized: bytes.bindMemory(to: UInt8.self).span), madeAt: madeAt)
            (content, id) = (.signed(signed), signed.key.publicKey.id)
        case .kem:
            let kem = PreKeyStore.KEM(try KEMPreKey(serialized: bytes.bindMemory(to: UInt8.self).span), madeAt: madeAt)
            (content, id) = (.kem(kem), kem.key.publicKey.id)
        case .oneTime:
            let once = PreKeyStore.OneTime(
                try OneTimePreKey(serialized: bytes.bindMemory(to: UInt8.self).span), madeAt: madeAt)
            (content, id) = (.oneTime(once), once.publicKey.id)
        case .begun:
            guard bytes.count == Bytes32.count else { throw .malformed }
            (content, id) = (.begun(session: Bytes32(bytes)), name.id)
        }
        guard id == name.id else { throw .malformed }
        return content
    }

    /// Appends `time u64 || key`, to be sealed and then wiped with ``SecretBytes/wipe(_:)``: 141 bytes for a signed prekey,
    /// 1710 for a KEM prekey, 77 for a one-time prekey and 40 for a mark. The time is big-endian; the forms of the keys are
    /// drawn where they serialize.
    public func serialize(into output: inout [UInt8]) {
        output.append(networkOrder: UInt64(bitPattern: madeAt))
        switch content {
        case .signed(let signed): signed.key.serialize(into: &output)
        case .kem(let kem): kem.key.serialize(into: &output)
        case .oneTime(let once): once.serialize(into: &output)
        case .begun(let session): session.append(to: &output)
        }
    }
}

/// What a step of a ``PreKeyStore`` changes at rest. All changes of one step belong into one transaction.
public enum PreKeyChange: Sendable {
    /// A new row.
    case put(PreKeyRecord)
    /// The row is gone, and its key with it.
    case remove(PreKeyRecord.Name)
}
