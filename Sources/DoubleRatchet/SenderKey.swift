/// Our own key for sending to one group: each message is sealed and signed once for all members.
///
/// Signal's sender keys: a chain of message keys that every member can compute, and an Ed25519 pair whose private key
/// only we have, so no member can impersonate another. It has no access to groups or members. Its guarantees are weaker
/// than those of a ``Session``:
/// - There is no healing. An attacker with the chain key reads all later messages until the caller makes a new sender
///   key and distributes it ("rotation"): when a member leaves, and from time to time.
/// - The distribution is as secret as the sessions that carry it, also against quantum computers. The signatures are
///   Ed25519 only.
///
/// It cannot be copied, because two copies would use the same keys. The caller stores the state after
/// ``encrypt(_:associatedData:)`` before the message is sent; see ``PendingMessage``.
public struct SenderKey: ~Copyable, Sendable {
    private static let stateVersion: UInt8 = 1

    /// The random number by which messages name this key. Receivers may hold two keys with the same number.
    public let id: UInt32
    /// The number of the next message, from 0.
    public private(set) var iteration: UInt32
    private var chainKey: ChainKey
    private let seed: SecretBytes
    private let signingKey: Primitives.SigningPrivateKey
    private let signatureKey: Bytes32
    /// The number of steps in this process.
    private var mark: StateMark

    /// Makes a new key from 68 bytes of `random`.
    public init(random: inout some RandomSource) {
        let id = SecretBytes(count: 4, random: &random).withUnsafeBytes { $0.loadUnaligned(as: UInt32.self) }
        self.init(
            id: UInt32(bigEndian: id), iteration: 0,
            chainKey: ChainKey(secret: SecretBytes(count: 32, random: &random)),
            seed: SecretBytes(count: KeySize.curve25519, random: &random))
    }

    init(id: UInt32, iteration: UInt32, chainKey: ChainKey, seed: SecretBytes) {
        self.id = id
        self.iteration = iteration
        self.chainKey = chainKey
        self.seed = seed
        mark = StateMark()
        signingKey = Primitives.signingKey(seed: seed)
        signatureKey = Primitives.publicKey(of: signingKey)
    }

    /// The distribution of this key: opens messages from the next one on. It holds a secret: for pairwise sessions
    /// only.
    public var distribution: SenderKeyDistribution {
        SenderKeyDistribution(id: id, iteration: iteration, chainKey: chainKey, signatureKey: signatureKey)
    }

    /// Encrypts and signs `plaintext`. The message is ``SenderKeyMessage/overhead`` bytes longer.
    ///
    /// It can be sent after the state is stored; see ``PendingMessage``.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also zero.
    ///   - associatedData: data that all members know and that is not sent: group, sender device, message id.
    /// - Throws: ``RatchetError/exhausted`` after 2^32 - 1 messages.
    public mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>
    ) throws(RatchetError) -> PendingMessage {
        var message: [UInt8] = []
        try encrypt(plaintext, associatedData: associatedData, into: &message)
        return PendingMessage(message, [mark])
    }

    /// The current state, to be stored, in the form of ``serialize(into:)``.
    public borrowing func uncommittedState() -> UncommittedState { UncommittedState([mark]) { serialize(into: &$0) } }

    /// Encrypts and signs `plaintext` and appends the message to `output`.
    ///
    /// For callers that keep the order of encrypting, storing and sending themselves. The message is
    /// ``SenderKeyMessage/overhead`` bytes longer than the plaintext.
    ///
    /// - Parameters:
    ///   - plaintext: any length, also zero.
    ///   - associatedData: data that all members know and that is not sent: group, sender device, message id.
    ///   - output: the message is appended.
    /// - Throws: ``RatchetError/exhausted`` after 2^32 - 1 messages.
    package mutating func encrypt(
        _ plaintext: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) {
        guard iteration < UInt32.max else { throw .exhausted }
        let header = SenderKeyMessage(keyID: id, iteration: iteration)
        let start = output.count
        header.writeHeader(into: &output)
        var data = header.authenticated(signatureKey, associatedData)
        defer { Scratch.giveBack(&data) }
        plaintext.withUnsafeBytes {
            SenderMessageKey(chainKey.messageKey).seal($0, authenticating: data, into: &output)
        }
        var signed = output[start...].withUnsafeBytes { SenderKeyMessage.signed($0, associatedData) }
        defer { Scratch.giveBack(&signed) }
        signed.withUnsafeBytes { Primitives.sign($0, with: signingKey, into: &output) }
        chainKey.advance()
        iteration += 1
        mark.advance()
    }

    // MARK: At rest

    /// Reads the output of ``serialize(into:)``.
    ///
    /// - Throws: ``RatchetError/unsupportedVersion``, ``RatchetError/malformed``, also if the public and private
    ///   signature key do not match.
    public init(serialized bytes: Span<UInt8>) throws(RatchetError) {
        self = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
            var reader = ByteReader(bytes)
            guard try reader.byte() == Self.stateVersion else { throw .unsupportedVersion }
            let key = SenderKey(
                id: try reader.uint32(), iteration: try reader.uint32(),
                chainKey: ChainKey(secret: try reader.secret(32)), seed: try reader.secret(KeySize.curve25519))
            guard try reader.bytes32() == key.signatureKey, reader.rest.isEmpty else { throw .malformed }
            return key
        }
    }

    /// Appends the state, 105 bytes. The caller seals it and wipes it with ``SecretBytes/wipe(_:)``.
    ///
    /// ```
    /// 0   1            5               9              41                 73
    /// | 1 | key id u32 | iteration u32 | chain key 32 | signature seed 32 | signature key 32 |
    /// ```
    /// All numbers are big-endian. The signature key is included so that a state is never as long as a distribution.
    public borrowing func serialize(into output: inout [UInt8]) {
        output.append(Self.stateVersion)
        output.append(networkOrder: id)
        output.append(networkOrder: iteration)
        chainKey.secret.append(to: &output)
        seed.append(to: &output)
        signatureKey.append(to: &output)
    }
}
