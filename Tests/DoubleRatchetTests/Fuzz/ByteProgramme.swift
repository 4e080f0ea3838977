@testable import DoubleRatchet

#if !ONE_MODULE
    import TestKit

    @testable import OMEMO
#endif

/// Bytes for everything that reads bytes from outside.
///
/// ```
/// | reader | [its own choices] | form | ... |
/// ```
/// With an odd form the rest is what is read; with an even one it is a list of changes, each of an operation, a place (u16)
/// and a value, to something genuine. So no corpus is needed to get behind the first checks. Whatever is accepted has
/// to be written again in the same bytes, where the format is ours; what is refused may leave no trace.
struct ByteProgramme {
    private var programme: Programme
    private let states: FuzzStates

    private typealias Reader = @Sendable (inout ByteProgramme) throws -> Void
    private static let readers: [Reader] = [
        { try $0.readMessage() }, { try $0.readFirstMessage() }, { try $0.readHeader() }, { try $0.readState() },
        { try $0.readBundle() }, { try $0.readPreKeys() }, { try $0.readSenderKey() }, { try $0.readGroupMessage() },
        { try $0.readOMEMOMessage() }, { try $0.readOMEMOState() }, { try $0.readOMEMOPayload() },
        { try $0.readSafetyNumber() }, { try $0.readKeys() }, { try $0.readProtobuf() },
        { try $0.readMessage(\.exact) }, { try $0.readFirstMessage(\.exact) }, { try $0.readHeader(\.exact) },
        { try $0.readState(\.exact) },
    ]
    static var readerCount: Int { readers.count }

    /// - Throws: ``Finding``, or what should not have been thrown.
    static func run(_ bytes: [UInt8]) throws {
        var fuzz = ByteProgramme(programme: Programme(bytes), states: try FuzzStates.shared.get())
        try readers[fuzz.programme.byte() % readers.count](&fuzz)
    }

    // MARK: Input

    /// The rest of the programme, or `genuine` with its changes.
    private mutating func input(_ genuine: [UInt8]) -> [UInt8] {
        guard programme.byte() % 2 == 0 else { return programme.take() }
        var bytes = genuine
        while !programme.isAtEnd {
            let (way, place, value) = (programme.byte(), programme.number(), UInt8(programme.byte()))
            let at = bytes.isEmpty ? 0 : place % bytes.count
            switch way % 6 {
            case 0 where !bytes.isEmpty: bytes[at] = value
            case 1 where !bytes.isEmpty: bytes[at] ^= value
            case 2 where !bytes.isEmpty: bytes.remove(at: at)
            case 3: bytes.insert(value, at: at)
            case 4: bytes.removeLast(bytes.count - at)
            default: bytes.append(value)
            }
        }
        return bytes
    }

    // MARK: The native protocol

    /// Sessions of one version of the messages.
    private typealias Native = KeyPath<FuzzStates, FuzzStates.Native>

    private mutating func readMessage(_ native: Native = \.padded) throws {
        let native = states[keyPath: native]
        var random = SeededGenerator(seed: 3)
        let alice = try NativeEnd(native.established.alice)
        let genuine = try alice.seal([1, 2, 3], random: &random)
        let bytes = input(genuine.bytes)
        let bob = try NativeEnd(native.established.bob)
        try offer(End.Packet(bytes: bytes, data: genuine.data), to: bob, unless: genuine.bytes)
        _ = PreKeyMessage.isPreKeyMessage(bytes.span)
    }

    private mutating func readFirstMessage(_ native: Native = \.padded) throws {
        var random = SeededGenerator(seed: 4)
        let alice = try NativeEnd(states[keyPath: native].initiator)
        let genuine = try alice.seal([1, 2, 3], random: &random)
        let bytes = input(genuine.bytes)
        try attempt {
            let header = try PreKeyMessage.header(of: bytes.span)
            try demand(PreKeyMessage.isPreKeyMessage(bytes.span) && header.sessionID.count == 32, "no first message")
        }
        let bob = NativeEnd(answeringAs: states.bob)
        try offer(End.Packet(bytes: bytes, data: genuine.data), to: bob, unless: genuine.bytes)
    }

