// Envelopes as lines of text after a marker: one line if the envelope fits, else numbered fragments. Every line ends
// with a full stop, so that a line that a server has cut off is detected.
//
//     ?PAWL:BASE64.                       a whole envelope
//     ?PAWL:IIIIIIII,N,T:BASE64.          fragment N (from 0) of T, of the envelope I (8 hexadecimal digits)
//     ?PAWL? words ...                    a notice in words for people who see envelopes and cannot open them

/// The text form of envelopes.
package enum Armour {
    /// The prefix of every armour line.
    package static let marker = Array("?PAWL".utf8)
    /// Ours: more lines than this would be a flood on any server.
    package static let maximumFragments = 16
    /// `?PAWL:` and the full stop.
    package static let wholeOverhead = 7
    /// `?PAWL:IIIIIIII,NN,TT:` and the full stop.
    private static let fragmentOverhead = 22

    /// One parsed line.
    package enum Line: Equatable, Sendable {
        case whole([UInt8])
        case fragment(id: UInt32, index: Int, count: Int, bytes: [UInt8])
        /// Words for people without keys.
        case notice
        /// A line with the marker that is not valid armour: cut off, altered, or from an unknown version.
        case damaged
    }

    /// Whether a text begins with the marker.
    package static func hasMarker(_ text: some Collection<UInt8>) -> Bool {
        text.starts(with: marker)
    }

    /// Parses a text; nil if it does not begin with the marker.
    package static func parse(_ text: ArraySlice<UInt8>) -> Line? {
        guard hasMarker(text) else { return nil }
        let rest = text.dropFirst(marker.count)
        switch rest.first {
        case UInt8(ascii: "?"): return .notice
        case UInt8(ascii: ":"): break
        default: return .damaged
        }
        guard rest.last == UInt8(ascii: "."), rest.count > 2 else { return .damaged }
        let content = rest.dropFirst().dropLast()
        guard let colon = content.firstIndex(of: UInt8(ascii: ":")) else {
            guard let bytes = Base64.decode(content) else { return .damaged }
            return .whole(bytes)
        }
        let header = content[..<colon].split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
        guard header.count == 3, header[0].count == 8, header[0].allSatisfy(isHexDigit),
            let id = UInt32(String(decoding: header[0], as: UTF8.self), radix: 16),
            let index = number(header[1]), let count = number(header[2]),
            (2...maximumFragments).contains(count), index < count,
            let bytes = Base64.decode(content[(colon + 1)...]), !bytes.isEmpty
        else { return .damaged }
        return .fragment(id: id, index: index, count: count, bytes: bytes)
    }

    /// `UInt32(_:radix:)` alone also accepts a sign.
    private static func isHexDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x46, 0x61...0x66: true
        default: false
        }
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> Int? {
        guard (1...2).contains(digits.count), digits.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        guard digits.count == 1 || digits.first != 0x30 else { return nil }
        return digits.reduce(0) { $0 * 10 + Int($1) - 0x30 }
    }

    /// The longest envelope that fits into a number of lines of `capacity` characters each, in bytes.
    package static func capacity(lines: Int, of capacity: Int) -> Int {
        if lines == 1 { return Base64.decodedCapacity(capacity - wholeOverhead) }
        return lines * fragmentBytes(capacity)
    }

    private static func fragmentBytes(_ capacity: Int) -> Int { max(capacity - fragmentOverhead, 0) / 4 * 3 }

    /// The number of lines that an envelope needs; nil if it needs more than `limit`.
    ///
    /// - Parameter limit: at most ``maximumFragments``.
    package static func lines(for length: Int, capacity: Int, limit: Int = maximumFragments) -> Int? {
        if length <= self.capacity(lines: 1, of: capacity) { return 1 }
        let each = fragmentBytes(capacity)
        guard each > 0 else { return nil }
        let count = max((length + each - 1) / each, 2)
        return count <= min(limit, maximumFragments) ? count : nil
    }

    /// An envelope as one line, however long.
    package static func whole(_ envelope: [UInt8]) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(wholeOverhead + Base64.encodedLength(envelope.count))
        line += marker
        line.append(UInt8(ascii: ":"))
        Base64.encode(envelope[...], into: &line)
        line.append(UInt8(ascii: "."))
        return line
    }

    /// Splits an envelope into lines; nil if it needs more than ``maximumFragments``.
    package static func split(_ envelope: [UInt8], id: UInt32, capacity: Int) -> [[UInt8]]? {
        guard let count = lines(for: envelope.count, capacity: capacity) else { return nil }
        if count == 1 { return [whole(envelope)] }
        let each = fragmentBytes(capacity)
        let hex = String(id, radix: 16)
        let name = String(repeating: "0", count: 8 - hex.count) + hex
        return (0..<count).map { index in
            var line = marker + Array(":\(name),\(index),\(count):".utf8)
            Base64.encode(
                envelope[min(index * each, envelope.count)..<min((index + 1) * each, envelope.count)], into: &line)
            line.append(UInt8(ascii: "."))
            return line
        }
    }

    /// Joins the lines of ``split(_:id:capacity:)``; nil if they are not all lines of one envelope, in order.
    package static func joined(_ lines: [[UInt8]]) -> [UInt8]? {
        var envelope: [UInt8] = []
        for (place, line) in lines.enumerated() {
            switch parse(line[...]) {
            case .whole(let bytes) where lines.count == 1: return bytes
            case .fragment(_, place, lines.count, let bytes): envelope += bytes
            default: return nil
            }
        }
        return envelope.isEmpty ? nil : envelope
    }
}
