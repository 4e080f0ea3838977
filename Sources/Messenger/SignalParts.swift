// Signals that are longer than one message of the carrier: they are sent in parts, each a signal of its own.

import Envelope

/// The division of long signals, and their collection. A part is a signal of the kind `part`; its text:
///
///     ID INDEX COUNT KIND LF piece
///
/// Numbers are decimal. The parts of one signal come one after the other, in their order; anything else drops them.
package struct SignalParts {
    package static let kind = "part"
    /// Ours: bytes of one piece. With its head it fits a text of IRC.
    package static let pieceLimit = 1400
    /// Ours: devices whose signals are collected at a time. Each has at most ``ChatContent/textLimit`` bytes. With more, the
    /// signal that has begun first is dropped: parts come right after each other, so the rest of it will hardly come.
    package static let deviceLimit = 64
    /// Ours: most signals have fewer.
    private static let countLimit = (ChatContent.textLimit + pieceLimit / 2) / (pieceLimit / 2)

    private struct Partial {
        var id: UInt32
        var kind: String
        var count: Int
        var pieces: [String] = []
        var writtenAt: Int64
        /// Which one it is of those that have begun.
        var number: UInt64
    }

    private var partials: [DeviceID: Partial] = [:]
    private var begun: UInt64 = 0

    package init() {}

    /// The signals to send in place of a signal; the signal itself if it is short.
    package static func parts(of job: SignalJob, id: UInt32) -> [SignalJob] {
        guard job.text.utf8.count > pieceLimit else { return [job] }
        var pieces: [Substring] = []
        var rest = job.text[...]
        while !rest.isEmpty {
            // Not inside a character.
            var end = rest.utf8.index(rest.startIndex, offsetBy: pieceLimit, limitedBy: rest.endIndex) ?? rest.endIndex
            while end < rest.endIndex, rest.utf8[end] & 0xC0 == 0x80 {
                end = rest.utf8.index(before: end)
            }
            pieces.append(rest[..<end])
            rest = rest[end...]
        }
        return pieces.enumerated().map { index, piece in
            var part = job
            part.kind = kind
            part.text = "\(id) \(index) \(pieces.count) \(job.kind)\n\(piece)"
            return part
        }
    }

    /// Takes a signal that has come.
    ///
    /// - Returns: the signal, if it is whole now; its time is that of its first part.
    package mutating func take(_ signal: ReceivedSignal) -> ReceivedSignal? {
        guard signal.kind == Self.kind else { return signal }
        guard let part = Self.read(signal.text) else {
            partials[signal.device] = nil
            return nil
        }
        var partial: Partial
        if part.index == 0 {
            begun += 1
            partial = Partial(
                id: part.id, kind: part.kind, count: part.count, writtenAt: signal.writtenAt, number: begun)
        } else if let known = partials[signal.device], known.id == part.id, known.kind == part.kind,
            known.count == part.count, known.pieces.count == part.index
        {
            partial = known
        } else {
            partials[signal.device] = nil
            return nil
        }
        partials[signal.device] = nil
        partial.pieces.append(part.piece)
        guard partial.pieces.reduce(0, { $0 + $1.utf8.count }) <= ChatContent.textLimit else { return nil }
        guard partial.pieces.count == partial.count else {
            partials[signal.device] = partial
            if partials.count > Self.deviceLimit, let first = partials.min(by: { $0.value.number < $1.value.number }) {
                partials[first.key] = nil
            }
            return nil
        }
        var whole = signal
        (whole.kind, whole.text, whole.writtenAt) = (partial.kind, partial.pieces.joined(), partial.writtenAt)
        return whole
    }

    /// The parts of a text; nil if it is none.
    private static func read(_ text: String) -> (id: UInt32, index: Int, count: Int, kind: String, piece: String)? {
        guard let end = text.utf8.firstIndex(of: 0x0A) else { return nil }
        let head = text[..<end].split(separator: " ", omittingEmptySubsequences: false)
        guard head.count == 4, let id = UInt32(head[0]), let index = Int(head[1]), let count = Int(head[2]),
            (2...countLimit).contains(count), (0..<count).contains(index), ChatContent.isSignalKind(head[3]),
            head[3] != kind
        else { return nil }
        return (id, index, count, String(head[3]), String(text[text.utf8.index(after: end)...]))
    }
}
