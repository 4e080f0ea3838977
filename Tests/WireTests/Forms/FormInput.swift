/// What a programme of forms must not find.
struct FormFinding: Error, CustomStringConvertible {
    let description: String
}

func demand(_ holds: Bool, _ text: @autoclosure () -> String) throws(FormFinding) {
    guard holds else { throw FormFinding(description: text()) }
}

/// Bytes read as choices, for a fuzzer that grows them or a test that draws them. What is past the end is zero.
///
/// ```
/// | reader | [its own choices] | form | ... |
/// ```
/// With an odd form the rest is what is read; with an even one it is a list of changes, each of an operation, a place (u16)
/// and a value, to what an encoder has written. So no corpus is needed to get behind the first checks.
struct FormInput {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position >= bytes.count }

    mutating func byte() -> Int {
        guard position < bytes.count else { return 0 }
        defer { position += 1 }
        return Int(bytes[position])
    }

    mutating func number() -> Int { byte() << 8 | byte() }

    /// What is left, at most `count` bytes.
    mutating func take(_ count: Int = .max) -> [UInt8] {
        let end = min(bytes.count, position + min(count, bytes.count))
        defer { position = max(position, end) }
        return position < end ? Array(bytes[position..<end]) : []
    }

    /// A short text, of which some are no UTF-8 and have become U+FFFD.
    mutating func text() -> String { String(decoding: take(byte() % 12), as: UTF8.self) }

    /// The rest of the input, or `genuine` with its changes.
    mutating func changed(_ genuine: [UInt8]) -> [UInt8] {
        guard byte() % 2 == 0 else { return take() }
        var bytes = genuine
        // Each change may move all bytes behind it.
        var left = 64
        while !isAtEnd, left > 0 {
            left -= 1
            let (way, place, value) = (byte(), number(), UInt8(byte()))
            let at = bytes.isEmpty ? 0 : place % bytes.count
            switch way % 8 {
            case 0 where !bytes.isEmpty: bytes[at] = value
            case 1 where !bytes.isEmpty: bytes[at] ^= value
            case 2 where !bytes.isEmpty: bytes.remove(at: at)
            case 3: bytes.insert(value, at: at)
            case 4: bytes.removeLast(bytes.count - at)
            // A piece once more, or at another place.
            case 5 where !bytes.isEmpty: bytes.insert(contentsOf: bytes[at..<min(at + Int(value), bytes.count)], at: at)
            case 6 where !bytes.isEmpty: bytes.removeSubrange(at..<min(at + Int(value), bytes.count))
            default: bytes.append(value)
            }
        }
        return bytes
    }

    mutating func changed(_ genuine: String) -> String { String(decoding: changed(Array(genuine.utf8)), as: UTF8.self) }

    /// Calls `take` with pieces of a stream, in lengths of the input or of one byte.
    static func divide(_ bytes: [UInt8], _ size: Int, _ take: (ArraySlice<UInt8>) throws -> Bool) rethrows {
        for start in stride(from: 0, to: bytes.count, by: max(size, 1)) {
            guard try take(bytes[start..<min(start + max(size, 1), bytes.count)]) else { return }
        }
    }
}

/// Readers of one subject.
enum FormProgramme: String, CaseIterable {
    case transports, peers, devices, messenger, gateway

    typealias Reader = @Sendable (inout FormInput) throws -> Void

    var readers: [Reader] {
        switch self {
        case .transports: TransportForms.readers
        case .peers: PeerForms.readers
        case .devices: DeviceForms.readers
        case .messenger: MessengerForms.readers
        case .gateway: GatewayForms.readers
        }
    }

    /// - Throws: ``FormFinding``, or what should not have been thrown.
    func run(_ bytes: [UInt8]) throws {
        var input = FormInput(bytes)
        let readers = readers
        try readers[input.byte() % readers.count](&input)
    }
}
