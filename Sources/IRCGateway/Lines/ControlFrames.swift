// The control plane between a capable client and its gateway, on the client's own connection. A message is split into
// frames; each frame is one line that never reaches the backend.
//
//     PAWL id index count :BASE64          from the client; the id is its own number for the request
//     :server PAWL id index count :BASE64  from the gateway, with the same id; `*` if it answers no request

import Envelope
package import IRCCodec
import NIOCore

/// Splits and reassembles the messages on one side of a connection.
package struct ControlFrames {
    package static let verb = "PAWL"
    /// Ours: maximum length of a message in bytes, and number of incomplete messages. The longest, a list of prekeys,
    /// has about 8 KB.
    package static let messageLimit = 32 * 1024
    private static let messagesAtOnce = 4
    /// Bytes in one frame. With verb, numbers and prefix the line stays within 512 bytes.
    private static let frameBytes = 270
    private static let frameLimit = 128
    /// The id of messages that answer no request, `*` in a frame.
    package static let unasked: UInt32 = 0

    private var assembler: FragmentAssembler

    package init() {
        var limits = FragmentAssembler.Limits()
        limits.envelopes = Self.messagesAtOnce
        limits.envelopesPerSource = Self.messagesAtOnce
        limits.bytes = Self.messageLimit
        assembler = FragmentAssembler(limits: limits)
    }

    /// The result of a frame.
    package enum Outcome: Equatable {
        case whole(id: UInt32, bytes: [UInt8])
        case waiting
        case malformed
    }

    /// Adds one frame.
    package mutating func take(_ line: IRCLine, now: Int64) -> Outcome {
        _ = assembler.expire(now: now)
        let id = line.text(0) == "*" ? Self.unasked : UInt32(line.text(0) ?? "") ?? Self.unasked
        guard line.text(0) == "*" || id != Self.unasked, let index = Int(line.text(1) ?? ""),
            let count = Int(line.text(2) ?? ""), (1...Self.frameLimit).contains(count), (0..<count).contains(index),
            let text = line.parameter(3), let bytes = Base64.decode(Array(line.slice(text).readableBytesView))
        else { return .malformed }
        if count == 1 { return .whole(id: id, bytes: bytes) }
        switch assembler.add(source: "", target: "", id: id, index: index, count: count, bytes: bytes, now: now) {
        case .complete(let whole): return .whole(id: id, bytes: whole)
        case .waiting, .duplicate: return .waiting
        case .contradiction, .overflow: return .malformed
        }
    }

    /// The frames of a message, without CR LF and without a source.
    package static func lines(_ bytes: [UInt8], id: UInt32) -> [String] {
        let count = max((bytes.count + frameBytes - 1) / frameBytes, 1)
        return (0..<count).map { index in
            var text: [UInt8] = []
            Base64.encode(bytes[(index * frameBytes)..<min((index + 1) * frameBytes, bytes.count)], into: &text)
            let name = id == unasked ? "*" : String(id)
            return "\(verb) \(name) \(index) \(count) :" + String(decoding: text, as: UTF8.self)
        }
    }
}