    /// A header as only the peer can seal one, before a body that nobody has sealed.
    private mutating func readHeader(_ native: Native = \.padded) throws {
        let isNext = programme.byte() % 2 == 0
        let stored = states[keyPath: native].established.bob
        let bob = try Session(serialized: stored.span)
        let part = PostQuantumPart(
            epoch: bob.ratchet.postQuantum.receivingEpoch + 1, number: bob.ratchet.postQuantum.receiving.next,
            message: Braid.Message(kind: .none, chunk: nil))
        let header = MessageHeader(
            ratchetKey: isNext ? Bytes32([UInt8](repeating: 9, count: 32)) : bob.ratchet.peerKey,
            number: isNext ? 0 : bob.ratchet.receiving?.next ?? 0,
            previousCount: isNext ? bob.ratchet.receiving?.next ?? 0 : 0, postQuantum: part)
        var genuine: [UInt8] = []
        header.write(bob.version, into: &genuine)
        let bytes = Array(input(genuine).prefix(MessageHeader.maximumSize))
        try attempt {
            let version = bob.version
            let header = try bytes.withUnsafeBytes { (bytes) throws(RatchetError) in
                try MessageHeader(bytes, version, minimumVersion: SparsePostQuantumRatchet.version)
            }
            try writtenAgain(bytes, "a header") { header.write(version, into: &$0) }
        }
        let current = bob.ratchet.receiving?.headerKey
        let key = isNext ? bob.ratchet.nextReceivingHeader : current ?? bob.ratchet.nextReceivingHeader
        let first = bob.version.rawValue << 4
        var message: [UInt8] = [first, UInt8(bytes.count), 0] + bytes + [UInt8](repeating: 0, count: KeySize.tag)
        message.withUnsafeMutableBytes { message in
            CipherContext.withOne { context in
                key.seal(UnsafeMutableRawBufferPointer(rebasing: message[2...]), first: first, with: context)
            }
        }
        let packet = End.Packet(bytes: message + [UInt8](repeating: 0xAA, count: 16))
        try offer(packet, to: try NativeEnd(stored), unless: [])
    }

    /// A state that was damaged, or that somebody made up to send authentic messages of his own: it goes on or is
    /// refused, and its peer opens what it says or is as it was.
    private mutating func readState(_ native: Native = \.padded) throws {
        let native = states[keyPath: native]
        let which = programme.byte()
        let genuine = [native.established.alice, native.established.bob, native.initiator][which % 3]
        let bytes = input(genuine)
        try attempt {
            let session = try Session(serialized: bytes.span)
            try writtenAgain(bytes, "a state") { session.serialize(into: &$0) }
            var random = SeededGenerator(seed: 5)
            let one = try NativeEnd(bytes)
            let other =
                which % 3 == 2
                ? NativeEnd(answeringAs: states.bob)
                : try NativeEnd(which % 3 == 0 ? native.established.bob : native.established.alice)
            for _ in 0...(which >> 2) % 3 {
                try offer(try one.seal([1], random: &random), to: other, unless: [], mayOpen: true)
                guard other.canSend else { continue }
                try offer(try other.seal([2], random: &random), to: one, unless: [], mayOpen: true)
            }
            try one.restart()
            try other.restart()
        }
    }

    private mutating func readBundle() throws {
        var genuine: [UInt8] = []
        states.bob.bundle.serialize(into: &genuine)
        let bytes = input(genuine)
        try attempt {
            let bundle = try PreKeyBundle(serialized: bytes.span)
            try writtenAgain(bytes, "a bundle") { bundle.serialize(into: &$0) }
            try bundle.verify()
            // The one-time prekey is the one part that carries no signature.
            var signed = genuine
            signed.replaceSubrange(signed.indices.suffix(37), with: bytes.suffix(37))
            try demand(
                bytes == genuine || bytes.count != genuine.count || bytes == signed, "a forged bundle is believed")
        }
    }

