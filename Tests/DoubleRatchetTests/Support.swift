import TestKit
import Testing

@testable import DoubleRatchet

func hex(_ text: String) -> [UInt8] {
    let digits = text.utf8.compactMap { Character(UnicodeScalar($0)).hexDigitValue }
    return stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
}

func text(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}

extension SecretBytes {
    convenience init(_ bytes: [UInt8]) { self.init(count: bytes.count) { $0.copyBytes(from: bytes) } }

    var array: [UInt8] { withUnsafeBytes { Array($0) } }
}

func sha256(_ bytes: [UInt8]) -> String {
    text(bytes.withUnsafeBytes { Primitives.sha256($0) }.array)
}

/// The responder's keys; one-time keys stay until the test drops them.
struct Device: ~Copyable {
    let identity: IdentityKeyPair
    let signed: SignedPreKey
    let once: OneTimePreKey?
    let kem: KEMPreKey

    /// Without the mark for padded headers unless `version` says so: most tests here know the exact lengths.
    init(
        _ random: inout SeededGenerator, oneTime: Bool = true, lastResort: Bool = false,
        version: MessageVersion = .exactHeader
    ) {
        identity = IdentityKeyPair(random: &random)
        let mark = version == .exactHeader ? 0 : SignedPreKey.Public.paddedHeaderMark
        signed = SignedPreKey(marked: 7 | mark, identity: identity, random: &random)
        once = oneTime ? OneTimePreKey(id: 8, random: &random) : nil
        kem = KEMPreKey(id: 9, isLastResort: lastResort, identity: identity, random: &random)
    }

    var bundle: PreKeyBundle {
        var oneTime: OneTimePreKey.Public?
        switch once {
        case .some(let key): oneTime = key.publicKey
        case .none: oneTime = nil
        }
        return PreKeyBundle(
            identity: identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: oneTime)
    }

    func respond(
        to message: [UInt8], data: [UInt8] = [], expecting: IdentityKey? = nil, into output: inout [UInt8]
    ) throws(RatchetError) -> Session {
        try Session.respond(
            identity: identity, signedPreKey: signed, oneTimePreKey: once, kemPreKey: kem, message: message.span,
            associatedData: data.span, expecting: expecting, plaintext: &output)
    }
}

/// Arrays in and out, for transcripts that read as one line a message.
extension Session {
    mutating func seal(
        _ text: [UInt8], data: [UInt8] = [], random: inout SeededGenerator
    ) throws(RatchetError) -> [UInt8] {
        var output: [UInt8] = []
        try encrypt(text.span, associatedData: data.span, random: &random, into: &output)
        return output
    }
}

/// Opens messages and has a serialized state: a session, or the receiver of a sender key.
protocol MessageOpener: ~Copyable {
    mutating func decrypt(
        _ message: Span<UInt8>, associatedData: Span<UInt8>, into output: inout [UInt8]
    ) throws(RatchetError) -> Session.Received
    borrowing func serialize(into output: inout [UInt8])
}

extension Session: MessageOpener {}
extension SenderKeyReceiver: MessageOpener {}

extension MessageOpener where Self: ~Copyable {
    mutating func open(_ message: [UInt8], data: [UInt8] = []) throws(RatchetError) -> [UInt8] {
        var output: [UInt8] = []
        _ = try decrypt(message.span, associatedData: data.span, into: &output)
        return output
    }

    var state: [UInt8] {
        var output: [UInt8] = []
        serialize(into: &output)
        return output
    }

    /// The error of opening, nil if it opens. Fails the test where an error left a trace.
    mutating func refusal(of message: [UInt8], data: [UInt8] = []) -> RatchetError? {
        let before = state
        var output: [UInt8] = [1, 2, 3]
        do {
            _ = try decrypt(message.span, associatedData: data.span, into: &output)
            return nil
        } catch {
            #expect(state == before, "a refused message changed the state")
            #expect(output == [1, 2, 3], "a refused message changed the output")
            return error
        }
    }
}

extension MessageVersion {
    /// Both, for the arguments of a test.
    static let both: [MessageVersion] = [.exactHeader, .paddedHeader]
}

func restored(_ state: [UInt8]) throws(RatchetError) -> Session {
    try Session(serialized: state.span)
}

/// Two ends after the exchange of two empty messages.
struct Pair: ~Copyable {
    var alice: Session
    var bob: Session
    var random: SeededGenerator

    init(seed: UInt64, version: MessageVersion = .exactHeader) throws {
        var random = SeededGenerator(seed: seed)
        let aliceIdentity = IdentityKeyPair(random: &random)
        let device = Device(&random, version: version)
        var alice = try Session.initiate(identity: aliceIdentity, with: device.bundle, expecting: nil, random: &random)
        var plaintext: [UInt8] = []
        var bob = try device.respond(to: try alice.seal([], random: &random), into: &plaintext)
        _ = try alice.open(try bob.seal([], random: &random))
        self.alice = alice
        self.bob = bob
        self.random = random
    }
}

// The same calls with arrays: a span of a temporary array cannot leave its expression.

func bundle(_ bytes: [UInt8]) throws(RatchetError) -> PreKeyBundle { try PreKeyBundle(serialized: bytes.span) }

