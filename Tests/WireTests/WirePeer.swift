import Envelope
import Foundation
import PeerConnection
import PeerKit
import Testing

/// The program of `Peers/wire_peer.py` in a process of its own: it knows Sources/WIRE.md and none of our code.
final class WirePeer {
    /// What the program refuses.
    struct Refusal: Error {
        let reason: String
    }

    private let peer: LinePeer

    init() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let program = root.appending(path: ".build-peers/bin/python").path
        guard FileManager.default.isExecutableFile(atPath: program) else {
            throw PeerError("no \(program); Tests/DoubleRatchetTests/Peers/install .build-peers makes it")
        }
        // Without files of compiled code in the sources.
        peer = try LinePeer(program, ["-B", root.appending(path: "Tests/WireTests/Peers/wire_peer.py").path])
    }

    /// The words of the answer.
    @discardableResult
    func ask(_ command: String, _ words: any WireWord...) throws -> [String] {
        try ask(command, words)
    }

    @discardableResult
    func ask(_ command: String, _ words: [any WireWord]) throws -> [String] {
        let answer = try peer.ask(([command] + words.map(\.word)).joined(separator: " "))
        switch answer.first {
        case "ok": return Array(answer.dropFirst())
        case "error": throw Refusal(reason: answer.dropFirst().joined(separator: " "))
        default: throw PeerError("the peer answers \(answer)")
        }
    }

    /// The bytes of the first word of the answer.
    func bytes(_ command: String, _ words: any WireWord...) throws -> [UInt8] {
        try Self.bytes(try #require(try ask(command, words).first))
    }

    func refuses(_ command: String, _ words: any WireWord...) throws -> Bool {
        do {
            try ask(command, words)
            return false
        } catch is Refusal {
            return true
        }
    }

    static func bytes(_ word: String) throws -> [UInt8] {
        word == "-" ? [] : try #require(Hexadecimal.bytes(word))
    }

    static func text(_ word: String) throws -> String { String(decoding: try bytes(word), as: UTF8.self) }
}

/// What is a word of a line.
protocol WireWord {
    var word: String { get }
}

extension Array: WireWord where Element == UInt8 {
    var word: String { isEmpty ? "-" : Hexadecimal.text(self) }
}

extension String: WireWord {
    var word: String { self }
}

extension Int: WireWord {
    var word: String { String(self) }
}

extension UInt64: WireWord {
    var word: String { String(self) }
}

extension DeviceID: WireWord {
    var word: String { String(value) }
}

extension MessageID: WireWord {
    var word: String { String(value) }
}

/// The parts of the associated data that an envelope does not have.
struct Place: WireWord, Sendable, CustomTestStringConvertible {
    var protection: Protection
    var protocolName: String
    var network = ""
    var sender = ""
    var recipient = ""
    var recipientDevice: DeviceID

    var testDescription: String {
        "\(protection.name), \(protocolName), to \(recipient.isEmpty ? "a device" : recipient)"
    }

    var word: String {
        let texts = [protocolName, network, sender, recipient].map { Hexadecimal.text(Array($0.utf8)) }
        return ([String(protection.rawValue)] + texts + [recipientDevice.word]).joined(separator: ",")
    }

    func associated(_ sender: DeviceID, _ message: MessageID, to device: DeviceID? = nil) -> [UInt8] {
        AssociatedData(
            protocolName: protocolName, network: network, sender: self.sender, senderDevice: sender,
            recipient: recipient, recipientDevice: device ?? recipientDevice, messageID: message,
            protection: protection
        ).bytes
    }
}

extension [UInt8] {
    /// These bytes, each time with one other byte, one byte less or one more. Of a long form some bytes are altered.
    var altered: [[UInt8]] {
        let step = Swift.max(1, count / 60)
        let places = Array<Int>(stride(from: 0, to: count, by: step)) + [count - 1]
        return places.map { place in
            var other = self
            other[place] ^= 1 << UInt8(place % 8)
            return other
        } + [dropLast(), self + [0]]
    }
}