    private mutating func readPreKeys() throws {
        var genuine: [UInt8] = []
        switch programme.byte() % 6 {
        case 0:
            states.bob.signed.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try SignedPreKey(serialized: bytes.span)
                try writtenAgain(bytes, "a signed prekey") { key.serialize(into: &$0) }
            }
        case 1:
            states.bob.once.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try OneTimePreKey(serialized: bytes.span)
                try writtenAgain(bytes, "a one-time prekey") { key.serialize(into: &$0) }
            }
        case 2:
            states.bob.kem.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try KEMPreKey(serialized: bytes.span)
                try writtenAgain(bytes, "a KEM prekey") { key.serialize(into: &$0) }
            }
        case 3:
            states.bob.signed.publicKey.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try SignedPreKey.Public(serialized: bytes.span)
                try writtenAgain(bytes, "a public signed prekey") { key.serialize(into: &$0) }
            }
        case 4:
            states.bob.once.publicKey.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try OneTimePreKey.Public(serialized: bytes.span)
                try writtenAgain(bytes, "a public one-time prekey") { key.serialize(into: &$0) }
            }
        default:
            states.bob.kem.publicKey.serialize(into: &genuine)
            let bytes = input(genuine)
            try attempt {
                let key = try KEMPreKey.Public(serialized: bytes.span)
                try writtenAgain(bytes, "a public KEM prekey") { key.serialize(into: &$0) }
            }
        }
    }

    // MARK: Groups

    private mutating func readSenderKey() throws {
        switch programme.byte() % 3 {
        case 0:
            let bytes = input(states.distribution)
            try attempt {
                let distribution = try SenderKeyDistribution(serialized: bytes.span)
                try writtenAgain(bytes, "a distribution") { distribution.serialize(into: &$0) }
                let receiver = SenderKeyReceiver(distribution)
                var state: [UInt8] = []
                receiver.serialize(into: &state)
                let again = try SenderKeyReceiver(serialized: state.span)
                try writtenAgain(state, "a receiver") { again.serialize(into: &$0) }
            }
        case 1:
            let bytes = input(states.sender)
            try attempt {
                let end = try SenderEnd(bytes)
                try demand(end.state == bytes, "a sender key is written again in other bytes")
                var random = SeededGenerator(seed: 6)
                let packet = try end.seal([1], random: &random)
                try offer(packet, to: try ReaderEnd(states.distribution), unless: [], mayOpen: true)
            }
        default:
            let genuine = try reader().state
            let bytes = input(genuine)
            try attempt {
                let receiver = try SenderKeyReceiver(serialized: bytes.span)
                try writtenAgain(bytes, "a receiver") { receiver.serialize(into: &$0) }
            }
        }
    }

    /// A member that misses two messages.
    private func reader() throws -> ReaderEnd {
        var random = SeededGenerator(seed: 6)
        let (sender, reader) = (try SenderEnd(states.sender), try ReaderEnd(states.distribution))
        for number in 0..<5 {
            let packet = try sender.seal([], random: &random)
            var output: [UInt8] = []
            if number % 2 == 0 { try reader.open(packet, into: &output) }
        }
        return reader
    }

    private mutating func readGroupMessage() throws {
        var random = SeededGenerator(seed: 6)
        let genuine = try SenderEnd(states.sender).seal([1, 2], random: &random)
        let bytes = input(genuine.bytes)
        try attempt { _ = try SenderKeyMessage(headerOf: bytes.span) }
        try offer(
            End.Packet(bytes: bytes, data: genuine.data), to: try ReaderEnd(states.distribution),
            unless: genuine.bytes)
    }

    // MARK: OMEMO

    private mutating func readOMEMOMessage() throws {
        let form = programme.byte()
        let profile = form % 2 == 0 ? OMEMOProfile.axolotl : .omemo2
        let index = Int(profile.rawValue) - 1
        var random = SeededGenerator(seed: 7)
        let isFirst = form & 2 == 0
        let alice = try OMEMOEnd(isFirst ? states.omemo[index] : states.establishedOMEMO[index].alice, profile)
        let bob =
            isFirst
            ? OMEMOEnd(answeringAs: states.bob, profile) : try OMEMOEnd(states.establishedOMEMO[index].bob, profile)
        let genuine = try alice.seal([1, 2, 3], random: &random)
        let bytes = input(genuine.bytes)
        try attempt { _ = try OMEMOKeyExchange(of: bytes.span, profile: profile) }
        // Around what is authenticated Protocol Buffers allow other forms.
        try offer(
            End.Packet(bytes: bytes, isKeyExchange: form & 4 == 0 ? isFirst : !isFirst), to: bob, unless: genuine.bytes,
            mayOpen: true)
    }

    private mutating func readOMEMOState() throws {
        let form = programme.byte()
        let index = form % 2
        let profile = OMEMOProfile.allCases[index]
        if form & 2 != 0 {
            let bytes = input(states.bob.omemoSecret(profile))
            return try attempt {
                let key = try OMEMOSignedPreKey(serialized: bytes.span)
                try writtenAgain(bytes, "an OMEMO prekey") { key.serialize(into: &$0) }
            }
        }
        let (alice, bob) = states.establishedOMEMO[index]
        let bytes = input(alice)
        try attempt {
            let one = try OMEMOEnd(bytes, profile)
            try demand(one.state == bytes, "an OMEMO state is written again in other bytes")
            let other = try OMEMOEnd(bob, profile)
            var random = SeededGenerator(seed: 8)
            for _ in 0..<2 {
                try offer(try one.seal([1], random: &random), to: other, unless: [], mayOpen: true)
                try offer(try other.seal([2], random: &random), to: one, unless: [], mayOpen: true)
            }
        }
    }

    private mutating func readOMEMOPayload() throws {
        let form = programme.byte()
        let profile = form % 2 == 0 ? OMEMOProfile.axolotl : .omemo2
        var random = SeededGenerator(seed: 9)
        let text: [UInt8] = [1, 2, 3, 4]
        let payload = OMEMOPayload.seal(text.span, profile: profile, random: &random)
        var material: [UInt8] = []
        payload.keyMaterial.append(to: &material)
        let iv = form & 2 == 0 ? payload.iv : programme.take(form >> 3)
        let key = form & 4 == 0 ? material : programme.take(form >> 2)
        let bytes = input(payload.ciphertext)
        var output: [UInt8] = [5]
        do throws(RatchetError) {
            try OMEMOPayload.open(bytes.span, iv: iv.span, keyMaterial: key.span, profile: profile, into: &output)
        } catch {
            try demand(output == [5], "a refused payload left a trace")
            return
        }
        try demand(key != material || (bytes == payload.ciphertext && iv == payload.iv), "a forged payload was opened")
    }

    private mutating func readProtobuf() throws {
        let bytes = input([0x08, 1, 0x12, 2, 3, 4, 0x1A, 0])
        try attempt {
            try bytes.withUnsafeBytes { bytes in
                let message = try ProtobufMessage(bytes)
                for field in 1...6 as ClosedRange<UInt64> {
                    try attempt { _ = try message.optionalNumber(field) }
                    try attempt { _ = try message.bytes(field) }
                }
            }
        }
    }

    // MARK: Keys and numbers

    private mutating func readSafetyNumber() throws {
        let number = states.safetyNumber
        let bytes = input(number.scannable)
        let result = number.matches(scanned: bytes.span)
        try demand((result == .match) == (bytes == number.scannable), "a code of other bytes is a match")
    }

    private mutating func readKeys() throws {
        let form = programme.byte()
        let identity = states.bob.identity.publicKey
        switch form % 4 {
        case 0:
            let bytes = input(identity.bytes)
            try attempt {
                let key = try IdentityKey(bytes.span)
                try demand(key.bytes == bytes, "an identity is written again in other bytes")
                _ = try key.agreementKey()
            }
        case 1, 2:
            let profile = form % 4 == 1 ? OMEMOProfile.axolotl : .omemo2
            let bytes = input(states.bob.bundle(profile).identity.bytes)
            try attempt {
                let key = try OMEMOIdentityKey(bytes.span, profile: profile)
                try demand(key.bytes == bytes, "an OMEMO identity is written again in other bytes")
                _ = key.fingerprint
            }
        default:
            let message: [UInt8] = [1, 2, 3]
            let genuine = states.bob.identity.sign(message.span, context: "fuzz")
            let bytes = input(genuine)
            let holds = identity.isValidSignature(bytes.span, of: message.span, context: "fuzz")
            try demand(holds == (bytes == genuine), "another form of a signature holds")
        }
    }
}

/// Calls `body`. Refusals are what most inputs are for.
private func attempt(_ body: () throws -> Void) throws {
    do { try body() } catch is RatchetError { return }
}

private func writtenAgain(_ bytes: [UInt8], _ what: String, _ write: (inout [UInt8]) -> Void) throws {
    var output: [UInt8] = []
    write(&output)
    try demand(output == bytes, "\(what) is written again in other bytes")
}

/// What `end` makes of `bytes`, unless they are `genuine`: it may refuse them and be as it was.
private func offer(_ packet: End.Packet, to end: End, unless genuine: [UInt8], mayOpen: Bool = false) throws {
    let before = end.state
    var output: [UInt8] = [1, 2, 3]
    do {
        try end.open(packet, into: &output)
    } catch {
        try demand(end.state == before && output == [1, 2, 3], "a refused message left a trace: \(error)")
        return
    }
    try demand(mayOpen || packet.bytes == genuine, "a forged message was opened")
}
