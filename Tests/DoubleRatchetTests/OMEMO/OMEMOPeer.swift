import Foundation
import PeerKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

/// A device of an independent implementation, in a process of its own. Its commands are in `Peers/omemo_python.py`.
final class OMEMOPeer {
    enum Implementation: String, CaseIterable, Sendable {
        case python
        case libomemoC = "libomemo-c"
    }

    /// What was sent: `kex` or `prekey` of the element, and its bytes.
    struct Message: Equatable {
        let isKeyExchange: Bool
        let bytes: [UInt8]
    }

    /// What the implementation refused with.
    struct Refusal: Error {
        let name: String
    }

    let profile: OMEMOProfile
    private let peer: LinePeer

    /// `seed` is the identity of a Python peer; libomemo-c makes its own.
    init(_ implementation: Implementation, _ profile: OMEMOProfile, seed: [UInt8]) throws {
        self.profile = profile
        switch implementation {
        case .python:
            let arguments = [profile == .omemo2 ? "twomemo" : "oldmemo", Self.encode(seed)]
            peer = try PeerPrograms.start("python", [PeerPrograms.source("omemo_python.py")] + arguments)
        case .libomemoC:
            peer = try PeerPrograms.start("omemo_c", [profile == .omemo2 ? "omemo2" : "axolotl"])
        }
    }

    func bundle() throws -> OMEMOBundle {
        let words = try ask("bundle")
        let identity = try Self.decode(words[0])
        let (key, signature) = (try Self.decode(words[2]), try Self.decode(words[3]))
        var preKeys: [OneTimePreKey.Public] = []
        for index in stride(from: 4, to: words.count, by: 2) {
            let key = try Self.decode(words[index + 1])
            preKeys.append(
                try OneTimePreKey.Public(id: try #require(UInt32(words[index])), key: key.span, profile: profile))
        }
        return OMEMOBundle(
            identity: try OMEMOIdentityKey(identity.span, profile: profile),
            signedPreKey: try OMEMOSignedPreKey.Public(
                id: try #require(UInt32(words[1])), key: key.span, signature: signature.span, profile: profile),
            preKeys: preKeys)
    }

    func initiate(with bundle: OMEMOBundle, preKey index: Int, _ text: [UInt8]) throws -> Message {
        let (signed, preKey) = (bundle.signedPreKey, bundle.preKeys[index])
        return try message(
            try peer.ask(
                "initiate", Self.encode(bundle.identity.bytes), String(signed.id), Self.encode(signed.keyBytes),
                Self.encode(signed.signature), String(preKey.id), Self.encode(preKey.keyBytes(in: profile)),
                Self.encode(text)))
    }

    func encrypt(_ text: [UInt8]) throws -> Message {
        try message(try peer.ask("encrypt", Self.encode(text)))
    }

    func decrypt(_ message: Message) throws -> [UInt8] {
        try Self.decode(
            try answer(try peer.ask("decrypt", message.isKeyExchange ? "1" : "0", Self.encode(message.bytes)))[0])
    }

    func restart() throws {
        _ = try ask("restart")
    }

    func seal(_ text: [UInt8]) throws -> (ciphertext: [UInt8], iv: [UInt8], keyMaterial: [UInt8]) {
        let words = try answer(try peer.ask("seal", Self.encode(text)))
        return (try Self.decode(words[0]), try Self.decode(words[1]), try Self.decode(words[2]))
    }

    func open(_ ciphertext: [UInt8], iv: [UInt8], keyMaterial: [UInt8]) throws -> [UInt8] {
        try Self.decode(
            try answer(
                try peer.ask("open", Self.encode(ciphertext), Self.encode(iv), Self.encode(keyMaterial)))[0])
    }

    private func ask(_ command: String) throws -> [String] {
        try answer(try peer.ask(command))
    }

    private func answer(_ words: [String]) throws -> [String] {
        guard let first = words.first else { throw PeerError("\(peer.name) answered nothing") }
        guard !first.hasPrefix("error") else { throw Refusal(name: words.dropFirst().joined(separator: " ")) }
        return words
    }

    private func message(_ words: [String]) throws -> Message {
        let words = try answer(words)
        return Message(isKeyExchange: words[0] == "1", bytes: try Self.decode(words[1]))
    }

    static func encode(_ bytes: [UInt8]) -> String {
        bytes.isEmpty ? "-" : Data(bytes).base64EncodedString()
    }

    static func decode(_ word: String) throws -> [UInt8] {
        word == "-" ? [] : Array(try #require(Data(base64Encoded: word), "not base64: \(word.prefix(40))"))
    }
}

/// What `Peers/install` made.
enum PeerPrograms {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    static func source(_ name: String) -> String {
        root.appending(path: "Tests/DoubleRatchetTests/Peers/\(name)").path
    }

    /// A peer that is not there fails its test: Tests/run installs them all.
    static func start(_ name: String, _ arguments: [String] = []) throws -> LinePeer {
        let program = root.appending(path: ".build-peers/bin/\(name)").path
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw PeerError("no \(program); Tests/DoubleRatchetTests/Peers/install .build-peers makes it")
        }
        return try LinePeer(program, arguments)
    }
}
