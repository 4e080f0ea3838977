/// One row of a ``PreKeyStore`` at rest: a private prekey and its creation time, or the mark of a session.
///
/// A mark records a session that used no one-time key. The caller decides where the row is stored and which key seals
/// it.
///
/// The record has the row's name and writes its bytes.
public struct PreKeyRecord: Sendable {
    /// The kind of a row.
    public enum Kind: UInt8, Hashable, Sendable, CaseIterable {
        /// A signed prekey.
        case signed = 1
        /// A KEM prekey; its bytes tell whether it is a one-time or a last-resort key.
        case kem = 2
        /// A one-time prekey.
        case oneTime = 3
        /// The session started by a first message without any one-time key; it identifies a copy of that message.
        case begun = 4
    }

    /// The unique name of a row in its store.
    public struct Name: Hashable, Sendable {
        /// The kind of the row.
        public let kind: Kind
        /// The number of the prekey or mark: one higher for each row made, over all kinds. After a restart, numbering
        /// continues from the highest stored number, so that a number of a consumed key may be used again.
        ///
        /// That is safe: PQXDH uses numbers to find a key only. A first message for the earlier key fails to open
        /// with the later one, as it would without any, because all keys enter the session's secret.
        ///
        /// The id of a signed prekey has a mark in its highest bit, see ``SignedPreKey/Public/id``.
        public let id: UInt32

        /// Makes the name of a row.
        public init(_ kind: Kind, _ id: UInt32) { (self.kind, self.id) = (kind, id) }

        /// The id without the mark.
        var number: UInt32 { kind == .signed ? id & ~SignedPreKey.Public.paddedHeaderMark : id }
    }

    /// Upper bound of the bytes that ``serialize(into:)`` appends: those of a KEM prekey.
    private static let maximumSize = 1710

    enum Content: Sendable {
        case signed(PreKeyStore.Signed)
        case kem(PreKeyStore.KEM)
        case oneTime(PreKeyStore.OneTime)
        case begun(session: Bytes32)
    }

    /// The name of the row.
    public let name: Name
    /// The creation time, in milliseconds of the caller's clock.
    public let madeAt: Int64
    let content: Content

    /// Reads the output of ``serialize(into:)``.
    ///
    /// - Throws: ``RatchetError/malformed``, also if the bytes do not belong to this name;
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

    /// Appends `time u64 || key`: 141 bytes for a signed prekey, 1710 for a KEM prekey, 77 for a one-time prekey and 40
    /// for a mark.
    ///
    /// The caller seals the bytes and wipes them with ``SecretBytes/wipe(_:)``. The time is big-endian; the
    /// `serialize(into:)` of each key describes its form.
    public func serialize(into output: inout [UInt8]) {
        // A growing array would leave a part of the key in the memory that it frees.
        output.reserveCapacity(output.count + Self.maximumSize)
        output.append(networkOrder: UInt64(bitPattern: madeAt))
        switch content {
        case .signed(let signed): signed.key.serialize(into: &output)
        case .kem(let kem): kem.key.serialize(into: &output)
        case .oneTime(let once): once.serialize(into: &output)
        case .begun(let session): session.append(to: &output)
        }
    }
}

/// A change of a ``PreKeyStore`` at rest. All changes of one step belong in one transaction.
public enum PreKeyChange: Sendable {
    /// A new row.
    case put(PreKeyRecord)
    /// Removes a row and its key.
    case remove(PreKeyRecord.Name)
}