func identityKey(_ bytes: [UInt8]) throws(RatchetError) -> IdentityKey { try IdentityKey(bytes.span) }

func header(of message: [UInt8]) throws(RatchetError) -> PreKeyMessage.Header {
    try PreKeyMessage.header(of: message.span)
}

func varint(_ bytes: [UInt8]) throws(RatchetError) -> UInt32 {
    try ByteReader.readAll(bytes.span) { (reader) throws(RatchetError) in try reader.varint() }
}

extension IdentityKey {
    func verifies(_ signature: [UInt8], of message: [UInt8], context: String) -> Bool {
        isValidSignature(signature.span, of: message.span, context: context)
    }
}

extension IdentityKeyPair {
    borrowing func signature(of message: [UInt8], context: String) -> [UInt8] {
        sign(message.span, context: context)
    }
}

extension Session {
    /// Opens a message and says what gap it left.
    mutating func gap(opening message: [UInt8]) throws(RatchetError) -> Int {
        let data: [UInt8] = []
        var output: [UInt8] = []
        return try decrypt(message.span, associatedData: data.span, into: &output).skipped
    }
}

/// What the peer of a session could send, or whoever has stolen its header keys.
extension Session {
    /// Which of our receiving header keys a forged header is sealed with.
    enum ForgedChain { case current, next }

    /// A message with a header of our choice and a wrong tag. Its post-quantum part is the one that belongs there if `part`
    /// is nil.
    func forged(
        _ chain: ForgedChain, _ key: [UInt8], _ number: UInt32, _ previous: UInt32, part: PostQuantumPart? = nil
    ) -> [UInt8] {
        let next = ratchet.receiving?.next ?? 0
        let gap =
            switch chain {
            case .current: number &- next
            case .next: (previous > next ? previous - next : 0) &+ number
            }
        let genuine = PostQuantumPart(
            epoch: ratchet.postQuantum.receivingEpoch + 1, number: ratchet.postQuantum.receiving.next &+ gap,
            message: Braid.Message(kind: .none, chunk: nil))
        var clear: [UInt8] = []
        MessageHeader(
            ratchetKey: Bytes32(key), number: number, previousCount: previous, postQuantum: part ?? genuine
        ).write(version, into: &clear)
        return forged(chain, clear)
    }

    /// The same with the bytes of a header.
    func forged(_ chain: ForgedChain, _ clear: [UInt8]) -> [UInt8] {
        let current = ratchet.receiving?.headerKey
        let key = chain == .current ? current ?? ratchet.nextReceivingHeader : ratchet.nextReceivingHeader
        return sealedHeader(clear, key, first: version.rawValue << 4) + [UInt8](repeating: 0xAA, count: 16)
    }
}

/// First byte, length and sealed header.
func sealedHeader(_ clear: [UInt8], _ key: HeaderKey, first: UInt8) -> [UInt8] {
    var sealed = [0] + clear + [UInt8](repeating: 0, count: KeySize.tag)
    sealed.withUnsafeMutableBytes { bytes in
        CipherContext.withOne { key.seal(bytes, first: first, with: $0) }
    }
    return [first, UInt8(clear.count)] + sealed
}

// MARK: Steps of the ratchets by themselves

extension MessageKey {
    /// A copy.
    var secret: SecretBytes { withUnsafeBytes { SecretBytes(copying: $0) } }
}

func combined(_ classical: SecretBytes, _ postQuantum: SecretBytes) -> SecretBytes {
    SecretBytes(count: 32) { key in
        classical.withUnsafeBytes { classical in
            postQuantum.withUnsafeBytes { MessageKeys.combine(classical, $0, into: key) }
        }
    }
}

extension SparsePostQuantumRatchet {
    /// The part of the next message, and its key.
    mutating func send(random: inout SeededGenerator) -> (part: PostQuantumPart, key: SecretBytes) {
        CipherContext.withOne { context in
            let part = send(random: &random, into: context.keys.postQuantum)
            return (part, SecretBytes(copying: context.keys.postQuantum.messageKey))
        }
    }
}

extension TripleRatchet {
    /// The header of the next message, which goes nowhere.
    mutating func nextHeader(random: inout SeededGenerator) throws(RatchetError) -> MessageHeader {
        try CipherContext.withOne { (context) throws(RatchetError) in
            try send(random: &random, keys: context.keys).header
        }
    }

    /// Opens a message that binds nothing, whatever it says.
    mutating func receive(_ message: Message) throws(RatchetError) -> Int {
        var plaintext = [UInt8](repeating: 0, count: message.plaintextCount)
        var bytes = plaintext.mutableSpan
        return try bytes.withUnsafeMutableBytes { (plaintext) throws(RatchetError) in
            try CipherContext.withOne { (context) throws(RatchetError) in
                try receive(
                    Opening(message: message, data: Primitives.nothing, context: context, plaintext: plaintext))
            }
        }
    }
}

extension Message {
    static func writeHead(
        _ version: MessageVersion, _ preKeyPart: PreKeyPart?, _ header: MessageHeader, key: HeaderKey,
        into output: inout [UInt8]
    ) {
        CipherContext.withOne { writeHead(version, preKeyPart, header, key: key, with: $0, into: &output) }
    }
}
